"""Cases of the snapshot worth naming; test_acid_snapshot_judge.py compares it with Hive at random."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.acid.history import check_history
from airflow_hive_federation.acid.snapshot import AcidState, acid_state
from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import UNBOUNDED, ValidTxns, ValidWriteIds
from airflow_hive_federation.storage.listing import list_files
from airflow_hive_federation.tables.read.locations import chosen


def state(*paths: str, ids: str = f"d.t:9:{UNBOUNDED}::", txns: str | None = None) -> AcidState:
    listing = [FileEntry(path=path, size_bytes=1) for path in paths]
    return acid_state(listing, ValidWriteIds.parse(ids), None if txns is None else ValidTxns.parse(txns))


def shown(snapshot: AcidState) -> list[str]:
    return [directory.path for directory in snapshot.directories]


def test_compaction_hides_what_it_covers() -> None:
    snapshot = state(
        "base_0000004_v0000007/bucket_00000",
        "delta_0000001_0000001_0000/bucket_00000_0",
        "delete_delta_0000004_0000004_0000/bucket_00000_0",
        "delta_0000005_0000005_0000/bucket_00000_0",
        "000000_0",
    )
    assert shown(snapshot) == ["base_0000004_v0000007", "delta_0000005_0000005_0000"]
    assert snapshot.obsolete == (
        "000000_0",
        "delete_delta_0000004_0000004_0000",
        "delta_0000001_0000001_0000",
    )


def test_a_compaction_not_committed_does_not_count() -> None:
    paths = ("base_0000001_v0000007/bucket_00000", "delta_0000001_0000001_0000/bucket_00000_0")
    assert shown(state(*paths, txns="8:7:7:")) == ["delta_0000001_0000001_0000"]
    snapshot = state(*paths, txns=f"8:{UNBOUNDED}::7")
    assert snapshot.aborted == ("base_0000001_v0000007",)


def test_an_overwrite_that_still_runs_is_invisible() -> None:
    # Hive's own AcidUtils shows it.
    paths = ("base_0000002/bucket_00000_0", "delta_0000001_0000001_0000/bucket_00000_0")
    assert shown(state(*paths, ids="d.t:2:2:2:")) == ["delta_0000001_0000001_0000"]
    assert shown(state(*paths, ids=f"d.t:2:{UNBOUNDED}::2")) == ["delta_0000001_0000001_0000"]
    assert shown(state(*paths, ids=f"d.t:2:{UNBOUNDED}::")) == ["base_0000002"]


def test_truncation_leaves_a_marker() -> None:
    snapshot = state("base_0000002/_metadata_acid", "delta_0000001_0000001_0000/bucket_00000_0")
    assert shown(snapshot) == ["base_0000002"]
    assert snapshot.files() == ()
    assert [entry.path for entry in snapshot.files(markers=True)] == ["base_0000002/_metadata_acid"]


def test_streaming_batch_with_aborted_write_ids() -> None:
    snapshot = state(
        "delta_0000001_0000004/bucket_00000",
        "delta_0000001_0000004/bucket_00000_flush_length",
        "delta_0000005_0000006/bucket_00000",
        ids=f"d.t:6:{UNBOUNDED}::2,5,6",
    )
    assert [directory.mixed for directory in snapshot.deltas] == [True]
    assert snapshot.side_files == {
        "delta_0000001_0000004/bucket_00000": "delta_0000001_0000004/bucket_00000_flush_length"
    }
    assert (snapshot.aborted, snapshot.aborted_write_ids) == (("delta_0000005_0000006",), (5, 6))
    assert snapshot.has_mixed_aborts


def test_loaded_files_are_raw() -> None:
    snapshot = state("delta_0000001_0000001_0000/000000_0", "delta_0000002_0000002_0000/bucket_00000_0")
    assert [directory.raw for directory in snapshot.deltas] == [True, False]


def test_originals_in_order() -> None:
    snapshot = state(
        "000000_0_copy_1", "000001_0", "000000_0", "HIVE_UNION_SUBDIR_1/000000_0", "_tmp/000000_0"
    )
    assert [entry.path for entry in snapshot.originals] == [
        "000000_0",
        "000000_0_copy_1",
        "000001_0",
        "HIVE_UNION_SUBDIR_1/000000_0",
    ]


def test_history_that_is_gone() -> None:
    with pytest.raises(AcidFormatError, match="Not enough history available") as caught:
        state("base_0000005_v0000007/bucket_00000", ids="d.t:6:4:4:")
    assert caught.value.path == "base_0000005_v0000007"


def test_bases_of_hive_3_are_known_by_their_marker() -> None:
    listing = [FileEntry(path="base_0000005/bucket_00000", size_bytes=1)]
    ids = ValidWriteIds.parse("d.t:6:4:4:")
    assert acid_state(listing, ids).base is not None
    with pytest.raises(AcidFormatError, match="Not enough history"):
        acid_state(listing, ids, compacted_bases=["base_0000005"])


@pytest.mark.parametrize(
    ("paths", "is_gone"),
    [
        # The compaction is under way: nothing has been removed.
        (["base_0000003_v0000099/b", "delta_0000001_0000001/b", "delta_0000003_0000003/b"], False),
        (["delta_0000001_0000003_v0000099/b", "delta_0000001_0000001/b", "delta_0000003_0000003/b"], False),
        (["base_0000003_v0000099/b", "base_0000003/b"], False),
        (["base_0000003_v0000099/b", "000000_0"], False),
        (["base_0000003_v0000099/b", "base_0000002_v0000050/b", "delta_0000003_0000003/b"], False),
        # It has read a part of a streaming batch, or an open write id's directory only.
        (["delta_0000001_0000003_v0000099/b", "delta_0000002_0000012/b"], False),
        (["delta_0000008_0000009_v0000099/b", "delta_0000008_0000008/b"], False),
        # What is seen was overwritten, or compacted before.
        (["delta_0000001_0000003_v0000099/b", "base_0000004/b"], False),
        (["delta_0000002_0000003_v0000099/b", "delta_0000001_0000004_v0000050/b"], False),
        # The cleaner has been there.
        (["base_0000003_v0000099/b"], True),
        (["base_0000003_v0000099/b", "delta_0000004_0000004/b"], True),
        (["delta_0000002_0000003_v0000099/b", "delete_delta_0000002_0000003_v0000099/b"], True),
        (["delta_0000002_0000003_v0000099/b", "base_0000001/b", "delta_0000004_0000004/b"], True),
    ],
)
def test_what_a_snapshot_sees_may_be_gone(paths: list[str], is_gone: bool) -> None:
    snapshot = state(*paths, txns="98:9223372036854775807::")
    ids = ValidWriteIds.parse(f"d.t:9:{UNBOUNDED}::")
    if is_gone:
        with pytest.raises(AcidFormatError, match=r"/t: the files of this snapshot .* and are gone"):
            check_history("/t", snapshot, ids)
    else:
        check_history("/t", snapshot, ids)
    # Nothing is missed of what was written after the snapshot.
    check_history("/t", snapshot, ValidWriteIds.parse(f"d.t:0:{UNBOUNDED}::"))


def test_an_empty_base_hides_what_was_before() -> None:
    snapshot = state("base_0000002/", "delta_0000001_0000001/000000_0", "_tmp/", "empty/", "000000_0")
    assert snapshot.base is not None
    assert snapshot.files() == ()
    assert set(snapshot.obsolete) == {"delta_0000001_0000001", "000000_0"}
    # It is judged as others are.
    assert state("base_0000009/", "delta_0000001_0000001/000000_0", ids="d.t:6:4:4:").base is None


def test_compaction_knows_bases_of_hive_3_as_readers_do(tmp_path: Path) -> None:
    for name in ("base_0000005/_metadata_acid", "base_0000005/b", "delta_0000006_0000006/b"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"thisFileVersion": "0", "dataFormat": "compacted"}')
    listing = list_files(str(tmp_path))
    # Write id 5 has aborted; what the base holds has not.
    ids = ValidWriteIds.parse("d.t:6:9223372036854775807::5")
    assert acid_state(listing, ids).base is None
    snapshot = chosen(str(tmp_path), listing, ids, ValidTxns.everything(), None)
    assert snapshot.base is not None
    assert [delta.path for delta in snapshot.deltas] == ["delta_0000006_0000006"]


def test_malformed_directory() -> None:
    with pytest.raises(AcidFormatError, match="delta_one"):
        state("delta_one/bucket_00000")
