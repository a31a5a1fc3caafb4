"""Tails of ORC files: of each codec, damaged."""

from __future__ import annotations

import io

import pyarrow as pa
from pyarrow import orc

from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.orc.tail import read_tail

ALLOWED = (AcidFormatError,)
TRACED = (
    "airflow_hive_federation.orc.tail",
    "airflow_hive_federation.orc.tail_bounds",
    "airflow_hive_federation.orc.chunks",
    "airflow_hive_federation.model.protobuf",
)
INPUTS = 1500
_ROWS = pa.table({"a": [1, 2], "b": ["x", None], "c": [{"d": [1]}, None]})


def _seed(codec: str) -> bytes:
    sink = io.BytesIO()
    orc.write_table(_ROWS, sink, compression=codec)
    return sink.getvalue()


SEEDS = [_seed(codec) for codec in ("uncompressed", "zlib", "zstd", "snappy", "lz4")]
TOKENS = [b"ORC", b"\x03ORC", b"\x08\x01", b"\x12\x02", b"\x1a\x00", b"\x22\x04", b"\x0a\x00", b"\x01\0\0"]


def run(data: bytes) -> None:
    """Read a tail; what is read, pyarrow reads too or refuses, and stays alive."""
    read_tail(io.BytesIO(data), "f")
    try:
        file = orc.ORCFile(io.BytesIO(data))
        assert file.nrows >= 0
    except (pa.ArrowException, OSError):
        return
