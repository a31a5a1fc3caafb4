"""JSON records: by Arrow's reader and one by one the same rows, and the same bad records."""

from __future__ import annotations

from airflow_hive_federation.ingest.formats.json_records import StrictJsonWriter
from airflow_hive_federation.model.types import Column
from tests.fuzz.targets.delimited import TYPES, shown

ALLOWED = ()
TRACED = (
    "airflow_hive_federation.ingest.formats.json_records",
    "airflow_hive_federation.ingest.formats.lazy_values",
)
INPUTS = 700
SEEDS = [
    bytes([0, 1, 2]) + b'{"c0":"a","c1":1,"c2":1.5}\n{"C0":null}\nnull',
    bytes([0, 8, 6]) + b'{"c0":"a"\n}{"c1":2}\n{"c2":true,"x":[{}]}',
    bytes([2, 1, 0]) + b'{"c0":NaN}\n{"c0":-0}\n{"c1":1e5,"c2":{"a":[1.50]}}',
    bytes([10, 11, 12]) + b'{"c0":[1,null],"c1":{"a":1},"c2":{"A":1}}',
    bytes([3, 4, 13]) + b'{"c0":1e400,"c1":"2026-01-31","c2":"2026-01-31 00:00:00 Z"}',
]
TOKENS = [
    *(b"{", b"}", b"[", b"]", b'"', b":", b",", b"\n", b"null", b"NaN", b"Infinity", b"-0", b"1e999", b"\\u"),
    *(b"\\ud800", b'"c0":', b"} {", b"}\n{", b"\xef\xbb\xbf", b"1" * 400, b"true", b" ", b"\0", b"//"),
]


def run(data: bytes) -> None:
    """Parse records of three columns, whose types the first bytes name."""
    writer = StrictJsonWriter.new_builder().build()
    names = [TYPES[byte % len(TYPES)] for byte in (*data[:3], 0, 0, 0)[:3]]
    writer.bind([Column.of(f"c{place}", name) for place, name in enumerate(names)])
    records = data[3:].split(b"\n")
    assert shown(writer.parse(records)) == shown(writer._each(records)), (names, records)
