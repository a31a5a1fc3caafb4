"""Distributes files to Spark tasks of about equal cost."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import TypeVar

from airflow_hive_federation.model.files import CopyItem

#: Cost of opening, naming and recording a file, as the number of bytes that could be copied in that time.
FILE_COST_BYTES = 1024 * 1024

Item = TypeVar("Item")


def balance(
    items: Sequence[CopyItem],
    tasks: int,
    *,
    bytes_per_task: int = 256 * 1024 * 1024,
    files_per_task: int = 1000,
) -> list[list[CopyItem]]:
    """Group copy items into tasks of about equal cost; the same items make the same groups.

    :param items: the copy items, in any order.
    :param tasks: least number of groups, unless the items are fewer.
    :param bytes_per_task: upper bound of the groups' mean size; a single file may be larger.
    :param files_per_task: greatest number of files in a group.
    :return: groups, none of them empty; the most expensive one comes first, so that it does not start last.
    """
    return deal(
        items,
        tasks,
        size_of=lambda item: item.size_bytes,
        name_of=lambda item: item.target,
        bytes_per_task=bytes_per_task,
        files_per_task=files_per_task,
    )


def deal(
    items: Sequence[Item],
    tasks: int,
    *,
    size_of: Callable[[Item], int],
    name_of: Callable[[Item], str],
    bytes_per_task: int,
    files_per_task: int,
) -> list[list[Item]]:
    """Group items of any type, as :func:`balance` groups copy items.

    :param size_of: returns an item's size in bytes.
    :param name_of: returns an item's name, which orders items of the same size.
    """
    if not items:
        return []
    ordered = sorted(items, key=lambda item: (-size_of(item), name_of(item)))
    total_bytes = sum(map(size_of, ordered))
    group_count = max(tasks, -(-total_bytes // bytes_per_task), -(-len(ordered) // files_per_task), 1)
    groups: list[list[Item]] = [[] for _ in range(min(group_count, len(ordered)))]
    # The largest item first, each into the cheapest group (Graham's LPT rule: at most 4/3 of the optimum).
    cheapest = [(0, index) for index in range(len(groups))]
    costs = [0] * len(groups)
    for item in ordered:
        cost, index = heapq.heappop(cheapest)
        groups[index].append(item)
        costs[index] = cost + size_of(item) + FILE_COST_BYTES
        if len(groups[index]) < files_per_task:
            heapq.heappush(cheapest, (costs[index], index))
    return [groups[index] for index in sorted(range(len(groups)), key=lambda index: (-costs[index], index))]
