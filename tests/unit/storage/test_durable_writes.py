"""The order of writing, waiting and renaming: streaming ingest, statements, compaction, sweeps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from airflow_hive_federation.compaction import files as compaction_files
from airflow_hive_federation.compaction.plain import append_files
from airflow_hive_federation.compaction.plan import (
    BucketMerge,
    CompactionKind,
    CompactionPlan,
    Decision,
    FileFormat,
    MergeInput,
)
from airflow_hive_federation.ingest.delta_files import DeltaFile, acid_types, encoded
from airflow_hive_federation.model.types import Column
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.tables.write import publish as write_publish
from airflow_hive_federation.tables.write.plan import StagedFile, TableLayout
from airflow_hive_federation.tables.write.staging import staging_directory, sweep
from airflow_hive_federation.tables.write.tasks import StagedOutput
from tests.support.durability import Recorder, recorded
from tests.support.golden_compaction import before_compaction, compact, described


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    with recorded(tmp_path, monkeypatch) as calls:
        yield calls


def layout(place: Path) -> TableLayout:
    return TableLayout(
        database="d",
        table="t",
        location=f"file:{place}",
        file_format="acid",
        columns=(Column.of("id", "int"),),
    )


def growing(place: Path, *, side: bool) -> DeltaFile:
    return DeltaFile(
        f"{place}/delta_0000001_0000002",
        0,
        acid_types(layout(place)),
        compression="uncompressed",
        indexed=False,
        side=side,
    )


def add(file: DeltaFile, write_id: int, *ids: int) -> None:
    rows = pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int32())})
    file.append(
        write_id,
        encoded(
            rows,
            bucket=0,
            write_id=write_id,
            first_row_id=file.next_row_id,
            compression="uncompressed",
            optimized=True,
        ),
    )


@pytest.mark.parametrize("side", [True, False], ids=["growing", "whole"])
def test_a_commit_of_ingest(side: bool, recorder: Recorder, tmp_path: Path) -> None:
    file = growing(tmp_path, side=side)
    add(file, 1, 1, 2)
    file.flush()
    recorder.assert_durable()
    order = [recorder.at("fsync", ".bucket_00000")]
    order += [recorder.at("fsync", "bucket_00000_flush_length")] if side else []
    order += [recorder.at("rename", "bucket_00000"), recorder.at("fsync", "delta_0000001_0000002")]
    assert order == sorted(order)


def test_a_later_commit_of_ingest_promises_no_rows_that_are_not_on_the_disk(
    recorder: Recorder, tmp_path: Path
) -> None:
    file = growing(tmp_path, side=True)
    add(file, 1, 1)
    file.flush()
    before = len(recorder.calls)
    file.begin()
    add(file, 2, 2, 3)
    file.flush()
    synced = [Path(path).name for call, path in recorder.calls[before:] if call == "fsync"]
    assert synced == ["bucket_00000", "bucket_00000_flush_length"]
    recorder.assert_durable()


def test_rows_that_were_taken_out_do_not_come_back_behind_the_last_tail(
    recorder: Recorder, tmp_path: Path
) -> None:
    """Without the side file, a reader takes the last bytes of the file for its tail."""
    file = growing(tmp_path, side=True)
    add(file, 1, 1)
    file.flush()
    bucket = tmp_path / "delta_0000001_0000002" / "bucket_00000"
    kept = bucket.stat().st_size
    file.begin()
    add(file, 2, *range(100))
    assert bucket.stat().st_size > kept
    file.rewind()
    assert bucket.stat().st_size == kept
    file.close()
    assert recorder.at("fsync", "bucket_00000") < recorder.at("unlink", "bucket_00000_flush_length")


@pytest.mark.parametrize("values", [(), ("a",)], ids=["table", "partition"])
def test_a_statement(values: tuple[str, ...], recorder: Recorder, tmp_path: Path) -> None:
    table = f"file:{tmp_path}/t"
    with staging_directory(table, 5) as staging:
        output = StagedOutput(SimpleNamespace(staging=staging, storage_options=None), "insert-0-1-0")  # type: ignore[arg-type]
        output.path.write_bytes(b"ORC rows")
        assert output.put() == 8
        staged = StagedFile(path=output.uri, values=values, bucket=0, row_count=1, size_bytes=8)
        statement: Any = SimpleNamespace(
            layout=layout(tmp_path / "t"), storage_options=None, overwrites=False, write_id=3
        )
        place = "/".join([table, *(f"p={value}" for value in values), "delta_0000003_0000003_0000"])
        write_publish._move(statement, [staged], {values: place})
    recorder.assert_durable()
    order = [
        recorder.at("fsync", "insert-0-1-0"),
        recorder.at("rename", "bucket_00000_0"),
        recorder.at("fsync", "delta_0000003_0000003_0000"),
    ]
    assert order == sorted(order)
    # The files have left before their hidden directory goes.
    removed = [number for number, (call, _) in enumerate(recorder.calls) if call == "unlink"]
    assert all(number > order[1] for number in removed)


def test_a_compaction(recorder: Recorder, tmp_path: Path) -> None:
    for number in (1, 2):
        delta = tmp_path / f"delta_000000{number}_000000{number}_0000"
        delta.mkdir()
        (delta / "000000_0").write_bytes(b"%d\n" % number)
    recorder.unkept.clear()
    table: Any = SimpleNamespace(location=f"file:{tmp_path}", file_format=FileFormat.TEXT)
    merge: Any = BucketMerge(
        table=table,
        output=".staging/base_2_v9/000000_0",
        inserts=tuple(
            MergeInput(path=f"delta_000000{n}_000000{n}_0000/000000_0", size_bytes=2) for n in (1, 2)
        ),
        bucket=0,
        write_ids="d.t:2:9223372036854775807::",
    )
    assert append_files(merge, None, "zlib") == (0, 4)
    plan = CompactionPlan(
        decision=Decision.COMPACT, staging=".staging", directories=("base_2_v9",), merges=()
    )
    compaction_files.publish(plan, f"file:{tmp_path}", FileFormat.TEXT)
    recorder.assert_durable()
    assert (tmp_path / "base_2_v9" / "000000_0").read_bytes() == b"1\n2\n"
    order = [recorder.at("rename", "000000_0"), recorder.at("rename", "base_2_v9")]
    assert order == sorted(order)
    between = [path for call, path in recorder.calls[order[0] : order[1]] if call == "fsync"]
    assert f"{tmp_path}/.staging/base_2_v9" in between
    assert recorder.calls[order[1] + 1] == ("fsync", str(tmp_path))


@pytest.mark.parametrize(
    ("golden", "kind"), [("acid_major", CompactionKind.MAJOR), ("acid_minor", CompactionKind.MINOR)]
)
def test_a_compaction_of_orc(golden: str, kind: CompactionKind, recorder: Recorder, tmp_path: Path) -> None:
    """Each file, and its name, is on the disk before the directory of all of them has its name."""
    before_compaction(golden, tmp_path)
    recorder.unkept.clear()
    begun = len(recorder.calls)
    plan = compact(tmp_path, kind, ValidWriteIds(table="g.t", high_watermark=4), described(golden)["columns"])
    recorder.assert_durable()
    calls = recorder.calls[begun:]
    for name in plan.directories:
        published = calls.index(("rename", str(tmp_path / name)))
        staged = f"{tmp_path}/{plan.staging}/{name}"
        files = [path for path in (tmp_path / name).iterdir() if path.name.startswith("bucket_")]
        assert files
        for file in files:
            renamed = calls.index(("rename", f"{staged}/{file.name}"))
            assert ("fsync", staged) in calls[renamed:published]
        assert ("fsync", str(tmp_path)) in calls[published:]


def test_a_sweep_takes_nothing_but_what_it_is_for(recorder: Recorder, tmp_path: Path) -> None:
    """It gives no name, so it has nothing to wait for: what a crash brings back, the next sweep removes."""
    ended, needed = tmp_path / ".hive-staging_spark_5_abc", tmp_path / ".hive-staging_spark_7_abc"
    for directory in (ended, needed, tmp_path / "delta_0000001_0000001_0000"):
        directory.mkdir()
        (directory / "file").touch()
    before = len(recorder.calls)
    sweep(f"file:{tmp_path}", lambda: ValidTxns(high_watermark=9, open_ids=(7,)))
    calls = recorder.calls[before:]
    assert {call for call, _ in calls} <= {"unlink"}
    assert all(path.startswith(str(ended)) for _, path in calls)
    # As if it had not been.
    ended.mkdir()
    (ended / "file").touch()
    assert sweep(f"file:{tmp_path}", lambda: ValidTxns(high_watermark=9, open_ids=(7,))) == [ended.name]
