"""A take-over removes files that no reader of the target sees, and from others the rows that none sees."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyarrow import orc

from airflow_hive_federation.errors import CycleLostError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyOutcome
from airflow_hive_federation.model.write_ids import RangeState, ValidWriteIds
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.left_files import (
    LeftFiles,
    Removing,
    finish_placing,
    left_files,
    visible_part,
)
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.storage.plan_files import write_records
from airflow_hive_federation.storage.publishing import write_atomically

WATERMARK = 10_000_000
POLICY = ReplicationPolicy(name="p", source_database="d", dump_root="file:/dumps")
ROW = {"operation": 0, "bucket": 536870912, "row": {"id": 1}}


class SearchedIds(tuple[int, ...]):
    """Open write ids that may be searched, not walked."""

    __slots__ = ()

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("every open write id was walked")


@pytest.mark.parametrize(
    ("path", "full_acid", "insert_only"),
    [
        ("base_5/bucket_00000", "all", "all"),
        ("base_6/bucket_00000", "all", "all"),  # compacted; its last write id was aborted
        ("base_7/bucket_00000", "none", "none"),
        ("base_11/bucket_00000", "none", "none"),
        ("delta_0000008_0000009/bucket_00000", "all", "all"),
        # A streaming batch, or the result of a minor compaction of the source.
        ("delta_0000001_0000007/bucket_00000", "some", "none"),
        ("p=1/delete_delta_0000006_0000008/bucket_00000", "some", "none"),
        ("p=1/delta_0000010_0000011/bucket_00000", "some", "none"),
        ("p=1/delta_0000011_0000012/bucket_00000", "none", "none"),
        # A compaction of the target.
        ("delta_0000001_0000006_v0000100/bucket_00000", "all", "all"),
        ("delta_0000007_0000007_0000/bucket_00000", "none", "none"),
        ("p=1/delta_0000010_0000010/bucket_00000", "all", "all"),
        ("_hive_federation/delta_0000001_0000001/bucket_00000", "none", "none"),
        ("part-00000", "all", "all"),
        ("delta_t=1/base_of=2/delta_0000007_0000007/bucket_00000", "none", "none"),
    ],
)
def test_the_part_of_a_file_that_readers_see(path: str, full_acid: str, insert_only: str) -> None:
    write_ids = ValidWriteIds(high_watermark=10, open_ids=(7,), aborted_ids=(6,), min_open_id=7)
    assert visible_part(path, write_ids, TableKind.FULL_ACID).value == full_acid
    assert visible_part(path, write_ids, TableKind.INSERT_ONLY).value == insert_only


def test_open_write_ids_are_searched_not_walked() -> None:
    write_ids = ValidWriteIds(
        high_watermark=WATERMARK,
        open_ids=SearchedIds(range(WATERMARK - 1000, WATERMARK)),
        min_open_id=WATERMARK - 1000,
    )

    def part(path: str) -> RangeState:
        return visible_part(path, write_ids, TableKind.INSERT_ONLY)

    for number in range(5_000):
        assert part(f"base_{WATERMARK - 2000 - number}/bucket_00000") is RangeState.ALL
        assert part(f"delta_1_{WATERMARK - 2000 - number}/bucket_00000") is RangeState.ALL
    assert part(f"delta_1_{WATERMARK - 5}/bucket_00000") is RangeState.NONE


def test_it_answers_as_a_walk_of_the_range_does() -> None:
    seed = 20261125
    rng = random.Random(seed)
    for _ in range(300):
        high = rng.randint(1, 40)
        open_ids = tuple(sorted(rng.sample(range(1, high + 1), rng.randint(0, min(high, 5)))))
        write_ids = ValidWriteIds(high_watermark=high, open_ids=open_ids)
        low = rng.randint(1, 45)
        top = rng.randint(low, 45)
        visible = [number <= high and number not in open_ids for number in range(low, top + 1)]
        walked = RangeState.ALL if all(visible) else RangeState.SOME if any(visible) else RangeState.NONE
        path = f"delta_{low}_{top}/bucket_00000"
        assert visible_part(path, write_ids, TableKind.FULL_ACID) is walked, (seed, write_ids)
        whole = RangeState.ALL if all(visible) else RangeState.NONE
        assert visible_part(path, write_ids, TableKind.INSERT_ONLY) is whole, (seed, write_ids)


@pytest.mark.parametrize("allowed", [0, 1])
def test_what_has_lost_its_lock_removes_nothing_more(tmp_path: Path, allowed: int) -> None:
    """One file in one directory: two removals, with a check before each."""
    file = tmp_path / "t" / "delta_0000007_0000007" / "bucket_00000"
    file.parent.mkdir(parents=True)
    file.touch()
    asked: list[str] = []

    def check() -> None:
        asked.append("")
        if len(asked) > allowed:
            raise CycleLostError("The lock is lost.", policy="p", holder="", reason="refused")

    removing = Removing(policy=POLICY, check=check)
    with pytest.raises(CycleLostError):
        removing.remove(f"file:{tmp_path}/t", ["delta_0000007_0000007/bucket_00000"])
    assert (file.parent.exists(), file.exists()) == (True, not allowed)


def write_rows(file: Path, *write_ids: int) -> bytes:
    """Write a bucket file with one row per write id."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {**ROW, "originalTransaction": number, "rowId": 0, "currentTransaction": number}
        for number in write_ids
    ]
    schema = pa.schema(
        [
            ("operation", pa.int32()),
            ("originalTransaction", pa.int64()),
            ("bucket", pa.int32()),
            ("rowId", pa.int64()),
            ("currentTransaction", pa.int64()),
            ("row", pa.struct([("id", pa.int32())])),
        ]
    )
    orc.write_table(pa.Table.from_pylist(rows, schema), str(file))
    return file.read_bytes()


