"""The inputs and outputs of a compaction."""

from __future__ import annotations

import json

import pytest

from airflow_hive_federation.acid.snapshot import acid_state
from airflow_hive_federation.compaction.plan import (
    BucketMerge,
    CompactedTable,
    CompactionKind,
    CompactionPlan,
    Decision,
    FileFormat,
    compactor_write_ids,
    plan_compaction,
    staging_directory,
    staging_txn,
)
from airflow_hive_federation.errors import AcidFormatError, ConfigurationError
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds

TABLE = CompactedTable(name="d.t", partition="p=1", location="s3://b/d/t/p=1", columns=(("id", "int"),))


def plan(
    kind: CompactionKind,
    *paths: str,
    table: CompactedTable = TABLE,
    high: int = 9,
    open_ids: tuple[int, ...] = (),
    aborted: tuple[int, ...] = (),
) -> CompactionPlan:
    valid = ValidWriteIds(
        table="d.t",
        high_watermark=high,
        open_ids=open_ids,
        aborted_ids=aborted,
        min_open_id=open_ids[0] if open_ids else None,
    )
    listing = [FileEntry(path=path, size_bytes=10) for path in paths]
    write_ids = compactor_write_ids(valid, listing, ValidTxns.everything())
    state = acid_state(listing, write_ids, ValidTxns.everything())
    return plan_compaction(table, state, write_ids, kind, 77)


def inputs(merge: BucketMerge) -> tuple[list[str], list[str]]:
    return [file.path for file in merge.inserts], [file.path for file in merge.deletes]


BASE = ("base_0000002/bucket_00000", "base_0000002/bucket_00001")
CHANGES = (
    "delta_0000003_0000003_0000/bucket_00000_0",
    "delete_delta_0000004_0000004_0000/bucket_00000_0",
    "delta_0000004_0000004_0001/bucket_00000_0",
)


def test_major() -> None:
    made = plan(CompactionKind.MAJOR, *BASE, *CHANGES)
    assert made.decision is Decision.COMPACT
    assert made.directories == ("base_0000009_v0000077",)
    first, second = made.merges
    assert first.output == "_compaction_v0000077/base_0000009_v0000077/bucket_00000"
    assert inputs(first) == ([BASE[0], CHANGES[0], CHANGES[2]], [CHANGES[1]])
    assert inputs(second) == ([BASE[1]], [])
    assert "base_0000002" in made.reads


def test_minor_leaves_the_base_alone() -> None:
    made = plan(CompactionKind.MINOR, *BASE, *CHANGES)
    assert made.directories == ("delta_0000003_0000009_v0000077", "delete_delta_0000003_0000009_v0000077")
    rows, deletes = made.merges
    assert inputs(rows) == ([CHANGES[0], CHANGES[2]], [])
    assert inputs(deletes) == ([], [CHANGES[1]])
    assert not any(path.startswith("base") for path in made.reads)


def test_nothing_above_the_lowest_open_write_id_is_read() -> None:
    made = plan(CompactionKind.MAJOR, *BASE, *CHANGES, open_ids=(4,))
    assert made.directories == ("base_0000003_v0000077",)
    assert made.reads == ("base_0000002", "delta_0000003_0000003_0000")


@pytest.mark.parametrize("kind", list(CompactionKind))
@pytest.mark.parametrize(
    ("high", "open_ids"),
    # Its second transaction is open; or was the last, and the metastore does not count that it was aborted.
    [(9, (6,)), (5, ())],
)
def test_a_streaming_batch_that_is_half_committed_is_not_hidden(
    kind: CompactionKind, high: int, open_ids: tuple[int, ...]
) -> None:
    batch = "delta_0000005_0000006/bucket_00000"
    made = plan(kind, *BASE, *CHANGES, batch, high=high, open_ids=open_ids)
    assert {name.partition("_v")[0][-7:] for name in made.directories} == {"0000004"}
    assert batch.partition("/")[0] not in made.reads
    listing = [
        FileEntry(path=path, size_bytes=10)
        for path in (*BASE, *CHANGES, batch, *(f"{name}/bucket_00000" for name in made.directories))
    ]
    first_committed = ValidWriteIds(table="d.t", high_watermark=high, open_ids=open_ids, aborted_ids=())
    state = acid_state(listing, first_committed, ValidTxns.everything())
    assert [delta.path for delta in state.deltas][-1:] == [batch.partition("/")[0]]


BATCH = "delta_0000015_0000025"


@pytest.mark.parametrize(
    ("base", "aborted", "highest"),
    [
        (None, (), 14),
        ("base_0000018_v0000098", (), 18),
        ("base_0000018_v0000099", (), 14),
        ("base_0000018_v0000100", (), 14),
        ("base_0000020_v0000099", (), 14),
        # Hive 3 notes no transaction in names.
        ("base_0000018", (), 18),
        ("base_0000018", (18,), 14),
        ("base_0000010_v0000098", (), 14),
    ],
)
def test_only_a_base_that_readers_see_counts_inside_a_streaming_batch(
    base: str | None, aborted: tuple[int, ...], highest: int
) -> None:
    """Transactions 15 to 20 have ended; 99 was aborted, and 100 is open."""
    listing = [FileEntry(path=f"{name}/bucket_00000", size_bytes=10) for name in (base, BATCH) if name]
    write_ids = ValidWriteIds(
        table="d.t", high_watermark=25, open_ids=tuple(range(21, 26)), aborted_ids=aborted, min_open_id=21
    )
    txns = ValidTxns(high_watermark=100, open_ids=(100,), aborted_ids=(99,), min_open_id=100)
    assert compactor_write_ids(write_ids, listing, txns).high_watermark == highest


