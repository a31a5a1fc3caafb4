"""Defines the result of a load, and the copy job that a load needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

#: Carries out a copy plan: the URI of the plan, and that of the directory for outcomes.
CopyRunner = Callable[[str, str], None]


@dataclass(frozen=True, kw_only=True)
class LoadSummary:
    """The numbers of a published load. XCom-safe by :func:`dataclasses.asdict`.

    :param dump: URI of the dump; for an idle cycle, of the dump from which the target was last loaded.
    :param idle: the cycle found nothing to do.
    :param skipped: the tables of the source that the policy selects but that are not replicated, each with
        the reason.
    """

    dump: str
    database: str
    event_id: int
    tables: int
    partitions: int
    functions: int
    idle: bool = False
    skipped: Mapping[str, str] = field(default_factory=dict)
