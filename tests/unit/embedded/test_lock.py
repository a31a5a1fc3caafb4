"""The lock of jars."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hive_federation.embedded.lock import (
    METASTORE,
    SCHEMA,
    SQL,
    Artifact,
    file_sha256,
    format_lock,
    lock_text,
    locked,
    parse_coordinates,
    parse_lock,
)

WORD = st.from_regex(r"[A-Za-z0-9._-]{1,12}", fullmatch=True)
ARTIFACTS = st.builds(
    Artifact,
    jar_set=st.sampled_from([METASTORE, SQL, SCHEMA]),
    group=WORD,
    name=WORD,
    version=WORD,
    classifier=st.one_of(st.just(""), WORD),
    extension=st.sampled_from(["jar", "tar.gz"]),
    sha256=st.from_regex(r"[0-9a-f]{64}", fullmatch=True),
    size_bytes=st.integers(0, 1 << 40),
)


@given(st.lists(ARTIFACTS, unique_by=lambda artifact: (artifact.jar_set, artifact.coordinates)))
def test_what_is_written_is_read_back(artifacts: list[Artifact]) -> None:
    read = parse_lock(format_lock(artifacts))
    assert sorted(read, key=str) == sorted(artifacts, key=str)
    assert format_lock(read) == format_lock(reversed(artifacts))


def test_our_own_lock_is_complete_and_in_its_written_form() -> None:
    artifacts = parse_lock(lock_text())
    assert format_lock(artifacts) == lock_text()
    assert all(len(artifact.sha256) == 64 and artifact.size_bytes for artifact in artifacts)
    names = [artifact.file_name for artifact in artifacts]
    assert len(set(names)) == len(names)
    assert len(locked(SCHEMA)) == 1


def test_log4j_comes_before_the_jar_that_only_tez_wants_one_class_of() -> None:
    names = [artifact.name for artifact in locked(METASTORE, SQL)]
    assert names.index("log4j-1.2-api") < names.index("reload4j")


@pytest.mark.parametrize(
    "line", ["metastore a:b@jar 00 1", "metastore a:b:c@jar 00", "metastore a:b:c@jar 00 x"]
)
def test_a_broken_line_is_named_by_its_number(line: str) -> None:
    with pytest.raises(ValueError, match="line 2 of the lock"):
        parse_lock(f"# comment\n{line}\n")


def test_a_file_matches_by_size_and_digest(tmp_path: Path) -> None:
    path = tmp_path / "a-1.jar"
    path.write_bytes(b"content")
    right = Artifact(
        jar_set=SQL, group="g", name="a", version="1", sha256=file_sha256(path), size_bytes=len(b"content")
    )
    assert right.file_name == "a-1.jar"
    assert right.matches(path)
    path.write_bytes(b"CONTENT")
    assert not right.matches(path)
    assert not right.matches(tmp_path / "absent")


def test_coordinates_with_classifier_and_extension() -> None:
    artifact = parse_coordinates(SCHEMA, "g:a:1:src@tar.gz")
    assert (artifact.classifier, artifact.extension, artifact.file_name) == (
        "src",
        "tar.gz",
        "a-1-src.tar.gz",
    )
    assert artifact.coordinates == "g:a:1:src@tar.gz"
