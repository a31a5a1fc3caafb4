"""Reads dumps from the arguments of replication operators: results of other tasks, or URIs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.runtime.arguments import refusal, texts


def dump_uri(dump: object) -> str:
    """Return the URI of the dump in the result of a replication operator, or the URI itself.

    :raises ConfigurationError: ``dump`` is neither.
    """
    uri = dump.get("dump") if isinstance(dump, Mapping) else dump
    # A template renders the result of a task as its text.
    if not uri or not isinstance(uri, str) or uri.lstrip().startswith(("{", "[", "(")):
        raise ConfigurationError(
            f"{dump!r} names no dump.",
            remedy="Give the dump's URI, or the result of the dump's task: dump=task.output.",
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


def idle_event(dump: Mapping[str, object]) -> int:
    """Return the event that a cycle without changes has reached, from the result of its dump.

    :raises ConfigurationError: the result has no event.
    """
    event_id = dump.get("event_id")
    if not isinstance(event_id, int) or isinstance(event_id, bool):
        raise refusal("dump, in its event_id,", event_id, "Give the result of an IncrementalDumpOperator.")
    return event_id


def tables_of(report: object) -> set[str]:
    """Return the tables to repair from the report of a verification: those that differ or are unread.

    Tables with unreadable rows are not repaired, but fail the task if they are still unreadable.

    :raises ConfigurationError: ``report`` is not the result of a verification.
    """
    remedy = "Give the result of a VerifyReplicaOperator, report=task.output, and not its text."
    if not isinstance(report, Mapping):
        raise refusal("report", report, remedy)
    if "differing" not in report:
        raise ConfigurationError("The argument report has no key 'differing'.", remedy=remedy)
    return {
        *texts("report['differing']", report["differing"]),
        *texts("report['unread']", report.get("unread", ())),
    }


def _event_id(dump: object) -> int:
    return int(dump.get("event_id", 0)) if isinstance(dump, Mapping) else 0
