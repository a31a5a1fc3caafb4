"""Tails of ORC files of every compression are read."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import orc

from airflow_hive_federation.orc.chunks import decompressed
from airflow_hive_federation.orc.compression import COMPRESSIONS, CompressedStream
from airflow_hive_federation.orc.tail import read_tail

_CODECS = ["zlib", "zstd", "snappy", "lz4"]
# Long literals, long matches, and both.
_CONTENTS = st.lists(st.tuples(st.binary(max_size=700), st.integers(0, 2_000)), min_size=1, max_size=20).map(
    lambda parts: b"".join(part + b"x" * count + part for part, count in parts)
)


@pytest.mark.parametrize("codec", _CODECS)
@given(content=_CONTENTS)
def test_chunks_are_decompressed(codec: str, content: bytes) -> None:
    chunks = CompressedStream(content, lambda chunk: _compressed(bytes(chunk), codec)).pieces
    assert decompressed(b"".join(chunks), COMPRESSIONS[codec]) == content


def _compressed(chunk: bytes, codec: str) -> bytes:
    if codec == "zlib":
        import zlib

        return zlib.compress(chunk, wbits=-15)
    return bytes(pa.Codec("lz4_raw" if codec == "lz4" else codec).compress(chunk, asbytes=True))


@pytest.mark.parametrize("codec", ["uncompressed", *_CODECS])
def test_tails_by_pyarrow(codec: str) -> None:
    columns = {f"column{number}": np.arange(5_000) + number for number in range(40)}
    made = io.BytesIO()
    orc.write_table(pa.table(columns), made, compression=codec)
    tail = read_tail(made, "made")
    assert (tail.row_count, tail.compression, len(tail.types)) == (5_000, codec, 41)
