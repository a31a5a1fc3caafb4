"""Partitions are divided into pages by a condition that holds for them, as the metastore understands it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.calls.partition_pages import ONE_PAGE, Page, page_size, pages
from airflow_hive_federation.metastore.calls.partitions import PartitionCalls
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.partitions import DEFAULT_PARTITION, partition_name


def held(page: Page, names: list[str], read: Callable[[str], object]) -> list[str]:
    """Return the answer of a metastore that orders values as ``read`` makes them."""
    match = re.fullmatch(r"(\w+) >= (\S+) and \1 <= (\S+)", page.condition)
    assert match
    key, low, high = match[1], read(match[2].strip("'")), read(match[3].strip("'"))
    values = {name: dict(part.split("=", 1) for part in name.split("/"))[key] for name in names}
    return [
        name
        for name, value in values.items()
        if value != DEFAULT_PARTITION and low <= read(value) <= high  # type: ignore[operator]
    ]


@pytest.mark.parametrize(("kind", "read"), [("string", str), ("int", int)])
def test_a_page_has_what_its_condition_holds_for(kind: str, read: Callable[[str], object]) -> None:
    rng = random.Random(3)
    names = [f"year={rng.randrange(3)}/n={rng.randrange(-500, 500)}" for _ in range(3000)]
    names = list(dict.fromkeys(names))
    made = list(pages([("year", "int"), ("n", kind)], names, 100))
    assert sorted(name for page in made for name in page.names) == sorted(names)
    assert all(len(page.names) <= 100 for page in made)
    assert len(made) < len(names) / 80
    for page in made:
        assert sorted(held(page, names, read)) == sorted(page.names)


def test_more_than_a_page_of_one_value_stay_together() -> None:
    names = [f"a=x/b={number}" for number in range(10)] + ["a=y/b=1"]
    made = list(pages([("a", "string"), ("b", "decimal(3,0)")], names, 4))
    assert [(len(page.names), page.condition) for page in made] == [
        (10, "a >= 'x' and a <= 'x'"),
        (1, "a >= 'y' and a <= 'y'"),
    ]


def test_equal_numbers_are_in_one_page_however_they_are_written() -> None:
    first, _ = pages([("n", "int")], ["n=-0", "n=0", "n=1"], 2)
    assert first == Page(names=["n=-0", "n=0"], condition="n >= -0 and n <= -0")


@pytest.mark.parametrize("value", [DEFAULT_PARTITION, "it's", 'say "x"', "back\\slash", "tab\t"])
def test_values_that_no_condition_can_name_go_by_name(value: str) -> None:
    names = [partition_name(["a"], [text]) for text in ("x", value, "y")]
    assert list(pages([("a", "string")], names, 2)) == [
        Page(names=[names[0], names[2]], condition="a >= 'x' and a <= 'y'"),
        Page(names=[names[1]]),
    ]


@pytest.mark.parametrize(("key", "kind"), [("a", "timestamp"), ("a b", "string"), ("a", "boolean")])
def test_keys_without_a_condition_go_by_name(key: str, kind: str) -> None:
    names = [partition_name([key], [str(number)]) for number in range(5)]
    assert [page.condition for page in pages([(key, kind)], names, 2)] == ["", "", ""]


def test_wide_tables_have_smaller_pages() -> None:
    assert page_size(1) > 10_000 > page_size(100) > ONE_PAGE == page_size(10_000)


def test_partitions_are_taken_as_they_are_sent() -> None:
    sent: list[int] = []

    class Metastore(PartitionCalls):
        settings = MetastoreSettings(uris=("thrift://nowhere:1",))

        def call(self, method: str, *args: Any) -> Any:
            sent.append(len(args[0].parts))

    def made() -> Iterator[types.Partition]:
        for number in range(10):
            assert sum(sent) >= number - 3
            yield types.Partition(dbName="d", tableName="t", values=[str(number)])

    Metastore().add_partitions(made(), batch_size=4)
    assert sent == [4, 4, 2]
