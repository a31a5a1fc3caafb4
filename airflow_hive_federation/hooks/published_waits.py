"""Publishes the waits for open transactions of tasks and commands that wait themselves, for the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from airflow_hive_federation.hooks.published import Log, publish_wait
from airflow_hive_federation.progress.events import (
    Event,
    TransactionsAborted,
    TransactionsEnded,
    TransactionsOpen,
)
from airflow_hive_federation.progress.words import words

if TYPE_CHECKING:
    from airflow_hive_federation.progress.observers import Observer
    from airflow_hive_federation.published.documents import Publisher


def publishing_waits(
    observer: Observer,
    policies: Callable[[], Sequence[Mapping[str, object]]],
    by: Publisher,
    log: Log,
) -> Observer:
    """Return an observer that also publishes each change of a wait for open transactions.

    A wait that ends by an error stays published beside the error, until the next cycle.

    :param observer: receives every event first.
    :param policies: returns the fields of the policies that wait.
    :param by: the task or command that waits.
    :param log: receives a warning if the state cannot be published.
    """
    published = ""

    def observe(event: Event) -> None:
        nonlocal published
        observer(event)
        if not isinstance(event, TransactionsOpen | TransactionsEnded | TransactionsAborted):
            return
        text = words(event) if isinstance(event, TransactionsOpen) else ""
        if text != published:
            published = text
            for policy in policies():
                publish_wait(policy, text, asdict(by), log)

    return observe
