"""Freshness of copies of transactional tables, by write ids."""

from __future__ import annotations

import pytest

from airflow_hive_federation.acid.snapshot import acid_state
from airflow_hive_federation.clusters.acid_snapshots import (
    brought_up,
    lacks_writes,
    may_lack_rows,
    missing_writes,
)
from airflow_hive_federation.clusters.metadata import (
    ClusterMetadata,
    Secondary,
    SourceMark,
    read_metadata,
    write_metadata,
)
from airflow_hive_federation.errors import ClusterMetadataError
from airflow_hive_federation.model.content_marks import content_mark
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import ValidWriteIds

COPY = "d.t:5:3:3:4"  # 3 is open, 4 aborted


def ids(text: str) -> ValidWriteIds:
    return ValidWriteIds.parse(text)


@pytest.mark.parametrize(
    ("now", "missing"),
    [
        (COPY, 0),
        ("d.t:5:9223372036854775807::3,4", 0),  # the open one was aborted
        ("d.t:5:9223372036854775807::4", 1),  # the open one was committed
        ("d.t:5:3:3:", 0),  # the aborted one is forgotten
        ("d.t:2:9223372036854775807::", 0),  # so are all above
        ("d.t:6:3:3:4", 1),
        ("d.t:6:3:3,6:4", 0),
        ("d.t:7:3:3:4,6,7", 0),
        ("d.t:9:7:7:4,6", 3),  # 3, 8 and 9
        ("d.other:5:3:3:4", None),
    ],
)
def test_missing_writes_make_a_copy_stale(now: str, missing: int | None) -> None:
    assert missing_writes(ids(COPY), ids(now)) == missing
    assert lacks_writes(ids(COPY), ids(now)) is (missing != 0)


@pytest.mark.parametrize(
    ("directories", "lacks"),
    [
        (["delta_0000001_0000001_0000"], False),  # 6 wrote to another partition
        (["delta_0000001_0000001_0000", "delta_0000006_0000006_0000"], True),
        (["delete_delta_0000006_0000006_0000"], True),
        (["base_0000002_v0000009", "delta_0000005_0000005_0000"], False),
        (["base_0000007"], True),
        (["delta_0000005_0000007_v0000009"], True),  # compacted: it may hold 6
    ],
)
def test_rows_that_a_copy_of_a_partition_may_lack(directories: list[str], lacks: bool) -> None:
    now = ids("d.t:7:9223372036854775807::3,4")
    state = acid_state(
        [FileEntry(path=f"{directory}/bucket_00000", size_bytes=1) for directory in directories], now
    )
    assert len(state.directories) == len(directories)
    assert may_lack_rows(ids(COPY), now, state) is lacks


def test_a_compacted_base_may_hold_all_below_its_write_id() -> None:
    now = ids("d.t:7:9223372036854775807::3,4,7")
    state = acid_state([FileEntry(path="base_0000007_v0000009/bucket_00000", size_bytes=1)], now)
    assert may_lack_rows(ids(COPY), now, state)


def test_aborted_ids_are_not_forgotten_with_the_metastore() -> None:
    made = brought_up(ids(COPY), ids("d.t:9:8:8:7"))
    assert (made.high_watermark, made.open_ids, made.aborted_ids) == (9, (8,), (4, 7))
    assert brought_up(ids(COPY), ids("d.t:2:9223372036854775807::")).high_watermark == 5


def test_an_open_id_above_a_lower_high_watermark_stays_open() -> None:
    # The copied files may hold rows of 3, and the metastore forgets aborted and committed ids alike.
    made = brought_up(ids(COPY), ids("d.t:2:9223372036854775807::"))
    assert not made.is_valid(3)
    assert lacks_writes(made, ids("d.t:5:9223372036854775807::4"))
    # Of an id below the high watermark, the metastore shows the end.
    assert brought_up(ids(COPY), ids("d.t:6:9223372036854775807::4")).open_ids == ()
    assert brought_up(ids(COPY), ids("d.t:6:9223372036854775807::3,4")).aborted_ids == (3, 4)
    assert brought_up(ids("d.t:5:3:3,5:4"), ids("d.t:4:2:2:")).min_open_id == 2


def test_a_snapshot_in_parameters() -> None:
    mark = SourceMark(metadata="0", files=0, size_bytes=0, content="0", listing="0")
    copy = Secondary(location="file:/c", source=mark, snapshot=ids(COPY))
    metadata = ClusterMetadata(primary="C1", next_primary="C2", secondaries={"C2": copy})
    parameters = write_metadata({"other": "x"}, metadata)
    assert read_metadata(parameters, "d.t") == metadata
    assert write_metadata(parameters, ClusterMetadata()) == {"other": "x"}
    parameters["hive.cluster.secondary.C2.snapshot"] = "nonsense"
    with pytest.raises(ClusterMetadataError, match="p=1 is damaged: the snapshot") as caught:
        read_metadata(parameters, "d.t/p=1")
    assert (caught.value.table, caught.value.partition) == ("d.t", "p=1")


def test_markers_of_acid_directories_are_files_of_a_copy() -> None:
    bucket = FileEntry(path="delta_1_1/bucket_0", size_bytes=3)
    marker = FileEntry(path="delta_1_1/_orc_acid_version", size_bytes=1)
    assert content_mark([bucket, marker]) != content_mark([bucket])
    for hidden in ("_orc_acid_version", "_tmp/_orc_acid_version", "delta_1_1/_other", ".x/bucket_0"):
        assert content_mark([bucket, FileEntry(path=hidden, size_bytes=1)]) == content_mark([bucket])
