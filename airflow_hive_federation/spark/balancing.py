"""Dealing files out to tasks."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import TypeVar

from airflow_hive_federation.model.files import CopyItem

#: What opening, naming and recording a file costs, as bytes that could be copied instead.
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

    :param items: what is to be copied, in any order.
    :param tasks: make at least so many groups, if there are files enough.
    :param bytes_per_task: make so many groups that their mean stays below this many bytes; a single file
        may be larger.
    :param files_per_task: no group has more files.
    :return: groups, none empty, the most expensive first so that it does not start last.
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
    """:func:`balance` for any items that have a size and a name."""
    if not items:
        return []
    ordered = sorted(items, key=lambda item: (-size_of(item), name_of(item)))
    total_bytes = sum(map(size_of, ordered))
    wanted = max(tasks, -(-total_bytes // bytes_per_task), -(-len(ordered) // files_per_task), 1)
    groups: list[list[Item]] = [[] for _ in range(min(wanted, len(ordered)))]
    # Largest first into the cheapest group (Graham's LPT rule: at most 4/3 of the best there is).
    cheapest = [(0, index) for index in range(len(groups))]
    costs = [0] * len(groups)
    for item in ordered:
        cost, index = heapq.heappop(cheapest)
        groups[index].append(item)
        costs[index] = cost + size_of(item) + FILE_COST_BYTES
        if len(groups[index]) < files_per_task:
            heapq.heappush(cheapest, (costs[index], index))
    return [groups[index] for index in sorted(range(len(groups)), key=lambda index: (-costs[index], index))]
