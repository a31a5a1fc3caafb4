"""Reads dumps from the arguments of replication operators: results of other tasks, or URIs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow_hive_federation.errors import ConfigurationError


def dump_uri(dump: object) -> str:
    """Return the URI of the dump in the result of a replication operator, or the URI itself.

    :raises ConfigurationError: ``dump`` is neither.
    """
    uri = dump.get("dump") if isinstance(dump, Mapping) else dump
    if not uri or not isinstance(uri, str):
        raise ConfigurationError(
            f"{dump!r} names no dump.", remedy="Give the dump's URI, or the result of the dump's task."
        )
    return uri


def latest_dump(dump: object) -> Any:
    """Return the summary of the latest event among several dumps; a skipped task returned none."""
    if isinstance(dump, str | Mapping) or not isinstance(dump, Iterable):
        return dump
    summaries = [summary for summary in dump if summary]
    # Of two summaries with the same event, the later in the list wins.
    return max(reversed(summaries), key=_event_id) if summaries else None


def is_idle(dump: object) -> bool:
    """Return whether nothing has changed, by a dump's summary."""
    return isinstance(dump, Mapping) and bool(dump.get("idle"))


def _event_id(dump: object) -> int:
    return int(dump.get("event_id", 0)) if isinstance(dump, Mapping) else 0
