"""The cost of safety: a dump that is read once more before it is loaded, and a process per batch of records.

Processor time, of this process and its children: a busy machine changes little of it.
"""

from __future__ import annotations

import hashlib
import re
import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from airflow_hive_federation.ingest.formats.regex_records import StrictRegexWriter
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.types import Column
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.dumped_policy import DumpedPolicy
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.format.kinds import DumpKind, TableKind
from airflow_hive_federation.replication.format.manifest import Manifest, TableEntry
from airflow_hive_federation.replication.format.tables import PartitionLine, TableDocument
from airflow_hive_federation.replication.load.whole_dump import check_dump
from airflow_hive_federation.replication.metadata import external_tables
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.storage.sources import SourceRoots
from benchmarks.results import Result, faster

PARTITIONS = {"full": 100_000, "small": 1000}
RECORDS = (1, 1000, 100_000)
_REGEX = r"(\S+) (\d+) \[(.*?)\]"
_RECORD = b"host-17 4711 [31/Jan/2026:12:00:00]"
_ROOT = "hdfs://nn/warehouse/d.db/t"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Sizes, repetitions and the directory of a measurement."""

    scale: str
    runs: int
    directory: Path
    say: Callable[[str], None]


def dump_check(setting: Setting) -> Result:
    """Measure ``dump-check``: what a load reads of a dump before it changes anything."""
    partitions = PARTITIONS[setting.scale]
    dump = DumpDirectory(f"file:{setting.directory}/dump")
    _write_dump(dump, partitions)
    files = [path for path in (setting.directory / "dump").rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    setting.say(f"a dump of {partitions:,} partitions, {size:,} bytes")
    return faster(
        "dump-check",
        f"reading and checking a dump of {partitions:,} partitions of one file each ({size >> 20} MiB), "
        "processor time",
        ours_s=_measured(lambda: check_dump(DumpDirectory(dump.uri), SourceRoots()), setting.runs),
        peer="reading and digesting (SHA-256) its bytes",
        peer_s=_measured(lambda: [hashlib.sha256(path.read_bytes()) for path in files], setting.runs),
        at_least=None,
    )


def regex_batches(setting: Setting) -> Iterator[Result]:
    """Measure ``regex-batches``: batches of records that a regular expression takes apart."""
    columns = [Column.of("host", "string"), Column.of("code", "int"), Column.of("at", "string")]
    writer = StrictRegexWriter(_REGEX)
    writer.bind(columns)
    expression = re.compile(_REGEX, re.DOTALL)
    for count in RECORDS:
        records = [_RECORD] * count
        yield faster(
            "regex-batches",
            f"rows of a batch of {count:,}, matched in a process of its own, processor time",
            ours_s=_measured(partial(writer.parse, records), setting.runs),
            peer="matching alone, in this process",
            peer_s=_measured(partial(_matched, expression, records), setting.runs),
            at_least=None,
        )


def _matched(expression: re.Pattern[str], records: Sequence[bytes]) -> list[tuple[str, ...]]:
    matches = [expression.fullmatch(record.decode()) for record in records]
    return [match.groups() for match in matches if match]


def _measured(work: Callable[[], object], runs: int) -> float:
    seconds = []
    for _ in range(max(3, runs)):
        before = _processor_s()
        work()
        seconds.append(_processor_s() - before)
    return median(seconds)


def _processor_s() -> float:
    used = [resource.getrusage(process) for process in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _write_dump(dump: DumpDirectory, partitions: int) -> None:
    names = [f"p={number}" for number in range(partitions)]
    storage = types.StorageDescriptor(
        cols=[types.FieldSchema(name=f"column_{number}", type="string") for number in range(10)],
        location=_ROOT,
        serdeInfo=types.SerDeInfo(serializationLib="x", parameters={}),
    )
    table = types.Table(
        dbName="d",
        tableName="t",
        sd=storage,
        partitionKeys=[types.FieldSchema(name="p", type="string")],
        parameters={},
        tableType="MANAGED_TABLE",
    )
    dump.write_database(types.Database(name="d", parameters={}))
    dump.write_functions([])
    dump.write_table(TableDocument(table=table, kind=TableKind.MANAGED))
    dump.write_partitions("t", map(_partition, names))
    dump.write_files("t", map(_file, names))
    dump.write_text(external_tables.FILE_NAME, external_tables.to_text([]))
    policy = ReplicationPolicy(name="p", source_database="d", dump_root=dump.uri)
    dump.finish_dump(
        Manifest(
            kind=DumpKind.BOOTSTRAP,
            policy=DumpedPolicy.of(policy),
            event_id=1,
            lease=1,
            tables=(TableEntry(name="t", kind=TableKind.MANAGED, partitions=partitions, files=partitions),),
        )
    )


def _partition(name: str) -> PartitionLine:
    storage = types.StorageDescriptor(
        cols=[types.FieldSchema(name=f"column_{number}", type="string") for number in range(10)],
        location=f"{_ROOT}/{name}",
        serdeInfo=types.SerDeInfo(serializationLib="x", parameters={}),
    )
    made = types.Partition(values=[name[2:]], sd=storage, parameters={"numRows": "1"})
    return PartitionLine.of(name, made)


def _file(name: str) -> VisibleFile:
    path = f"{name}/000000_0"
    return VisibleFile(
        directory=_ROOT, partition="", path=path, target_path=path, size_bytes=220_000, modified_ns=1
    )
