from __future__ import annotations

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model.types import MAX_DEPTH, HiveType, parse_type


@pytest.mark.parametrize(
    "text",
    [
        "int",
        "decimal(38,18)",
        "char(6)",
        "varchar(65535)",
        "timestamp with local time zone",
        "array<map<string,decimal(5,2)>>",
        "struct<x:int,ärger 2:array<struct<y:char(1)>>>",
        "uniontype<int,string>",
    ],
)
def test_texts_survive_a_round(text: str) -> None:
    assert str(parse_type(text)) == text


def test_spellings() -> None:
    assert parse_type("DECIMAL") == HiveType(name="decimal", arguments=(10, 0))
    assert parse_type("decimal(7)") == HiveType(name="decimal", arguments=(7, 0))
    assert parse_type(" INTEGER ") == HiveType(name="int")
    assert str(parse_type("Struct< a : INT , `b` : string >")) == "struct<a:int,b:string>"


@pytest.mark.parametrize(
    "text", ["", "text", "int(4)", "char", "array<int", "map<int>", "struct<int>", "int int", "decimal(a)"]
)
def test_what_is_no_type(text: str) -> None:
    with pytest.raises(ConfigurationError, match="Not a Hive type"):
        parse_type(text)


@pytest.mark.parametrize("opening", ["array<", "struct<a:", "map<int,", "uniontype<"])
def test_types_are_nested_so_deep_and_no_deeper(opening: str) -> None:
    def nested(levels: int) -> str:
        return opening * levels + "int" + ">" * levels

    assert str(parse_type(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    for levels in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(ConfigurationError, match="levels deep") as caught:
            parse_type(nested(levels))
        assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(
    "text",
    [
        *("decimal(0)", "decimal(39)", "decimal(10,11)", "decimal(10,-1)", "decimal(999999999999,5)"),
        *("char(0)", "char(256)", "varchar(0)", "varchar(65536)", "varchar(99999999999999999999)"),
    ],
)
def test_arguments_are_those_that_hive_takes(text: str) -> None:
    with pytest.raises(ConfigurationError, match="Not a Hive type"):
        parse_type(text)


def test_texts_of_types_are_so_long_and_no_longer() -> None:
    with pytest.raises(ConfigurationError, match="characters long"):
        parse_type("uniontype<" + "int," * 1_000_000 + "int>")
