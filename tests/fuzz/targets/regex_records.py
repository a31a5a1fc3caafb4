"""Records of regular expressions, those that take a time without end among them."""

from __future__ import annotations

from airflow_hive_federation.ingest.formats.regex_records import StrictRegexWriter
from airflow_hive_federation.model.types import Column
from tests.fuzz.targets.delimited import TYPES

EXPRESSIONS = (
    r"(\S*) (\S*) (.*)",
    r"(a+)+b(.*)()",
    r"(.*),(.*),(.*)",
    r"((\d|\d\d)*)x(.*)",
    r"(?:(a)|(b)|(c))*",
)
ALLOWED = ()
TRACED = ("airflow_hive_federation.ingest.formats.regex_records",)
#: A process for each.
INPUTS = 25
SEEDS = [
    bytes([0, 0, 1, 2]) + b"a 1 1.5\nb 2 x\n",
    bytes([1, 0, 0, 0]) + b"aaaab\n" + b"a" * 40,
    bytes([2, 4, 5, 6]) + b"2026-01-31,2026-01-31 12:00:00,true",
    bytes([3, 0, 0, 0]) + b"1" * 60 + b"\n12x",
]
TOKENS = [b"a" * 30, b"1" * 30, b" ", b",", b"\n", b"\xff", b"x", b"b", "\u0663".encode()]


def run(data: bytes) -> None:
    """Match records of three columns."""
    first = (*data[:4], 0, 0, 0, 0)[:4]
    writer = StrictRegexWriter(EXPRESSIONS[first[0] % len(EXPRESSIONS)], limit_s=0.02)
    writer.bind([Column.of(f"c{place}", TYPES[byte % 10]) for place, byte in enumerate(first[1:])])
    records = data[4:].split(b"\n")
    parsed = writer.parse(records)
    assert parsed.rows.num_rows + len(parsed.bad) == len(records)
