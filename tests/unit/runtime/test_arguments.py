"""Arguments of the wrong type are refused by their names, and never repeated."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.runtime.arguments import choice, flag, listed, mapping, texts, whole


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (listed, ["a", 1]),
        (listed, []),
        (texts, ["a", "b"]),
        (flag, True),
        (flag, False),
        (whole, 3),
        (mapping, {"a": 1}),
    ],
)
def test_a_value_of_the_right_type_stays(read: Callable[[str, Any], object], value: object) -> None:
    assert read("it", value) == value


def test_other_sequences_become_lists() -> None:
    assert texts("it", ("a", "b")) == ["a", "b"]
    assert listed("it", (n for n in (1, 2))) == [1, 2]


@pytest.mark.parametrize(
    ("read", "value", "kind"),
    [
        (listed, "hidden", "str"),
        (listed, b"hidden", "bytes"),
        (listed, {"hidden": 1}, "dict"),
        (listed, 5, "int"),
        (listed, None, "NoneType"),
        (texts, "hidden", "str"),
        (texts, ["a", b"hidden"], "bytes"),
        (flag, "False", "str"),
        (flag, 0, "int"),
        (flag, None, "NoneType"),
        (whole, "3", "str"),
        (whole, True, "bool"),
        (whole, 3.0, "float"),
        (mapping, '{"a": "hidden"}', "str"),
        (mapping, [("a", "hidden")], "list"),
    ],
)
def test_another_type_is_refused(read: Callable[[str, Any], object], value: object, kind: str) -> None:
    message = rf"^The argument it\b.* is of type {kind}\. Remedy: Give"
    with pytest.raises(ConfigurationError, match=message) as caught:
        read("it", value)
    assert "hidden" not in f"{caught.value}{caught.value.facts}"


def test_a_choice() -> None:
    assert choice("colour", "red", Colour) is Colour.RED
    assert choice("colour", Colour.BLUE, Colour) is Colour.BLUE
    with pytest.raises(ConfigurationError, match=r"colour is 'Red'\. Remedy: Give 'red' or 'blue'\."):
        choice("colour", "Red", Colour)
    with pytest.raises(ConfigurationError, match=r"colour is of type NoneType\. Remedy: Give 'red'"):
        choice("colour", None, Colour)
