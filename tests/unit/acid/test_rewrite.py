from __future__ import annotations

import io
import struct
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc

from airflow_hive_federation.acid.orc_tail import read_tail, replace_footer
from airflow_hive_federation.acid.rewrite import drop_rows, flushed_length
from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.write_ids import ValidWriteIds

ACID = pa.schema(
    [
        ("operation", pa.int32()),
        ("originalTransaction", pa.int64()),
        ("bucket", pa.int32()),
        ("rowId", pa.int64()),
        ("currentTransaction", pa.int64()),
        ("row", pa.struct([("id", pa.int32()), ("name", pa.string())])),
    ]
)


def bucket_file(*, deletes: bool = False, compression: str = "zlib", rows: int = 30_000) -> bytes:
    made = [
        {
            "operation": 2 if deletes else 0,
            "originalTransaction": 1 if deletes else 1 + number % 3,
            "bucket": 536870912,
            "rowId": number,
            "currentTransaction": 1 + number % 3,
            "row": None if deletes else {"id": number, "name": f"name {number}"},
        }
        for number in range(rows)
    ]
    out = pa.BufferOutputStream()
    with orc.ORCWriter(out, compression=compression, stripe_size=100_000) as writer:
        writer.write(pa.Table.from_pylist(made, ACID))
    return out.getvalue().to_pybytes()


@pytest.mark.parametrize("compression", ["zlib", "zstd", "snappy", "uncompressed"])
@pytest.mark.parametrize("deletes", [False, True])
def test_rows_of_aborted_write_ids_go(compression: str, deletes: bool, tmp_path: Path) -> None:
    content = bucket_file(deletes=deletes, compression=compression)
    target = tmp_path / "bucket_00000"
    assert drop_rows(content, target, ValidWriteIds(high_watermark=3, aborted_ids=(2,))) == 10_000
    before = orc.ORCFile(io.BytesIO(content)).read().to_pylist()
    after = orc.ORCFile(target).read().to_pylist()
    assert after == [row for row in before if row["currentTransaction"] != 2]
    tail = read_tail(io.BytesIO(target.read_bytes()), "copy")
    assert tail.compression == compression
    assert tail.user_metadata["hive.acid.stats"] == (b"0,0,20000" if deletes else b"20000,0,0")
    assert len(tail.user_metadata["hive.acid.key.index"].split(b";")) == len(tail.stripe_rows) + 1


def test_the_same_input_gives_the_same_bytes() -> None:
    content, ids = bucket_file(rows=100), ValidWriteIds(high_watermark=2)
    copies = [io.BytesIO(), io.BytesIO()]
    for copy in copies:
        drop_rows(content, copy, ids)
    assert copies[0].getvalue() == copies[1].getvalue()


def test_only_the_flushed_part_is_read() -> None:
    content = bucket_file(rows=100)
    copy = io.BytesIO()
    assert drop_rows(content + b"more", copy, ValidWriteIds(high_watermark=3), flush_length=len(content)) == 0
    assert orc.ORCFile(io.BytesIO(copy.getvalue())).nrows == 100


@pytest.mark.parametrize("content", [b"", b"ORC", b"no file of that kind\x03", bucket_file(rows=10)[:-20]])
def test_what_is_no_whole_orc_file(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(AcidFormatError, match="bucket_7"):
        drop_rows(content, tmp_path / "copy", ValidWriteIds(high_watermark=3), name="bucket_7")
    assert not (tmp_path / "copy").exists()


def test_a_plain_file_is_refused(tmp_path: Path) -> None:
    orc.write_table(pa.table({"id": [1]}), tmp_path / "plain")
    with pytest.raises(AcidFormatError, match="not those of an ACID file"):
        drop_rows(tmp_path / "plain", io.BytesIO(), ValidWriteIds(high_watermark=3))


def test_flushed_length_is_the_last_whole_one() -> None:
    assert flushed_length(struct.pack(">qq", 100, 2_500) + b"\x00\x00") == 2_500
    with pytest.raises(AcidFormatError, match="holds no length"):
        flushed_length(b"\x00\x00")


def test_another_number_of_types_is_refused() -> None:
    file = io.BytesIO(bucket_file(rows=10))
    with pytest.raises(AcidFormatError, match="9 columns, but 0"):
        replace_footer(file, "bucket_00000", types=[], calendar=None, user_metadata={})