@pytest.mark.parametrize("kind", list(CompactionKind))
def test_a_batch_across_a_base_is_not_hidden(kind: CompactionKind) -> None:
    """Hive's compactor made the base while the batch was half committed; readers read both."""
    base, others = "base_0000017_v0000010", ("delta_0000018_0000018_0000", "delta_0000019_0000019_0000")
    paths = [f"{name}/bucket_00000" for name in (base, *others, BATCH)]
    made = plan(kind, *paths, high=25, open_ids=(21, 22, 23, 24, 25))
    assert made.decision is Decision.REFUSE
    listing = [FileEntry(path=path, size_bytes=10) for path in paths]
    write_ids = ValidWriteIds(table="d.t", high_watermark=20)
    state = acid_state(listing, write_ids, ValidTxns.everything())
    assert state.base is not None
    assert (state.base.path, state.deltas[0].path) == (base, BATCH)


@pytest.mark.parametrize(
    ("kind", "paths", "aborted", "decision"),
    [
        (CompactionKind.MAJOR, CHANGES[:1], (), Decision.REFUSE),
        (CompactionKind.MAJOR, BASE, (), Decision.REFUSE),
        (CompactionKind.MAJOR, (*BASE, CHANGES[0]), (), Decision.COMPACT),
        (CompactionKind.MAJOR, (), (), Decision.REFUSE),
        (CompactionKind.MAJOR, ("000000_0",), (), Decision.COMPACT),
        (CompactionKind.MAJOR, (*BASE, "delta_0000001_0000001_0000/bucket_00000_0"), (), Decision.CLEAN),
        (CompactionKind.MAJOR, (*BASE, CHANGES[0]), (3,), Decision.CLEAN),
        (CompactionKind.MINOR, (*BASE, CHANGES[0]), (), Decision.REFUSE),
        # What a minor compaction leaves is not compacted again and again.
        (CompactionKind.MINOR, (*BASE, *CHANGES[:2]), (), Decision.REFUSE),
        (CompactionKind.MINOR, (*BASE, CHANGES[0], CHANGES[2]), (), Decision.COMPACT),
        (CompactionKind.MINOR, CHANGES, (), Decision.COMPACT),
    ],
)
def test_thresholds_are_those_of_hive(
    kind: CompactionKind, paths: tuple[str, ...], aborted: tuple[int, ...], decision: Decision
) -> None:
    assert plan(kind, *paths, aborted=aborted).decision is decision


def test_raw_files_are_numbered_by_their_directory() -> None:
    made = plan(
        CompactionKind.MAJOR,
        "000000_0",
        "000000_0_copy_1",
        "delta_0000003_0000003_0002/000000_0",
        "delta_0000004_0000004_0000/bucket_00000_0",
    )
    (merge,) = made.merges
    assert [(insert.raw, insert.write_id, insert.statement_id) for insert in merge.inserts] == [
        (True, 0, 0),
        (True, 0, 0),
        (True, 3, 2),
        (False, 0, 0),
    ]


def test_a_file_still_being_written_counts_up_to_its_flushed_length() -> None:
    made = plan(
        CompactionKind.MAJOR,
        "delta_0000001_0000002/bucket_00000",
        "delta_0000001_0000002/bucket_00000_flush_length",
        *CHANGES,
    )
    assert made.merges[0].inserts[0].side_file == "delta_0000001_0000002/bucket_00000_flush_length"


def test_insert_only() -> None:
    table = CompactedTable(
        name="d.t", location="file:/d/t", columns=(("id", "int"),), file_format=FileFormat.PARQUET
    )
    made = plan(
        CompactionKind.MAJOR,
        "delta_0000001_0000001_0000/000000_0",
        "delta_0000002_0000002_0000/000000_0",
        "delta_0000002_0000002_0000/000001_0",
        table=table,
    )
    assert [merge.output.rpartition("/")[2] for merge in made.merges] == ["000000_0", "000001_0"]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("bucket_00007_0", "3 buckets"),
        ("part-00000.orc", "has no bucket"),
        ("bucket_05000_0", "no bucket above 4095"),
    ],
)
def test_files_the_table_cannot_have(path: str, why: str) -> None:
    table = CompactedTable(
        name="d.t", partition="p=1", location="file:/d/t/p=1", columns=(("id", "int"),), bucket_count=3
    )
    with pytest.raises(AcidFormatError, match=why) as caught:
        plan(CompactionKind.MAJOR, *BASE, f"delta_0000003_0000003_0000/{path}", table=table)
    assert caught.value.table == "d.t"
    assert caught.value.partition == "p=1"
    assert caught.value.path == f"file:/d/t/p=1/delta_0000003_0000003_0000/{path}"


def test_merges_travel_as_json() -> None:
    for merge in plan(CompactionKind.MAJOR, *BASE, *CHANGES).merges:
        assert BucketMerge.from_json(json.loads(json.dumps(merge.to_json()))) == merge


def test_staging_directories_name_their_transaction() -> None:
    assert staging_txn(staging_directory(12)) == 12
    assert staging_txn(staging_directory(123456789)) == 123456789
    assert staging_txn("_compaction_vx") is None
    assert staging_txn("base_0000001") is None


def test_kinds() -> None:
    assert CompactionKind.of("MAJOR") is CompactionKind.MAJOR
    with pytest.raises(ConfigurationError, match="sideways"):
        CompactionKind.of("sideways")
