"""Digests a replica's files and counts the rows of source and target, for verification.

The job reads a plan with one line per table and side: the table as its metastore has it, its valid write ids,
and the files of each directory. It reads rows with the readers of :mod:`airflow_hive_federation.tables`. A
small plan needs no Spark: :func:`verify_small_plan`.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.acid.names import parse_directory
from airflow_hive_federation.acid.snapshot import AcidState, acid_state
from airflow_hive_federation.errors import AcidFormatError, ConfigurationError, FileVanishedError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.types import Column
from airflow_hive_federation.progress.observers import LOGGED, Observer
from airflow_hive_federation.replication.format.job_records import PlannedDirectory, SidePlan, SideRows
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.spark.digest_files import digest_plan
from airflow_hive_federation.spark.failures import is_missing_login
from airflow_hive_federation.spark.workers import SMALL_BYTES, SMALL_FILES, SparkWorkers, ThisProcess
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
        SparkWorkers(spark), join(args.plan, "files.jsonl"), join(args.results, "digests"), options=options
    )
    plans = _read_plans(args.plan, options)
    with ThreadPoolExecutor(max_workers=_COUNTED_AT_ONCE, thread_name_prefix="count") as workers:
        counts = list(workers.map(lambda plan: _count(session, plan, options), plans))
    _write_counts(args.results, counts, options)
    return {
        "files": digests.files,
        "size_bytes": digests.size_bytes,
        "tables": len(plans),
        "results": args.results,
    }


def verify_small_plan(
    plan_uri: str,
    results_uri: str,
    options: StorageOptions | None = None,
    *,
    observer: Observer = LOGGED,
    check: Callable[[], None] = lambda: None,
) -> bool:
    """Carry out a small plan in this process; return whether that was possible.

    Spark carries out the others: those with digests of rows, with files that :mod:`.row_counts` leaves to
    Spark, and with files that are gone or not whole.

    :param plan_uri: URI of the directory with tables.jsonl and files.jsonl.
    :param results_uri: URI of the directory for rows.jsonl and digests/.
    :param options: storage options.
    :param observer: receives the progress.
    :param check: raises an error if the work must end; called before each table and each group of files.
    """
    plans = _read_plans(plan_uri, options)
    entries = [entry for plan in plans for directory in plan.directories for entry in directory.files]
    if len(entries) > SMALL_FILES or sum(entry.size_bytes for entry in entries) > SMALL_BYTES:
        return False
    counts = []
    for plan in plans:
        check()
        if (count := _count_here(plan, options)) is None:
            return False
        counts.append(count)
    digest_plan(
        ThisProcess(check),
        join(plan_uri, "files.jsonl"),
        join(results_uri, "digests"),
        options=options,
        observer=observer,
    )
    _write_counts(results_uri, counts, options)
    return True


def _count_here(plan: SidePlan, options: StorageOptions | None) -> SideRows | None:
    uncounted = SideRows(table=plan.table.tableName or "", side=plan.side)
    try:
        rows = _rows_here(plan, options)
    except ConfigurationError as error:
        return _not_counted(uncounted, error)
    except (AcidFormatError, FileVanishedError) as error:
        logger.info("Spark decides about %s: %s", uncounted.table, error)
        return None
    return None if rows is None else replace(uncounted, rows=rows)


def _rows_here(plan: SidePlan, options: StorageOptions | None) -> int | None:
    from airflow_hive_federation.tables.read.formats.forms import file_form
    from airflow_hive_federation.tables.read.row_counts import acid_row_count, plain_row_count

    if plan.row_digests:
        return None
    states = [(directory, _state(plan, directory)) for directory in plan.directories]
    if plan.kind is TableKind.FULL_ACID and plan.write_ids is not None:
        places = [(directory.location, state) for directory, state in states]
        return acid_row_count(places, plan.write_ids, options)
    columns, files = _columns(plan), []
    for directory, state in states:
        form = file_form(plan.table, directory.location, _storage(plan, directory), columns)
        files.append((directory.location, form.file_format, state.files()))
    return plain_row_count(files, options)


def _read_plans(uri: str, options: StorageOptions | None) -> list[SidePlan]:
    filesystem, path = open_filesystem(join(uri, "tables.jsonl"), options)
    with storage_errors(uri), filesystem.open(path, "rb") as lines:
        return [SidePlan.from_json(json.loads(line)) for line in lines]


def _write_counts(uri: str, counts: Iterable[SideRows], options: StorageOptions | None) -> None:
    text = "".join(json.dumps(count.to_json(), sort_keys=True) + "\n" for count in counts)
    write_atomically(join(uri, "rows.jsonl"), [text.encode()], options, private=True)


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
        return _not_counted(uncounted, error)
    except (AcidFormatError, FileVanishedError) as error:
        vanished = isinstance(error, FileVanishedError)
        return replace(uncounted, unreadable=error.message, vanished=vanished)
    except (PySparkException, Py4JJavaError) as error:
        match = _UNREADABLE.search(str(error))
        if match is None or is_missing_login(str(error)):
            raise
        return replace(uncounted, unreadable=match[0].strip(), vanished=match[0].startswith(_GONE))


def _not_counted(uncounted: SideRows, error: ConfigurationError) -> SideRows:
    # This package cannot read the format (Avro, a custom SerDe): only digests of the files are compared.
    logger.warning("%s is compared by digests alone: %s", uncounted.table, error)
    reason = f"rows are not compared, digests of files are: {error.message}"
    return replace(uncounted, not_counted=reason)


def _digested(rows: Any) -> tuple[int, str]:
    """Return the number of rows, and a digest that does not depend on their order."""
    from pyspark.sql import functions

    # The digest is of JSON, since Spark cannot hash maps.
    digest = functions.xxhash64(functions.to_json(functions.struct("*"))).cast("decimal(38,0)")
    count, total = rows.agg(functions.count(functions.lit(1)), functions.sum(digest)).first()
    return count, str(total)


def _rows(spark: SparkSession, plan: SidePlan, options: StorageOptions | None) -> Any:
    from airflow_hive_federation.tables.read.formats.plain import plain_table
    from airflow_hive_federation.tables.read.partition_scans import PartitionState
    from airflow_hive_federation.tables.read.reader import visible_rows

    table, columns, write_ids = plan.table, _columns(plan), plan.write_ids

    directories = [
        PartitionState(
            location=directory.location, state=_state(plan, directory), storage=_storage(plan, directory)
        )
        for directory in plan.directories
    ]
    if plan.kind is TableKind.FULL_ACID and write_ids is not None:
        only = [column.name for column in columns] if plan.row_digests else None
        return visible_rows(
            spark, directories, columns, write_ids=write_ids, only=only, storage_options=options
        )
    return plain_table(spark, table, directories, columns, [], storage_options=options)


def _state(plan: SidePlan, directory: PlannedDirectory) -> AcidState:
    entries, write_ids = directory.files, plan.write_ids
    if write_ids is None:
        return AcidState(base=None, originals=entries, deltas=(), delete_deltas=())
    # The plan has chosen the files already, so a base whose write id is aborted is from a compactor.
    bases = {entry.path.partition("/")[0] for entry in entries if entry.path.startswith("base_")}
    compacted = [base for base in bases if write_ids.is_aborted(parse_directory(base).max_write_id)]
    return acid_state(entries, write_ids, compacted_bases=compacted)


def _storage(plan: SidePlan, directory: PlannedDirectory) -> types.StorageDescriptor | None:
    return None if directory.storage is None else plan.storages[directory.storage]


def _columns(plan: SidePlan) -> list[Column]:
    return [Column.of(column.name, column.type) for column in plan.table.sd.cols]
