from __future__ import annotations

import pytest

from airflow_hive_federation.acid.names import (
    DirectoryKind,
    FileKind,
    FileName,
    bucket_file,
    parse_directory,
    parse_file,
    side_file,
)
from airflow_hive_federation.errors import AcidFormatError


@pytest.mark.parametrize(
    "name",
    [
        "base_0000005",
        "base_-9223372036854775808",
        "base_0000005_v0000123",
        "delta_0000002_0000002_0001",
        "delta_0000002_0000007",
        "delta_0000002_0000007_v0000123",
        "delete_delta_0000002_0000002_0000",
        "delete_delta_10000001_10000002_v12345678",
    ],
)
def test_names_survive_a_round(name: str) -> None:
    assert str(parse_directory(name)) == name


def test_parts() -> None:
    name = parse_directory("delete_delta_3_12_0002_v99")
    assert (name.kind, name.min_write_id, name.max_write_id) == (DirectoryKind.DELETE_DELTA, 3, 12)
    assert (name.statement_id, name.visibility_txn_id) == (2, 99)


@pytest.mark.parametrize(
    "name", ["base_", "base_x", "delta_1", "delta_5_3", "delta_1_2_3_4", "delta_1_1_vx", "day=1"]
)
def test_malformed_directories(name: str) -> None:
    with pytest.raises(AcidFormatError, match="is not the name of a base"):
        parse_directory(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bucket_00003", FileName(kind=FileKind.BUCKET, bucket=3)),
        ("bucket_00003_7", FileName(kind=FileKind.BUCKET, bucket=3, attempt=7)),
        ("bucket_00003_flush_length", FileName(kind=FileKind.SIDE_FILE)),
        ("000012_0", FileName(kind=FileKind.ORIGINAL, bucket=12, attempt=0)),
        ("000012_0_copy_10", FileName(kind=FileKind.ORIGINAL, bucket=12, attempt=0, copy_number=10)),
        ("_orc_acid_version", FileName(kind=FileKind.VERSION)),
        ("_metadata_acid", FileName(kind=FileKind.METADATA)),
        ("_SUCCESS", FileName(kind=FileKind.HIDDEN)),
        (".000000_0.crc", FileName(kind=FileKind.HIDDEN)),
        ("part-00000.orc", FileName(kind=FileKind.OTHER)),
    ],
)
def test_files(name: str, expected: FileName) -> None:
    assert parse_file(name) == expected


def test_formatters() -> None:
    assert bucket_file(3) == "bucket_00003"
    assert bucket_file(3, 1) == "bucket_00003_1"
    assert side_file(bucket_file(3)) == "bucket_00003_flush_length"
