"""Merged bucket files, against the ones that Hive's own worker made of the same input."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import orc

from airflow_hive_federation.compaction import merge as compaction_merge
from airflow_hive_federation.compaction import runners
from airflow_hive_federation.compaction.keys import Keys, joined_keys, kept
from airflow_hive_federation.compaction.merge import MergeOutcome
from airflow_hive_federation.compaction.plan import (
    BucketMerge,
    CompactedTable,
    CompactionKind,
)
from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.orc.batches import Head
from airflow_hive_federation.orc.properties import BloomFilters
from airflow_hive_federation.orc.tail import read_tail
from tests.support.golden_compaction import GOLDEN, before_compaction, compact, described
from tests.support.orc_filters import codec_and_filters


def events(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = orc.ORCFile(path).read().to_pylist()
    return rows


@pytest.mark.parametrize(
    ("name", "kind", "theirs"),
    [
        ("acid_major", CompactionKind.MAJOR, ["base_0000004"]),
        ("acid_minor", CompactionKind.MINOR, ["delta_0000001_0000004", "delete_delta_0000001_0000004"]),
    ],
)
def test_equal_to_hives_compaction_of_the_same_files(
    name: str, kind: CompactionKind, theirs: list[str], tmp_path: Path
) -> None:
    before_compaction(name, tmp_path)
    plan = compact(tmp_path, kind, ValidWriteIds(table="g.t", high_watermark=4), described(name)["columns"])
    assert sorted(directory.partition("_v")[0] for directory in plan.directories) == sorted(theirs)
    for directory in plan.directories:
        (hives,) = (GOLDEN / name).glob(f"{directory.partition('_v')[0]}_v*")
        assert sorted(path.name for path in (tmp_path / directory).iterdir()) == sorted(
            path.name for path in hives.iterdir()
        )
        for path in hives.glob("bucket_*"):
            ours = tmp_path / directory / path.name
            assert events(ours) == events(path)
            with ours.open("rb") as our_file, path.open("rb") as their_file:
                our_tail, their_tail = read_tail(our_file, "ours"), read_tail(their_file, "theirs")
            assert our_tail.user_metadata == their_tail.user_metadata
            assert our_tail.types == their_tail.types
            assert our_tail.calendar == their_tail.calendar


@pytest.mark.parametrize(
    "name",
    [
        "acid_aborted",
        "acid_changed",
        "acid_converted",
        "acid_evolved",
        "acid_loaded",
        "acid_overwritten",
        "acid_streamed",
        "acid_truncated",
        "acid_types",
    ],
)
def test_row_ids_and_rows_stay(name: str, tmp_path: Path) -> None:
    table = described(name)
    shutil.copytree(GOLDEN / name, tmp_path / "t")
    plan = compact(
        tmp_path / "t", CompactionKind.MAJOR, ValidWriteIds.parse(table["write_ids"]), table["columns"]
    )
    merged = []
    for path in (tmp_path / "t" / plan.directories[0]).glob("bucket_*"):
        rows = events(path)
        keys = [(row["originalTransaction"], row["bucket"], row["rowId"]) for row in rows]
        assert keys == sorted(keys)
        assert all(row["currentTransaction"] == row["originalTransaction"] for row in rows)
        merged += keys
    ids = [json.loads(row[0]) for row in table["rows_with_id"]]
    assert sorted(merged) == sorted(
        (row_id["writeid"], row_id["bucketid"], row_id["rowid"]) for row_id in ids
    )


def write_delta(table: Path, write_id: int, row: dict[str, pa.Scalar], *, attempt: int = 0) -> None:
    directory = table / f"delta_{write_id:07d}_{write_id:07d}_0000"
    directory.mkdir(exist_ok=True)
    columns = {
        "operation": pa.array([0], pa.int32()),
        "originalTransaction": [write_id],
        "bucket": pa.array([0x20000000], pa.int32()),
        "rowId": [0],
        "currentTransaction": [write_id],
        "row": pa.StructArray.from_arrays([pa.array([value]) for value in row.values()], names=list(row)),
    }
    orc.write_table(pa.table(columns), directory / f"bucket_00000_{attempt}", compression="zlib")


def test_only_the_flushed_part_of_a_file_counts(tmp_path: Path) -> None:
    table = described("acid_unfinished")
    shutil.copytree(GOLDEN / "acid_unfinished", tmp_path / "t")
    write_delta(tmp_path / "t", 4, {"id": pa.scalar(7, pa.int32()), "name": pa.scalar("x")})
    write_ids = ValidWriteIds(table="g.t", high_watermark=4, aborted_ids=(3,))
    plan = compact(tmp_path / "t", CompactionKind.MAJOR, write_ids, table["columns"])
    rows = events(tmp_path / "t" / plan.directories[0] / "bucket_00000")
    assert len(rows) == len(table["rows"]) + 1
    assert rows[-1]["row"] == {"id": 7, "name": "x"}


def test_a_file_without_a_commit_yet_has_no_rows(tmp_path: Path) -> None:
    for write_id in (1, 2):
        write_delta(tmp_path, write_id, {"id": pa.scalar(write_id)})
    begun = tmp_path / "delta_0000002_0000002_0000" / "bucket_00000_0"
    begun.write_bytes(begun.read_bytes()[:-1])
    begun.with_name("bucket_00000_0_flush_length").write_bytes(bytes(8))
    write_ids = ValidWriteIds(table="g.t", high_watermark=2)
    plan = compact(tmp_path, CompactionKind.MAJOR, write_ids, [["id", "bigint"]])
    (row,) = events(tmp_path / plan.directories[0] / "bucket_00000")
    assert row["row"] == {"id": 1}


def test_codec_and_filters_are_those_of_the_table(tmp_path: Path) -> None:
    for write_id in (1, 2):
        write_delta(tmp_path, write_id, {"id": pa.scalar(write_id), "name": pa.scalar("x")})
    plan = compact(
        tmp_path,
        CompactionKind.MAJOR,
        ValidWriteIds(table="g.t", high_watermark=2),
        [["id", "bigint"], ["name", "string"]],
        compression="zstd",
        filters=BloomFilters(columns=("name",)),
    )
    # On their way to Spark's workers.
    assert [BucketMerge.from_json(json.loads(json.dumps(merge.to_json()))) for merge in plan.merges] == [
        *plan.merges
    ]
    path = tmp_path / plan.directories[0] / "bucket_00000"
    file = orc.ORCFile(path)
    assert [row["row"]["id"] for row in file.read().to_pylist()] == [1, 2]
    assert codec_and_filters(path) == ("zstd", [8])


def test_what_a_failed_task_left_beside_its_successors_file_is_refused(tmp_path: Path) -> None:
    row = {"id": pa.scalar(1)}
    write_delta(tmp_path, 1, row)
    write_delta(tmp_path, 2, row)
    write_delta(tmp_path, 2, row, attempt=1)
    with pytest.raises(AcidFormatError, match="not in the order of their ROW__IDs, or twice"):
        compact(
            tmp_path, CompactionKind.MAJOR, ValidWriteIds(table="g.t", high_watermark=2), [["id", "bigint"]]
        )


def test_a_stripe_a_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_merge, "STRIPE_ROWS", 2)
    table = described("acid_types")
    shutil.copytree(GOLDEN / "acid_types", tmp_path / "t")
    plan = compact(
        tmp_path / "t", CompactionKind.MAJOR, ValidWriteIds.parse(table["write_ids"]), table["columns"]
    )
    path = tmp_path / "t" / plan.directories[0] / "bucket_00000"
    with path.open("rb") as file:
        tail = read_tail(file, "made")
    assert len(tail.stripe_rows) == 2
    assert tail.user_metadata["hive.acid.key.index"] == b"2,536870912,0;3,536870912,0;"
    assert [row["rowId"] for row in events(path)] == [0, 0, 0]


@pytest.mark.parametrize(("damage", "why"), [("cut", "truncated|not an ORC"), ("other", "other columns")])
def test_bad_input_is_named(damage: str, why: str, tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "acid_changed", tmp_path / "t")
    bucket = tmp_path / "t" / "delta_0000002_0000002_0000" / "bucket_00000_0"
    if damage == "cut":
        bucket.write_bytes(bucket.read_bytes()[:-40])
    else:
        shutil.copy(GOLDEN / "acid_types" / "delta_0000002_0000002_0000" / "bucket_00000_0", bucket)
    columns = described("acid_changed")["columns"]
    with pytest.raises(AcidFormatError, match=why) as caught:
        compact(
            tmp_path / "t",
            CompactionKind.MAJOR,
            ValidWriteIds(table="g.t", high_watermark=4),
            columns,
            partition="p=1",
        )
    assert "golden.t partition p=1" in str(caught.value)
    assert caught.value.path == str(bucket)
    assert not list((tmp_path / "t").glob("base_*"))


@pytest.mark.parametrize("failure", [pa.ArrowInvalid("no such value"), MemoryError("no room")])
def test_what_arrow_cannot_make_fails_alone(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(merge: BucketMerge, **_: object) -> MergeOutcome:
        if merge.bucket:
            raise failure
        return outcome

    outcome = MergeOutcome()
    monkeypatch.setattr(runners, "merge_bucket", failing)
    table = CompactedTable(name="sales.orders", partition="day=1", location="file:/nowhere", columns=())
    merges = [
        BucketMerge(table=table, bucket=number, write_ids="", output=f"base_1/bucket_{number}")
        for number in range(2)
    ]
    first, second = runners.in_threads(2)(merges)
    assert first is outcome
    assert isinstance(second, AcidFormatError)
    assert "sales.orders" in str(second)
    assert "base_1/bucket_1" in str(second)
    assert str(failure) in str(second)


def test_a_plain_file_among_acid_files_is_named(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "acid_changed", tmp_path / "t")
    bucket = tmp_path / "t" / "delta_0000002_0000002_0000" / "bucket_00000_0"
    orc.write_table(pa.table({"id": [1]}), bucket)
    with pytest.raises(AcidFormatError, match="not those of an ACID file"):
        compact(
            tmp_path / "t",
            CompactionKind.MAJOR,
            ValidWriteIds(table="g.t", high_watermark=4),
            described("acid_changed")["columns"],
        )


KEY = st.tuples(st.integers(1, 4), st.integers(0, 2).map(lambda n: 0x20000000 | n), st.integers(0, 6))


def keys_of(values: list[tuple[int, int, int]]) -> Keys:
    columns = np.array(values, dtype=np.int64).reshape(-1, 3).T
    return Keys.of(columns[0], columns[1], columns[2])


@given(rows=st.sets(KEY, min_size=1), deleted=st.lists(st.lists(KEY), max_size=3), far=st.booleans())
def test_kept_is_what_is_not_deleted(
    rows: set[tuple[int, int, int]], deleted: list[list[tuple[int, int, int]]], far: bool
) -> None:
    # Write ids further apart than 31 bits must not be mixed up.
    move = (2**31 + 1) if far else 1
    ordered = sorted((write_id * move, bucket, row) for write_id, bucket, row in rows)
    gone = [[(write_id * move, bucket, row) for write_id, bucket, row in keys] for keys in deleted]
    mask = kept(keys_of(ordered), [keys_of(sorted(keys)) for keys in gone])
    remaining = [key not in {key for keys in gone for key in keys} for key in ordered]
    assert (list(mask) if mask is not None else [True] * len(ordered)) == remaining


@given(rows=st.lists(KEY, min_size=1), key=KEY)
def test_up_to(rows: list[tuple[int, int, int]], key: tuple[int, int, int]) -> None:
    ordered = sorted(rows)
    assert keys_of(ordered).up_to(key) == sum(other <= key for other in ordered)


@given(values=st.lists(KEY, min_size=1), data=st.data())
def test_keys_are_those_of_the_rows(values: list[tuple[int, int, int]], data: st.DataObject) -> None:
    keys = keys_of(values)
    start = data.draw(st.integers(0, len(values) - 1))
    end = data.draw(st.integers(start + 1, len(values)))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))))
    left = [value for value, is_left in zip(values, mask, strict=True) if is_left]
    assert triples(keys) == values
    assert triples(keys.part(start, end)) == values[start:end]
    assert triples(keys.where(mask)) == left
    assert triples(joined_keys([keys, keys.where(mask), keys.part(start, end)])) == [
        *values,
        *left,
        *values[start:end],
    ]
    assert keys.is_ascending() == (values == sorted(set(values)))


def triples(keys: Keys) -> list[tuple[int, int, int]]:
    return [keys.at(index) for index in range(len(keys))]


def test_columns_of_one_number_are_not_read(tmp_path: Path) -> None:
    write_delta(tmp_path, 1, {"id": pa.scalar(7)})
    path = tmp_path / "delta_0000001_0000001_0000" / "bucket_00000_0"
    with path.open("rb") as file:
        assert read_tail(file, "made").constants == {1: 0, 2: 1, 3: 0x20000000, 4: 0, 5: 1, 7: 7}
    columns = {"same": [-5, -5], "null": [3, None], "other": [1, 2], "text": ["a", "a"]}
    orc.write_table(pa.table(columns), path)
    with path.open("rb") as file:
        assert read_tail(file, "made").constants == {1: -5}


def test_head_of_a_file() -> None:
    head = io.BufferedReader(Head(io.BytesIO(b"0123456789"), 4))
    assert head.read() == b"0123"
    assert head.seek(-2, io.SEEK_END) == 2
    assert head.read(9) == b"23"
    head.seek(1)
    assert head.read(1) == b"1"


MEMORY = """
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import orc

