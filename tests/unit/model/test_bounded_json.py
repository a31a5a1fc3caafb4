"""JSON of others is read within bounds: of values, of depth, and of the work that counting them is."""

from __future__ import annotations

import json
import random

import pytest

from airflow_hive_federation.model.bounded_json import check_values, loads


@pytest.mark.parametrize("text", ["[]", "{}", '"x"', "1", '{"a":[1,{"b":null}]}', b'{"a":"\xc3\xa9"}'])
def test_reads_what_json_reads(text: str | bytes) -> None:
    assert loads(text) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000],
    ids=["open", "lists", "objects"],
)
def test_depth_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="deeply"):
        loads(text)


@pytest.mark.parametrize("text", ["[" + "[]," * 200 + "1]", "[" + '"a",' * 200 + "1]", '{"":1,' * 200])
@pytest.mark.parametrize("encode", [str, str.encode], ids=["text", "bytes"])
def test_too_many_values_are_refused_before_they_are_made(text: str, encode: type) -> None:
    with pytest.raises(ValueError, match="more than 100 values"):
        loads(encode(text), max_values=100)


def test_marks_in_strings_are_no_values() -> None:
    inner = json.dumps({str(number): [number] for number in range(100)})
    text = json.dumps({"partition": inner, "other": inner})
    assert loads(text, max_values=10) == json.loads(text)
    with pytest.raises(ValueError, match="more than 3 values"):
        loads(text, max_values=3)


@pytest.mark.parametrize(
    "text",
    ['"' + '\\"' * 3_000_000, '"' + "\\" * 3_000_001, '["' + '","' * 1_500_000, '"' * 3_000_000 + ","],
    ids=["escapes", "backslashes", "strings", "quotes"],
)
def test_counting_takes_time_by_length_alone(text: str) -> None:
    # Tried again from each quotation mark, the first of them would take days.
    text = "," * 1_000_000 + text
    with pytest.raises(ValueError, match="more than"):
        check_values(text)


def test_the_count_is_never_below_the_values() -> None:
    seed = 20261125
    print(f"seed {seed}")
    chance = random.Random(seed)

    def made(depth: int) -> object:
        kind = chance.randrange(6 if depth < 4 else 3)
        if kind == 0:
            return chance.choice(["", "a", '"', "\\", "[,]", '\\",:{'])
        if kind < 3:
            return chance.choice([None, True, 1.5, 12])
        if kind < 5:
            return [made(depth + 1) for _ in range(chance.randrange(4))]
        return {chance.choice('ab"[,'): made(depth + 1) for _ in range(chance.randrange(4))}

    def count(value: object) -> int:
        if isinstance(value, list):
            return 1 + sum(map(count, value))
        return 1 + sum(map(count, value.values())) if isinstance(value, dict) else 1

    for _ in range(500):
        value = [made(0) for _ in range(20)]
        text = json.dumps(value)
        with pytest.raises(ValueError, match="more than"):
            check_values(text, count(value) // 2)
        check_values(text, 4 * count(value))
