"""The verification job: digests of the target's files, and the rows both sides show.

It reads a plan with one line for each table and side: the table as its metastore has it, its valid write ids,
and the files of each directory. Rows are read as every reader of :mod:`airflow_hive_federation.tables` reads
them.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.errors import AcidFormatError, ConfigurationError, FileVanishedError
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.spark.digest_files import digest_plan
from airflow_hive_federation.storage.filesystem import join, open_filesystem, storage_errors
from airflow_hive_federation.storage.publishing import write_atomically

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

#: Tables counted side by side: small ones cost scheduling, not reading.
_COUNTED_AT_ONCE = 4
#: Spark's error classes for a file that is damaged or gone, and for rows that our reader refuses.
_UNREADABLE = re.compile(r"\[(FAILED_READ_FILE|USER_RAISED_EXCEPTION).*")
_GONE = "[FAILED_READ_FILE.FILE_NOT_EXIST]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The job's arguments."""
    parser.add_argument(
        "--plan", required=True, help="URI of the directory with tables.jsonl and files.jsonl"
    )
    parser.add_argument("--results", required=True, help="URI of the directory for rows.jsonl and digests/")


def run(spark: Any, args: argparse.Namespace, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Run the job with parsed arguments; return how much was read as JSON values."""
    from pyspark.sql import SparkSession

    # On the context that runs already, if there is one.
    session = SparkSession.builder.getOrCreate()
    digests = digest_plan(
        spark, join(args.plan, "files.jsonl"), join(args.results, "digests"), options=options
    )
    filesystem, path = open_filesystem(join(args.plan, "tables.jsonl"), options)
    with storage_errors(args.plan), filesystem.open(path, "rb") as lines:
        tables = [json.loads(line) for line in lines]
    with ThreadPoolExecutor(max_workers=_COUNTED_AT_ONCE, thread_name_prefix="count") as workers:
        counts = list(workers.map(lambda table: _count(session, table, options), tables))
    text = "".join(json.dumps(count, sort_keys=True) + "\n" for count in counts)
    write_atomically(join(args.results, "rows.jsonl"), [text.encode()], options, private=True)
    return {"files": digests.files, "size_bytes": digests.size_bytes, "tables": len(tables)}


def _count(spark: SparkSession, plan: Mapping[str, Any], options: Mapping[str, Any] | None) -> dict[str, Any]:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    found: dict[str, Any] = {"table": plan["table"]["tableName"], "side": plan["side"], "rows": None}
    try:
        rows = _rows(spark, plan, options)
        if plan.get("row_digests"):
            found["rows"], found["row_digest"] = _digested(rows)
        else:
            found["rows"] = rows.count()
    except ConfigurationError as error:
        # A format this package does not read (Avro, a SerDe of somebody's): its files' digests must do.
        logger.warning("%s is compared by digests alone: %s", found["table"], error)
        found["not_counted"] = f"rows are not compared, digests of files are: {error.message}"
    except (AcidFormatError, FileVanishedError) as error:
        found |= {"unreadable": error.message, "vanished": isinstance(error, FileVanishedError)}
    except (PySparkException, Py4JJavaError) as error:
        told = _UNREADABLE.search(str(error))
        if told is None:
            raise
        found |= {"unreadable": told[0].strip(), "vanished": told[0].startswith(_GONE)}
    return found


def _digested(rows: Any) -> tuple[int, str]:
    """The number of rows, and a digest that does not depend on their order."""
    from pyspark.sql import functions

    # As JSON, for Spark has no hash of maps.
    digest = functions.xxhash64(functions.to_json(functions.struct("*"))).cast("decimal(38,0)")
    count, total = rows.agg(functions.count(functions.lit(1)), functions.sum(digest)).first()
    return count, str(total)


def _rows(spark: SparkSession, plan: Mapping[str, Any], options: Mapping[str, Any] | None) -> Any:
    from airflow_hive_federation.acid.names import parse_directory
    from airflow_hive_federation.acid.snapshot import AcidState, acid_state
    from airflow_hive_federation.metastore.idl import types
    from airflow_hive_federation.metastore.wire import from_json
    from airflow_hive_federation.model.types import Column
    from airflow_hive_federation.tables.read.formats.plain import plain_table
    from airflow_hive_federation.tables.read.places import PartitionState
    from airflow_hive_federation.tables.read.reader import visible_rows

    table: Any = from_json(types.Table, plan["table"])
    columns = [Column.of(column.name, column.type) for column in table.sd.cols]
    write_ids = ValidWriteIds.parse(plan["write_ids"]) if plan["write_ids"] else None

    def state(files: Any) -> AcidState:
        entries = tuple(FileEntry(path=path, size_bytes=size_bytes) for path, size_bytes in files)
        if write_ids is not None:
            # They are chosen already: a base whose write id has aborted is one that a compactor made.
            bases = {path.partition("/")[0] for path, _ in files if path.startswith("base_")}
            made = [one for one in bases if write_ids.is_aborted(parse_directory(one).max_write_id)]
            return acid_state(entries, write_ids, compacted_bases=made)
        return AcidState(base=None, originals=entries, deltas=(), delete_deltas=())

    storages: list[Any] = [from_json(types.StorageDescriptor, one) for one in plan["storages"]]
    directories = [
        PartitionState(
            location=location, state=state(files), storage=None if index is None else storages[index]
        )
        for location, index, files in plan["directories"]
    ]
    if plan["kind"] == "full_acid" and write_ids is not None:
        only = [column.name for column in columns] if plan.get("row_digests") else None
        return visible_rows(
            spark, directories, columns, write_ids=write_ids, only=only, storage_options=options
        )
    return plain_table(spark, table, directories, columns, [], storage_options=options)
