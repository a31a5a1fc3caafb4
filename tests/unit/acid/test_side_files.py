"""The side file gives the length that counts of a file that is still being written."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from airflow_hive_federation.acid.side_files import flushed_length, read_flushed_length
from airflow_hive_federation.errors import AcidFormatError


def test_the_last_whole_length_counts() -> None:
    assert flushed_length(struct.pack(">qq", 100, 2_500) + b"\x00\x00") == 2_500
    assert flushed_length(bytes(8)) == 0


@pytest.mark.parametrize("content", [b"", b"\x00\x00"])
def test_no_whole_length(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "bucket_00000_flush_length").write_bytes(content)
    with pytest.raises(AcidFormatError, match="bucket_00000_flush_length holds no length"):
        read_flushed_length(f"file:{tmp_path}/bucket_00000_flush_length")


def test_without_a_side_file_the_whole_file_counts(tmp_path: Path) -> None:
    assert read_flushed_length(f"file:{tmp_path}/bucket_00000_flush_length") is None
