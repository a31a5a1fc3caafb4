"""Digests a replica's files and counts the rows of source and target in a Spark job, for verification.

The job reads a plan with one line per table and side: the table as its metastore has it, its valid write ids,
and the files of each directory. It reads rows with the readers of :mod:`airflow_hive_federation.tables`.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.errors import AcidFormatError, ConfigurationError, FileVanishedError
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.replication.format.job_records import SidePlan, SideRows
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.spark.digest_files import digest_plan
from airflow_hive_federation.spark.failures import is_missing_login
from airflow_hive_federation.storage.filesystem import join, open_filesystem, storage_errors
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.publishing import write_atomically

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

#: Tables that are counted at the same time; for small tables, scheduling takes longer than reading.
_COUNTED_AT_ONCE = 4
#: Spark's error classes for a damaged or missing file, and for rows that this package's reader refuses.
_UNREADABLE = re.compile(r"\[(FAILED_READ_FILE|USER_RAISED_EXCEPTION).*")
_GONE = "[FAILED_READ_FILE.FILE_NOT_EXIST]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job's arguments."""
    parser.add_argument(
        "--plan", required=True, help="URI of the directory with tables.jsonl and files.jsonl"
    )
    parser.add_argument("--results", required=True, help="URI of the directory for rows.jsonl and digests/")


def run(spark: Any, args: argparse.Namespace, options: StorageOptions | None = None) -> dict[str, Any]:
    """Run the job with parsed arguments; return the numbers of files, bytes and tables, and the URI."""
    from pyspark.sql import SparkSession

    # The session uses the running context, if one exists.
    session = SparkSession.builder.getOrCreate()
    digests = digest_plan(
        spark, join(args.plan, "files.jsonl"), join(args.results, "digests"), options=options
    )
    filesystem, path = open_filesystem(join(args.plan, "tables.jsonl"), options)
    with storage_errors(args.plan), filesystem.open(path, "rb") as lines:
        plans = [SidePlan.from_json(json.loads(line)) for line in lines]
    with ThreadPoolExecutor(max_workers=_COUNTED_AT_ONCE, thread_name_prefix="count") as workers:
        counts = list(workers.map(lambda plan: _count(session, plan, options), plans))
    text = "".join(json.dumps(count.to_json(), sort_keys=True) + "\n" for count in counts)
    write_atomically(join(args.results, "rows.jsonl"), [text.encode()], options, private=True)
    return {
        "files": digests.files,
        "size_bytes": digests.size_bytes,
        "tables": len(plans),
        "results": args.results,
    }


def _count(spark: SparkSession, plan: SidePlan, options: StorageOptions | None) -> SideRows:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    uncounted = SideRows(table=plan.table.tableName or "", side=plan.side)
    try:
        rows = _rows(spark, plan, options)
        if plan.row_digests:
            count, digest = _digested(rows)
            return replace(uncounted, rows=count, row_digest=digest)
        return replace(uncounted, rows=rows.count())
    except ConfigurationError as error:
        # This package cannot read the format (Avro, a custom SerDe): only digests of the files are compared.
        logger.warning("%s is compared by digests alone: %s", uncounted.table, error)
        reason = f"rows are not compared, digests of files are: {error.message}"
        return replace(uncounted, not_counted=reason)
    except (AcidFormatError, FileVanishedError) as error:
        vanished = isinstance(error, FileVanishedError)
        return replace(uncounted, unreadable=error.message, vanished=vanished)
    except (PySparkException, Py4JJavaError) as error:
        match = _UNREADABLE.search(str(error))
        if match is None or is_missing_login(str(error)):
            raise
        return replace(uncounted, unreadable=match[0].strip(), vanished=match[0].startswith(_GONE))


def _digested(rows: Any) -> tuple[int, str]:
    """Return the number of rows, and a digest that does not depend on their order."""
    from pyspark.sql import functions

    # The digest is of JSON, since Spark cannot hash maps.
    digest = functions.xxhash64(functions.to_json(functions.struct("*"))).cast("decimal(38,0)")
    count, total = rows.agg(functions.count(functions.lit(1)), functions.sum(digest)).first()
    return count, str(total)


def _rows(spark: SparkSession, plan: SidePlan, options: StorageOptions | None) -> Any:
    from airflow_hive_federation.acid.names import parse_directory
    from airflow_hive_federation.acid.snapshot import AcidState, acid_state
    from airflow_hive_federation.model.types import Column
    from airflow_hive_federation.tables.read.formats.plain import plain_table
    from airflow_hive_federation.tables.read.partition_scans import PartitionState
    from airflow_hive_federation.tables.read.reader import visible_rows

    table = plan.table
    columns = [Column.of(column.name, column.type) for column in table.sd.cols]
    write_ids = plan.write_ids

    def state(entries: tuple[FileEntry, ...]) -> AcidState:
        if write_ids is not None:
            # The plan has chosen the files already, so a base whose write id is aborted is from a compactor.
            bases = {entry.path.partition("/")[0] for entry in entries if entry.path.startswith("base_")}
            compacted = [base for base in bases if write_ids.is_aborted(parse_directory(base).max_write_id)]
            return acid_state(entries, write_ids, compacted_bases=compacted)
        return AcidState(base=None, originals=entries, deltas=(), delete_deltas=())

    directories = [
        PartitionState(
            location=directory.location,
            state=state(directory.files),
            storage=None if directory.storage is None else plan.storages[directory.storage],
        )
        for directory in plan.directories
    ]
    if plan.kind is TableKind.FULL_ACID and write_ids is not None:
        only = [column.name for column in columns] if plan.row_digests else None
        return visible_rows(
            spark, directories, columns, write_ids=write_ids, only=only, storage_options=options
        )
    return plain_table(spark, table, directories, columns, [], storage_options=options)
