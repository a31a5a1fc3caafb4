from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc

from airflow_hive_federation.acid.rewrite import drop_rows, rewrite_file
from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.types import parse_type
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.orc.assembly import AssembledFile, encode, type_messages
from airflow_hive_federation.orc.tail import read_tail, replace_footer

NS = pa.timestamp("ns")
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


def test_a_copy_may_be_left_without_rows() -> None:
    copy = io.BytesIO()
    assert drop_rows(io.BytesIO(bucket_file(rows=9)), copy, ValidWriteIds(high_watermark=0)) == 9
    tail = read_tail(copy, "copy")
    assert (tail.row_count, tail.stripe_rows, len(tail.types)) == (0, (), 9)
    assert tail.user_metadata["hive.acid.key.index"] == b""
    assert orc.ORCFile(io.BytesIO(copy.getvalue())).read().num_rows == 0


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


def timed_rows(instants: list[int], wrap: Callable[[int], Any], kind: pa.DataType) -> pa.Table:
    """Rows of instants (nanoseconds since 1970), each first aborted, then committed."""
    rows = [
        {
            "operation": 0,
            "originalTransaction": write_id,
            "bucket": 536870912,
            "rowId": number,
            "currentTransaction": write_id,
            "row": {"t": wrap(instant)},
        }
        for number, instant in enumerate(instants)
        for write_id in (1, 2)
    ]
    return pa.Table.from_pylist(rows, ACID.set(5, pa.field("row", pa.struct([("t", kind)]))))


@pytest.mark.parametrize("compression", ["zlib", "zstd", "snappy", "uncompressed"])
def test_instants_before_1970_with_fractions(compression: str) -> None:
    # Later ones first: another writer has begun the file by then.
    instants = [5 * number for number in range(40_000)] + [-7_000_000_123 * number for number in range(1, 9)]
    source, copy = io.BytesIO(), io.BytesIO()
    row = "struct<operation:int,originalTransaction:bigint,bucket:int,rowId:bigint,currentTransaction:bigint,"
    types = type_messages(parse_type(f"{row}row:struct<t:timestamp>>"))
    file = AssembledFile(source, types, compression=compression, calendar=1)
    for stripe in encode(timed_rows(instants, lambda instants: instants, NS), compression):
        file.add(stripe)
    file.finish({"hive.acid.version": b"2"})
    assert drop_rows(source, copy, ValidWriteIds(high_watermark=2, aborted_ids=(1,))) == len(instants)
    copied = orc.ORCFile(io.BytesIO(copy.getvalue())).read().column("row").combine_chunks()
    assert copied.field("t").cast(pa.int64()).to_pylist() == instants
    before, after = read_tail(source, "source"), read_tail(copy, "copy")
    assert (after.types, after.calendar) == (before.types, before.calendar)
    assert after.user_metadata["hive.acid.stats"] == b"40008,0,0"
