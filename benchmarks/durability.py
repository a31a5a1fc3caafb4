"""The cost of waiting for the disk: the same work with ``fsync`` and without, in turns.

Without servers: the rest of a cycle or a commit, which does not wait for a disk, would hide it.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from unittest import mock

import pyarrow as pa

from airflow_hive_federation.ingest.delta_files import DeltaFile, acid_types, encoded
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.model.types import Column
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.dumped_policy import DumpedPolicy
from airflow_hive_federation.replication.format.kinds import DumpKind
from airflow_hive_federation.replication.format.manifest import Manifest
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.storage.copying import copy_file
from airflow_hive_federation.tables.write.plan import TableLayout
from benchmarks.results import Result, faster

#: Files to copy, commits of streaming ingest, tables of a dump.
COUNTS = {"full": (1000, 200, 100), "small": (20, 5, 5)}
_FILE_BYTES = 220_000


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Sizes, repetitions and the directory of a measurement.

    :param runs: runs of each, in turn; the median counts.
    :param directory: on the file system whose disk is measured.
    """

    scale: str
    runs: int
    directory: Path
    say: Callable[[str], None]


def run(setting: Setting) -> Iterator[Result]:
    """Measure ``durability``: copies, commits of streaming ingest, and dumps."""
    files, commits, tables = COUNTS[setting.scale]
    source = setting.directory / "source"
    source.mkdir()
    content = os.urandom(_FILE_BYTES)
    for number in range(files):
        (source / f"f{number}").write_bytes(content)
    works: dict[str, Callable[[Path], None]] = {
        f"copying {files:,} files of 220 kB into as many directories, one after the other": lambda place: (
            _copy(source, place, files)
        ),
        f"{commits:,} commits of one record to one growing file of streaming ingest": lambda place: _ingest(
            place, commits
        ),
        f"a dump of {tables:,} tables": lambda place: _dump(place, tables),
    }
    for work, do in works.items():
        times = _in_turns(setting, work, do)
        yield faster(
            "durability",
            work,
            ours_s=times["with"],
            peer="without fsync",
            peer_s=times["without"],
            at_least=None,
        )


def _in_turns(setting: Setting, work: str, do: Callable[[Path], None]) -> dict[str, float]:
    taken: dict[str, list[float]] = {"with": [], "without": []}
    for number in range(setting.runs):
        for how, seconds in taken.items():
            setting.say(f"durability, run {number + 1}, {how}: {work}")
            place = setting.directory / "made"
            # Earlier writes are on the disk before the clock starts.
            os.sync()
            with nullcontext() if how == "with" else mock.patch.object(os, "fsync"):
                began = time.perf_counter()
                do(place)
                seconds.append(time.perf_counter() - began)
            shutil.rmtree(place)
    return {how: median(seconds) for how, seconds in taken.items()}


def _copy(source: Path, place: Path, count: int) -> None:
    for number in range(count):
        name = f"f{number}"
        copy_file(
            CopyItem(
                source=f"file:{source}/{name}",
                target=f"file:{place}/p={number}/{name}",
                size_bytes=_FILE_BYTES,
            )
        )


def _ingest(place: Path, commits: int) -> None:
    layout = TableLayout(
        database="d",
        table="t",
        location=f"file:{place}",
        file_format="acid",
        columns=(Column.of("id", "int"),),
    )
    row = pa.RecordBatch.from_pydict({"id": pa.array([1], pa.int32())})
    file = DeltaFile(
        f"{place}/delta_0000001_{commits:07d}",
        0,
        acid_types(layout),
        compression="uncompressed",
        indexed=False,
        side=True,
    )
    for write_id in range(1, commits + 1):
        file.begin()
        made = encoded(
            row, bucket=0, write_id=write_id, first_row_id=0, compression="uncompressed", optimized=True
        )
        file.append(write_id, made)
        file.flush()
    file.close()


def _dump(place: Path, tables: int) -> None:
    dump = DumpDirectory(f"file:{place}/1-1")
    for number in range(tables):
        dump.write_json(f"tables/t{number}.json", {"name": f"t{number}"})
        for kind in ("partitions", "files"):
            dump.write_lines(f"{kind}/t{number}.jsonl", ({"n": line} for line in range(50)))
    policy = ReplicationPolicy(name="p", source_database="d", dump_root=f"file:{place}")
    dump.finish_dump(Manifest(kind=DumpKind.BOOTSTRAP, policy=DumpedPolicy.of(policy), event_id=1, lease=1))
