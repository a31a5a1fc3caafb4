from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc

from airflow_hive_federation.acid.orc_tail import read_tail, replace_footer
from airflow_hive_federation.acid.rewrite import drop_rows, rewrite_file
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
def test_rows_of_aborted_write_ids_go(compression: str, deletes: bool) -> None:
    source, copy = io.BytesIO(bucket_file(deletes=deletes, compression=compression)), io.BytesIO()
    assert drop_rows(source, copy, ValidWriteIds(high_watermark=3, aborted_ids=(2,))) == 10_000
    before = orc.ORCFile(source).read().to_pylist()
    after = orc.ORCFile(io.BytesIO(copy.getvalue())).read().to_pylist()
    assert after == [row for row in before if row["currentTransaction"] != 2]
    tail = read_tail(copy, "copy")
    assert tail.compression == compression
    assert tail.user_metadata["hive.acid.stats"] == (b"0,0,20000" if deletes else b"20000,0,0")
    assert len(tail.user_metadata["hive.acid.key.index"].split(b";")) == len(tail.stripe_rows) + 1


def test_the_same_input_gives_the_same_bytes() -> None:
    content, ids = bucket_file(rows=100), ValidWriteIds(high_watermark=2)
    copies = [io.BytesIO(), io.BytesIO()]
    for copy in copies:
        drop_rows(io.BytesIO(content), copy, ids)
    assert copies[0].getvalue() == copies[1].getvalue()


def test_only_the_flushed_part_is_read(tmp_path: Path) -> None:
    content = bucket_file(rows=100)
    source = tmp_path / "bucket_00000"
    source.write_bytes(content + b"more")
    source.with_name("bucket_00000_flush_length").write_bytes(len(content).to_bytes(8, "big"))
    write_ids = ValidWriteIds(table="d.t", high_watermark=3)
    rewrite_file(f"file:{source}", f"file:{tmp_path}/copy", write_ids.text())
    assert orc.ORCFile(tmp_path / "copy").nrows == 100


def test_an_empty_file_stays_empty() -> None:
    copy = io.BytesIO()
    assert drop_rows(io.BytesIO(), copy, ValidWriteIds(high_watermark=3)) == 0
    assert copy.getvalue() == b""


@pytest.mark.parametrize("content", [b"ORC", b"no file of that kind\x03", bucket_file(rows=10)[:-20]])
def test_what_is_no_whole_orc_file(content: bytes) -> None:
    copy = io.BytesIO()
    with pytest.raises(AcidFormatError, match="bucket_7"):
        drop_rows(io.BytesIO(content), copy, ValidWriteIds(high_watermark=3), name="bucket_7")
    assert copy.getvalue() == b""


def test_a_plain_file_is_refused() -> None:
    plain = io.BytesIO()
    orc.write_table(pa.table({"id": [1]}), plain)
    with pytest.raises(AcidFormatError, match="not those of an ACID file"):
        drop_rows(plain, io.BytesIO(), ValidWriteIds(high_watermark=3))


def test_another_number_of_types_is_refused() -> None:
    file = io.BytesIO(bucket_file(rows=10))
    with pytest.raises(AcidFormatError, match="9 columns, but 0"):
        replace_footer(file, "bucket_00000", types=[], calendar=None, user_metadata={})
