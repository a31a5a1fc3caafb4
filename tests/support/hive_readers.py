"""Reads tables by both of Hive's readers: one takes rows, the other one batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_hive_federation.embedded.sql import HiveSql, Row


def by_both_readers(hive: HiveSql, query: str, *, key: Callable[[Row], Any] = repr) -> list[Row]:
    """Return the sorted rows of a query by both of Hive's readers, which must agree.

    :param query: a query without aggregations and order, which needs no reducer. Among its values are no
        arrays and maps: tasks pass them on as texts, in which ``[null]`` is ``null``.
    :param key: what the rows are sorted by.
    """
    by_rows, by_batches = by_each_reader(hive, query, key=key)
    assert by_batches == by_rows
    return by_rows


def by_each_reader(
    hive: HiveSql, query: str, *, key: Callable[[Row], Any] = repr
) -> tuple[list[Row], list[Row]]:
    """Return the sorted rows of a query by the reader of rows, and by that of batches.

    Hive reads a mere selection in the process of the statement, by rows (``FetchTask``), whatever
    ``hive.vectorized.execution.enabled`` is. Tasks of Tez read by batches.
    """
    by_rows = sorted(hive.execute(query), key=key)
    hive.set("hive.fetch.task.conversion", "none")
    hive.set("hive.vectorized.execution.enabled", "true")
    by_batches = sorted(hive.execute(query), key=key)
    hive.set("hive.fetch.task.conversion", "more")
    return by_rows, by_batches
