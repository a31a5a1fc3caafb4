"""Texts of Hive's types: a type whose text reads as the same type, or a configuration error."""

from __future__ import annotations

import re

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model.types import parse_type

ALLOWED = (ConfigurationError,)
TRACED = ("airflow_hive_federation.model.types",)
INPUTS = 3000
SEEDS = [
    *(b"int", b"decimal(10,2)", b"varchar(30)", b"timestamp with local time zone", b"double precision"),
    b"struct<a:int,`b`:array<map<string,char(3)>>>",
    b"uniontype<int,string>",
]
TOKENS = [b"array<", b"struct<a:", b"map<int,", b"uniontype<", b">", b"(", b")", b",", b":", b"decimal", b" "]
_PLAIN = re.compile(r"[a-z0-9_<>,:() ]*\Z")


def run(data: bytes) -> None:
    """Parse a type, and what it is written as."""
    text = data.decode("utf-8", "replace")
    parsed = parse_type(text)
    if _PLAIN.match(text):
        assert parse_type(str(parsed)) == parsed
