"""Defines the stages of a load, at which a group's loads wait for each other."""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum

from airflow_hive_federation.replication.load.summary import LoadSummary


class Stage(Enum):
    """A point that a load has reached. A load may skip stages, and skips all if it was published before."""

    SURVEYED = 1  # nothing is changed yet
    COPIED = 2  # all files are on the target
    ALLOCATED = 3  # the transactions have all write ids, and can end
    PREPARED = 4  # only the publication is left


#: A load that pauses at each stage, and returns its summary.
StagedLoad = Generator[Stage, None, LoadSummary]


def to_end(load: StagedLoad) -> LoadSummary:
    """Run a load through all its stages, and return its summary."""
    while True:
        try:
            next(load)
        except StopIteration as end:
            summary: LoadSummary = end.value
            return summary
