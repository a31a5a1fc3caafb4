"""Delimited records: by Arrow's reader and one by one the same rows, and the same bad records."""

from __future__ import annotations

from airflow_hive_federation.ingest.formats.delimited import StrictDelimitedInputWriter
from airflow_hive_federation.ingest.formats.writers import Parsed
from airflow_hive_federation.model.types import Column

TYPES = (
    *(
        "string",
        "int",
        "double",
        "decimal(10,2)",
        "date",
        "timestamp",
        "boolean",
        "binary",
        "bigint",
        "float",
    ),
    *("array<int>", "map<string,int>", "struct<a:int,b:string>", "timestamp with local time zone"),
)
ALLOWED = ()
TRACED = (
    "airflow_hive_federation.ingest.formats.delimited",
    "airflow_hive_federation.ingest.formats.lazy_values",
)
INPUTS = 700
SEEDS = [
    bytes([0, 1, 2]) + b"a,1,1.5\nb,\\N,2\n,,",
    bytes([4, 5, 6]) + b"2026-01-31,2026-01-31 12:00:00.5,true\n1-1-1,x,FALSE",
    bytes([3, 7, 8]) + b"1.005,YWI=,9223372036854775807\n-0,,-1",
    bytes([10, 11, 12]) + b"1\x022,a\x031\x02b\x03,1\x02x\n,,",
    bytes([13, 9, 0]) + b"2026-01-31 12:00:00 Europe/Berlin,NaN,x\n2026-01-31,1e400,",
]
TOKENS = [
    b",",
    b"\n",
    b"\r",
    b"\x02",
    b"\x03",
    b"\\N",
    b"\xef\xbb\xbf",
    b"NaN",
    b"1e999",
    b"0x1p9",
    b" ",
    b'"',
    b"\0",
]


def run(data: bytes) -> None:
    """Parse records of three columns, whose types the first bytes name."""
    names = [TYPES[byte % len(TYPES)] for byte in (*data[:3], 0, 0, 0)[:3]]
    writer = StrictDelimitedInputWriter(
        field_delimiter=",", malformed="null" if len(data) % 5 == 0 else "raise"
    )
    writer.bind([Column.of(f"c{place}", name) for place, name in enumerate(names)])
    records = data[3:].split(b"\n")
    assert shown(writer.parse(records)) == shown(writer._each(records)), (names, records)


def shown(parsed: Parsed) -> tuple[str, list[int]]:
    """Rows and bad records, as text: not every number equals itself."""
    return repr(parsed.rows.to_pylist()), [bad.index for bad in parsed.bad]
