"""Makes Spark sessions that refuse direct access to transactional tables, and writes to remote tables.

Without the check, Spark reads a full ACID table as empty or with deleted and aborted rows, and Spark's writes
to it make Hive's next SELECT fail. :func:`guarded` returns a session whose *analyzer* has one more check. The
check therefore covers ``spark.sql``, ``spark.table``, ``spark.read`` and ``DataFrame.write`` alike; only our
reader and writer pass. The check is a Python object that the JVM calls back for every plan, which costs some
milliseconds per statement.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

from py4j.protocol import Py4JJavaError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from airflow_hive_federation.acid.names import is_acid_directory
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model.remote_links import REMOTE_NAME, WRITE_THERE
from airflow_hive_federation.tables.read import scan

_READ = (
    "Read it by airflow_hive_federation.tables.read.reader.read_table, or by tables.read.sessions.register "
    "for SQL."
)
_WRITE = "Write to it by airflow_hive_federation.tables.write.statements."
#: Commands that name their table, and the method that returns the name.
_BY_IDENTIFIER = {
    "LoadDataCommand": "table",
    "TruncateTableCommand": "tableName",
    "AlterTableAddPartitionCommand": "tableName",
    "AlterTableDropPartitionCommand": "tableName",
    "AnalyzeTableCommand": "tableIdent",
    "AnalyzeColumnCommand": "tableIdent",
}
#: Commands whose query is not among the children of the plan.
_WITH_QUERY = {
    "CreateDataSourceTableAsSelectCommand",
    "CreateHiveTableAsSelectCommand",
    "SaveIntoDataSourceCommand",
    "InsertIntoDataSourceCommand",
}
_DEPTH = 6
#: Spark applications whose new sessions have the check.
_GUARDED: WeakSet[Any] = WeakSet()


def guarded(spark: SparkSession) -> SparkSession:
    """Return a new session of the same Spark application that refuses transactional tables.

    The session has the application's catalogs, but its own settings and temporary views, like a session of
    ``newSession``. It refuses tables of the catalog with the property ``transactional``, and directories that
    hold bases or deltas. It raises pyspark's ``IllegalArgumentException`` before anything is read or written.

    :raises ConfigurationError: if the session is one of Spark Connect, which has no JVM of its own.
    """
    context: Any = getattr(spark, "_sc", None)
    if context is None:
        raise ConfigurationError(
            "A session of Spark Connect cannot be guarded.", remedy="Guard a session of the driver itself."
        )
    gateway = context._gateway  # noqa: SLF001
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    # Exceptions that the check raises shall arrive unchanged.
    gateway.callback_server_parameters.propagate_java_exceptions = True
    session = spark._jsparkSession  # noqa: SLF001
    # A session builds its rules when it first analyses a plan. The caller's session does so here, before the
    # check is added, and stays without it.
    session.sessionState().analyzer()
    if context not in _GUARDED:
        session.extensions().injectCheckRule(_CheckBuilder(spark))
        _GUARDED.add(context)
    return spark.newSession()


class _CheckBuilder:
    """Scala function ``SparkSession => LogicalPlan => Unit``."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def apply(self, session: Any) -> Any:
        return _Check(self._spark, session)

    class Java:
        implements = ["scala.Function1"]  # noqa: RUF012 - py4j requires this form


class _Check:
    """Scala function ``LogicalPlan => Unit``, for one session."""

    def __init__(self, spark: SparkSession, session: Any) -> None:
        self._jvm: Any = spark._jvm  # noqa: SLF001
        self._session = session

    def apply(self, plan: Any) -> None:
        for sentence in self._offences(plan):
            raise Py4JJavaError(sentence, self._jvm.java.lang.IllegalArgumentException(sentence))

    class Java:
        implements = ["scala.Function1"]  # noqa: RUF012

    def _offences(self, plan: Any) -> Iterator[str]:
        kind = _kind(plan)
        if kind in _BY_IDENTIFIER:
            identifier = getattr(plan, _BY_IDENTIFIER[kind])()
            yield from self._named(identifier)
        elif kind == "InsertIntoHiveTable":
            yield from _table(plan.table(), _WRITE)
        elif kind == "InsertIntoHadoopFsRelationCommand":
            yield from _optional(plan.catalogTable(), _WRITE)
            yield from self._directory(plan.outputPath(), _WRITE)
        elif kind == "SaveIntoDataSourceCommand" and plan.options().contains("path"):
            yield from self._directory(self._path(plan.options().apply("path")), _WRITE)
        elif kind == "InsertIntoHiveDirCommand" and plan.storage().locationUri().isDefined():
            text = plan.storage().locationUri().get().toString()
            is_bare = plan.isLocal() and text.startswith("/")
            yield from self._directory(self._path(f"file:{text}" if is_bare else text), _WRITE)
        if kind in _WITH_QUERY:
            yield from self._offences(plan.query())
        leaves = plan.collectLeaves()
        for index in range(leaves.size()):
            yield from self._leaf(leaves.apply(index))

    def _leaf(self, leaf: Any) -> Iterator[str]:
        kind = _kind(leaf)
        if kind == "HiveTableRelation":
            yield from _table(leaf.tableMeta(), _READ)
        elif kind == "LogicalRelation":
            yield from _optional(leaf.catalogTable(), _READ)
            relation = leaf.relation()
            if _kind(relation) == "HadoopFsRelation" and not relation.options().contains(scan.OURS):
                roots = relation.location().rootPaths()
                for index in range(roots.size()):
                    yield from self._directory(roots.apply(index), _READ)

    def _named(self, identifier: Any) -> Iterator[str]:
        catalog = self._session.sessionState().catalog()
        if not catalog.isTempView(identifier) and catalog.tableExists(identifier):
            yield from _table(catalog.getTableMetadata(identifier), _WRITE)

    def _path(self, text: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(text)

    def _directory(self, path: Any, remedy: str) -> Iterator[str]:
        if any(is_acid_directory(part) for part in str(path.toString()).split("/")) or self._holds_acid(path):
            yield f"{path.toString()} is a directory of a transactional Hive table. Remedy: {remedy}"

    def _holds_acid(self, path: Any) -> bool:
        try:
            system = path.getFileSystem(self._session.sessionState().newHadoopConf())
            for _ in range(_DEPTH):
                names = [status.getPath() for status in system.listStatus(path) if status.isDirectory()]
                if any(is_acid_directory(child.getName()) for child in names):
                    return True
                # Partitions are alike, so the first one is enough.
                path = next((child for child in names if "=" in child.getName()), None)
                if path is None:
                    return False
        except Py4JJavaError:
            # The path is missing, forbidden or in no known store: Spark reports that itself.
            return False
        return False


def _optional(table: Any, remedy: str) -> Iterator[str]:
    if table.isDefined():
        yield from _table(table.get(), remedy)


def _table(table: Any, remedy: str) -> Iterator[str]:
    properties = table.properties()
    if remedy == _WRITE and properties.contains(REMOTE_NAME):
        yield f"{table.identifier().unquotedString()} stands for a remote table. Remedy: {WRITE_THERE}"
    if properties.contains("transactional") and properties.apply("transactional").lower() == "true":
        yield f"{table.identifier().unquotedString()} is a transactional Hive table. Remedy: {remedy}"


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())
