from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.spark.balancing import FILE_COST_BYTES, balance

MB = 1024 * 1024
SIZES = st.lists(st.integers(0, 600 * MB), max_size=200)


def make_items(sizes: list[int]) -> list[CopyItem]:
    return [
        CopyItem(source=f"s{number}", target=f"t{number:05}", size_bytes=size)
        for number, size in enumerate(sizes)
    ]


def cost(group: list[CopyItem]) -> int:
    return sum(item.size_bytes + FILE_COST_BYTES for item in group)


@given(SIZES, st.integers(1, 16), st.integers(1, 50))
def test_every_item_once_and_limits_kept(sizes: list[int], tasks: int, files_per_task: int) -> None:
    items = make_items(sizes)
    groups = balance(items, tasks, bytes_per_task=256 * MB, files_per_task=files_per_task)
    assert sorted(item.target for group in groups for item in group) == [item.target for item in items]
    assert all(1 <= len(group) <= files_per_task for group in groups)
    assert len(groups) >= min(tasks, len(items))
    if groups:
        assert sum(sizes) / len(groups) <= max(256 * MB, *sizes)


@given(SIZES, st.integers(1, 16))
def test_no_group_waits_for_another(sizes: list[int], tasks: int) -> None:
    """LPT: the dearest group is dearer than the cheapest by one item at most."""
    groups = balance(make_items(sizes), tasks, files_per_task=1000)
    if groups:
        costs = [cost(group) for group in groups]
        assert costs == sorted(costs, reverse=True)
        assert costs[0] - costs[-1] <= max(sizes) + FILE_COST_BYTES


@given(SIZES, st.randoms(use_true_random=False))
def test_the_same_items_make_the_same_groups(sizes: list[int], chance: random.Random) -> None:
    items = make_items(sizes)
    shuffled = chance.sample(items, len(items))
    assert balance(items, 4) == balance(shuffled, 4)


def test_small_files_are_grouped() -> None:
    assert [len(group) for group in balance(make_items([1000] * 2200), 4)] == [550] * 4


def test_nothing_to_do() -> None:
    assert balance([], 4) == []
