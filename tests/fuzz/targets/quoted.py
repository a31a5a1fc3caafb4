"""Quoted CSV: lines in any pieces give the same records; Arrow and one by one give the same rows."""

from __future__ import annotations

from airflow_hive_federation.ingest.formats.quoted import Dialect, QuotedInputWriter, RecordJoiner
from airflow_hive_federation.model.types import Column
from tests.fuzz.targets.delimited import TYPES, shown

ALLOWED = ()
TRACED = ("airflow_hive_federation.ingest.formats.quoted",)
INPUTS = 300
SEEDS = [
    bytes([0, 1, 2, 3]) + b'a,1,1.5\n"b, c","2",\\N\n"",,""',
    bytes([0, 0, 0, 7]) + b'"two\nlines","say ""hi""",5" pipe\r\n"open,x,y\n',
    bytes([0, 0, 0, 9]) + b'a,"b,"c,d\n,"1,"\n"x","y","z"',
    bytes([4, 5, 6, 1]) + b'2026-01-31,"2026-01-31 12:00:00.5","true"',
]
TOKENS = [b'"', b'""', b'",', b',"', b",", b"\n", b"\r\n", b"\\N", b"\xef\xbb\xbf", b"\xff", b"1", b" "]


def run(data: bytes) -> None:
    """Join and parse lines of three columns, whose types the first bytes name; the fourth cuts the lines."""
    *kinds, cut = (*data[:4], 0, 0, 0, 0)[:4]
    dialect, lines = Dialect(), data[4:].split(b"\n")
    whole, pieces = RecordJoiner(dialect, 0), RecordJoiner(dialect, 0)
    records, firsts = (list(part) for part in whole.join(lines))
    at = cut % (len(lines) + 1)
    (some, some_firsts), (others, other_firsts) = pieces.join(lines[:at]), pieces.join(lines[at:])
    assert [*some, *others] == records
    assert [*some_firsts, *other_firsts] == firsts
    assert whole.open == pieces.open
    records += whole.rest()[0]
    writer = QuotedInputWriter(dialect=dialect, malformed="null" if len(data) % 5 == 0 else "raise")
    writer.bind([Column.of(f"c{place}", TYPES[kind % len(TYPES)]) for place, kind in enumerate(kinds)])
    assert shown(writer.parse(records)) == shown(writer._each(records)), (kinds, records)