def test_rows_that_no_reader_sees_leave_the_files_that_stay(tmp_path: Path) -> None:
    """Of a batch of four, readers see two write ids, and a killed load has brought rows of a third."""
    grown = tmp_path / "p=1" / "delta_0000001_0000004" / "bucket_00000"
    write_rows(grown, 1, 2, 3)
    left = grown.with_name("._copy_bucket_00000.00000000000000ff-1")
    left.touch()
    # A writer of this database has made the file, and the length is that of a file with its bytes.
    own = tmp_path / "p=1" / "delta_0000001_0000003" / "bucket_00000"
    kept = write_rows(own, 1, 2, 3)
    own.with_name("bucket_00000_flush_length").write_bytes(len(kept).to_bytes(8))
    whole = tmp_path / "p=1" / "delta_0000001_0000002" / "bucket_00000"
    visible = write_rows(whole, 1, 2)
    asked: list[str] = []
    table = types.Table(
        tableName="t",
        sd=types.StorageDescriptor(location=f"file:{tmp_path}"),
        tableType="MANAGED_TABLE",
        parameters={"transactional": "true"},
    )
    write_ids = ValidWriteIds(table="d.t", high_watermark=4, open_ids=(3, 4), min_open_id=3)
    removing = Removing(policy=POLICY, check=lambda: asked.append(""))
    for _ in range(2):
        LeftFiles(removing, table, write_ids).drop_invisible_rows()
        rows = orc.read_table(str(grown)).to_pylist()
        assert [row["currentTransaction"] for row in rows] == [1, 2]
    assert asked == ["", ""]
    assert (own.read_bytes(), whole.read_bytes()) == (kept, visible)
    assert sorted(path.name for path in grown.parent.iterdir()) == ["bucket_00000"]


def test_directories_of_a_load_that_was_killed_between_two_are_placed(tmp_path: Path) -> None:
    """The deletes of a minor compaction alone would hide rows; what no reader sees in part is left."""
    dump = DumpDirectory(f"file:{tmp_path}/dump")
    files = [
        f"file:{tmp_path}/t/{partition}/_hive_federation/{name}_0000001_0000008/bucket_00000"
        for partition in ("p=1", "p=2")
        for name in ("delete_delta", "delta")
    ]
    for uri in files:
        write_atomically(uri, [b"x"])
    outcomes = [CopyOutcome(target=uri, size_bytes=1, digest="", copied=True) for uri in files]
    write_records(f"{dump.uri}/load/outcomes/run.jsonl", outcomes)
    hidden = tmp_path / "t" / "p=1" / "_hive_federation" / "delete_delta_0000001_0000008"
    hidden.rename(hidden.parents[1] / hidden.name)
    for _ in range(2):
        finish_placing(Removing(policy=POLICY, check=lambda: None), dump)
        assert sorted(str(path.relative_to(tmp_path / "t")) for path in tmp_path.rglob("bucket_*")) == [
            "p=1/delete_delta_0000001_0000008/bucket_00000",
            "p=1/delta_0000001_0000008/bucket_00000",
            "p=2/_hive_federation/delete_delta_0000001_0000008/bucket_00000",
            "p=2/_hive_federation/delta_0000001_0000008/bucket_00000",
        ]


def test_tables_of_the_user_keep_the_files_of_open_transactions(tmp_path: Path) -> None:
    """An adopted database may hold a user's tables, and those that a killed load was about to adopt."""
    tables = {
        name: types.Table(
            dbName="d",
            tableName=name,
            tableType="MANAGED_TABLE",
            parameters={"transactional": "true", **marked},
            sd=types.StorageDescriptor(location=f"file:{tmp_path}/{name}"),
        )
        for name, marked in {"own": {}, "loaded": {markers.POLICY: "p"}, "begun": {}}.items()
    }
    for name in tables:
        for directory in ("delta_0000001_0000001_0000", "delta_0000002_0000002_0000"):
            file = tmp_path / name / directory / "bucket_00000"
            file.parent.mkdir(parents=True)
            file.write_bytes(b"rows")
    seen = types.TableValidWriteIds(
        writeIdHighWaterMark=2, invalidWriteIds=[2], abortedBits=b"", minOpenWriteId=2
    )
    client = SimpleNamespace(
        list_tables=lambda _: [*tables],
        get_tables=lambda _, names: [tables[name] for name in names],
        get_open_txns=lambda: types.GetOpenTxnsResponse(
            txn_high_water_mark=9, open_txns=[9], abortedBits=b""
        ),
        get_valid_write_ids=lambda names, *_, **__: dict.fromkeys(names, seen),
    )
    removing = Removing(policy=POLICY, check=lambda: None)
    for left in left_files(client, removing, {"begun"}):  # type: ignore[arg-type]
        removing.remove(left.root, left.paths(RangeState.NONE))
    kept = sorted(str(path.relative_to(tmp_path).parent) for path in tmp_path.rglob("bucket_*"))
    first, second = "delta_0000001_0000001_0000", "delta_0000002_0000002_0000"
    assert kept == [f"begun/{first}", f"loaded/{first}", f"own/{first}", f"own/{second}"]
