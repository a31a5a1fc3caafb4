"""Thrift's JSON, in which maps may have lists for keys."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hive_federation.model import thrift_json

#: As Hive 4.2 wrote it into an ALTER_PARTITION event of a list-bucketed table.
SKEWED = (
    '{"1":{"lst":["str",2,"k","v"]},"2":{"lst":["lst",2,["str",2,"484","a"],["str",2,"1","b"]]},'
    '"3":{"map":["lst","str",2,{["str",2,"1","b"]:"file:/w/p/d=x/k=1/v=b",'
    '["str",2,"484","a"]:"file:/w/p/d=x/k=484/v=a"}]}}'
)

KEYS = st.one_of(st.text(), st.lists(st.text(), min_size=1, max_size=3).map(tuple))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=20,
)


def written(value: Any, space: str = "") -> str:
    """Return the text that ``TJSONProtocol`` writes."""
    if isinstance(value, dict):
        pairs = (f"{written(key, space)}{space}:{written(member, space)}" for key, member in value.items())
        return "{" + space + f"{space},".join(pairs) + space + "}"
    if isinstance(value, list | tuple):
        return "[" + space + f",{space}".join(written(element, space) for element in value) + space + "]"
    return json.dumps(value)


def test_keys_that_are_lists_become_tuples() -> None:
    decoded = thrift_json.loads(SKEWED)["3"]["map"][3]
    assert decoded == {
        ("str", 2, "1", "b"): "file:/w/p/d=x/k=1/v=b",
        ("str", 2, "484", "a"): "file:/w/p/d=x/k=484/v=a",
    }


@given(VALUES, st.sampled_from(["", " ", "\n\t"]))
def test_whatever_is_written_is_read(value: Any, space: str) -> None:
    assert thrift_json.loads(space + written(value, space) + space) == value


@given(VALUES, st.data())
def test_a_text_that_is_cut_off_is_refused(value: Any, data: st.DataObject) -> None:
    # A map around it: a number that is cut off is a number.
    text = written({("k",): value})
    with pytest.raises(ValueError, match=r"."):
        thrift_json.loads(text[: data.draw(st.integers(0, len(text) - 1))])


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{["a"]:1} x',
        '{["a"]}',
        '{["a"]:1,}',
        '{["a"] 1}',
        "{[1 2]:3}",
        '{["a"]:}',
        '{{"a":1}:2}',
        "{[" + "[" * 150 + "]" * 150 + "]:1}",
        "[" * 1_000_000,
        '{["a"]:' + "[" * 1_000_000,
    ],
)
def test_what_is_no_thrift_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        thrift_json.loads(text)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[" + "1," * 1_000_000 + "1]", "values"),
        ('{["a"] 1}', "':' expected at character 7"),
        ('{["a"]:1;["b"]:2}', "',' expected at character 8"),
    ],
    ids=["values", "colon", "comma"],
)
def test_why_it_is_none(text: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        thrift_json.loads(text)


def test_no_time_is_spent_on_a_text_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thrift_json, "_LONGEST", len(SKEWED) - 1)
    with pytest.raises(ValueError, match="property name"):
        thrift_json.loads(SKEWED)
