"""Statements of remotes: parsed, or a statement error that names the place."""

from __future__ import annotations

from airflow_hive_federation.errors import StatementError
from airflow_hive_federation.remotes.statement import parse_script

ALLOWED = (StatementError,)
TRACED = ("airflow_hive_federation.remotes.statement",)
INPUTS = 3000
SEEDS = [
    b"CREATE REMOTE TABLE IF NOT EXISTS a.b CONNECTED TO `c`.d VIA 'hive' 'k' = 'v', 'l' = 'w';",
    b"CREATE REMOTE DATABASE a VIA \"glue\"; ALTER REMOTE TABLE a SET 'k'='v'",
    b"DROP REMOTE TABLE IF EXISTS a -- gone\n; REFRESH REMOTE DATABASE b /* c */",
    b"SHOW REMOTES IN a; SHOW CREATE REMOTE TABLE b; DESCRIBE REMOTE EXTENDED a.b; USE c",
]
TOKENS = [
    b"'",
    b'"',
    b"`",
    b"--",
    b"/*",
    b"*/",
    b";",
    b".",
    b"(",
    b"\\",
    b"{{",
    b"$",
    b"1e",
    b"x'",
    b"\n",
    b"N'",
]


def run(data: bytes) -> None:
    """Parse a script."""
    try:
        parse_script(data.decode("utf-8", "replace"))
    except StatementError as error:
        if error.line < 1 or error.column < 0:
            raise AssertionError(f"{error.line}:{error.column}") from error
        raise
