"""Makes Spark sessions that refuse direct access to transactional tables, and writes to remote tables.

Without the check, Spark reads a full ACID table as empty or with deleted and aborted rows, and Spark's writes
to it make Hive's next SELECT fail. :func:`guarded` returns a session whose *analyzer* has one more check. The
check therefore covers ``spark.sql``, ``spark.table``, ``spark.read`` and ``DataFrame.write`` alike; only our
reader and writer pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

from pyspark.sql import SparkSession

from airflow_hive_federation.acid.names import is_acid_directory
from airflow_hive_federation.model.remote_links import REMOTE_NAME, WRITE_THERE
from airflow_hive_federation.tables import spark_internals
from airflow_hive_federation.tables.read import scan
from airflow_hive_federation.tables.spark_internals import Access, CatalogTable, Directory

_READ = (
    "Read it by airflow_hive_federation.tables.read.reader.read_table, or by tables.read.sessions.register "
    "for SQL."
)
_WRITE = "Write to it by airflow_hive_federation.tables.write.statements."
_DEPTH = 6
#: Spark applications whose new sessions have the check.
_GUARDED: WeakSet[Any] = WeakSet()


def guarded(spark: SparkSession) -> SparkSession:
    """Return a new session of the same Spark application that refuses transactional tables.

    The session has the application's catalogs, but its own settings and temporary views, like a session of
    ``newSession``. It refuses tables of the catalog with the property ``transactional``, and directories that
    hold bases or deltas. It raises pyspark's ``IllegalArgumentException`` before anything is read or written.

    :raises ConfigurationError: if the session is one of Spark Connect, which has no JVM of its own, or its
        version of Spark is not supported.
    """
    spark_internals.check_session(spark)
    application = spark.sparkContext
    if application not in _GUARDED:
        spark_internals.check_plans(spark, _objections, trusted_option=scan.OURS)
        _GUARDED.add(application)
    return spark.newSession()


def _objections(access: Access) -> Iterator[str]:
    target, remedy = access.target, _WRITE if access.writes else _READ
    if isinstance(target, Directory):
        if _is_acid(target):
            yield f"{target.path} is a directory of a transactional Hive table. Remedy: {remedy}"
        return
    if access.writes and target.property(REMOTE_NAME) is not None:
        yield f"{target.name} stands for a remote table. Remedy: {WRITE_THERE}"
    if _is_transactional(target):
        yield f"{target.name} is a transactional Hive table. Remedy: {remedy}"


def _is_transactional(table: CatalogTable) -> bool:
    return (table.property("transactional") or "").lower() == "true"


def _is_acid(directory: Directory) -> bool:
    """Return whether a directory belongs to the ACID layout, or holds directories that do."""
    if any(is_acid_directory(part) for part in directory.path.split("/")):
        return True
    for _ in range(_DEPTH):
        inside = directory.directories()
        if any(is_acid_directory(child.name) for child in inside):
            return True
        # Partitions are alike, so the first one is enough.
        partition = next((child for child in inside if "=" in child.name), None)
        if partition is None:
            return False
        directory = partition
    return False
