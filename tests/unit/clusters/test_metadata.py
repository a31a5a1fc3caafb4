"""Cluster metadata in parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hive_federation.clusters.metadata import (
    ClusterMetadata,
    Secondary,
    metadata_mark,
    place_mark,
    read_metadata,
    source_mark,
    without_metadata,
    write_metadata,
)
from airflow_hive_federation.errors import ClusterMetadataError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.content_marks import content_mark, visible_files
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import ValidWriteIds

FILES = (
    FileEntry(path="a", size_bytes=1, modified_ns=5),
    FileEntry(path="sub/b", size_bytes=2, modified_ns=6),
)


def table(location: str = "hdfs://one/t", write_id: int | None = None, **parameters: str) -> types.Table:
    return types.Table(sd=types.StorageDescriptor(location=location), parameters=parameters, writeId=write_id)


MARK = source_mark(table(transient_lastDdlTime="1"), FILES)
COPY = Secondary(location="s3://two/t", source=MARK, former="s3://two/t-before")
NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,9}", fullmatch=True)
COPIES = st.builds(
    Secondary,
    location=st.text(min_size=1),
    source=st.just(MARK),
    former=st.none() | st.text(min_size=1),
    snapshot=st.none() | st.just(ValidWriteIds.of("d.t", high_watermark=1, invalid_ids=[], aborted_bits=b"")),
)


@given(
    st.dictionaries(st.text().filter(lambda key: not key.startswith("hive.cluster.")), st.text()),
    st.builds(
        ClusterMetadata,
        primary=st.none() | NAMES,
        next_primary=st.none() | NAMES,
        secondaries=st.dictionaries(NAMES, COPIES, max_size=3),
    ),
)
def test_parameters_keep_all_of_it_and_all_others(others: dict[str, str], metadata: ClusterMetadata) -> None:
    written = write_metadata(others, metadata)
    assert read_metadata(written, "d.t") == metadata
    assert without_metadata(written) == others
    assert write_metadata(written, ClusterMetadata()) == others


def test_no_parameters_are_no_metadata() -> None:
    assert read_metadata(None, "d.t") == ClusterMetadata()
    assert write_metadata(None, ClusterMetadata()) == {}
    assert metadata_mark(types.Table()) == metadata_mark(table("", 0))
    assert place_mark(types.Table()) == place_mark(table("", 3)) != place_mark(table("x"))


def test_empty_parameters_are_no_metadata() -> None:
    parameters = {"hive.cluster.primary": "", "hive.cluster.primary.next": ""}
    assert read_metadata(parameters, "d.t") == ClusterMetadata()
    parameters = {f"hive.cluster.secondary.C2.{part}": "" for part in ("former", "snapshot")}
    parameters |= write_metadata({}, ClusterMetadata(secondaries={"C2": replace(COPY, former=None)}))
    copy = read_metadata(parameters, "d.t").secondaries["C2"]
    assert (copy.former, copy.snapshot) == (None, None)


WHOLE = {"hive.cluster.secondary.C2.location": "x", "hive.cluster.secondary.C2.source": str(MARK)}
DAMAGED: dict[str, dict[str, str]] = {
    "empty-name": {key.replace(".C2.", ".."): value for key, value in WHOLE.items()},
    "no-size": {**WHOLE, "hive.cluster.secondary.C2.source": "1:a:2:b:c:d"},
    "no-snapshot": {**WHOLE, "hive.cluster.secondary.C2.snapshot": "d.t:x"},
    "no-source": {"hive.cluster.secondary.C2.location": "s3://two/t"},
    "no-location": {"hive.cluster.secondary.C2.source": str(MARK)},
    "only-former": {"hive.cluster.secondary.C2.former": "s3://two/t"},
    "unknown-part": {"hive.cluster.secondary.C2.colour": "red"},
    "unknown-part-of-a-whole-copy": {**WHOLE, "hive.cluster.secondary.C2.colour": "red"},
    "no-name": {"hive.cluster.secondary.location": "s3://two/t"},
    "other-version": {
        "hive.cluster.secondary.C2.location": "x",
        "hive.cluster.secondary.C2.source": "2" + str(MARK)[1:],
    },
    "cut-mark": {
        "hive.cluster.secondary.C2.location": "x",
        "hive.cluster.secondary.C2.source": str(MARK).rpartition(":")[0],
    },
    "no-number": {
        "hive.cluster.secondary.C2.location": "x",
        "hive.cluster.secondary.C2.source": "1:a:b:3:c:d",
    },
}


@pytest.mark.parametrize("name", sorted(DAMAGED))
def test_half_a_copy_is_damage(name: str) -> None:
    problem = {"no-source": "C2.source", "only-former": "C2.location"}.get(name, "is damaged")
    with pytest.raises(ClusterMetadataError, match=problem):
        read_metadata(DAMAGED[name], "d.t/day=1")
    with pytest.raises(ClusterMetadataError, match=r"d\.t/day=1") as caught:
        read_metadata(DAMAGED[name], "d.t/day=1")
    assert (caught.value.table, caught.value.partition) == ("d.t", "day=1")
    assert caught.value.cluster == (None if name in {"no-name", "empty-name"} else "C2")
    with pytest.raises(ClusterMetadataError) as caught:
        read_metadata(DAMAGED[name], "d.t")
    assert (caught.value.table, caught.value.partition) == ("d.t", None)


NAMES_OF_FILES = st.sampled_from(["a", "b", "_a", ".a", "_orc_acid_version", "_metadata_acid", "base_1"])


@given(st.lists(st.lists(NAMES_OF_FILES, min_size=1, max_size=3).map("/".join), max_size=6, unique=True))
def test_readers_see_no_hidden_files_but_the_markers_in_directories_that_they_see(paths: list[str]) -> None:
    """A file that is still being written must not make a copy stale."""

    def is_seen(path: str) -> bool:
        *directories, name = path.split("/")
        is_marker = name in {"_orc_acid_version", "_metadata_acid"} and bool(directories)
        return not any(part.startswith(("_", ".")) for part in directories) and (
            is_marker or not name.startswith(("_", "."))
        )

    files = [FileEntry(path=path, size_bytes=1, modified_ns=1) for path in paths]
    seen = [file for file in files if is_seen(file.path)]
    assert visible_files(files) == seen
    assert content_mark(files) == content_mark(seen)
    assert source_mark(table(), files) == source_mark(table(), seen)
    assert source_mark(table(), files).files == len(seen)


CHANGES: dict[str, Any] = {
    "location": table("hdfs://one/u", transient_lastDdlTime="1"),
    "write-id": table(write_id=4, transient_lastDdlTime="1"),
    "ddl-time": table(transient_lastDdlTime="2"),
    "size": table(transient_lastDdlTime="1", totalSize="9"),
    "files": table(transient_lastDdlTime="1", numFiles="9"),
}


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_a_write_that_the_metastore_knows_of_changes_the_mark(name: str) -> None:
    assert metadata_mark(CHANGES[name]) != MARK.metadata
    assert metadata_mark(table(transient_lastDdlTime="1", comment="other")) == MARK.metadata


def test_files_that_change_behind_the_metastore_change_the_mark() -> None:
    same = table(transient_lastDdlTime="1")
    first, second = FILES
    assert source_mark(same, reversed(FILES)) == MARK
    for files in (
        [first],
        [first, replace(second, path="sub/c")],
        [first, replace(second, size_bytes=3)],
        [first, replace(second, modified_ns=7)],
    ):
        assert source_mark(same, files).listing != MARK.listing


def test_a_copy_has_the_content_of_its_primary_and_other_times() -> None:
    assert content_mark(replace(file, modified_ns=99) for file in FILES) == MARK.content
    assert content_mark(FILES[:1]) != MARK.content


def test_a_copy_is_replaced_and_removed() -> None:
    metadata = ClusterMetadata(primary="C1", secondaries={"C2": COPY})
    other = replace(COPY, location="s3://two/other")
    assert metadata.with_secondary("C2", other).secondaries == {"C2": other}
    assert metadata.with_secondary("C2", None) == ClusterMetadata(primary="C1")
