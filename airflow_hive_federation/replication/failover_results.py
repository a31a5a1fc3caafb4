"""Describes failovers as tasks and commands return them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class SourceState:
    """The state of a source after the start of a failover, or after its roll-back.

    :param database: the database of the source.
    :param writable: the source may be written.
    """

    database: str
    writable: bool


@dataclass(frozen=True, kw_only=True)
class FailoverResult:
    """A failover or a take-over as tasks and commands return it.

    :param converged: both sides had the same state: false for a take-over without the source.
    :param database: the database of the former target, which may now be written.
    :param event_id: the event from which the way back continues; after a take-over, the last event of the
        lost source that the database has.
    :param summary: the result as one sentence.
    :param replica: the database of the former source, which is now a replica; ``None`` after a take-over.
    :param policy: the fields of the policy of the way back; ``None`` after a take-over.
    :param removed: the number of files that a take-over removed, because their transactions never ended.
    :param missing: the names of tables that the database had at that event and lacks after a take-over, and
        of partitions, as ``table/partition``.
    """

    converged: bool
    database: str
    event_id: int
    summary: str
    replica: str | None = None
    policy: Mapping[str, Any] | None = None
    removed: int = 0
    missing: Sequence[str] = ()
