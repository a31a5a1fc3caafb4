"""Observers of progress for tests."""

from __future__ import annotations

from collections.abc import Callable

from airflow_hive_federation.progress.events import Event, StepStarting
from airflow_hive_federation.progress.observers import Observer


def at_steps(react: Callable[[str], None]) -> Observer:
    """Return an observer that passes the name of each step on, before the step begins."""

    def observe(event: Event) -> None:
        if isinstance(event, StepStarting):
            react(event.name)

    return observe
