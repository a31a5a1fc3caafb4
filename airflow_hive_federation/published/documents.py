"""Defines the documents about a replication policy that tasks and commands publish.

Each document has one subject and replaces the one before it, so that a sensor and a cycle that publish at the
same time take nothing from each other. Nothing but the page reads them: no step decides by them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from airflow_hive_federation.model.json_values import (
    Fields,
    Reader,
    list_of,
    map_of,
    or_none,
    reader_of,
    text,
    whole,
)
from airflow_hive_federation.model.results import result_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")

#: Version of the documents: a reader refuses those of a later one.
VERSION = 1

#: Kinds of a cycle that ended with an error and of an exchange of the roles, beside the kinds of
#: :class:`~airflow_hive_federation.replication.replica.cycle_history.CycleRecord`.
FAILED, FAILOVER = "failed", "failover"


@dataclass(frozen=True, kw_only=True)
class Publisher:
    """The task instance, or the command, that has published a document.

    :param command: the command; empty for a task.
    """

    dag_id: str = ""
    run_id: str = ""
    task_id: str = ""
    map_index: int = -1
    command: str = ""


@dataclass(frozen=True, kw_only=True)
class PolicyName:
    """The names of a policy, which every document about it repeats."""

    name: str
    source_database: str
    target_database: str


@dataclass(frozen=True, kw_only=True)
class LagPoint:
    """A lag that was measured at one moment.

    :param at_s: the moment, in seconds since 1970.
    :param events: number of events of the source's database that the target lacked.
    :param seconds: age of the oldest of them.
    :param size_bytes: bytes that the next cycle would copy; ``None`` if no cycle was planned.
    """

    at_s: float
    events: int
    seconds: float
    size_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class PolicyPosition:
    """The position of a policy's target, and its lag.

    :param state: state of the target: ``absent``, ``loading``, ``loaded`` or ``adoptable``.
    :param event_id: last event of the target, if it is published.
    :param source_event_id: last event of the source, if it answered.
    :param running: a description of the cycle at work; empty if none is.
    :param source_error: the error of the call to the source; empty if the source answered.
    :param blocked: the reason for which the next cycle would stop.
    :param dump: URI of the dump from which the target was last loaded; empty if it is unknown.
    :param dump_url: the web page on which the store shows it; empty if there is none.
    :param history: the lags that were measured, oldest first.
    :param published_s: the time of the publication, in seconds since 1970.
    """

    policy: PolicyName
    state: str
    event_id: int | None = None
    source_event_id: int | None = None
    running: str = ""
    source_error: str = ""
    blocked: str = ""
    dump: str = ""
    dump_url: str = ""
    history: tuple[LagPoint, ...] = ()
    published_s: float
    by: Publisher = field(default_factory=Publisher)

    @property
    def lag(self) -> LagPoint | None:
        """The lag that was measured last."""
        return self.history[-1] if self.history else None


@dataclass(frozen=True, kw_only=True)
class LaggingTable:
    """A table with changes that the target lacks.

    :param size_bytes: bytes that the next cycle would copy; ``None`` if no cycle was planned.
    """

    name: str
    events: int
    seconds: float
    size_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class PolicyTables:
    """The tables of a policy that the target lacks changes of, or does not have.

    :param skipped: the tables that the policy selects but that are not replicated, each with the reason;
        ``None`` if no cycle was planned.
    :param retained: those of the skipped tables whose earlier replica the target keeps.
    """

    policy: PolicyName
    lagging: tuple[LaggingTable, ...] = ()
    skipped: Mapping[str, str] | None = None
    retained: tuple[str, ...] = ()
    published_s: float
    by: Publisher = field(default_factory=Publisher)


@dataclass(frozen=True, kw_only=True)
class PublishedCycle:
    """A cycle that was published on the target, one that failed, or a failover.

    :param kind: ``bootstrap``, ``increment``, ``idle``, ``failed`` or ``failover``.
    :param event_id: last event of the target after the cycle; ``None`` if it failed.
    :param ended_s: its end, in seconds since 1970.
    :param seconds: duration of its load.
    :param cycles: the number of idle cycles in a row, or of failures with the same error, of this entry.
    :param error: the class and the message of the error.
    :param remedy: the action to take after the error.
    """

    kind: str
    event_id: int | None = None
    ended_s: float
    seconds: float = 0.0
    events: int = 0
    tables: int = 0
    files: int = 0
    size_bytes: int = 0
    transactions: int = 0
    cycles: int = 1
    error: str = ""
    remedy: str = ""
    by: Publisher = field(default_factory=Publisher)


@dataclass(frozen=True, kw_only=True)
class PolicyCycles:
    """The last cycles of a policy, oldest first."""

    policy: PolicyName
    cycles: tuple[PublishedCycle, ...] = ()
    published_s: float
    by: Publisher = field(default_factory=Publisher)


@dataclass(frozen=True, kw_only=True)
class PolicyVerification:
    """The last verification of a policy's target.

    :param event_id: the event that the target had.
    :param tables: number of tables whose files and rows were compared.
    :param differences: number of differences between source and target.
    :param failures: number of tables whose rows could not be read.
    :param lines: descriptions of the first differences and failures.
    :param not_compared: number of tables that are not replicated.
    """

    policy: PolicyName
    event_id: int
    tables: int
    differences: int
    failures: int
    not_compared: int
    lines: tuple[str, ...] = ()
    published_s: float
    by: Publisher = field(default_factory=Publisher)


@dataclass(frozen=True, kw_only=True)
class VerifiedTable:
    """The last verification of one table.

    :param source_rows: rows that a reader of the source saw; ``None`` if they were not counted.
    :param equal: neither a difference nor a failure concerns the table.
    :param note: the reason for which rows were not compared.
    :param event_id: the event that the target had.
    :param verified_s: the time of the verification, in seconds since 1970.
    """

    name: str
    kind: str
    source_rows: int | None
    target_rows: int | None
    files: int
    size_bytes: int
    equal: bool
    note: str = ""
    event_id: int
    verified_s: float


@dataclass(frozen=True, kw_only=True)
class VerifiedTables:
    """The last verification of each table that was ever compared, in the order of the names."""

    policy: PolicyName
    tables: tuple[VerifiedTable, ...] = ()
    published_s: float
    by: Publisher = field(default_factory=Publisher)


def versioned(document: DataclassInstance) -> dict[str, object]:
    """Return a document as values of JSON, with the version that its readers check."""
    return {"version": VERSION, **result_json(document)}


def reading_version(read: Reader[T]) -> Reader[T]:
    """Return a reader that refuses documents of a later version."""

    def read_version(value: object) -> T:
        version = Fields(value).needed("version", whole)
        if version > VERSION:
            raise ValueError(f"its version is {version}, and this package reads up to version {VERSION}")
        return read(value)

    return read_version


read_publisher: Callable[[object], Publisher] = reader_of(Publisher)
_NAMED: Mapping[str, Reader[object]] = {"policy": reader_of(PolicyName), "by": read_publisher}

read_position: Callable[[object], PolicyPosition] = reading_version(
    reader_of(PolicyPosition, readers={**_NAMED, "history": list_of(reader_of(LagPoint))})
)
read_tables: Callable[[object], PolicyTables] = reading_version(
    reader_of(
        PolicyTables,
        readers={
            **_NAMED,
            "lagging": list_of(reader_of(LaggingTable)),
            "skipped": or_none(map_of(text, text)),
        },
    )
)
read_cycles: Callable[[object], PolicyCycles] = reading_version(
    reader_of(
        PolicyCycles,
        readers={
            **_NAMED,
            "cycles": list_of(reader_of(PublishedCycle, readers={"by": read_publisher})),
        },
    )
)
read_verification: Callable[[object], PolicyVerification] = reading_version(
    reader_of(PolicyVerification, readers=_NAMED)
)
read_verified: Callable[[object], VerifiedTables] = reading_version(
    reader_of(VerifiedTables, readers={**_NAMED, "tables": list_of(reader_of(VerifiedTable))})
)
