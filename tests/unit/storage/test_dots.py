"""No path leaves its directory by ``.`` or ``..``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.storage.filesystem import is_below, join, open_filesystem, parse_location

NAMES = st.sampled_from(["a", "..", ".", "...", "..a", "a..", ".a", "p=..", "%2E%2E", "", "b c"])
PATHS = st.lists(NAMES, max_size=6).map("/".join)


@given(base=st.sampled_from(["file:/base", "s3a://bucket/base", "hdfs://nn:8020/base", "/base"]), path=PATHS)
def test_what_is_joined_lies_below(base: str, path: str) -> None:
    if {".", ".."} & set(path.split("/")):
        with pytest.raises(ConfigurationError, match="leave its directory"):
            join(base, path)
    else:
        assert is_below(join(base, path), base)


@pytest.mark.parametrize(
    "uri", ["file:/a/../b", "/a/..", "s3://b/../c", "hdfs://nn/a/./b", "file:///..", "file:/a/.", "/./a"]
)
def test_no_location_has_them(uri: str) -> None:
    for take in (parse_location, open_filesystem):
        with pytest.raises(ConfigurationError, match="leave its directory"):
            take(uri)


def test_relative_paths_are_the_shells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    root = os.fspath(tmp_path)
    assert parse_location("../x").path == f"{root}/x"
    assert parse_location("./x/../y").path == f"{root}/here/y"