from airflow_hive_federation.compaction import merge as compaction_merge
from airflow_hive_federation.compaction import runners
from airflow_hive_federation.compaction import rows as compaction_rows
from airflow_hive_federation.orc import batches as orc_batches
from airflow_hive_federation.compaction.plan import BucketMerge, CompactedTable, MergeInput

directory, rows = Path(sys.argv[1]), int(sys.argv[2])
compaction_merge.STRIPE_ROWS, orc_batches._BATCH_ROWS, compaction_rows._TABLE_ROWS = 20_000, 2_000, 2_000

def write(name, operation, row_ids, current):
    path = directory / name / "bucket_00000"
    path.parent.mkdir()
    # One stripe: pyarrow hands over a stripe as one piece.
    with orc.ORCWriter(path, stripe_size=1 << 40) as writer:
        for ids in np.array_split(row_ids, 40):
            row = pa.StructArray.from_arrays([pa.array(ids)], ["id"]) if operation == 0 else None
            writer.write(pa.table({
                "operation": np.full(len(ids), operation, np.int32),
                "originalTransaction": np.ones(len(ids), np.int64),
                "bucket": np.full(len(ids), 1 << 29, np.int32),
                "rowId": ids,
                "currentTransaction": np.full(len(ids), current),
                "row": row if row is not None else pa.nulls(len(ids), pa.struct([("id", pa.int64())])),
            }))
    return MergeInput(path=f"{name}/bucket_00000", size_bytes=path.stat().st_size)

inserts = write("delta_0000001_0000001_0000", 0, np.arange(rows), 1)
deletes = write("delete_delta_0000002_0000002_0000", 2, np.arange(0, rows, 2), 2)
table = CompactedTable(name="d.t", location=str(directory), columns=(("id", "bigint"),))
merge = BucketMerge(
    table=table, bucket=0, inserts=(inserts,), deletes=(deletes,), write_ids="d.t:2:9223372036854775807::",
    output="made",
)
def resident_mb():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
before = resident_mb()
outcome = compaction_merge.merge_bucket(merge)
assert (outcome.rows, outcome.deleted) == (rows // 2, rows // 2)
print(pa.default_memory_pool().max_memory() / 2**20, resident_mb() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux reports the highest memory")
def test_memory_does_not_grow_with_the_table(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path), "1600000"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    arrow_mb, resident_mb = map(float, done.stdout.split())
    # In one piece, the rows alone take 64 MB, and as much again when they are encoded.
    assert arrow_mb < 32, done.stdout
    assert resident_mb < 60, done.stdout
