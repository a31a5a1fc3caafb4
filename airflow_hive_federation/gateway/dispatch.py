"""Answers the calls of all fronts: checks rules, renames databases, calls a metastore and logs the call."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from airflow_hive_federation.errors import HiveFederationError, UnknownClusterError
from airflow_hive_federation.gateway import database_patterns, event_pages, key_values, limited_lists
from airflow_hive_federation.gateway.answers import LISTINGS, filtered, with_names
from airflow_hive_federation.gateway.handler import Call, Status, refusal, refused, status_of
from airflow_hive_federation.gateway.messages import EXCEPTION, Emit, read_head
from airflow_hive_federation.gateway.methods import ACCESS, OF_NO_DATABASE, Access
from airflow_hive_federation.gateway.metrics import Metrics
from airflow_hive_federation.gateway.names import Reference, identifier, references, renamed
from airflow_hive_federation.gateway.old_clients import (
    BY_EXPRESSION,
    CREATES,
    SUBSTITUTES,
    WITH_EXPRESSIONS,
    answer_with_all_partitions,
    call_for_all_partitions,
    has_older_expression,
    is_unknown_method,
    probe_of_hive_4,
    substituted_answer,
    substituted_call,
)
from airflow_hive_federation.gateway.raw_texts import check_texts
from airflow_hive_federation.gateway.reach import check_catalogs, check_names, check_objects
from airflow_hive_federation.gateway.rules import Rules
from airflow_hive_federation.gateway.session_settings import SET_META_CONF, remembered
from airflow_hive_federation.gateway.upstream import Probe, Upstream
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.message_bounds import MalformedMessage, check_unambiguous
from airflow_hive_federation.metastore.trace_context import trace_id
from airflow_hive_federation.metastore.wire import WireFormatError

access_log = logging.getLogger("airflow_hive_federation.gateway.access")

#: Reading calls about transactions, which have to see the caller's own latest writes, and about events: the
#: newest events would seem to be lost at a server that lags behind the one of the newest event's id.
_OF_TRANSACTIONS = OF_NO_DATABASE | {
    "get_all_write_event_info",
    "get_latest_txnid_in_conflict",
    "get_max_allocated_table_write_id",
    "get_next_notification",
    "get_notification_events_count",
    "get_open_txns_info",
    "get_valid_write_ids",
    "show_locks",
}
#: Gives a connection its user; the fronts answer it themselves.
_GREETING = "set_ugi"

#: Makes a call, and passes its answer to a receiver.
Relay = Callable[[Call, Emit], None]


class Target(Protocol):
    """The receiver of calls behind the gateway: a metastore, a federation or a cluster's view."""

    #: True if :attr:`Call.named` has to be set.
    wants_names: bool

    def relay(self, call: Call, emit: Emit) -> None:
        """Make the call and pass its answer to ``emit``.

        :raises HiveFederationError: the metastore does not answer, or the call cannot be made.
        """

    def relay_of_transactions(self) -> Relay | None:
        """Return the function that sends calls to the metastore of the clients' transactions.

        ``None`` if clients have other names for the databases of that metastore.
        """

    def check_cluster(self, name: str) -> None:
        """Refuse the name of a cluster whose view the target does not show.

        :raises ClusterError: it is another cluster, or there is none of that name.
        """

    def serves_catalog(self, name: str) -> bool:
        """Return whether a catalog in a call is the target's own, or names one of its clusters."""


def no_clusters(name: str) -> HiveFederationError:
    """Make the error that refuses a cluster's name where no clusters are configured."""
    return UnknownClusterError(
        f"There is no cluster {name!r}: this gateway has no registry of clusters.",
        remedy="Name no cluster, or add [cluster] with a registry to the gateway's file.",
        cluster=name,
    )


class Metastore:
    """One metastore, optionally with a second upstream for calls that only read.

    :param upstream: answers every call.
    :param reading: answers calls that only read, except calls about transactions and events.
    :param old_client_capabilities: capabilities to send for clients whose calls that create a table cannot
        carry them.
    """

    wants_names = False

    def __init__(
        self,
        upstream: Upstream,
        reading: Upstream | None = None,
        *,
        old_client_capabilities: Sequence[str] = (),
    ) -> None:
        self.upstream = upstream
        self._capabilities = tuple(old_client_capabilities)
        self.reading = reading
        # Methods that the server has answered as unknown.
        self._lacks: set[str] = set()

    @property
    def upstreams(self) -> tuple[Upstream, ...]:
        """All upstreams of this metastore."""
        return (self.upstream,) if self.reading is None else (self.upstream, self.reading)

    @property
    def missing_parts(self) -> Mapping[str, float]:
        """Always empty: a single metastore answers a call as a whole or not at all."""
        return {}

    def relay(self, call: Call, emit: Emit) -> None:
        """See :meth:`Target.relay`; translates old clients' calls into methods that the server has."""
        if call.method in WITH_EXPRESSIONS and has_older_expression(call.method, call.message):
            self._with_older_expression(call, emit)
            return
        if call.method in CREATES and self._capabilities:
            self._substituted(call, emit)
            return
        if call.method not in SUBSTITUTES:
            self._exchange(call.method, call.message, call, emit)
            return
        if call.method not in self._lacks:
            holder = _HoldFaults(emit)
            self._exchange(call.method, call.message, call, holder)
            if not holder.fault:
                return
            if not is_unknown_method(holder.fault):
                emit(holder.fault)
                return
            self._lacks.add(call.method)
        self._substituted(call, emit)

    def relay_of_transactions(self) -> Relay:
        """See :meth:`Target.relay_of_transactions`."""
        return self.relay

    def check_cluster(self, name: str) -> None:
        """See :meth:`Target.check_cluster`."""
        raise no_clusters(name)

    def serves_catalog(self, name: str) -> bool:
        """See :meth:`Target.serves_catalog`."""
        return identifier(name) in {"", identifier(self.upstream.settings.catalog)}

    def close(self) -> None:
        """Close all connections."""
        for upstream in self.upstreams:
            upstream.close()

    def _substituted(self, call: Call, emit: Emit) -> None:
        method, message = substituted_call(call.method, call.message, self._capabilities)
        parts: list[bytes] = []
        self._exchange(method, message, call, parts.append)
        emit(substituted_answer(call.method, b"".join(parts)))

    def _with_older_expression(self, call: Call, emit: Emit) -> None:
        # Each connection's server answers for itself, and anew per call: in an upgrade, the servers of one
        # metastore are of several versions.
        of_hive_4 = False

        def permits(answer: bytes) -> bool:
            nonlocal of_hive_4
            of_hive_4 = not is_unknown_method(answer)
            return not of_hive_4

        probe = Probe(probe_of_hive_4(call.method, call.message), permits)
        self._exchange(call.method, call.message, call, emit, probe)
        if of_hive_4:
            self._without_expression(call, emit)

    def _without_expression(self, call: Call, emit: Emit) -> None:
        answer = self._all_partitions(call) if call.method == BY_EXPRESSION else None
        if answer is None:
            raise refused(
                Status.FAILED,
                "The metastore cannot read the expression by which this older client selects partitions.",
                remedy="Name the partitions, or use a client of Hive 4.",
            )
        emit(answer)

    def _all_partitions(self, call: Call) -> bytes | None:
        if (substitute := call_for_all_partitions(call.message)) is None:
            return None
        parts: list[bytes] = []
        self._exchange(*substitute, call, parts.append)
        return answer_with_all_partitions(b"".join(parts))

    def _exchange(
        self, method: str, message: bytes, call: Call, emit: Emit, probe: Probe | None = None
    ) -> None:
        self._upstream_for(method).exchange(
            method,
            message,
            call.caller,
            call.deadline,
            emit=emit,
            cancellation=call.cancellation,
            probe=probe,
            expression_proxy=call.caller.session.expression_proxy if method in WITH_EXPRESSIONS else "",
        )

    def _upstream_for(self, method: str) -> Upstream:
        if self.reading is not None and ACCESS.get(method) is Access.READ and method not in _OF_TRANSACTIONS:
            return self.reading
        return self.upstream


class Gateway:
    """Answers the calls of all fronts; see :class:`.handler.Handler`.

    :param target: receives the calls.
    :param rules: decide whether a caller may make a call.
    :param aliases: clients' names of databases → the target's names.
    :param metrics: counts the calls.
    """

    def __init__(
        self,
        target: Target,
        rules: Rules | None = None,
        *,
        aliases: Mapping[str, str] | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.metrics = metrics or Metrics()
        self._target = target
        self._rules = rules or Rules()
        self._inside = {alias.lower(): name.lower() for alias, name in (aliases or {}).items()}
        self._outside = {name: alias for alias, name in self._inside.items()}

    def answer(self, call: Call) -> bytes:
        """See :meth:`.handler.Handler.answer`."""
        try:
            return self.ask(call)
        except HiveFederationError as error:
            return refusal(call.method, read_head(call.message).sequence_id, error)

    def ask(self, call: Call) -> bytes:
        """See :meth:`.handler.Handler.ask`."""
        parts: list[bytes] = []
        self.relay(call, parts.append)
        return b"".join(parts)

    def relay(self, call: Call, emit: Emit) -> None:
        """See :meth:`.handler.Handler.relay`."""
        record = _Record(self.metrics, call, emit)
        try:
            self._relay(call, record)
        except (MalformedMessage, WireFormatError) as error:
            record.error = refused(
                Status.INVALID, f"{call.method}: the call or its answer is malformed: {error}"
            )
            raise record.error from error
        except HiveFederationError as error:
            record.error = error
            raise
        finally:
            record.write()

    def _relay(self, call: Call, record: _Record) -> None:
        if call.method == _GREETING:
            # It would give the connection, which the next caller gets, another user.
            raise refused(
                Status.DENIED,
                f"{_GREETING}: the fronts know their callers themselves.",
                remedy="Authenticate at the front.",
            )
        unlimited = self._rules.unlimited(call.method, call.caller)
        if call.caller.cluster:
            self._target.check_cluster(call.caller.cluster)
        head = read_head(call.message)
        check_unambiguous(call.message, head.body, message_types(call.method)[0].thrift_spec)
        check_texts(call.method, call.message)
        if call.method == SET_META_CONF:
            record(remembered(call.message, call.caller))
            return
        if unlimited and not self._inside and not self._target.wants_names:
            self._target.relay(call, record)
            return
        named = references(call.message, head.body, message_types(call.method)[0])
        record.named = named
        self._rules.check(call.method, call.caller, named)
        check_names(call.method, named)
        if not unlimited:
            check_objects(call.method, call.message, named, is_filtered=True)
            check_catalogs(call.method, call.message, self._target.serves_catalog)
        message = database_patterns.widened(
            call.method, renamed(call.message, named, self._to_inside), self._inside
        )
        if message is not call.message:
            named = references(message, head.body, message_types(call.method)[0])
        permits = None if unlimited else self._keep(call)
        inner = replace(call, message=message, named=tuple(named), permits=permits)
        if not unlimited and call.method == key_values.METHOD and key_values.sets_parameter(message):
            self._check_parameter(inner)
        filters = not unlimited and call.method in LISTINGS
        if not filters and not self._inside:
            self._target.relay(inner, record)
            return
        answer = self._filtered(inner) if filters else self._asked(inner)
        record(self._with_outside_names(call, answer) if self._inside else answer)

    def _filtered(self, call: Call) -> bytes:
        keep = self._keep(call)

        def cut(answer: bytes, most: int = 0) -> bytes:
            return filtered(call.method, answer, call.named, keep, most, serves=self._target.serves_catalog)

        if call.method == event_pages.METHOD:
            return event_pages.first_visible(call, self._asked, cut)
        if call.method in limited_lists.LIMITS:
            return limited_lists.filled(call, self._asked, cut)
        return cut(self._asked(call))

    def _asked(self, call: Call) -> bytes:
        return _whole(self._target.relay, call)

    def _check_parameter(self, call: Call) -> None:
        relay = self._target.relay_of_transactions()
        if relay is None or not key_values.may_set(call, partial(_whole, relay), self._keep(call)):
            raise refused(
                Status.DENIED,
                f"{call.method}: the call sets a parameter of a table by its id, and user "
                f"{call.caller.user!r} may write no table of that id that the transaction has locked.",
                remedy="Lock the table in the transaction, through a gateway whose [upstream] has the "
                "transaction, or ask the operator of the gateway for a rule.",
            )

    def _keep(self, call: Call) -> Callable[[str, str | None], bool]:
        def keep(database: str, table: str | None) -> bool:
            return self._rules.shown(call.method, call.caller, self._to_outside(database.lower()), table)

        return keep

    def _with_outside_names(self, call: Call, answer: bytes) -> bytes:
        answer = with_names(call.method, answer, self._to_outside)
        return database_patterns.narrowed(call.method, call.message, answer)

    def _to_inside(self, name: str) -> str:
        if name in self._inside:
            return self._inside[name]
        if name in self._outside:
            raise refused(
                Status.DENIED,
                f"Database {name} is not known through this gateway by that name.",
                remedy=f"Use the name {self._outside[name]}.",
            )
        return name

    def _to_outside(self, name: str) -> str:
        return self._outside.get(name, name)


def _whole(relay: Relay, call: Call) -> bytes:
    parts: list[bytes] = []
    relay(call, parts.append)
    return b"".join(parts)


class _HoldFaults:
    """Passes an answer on, but keeps an exception of Thrift's own back."""

    def __init__(self, emit: Emit) -> None:
        self.fault = b""
        self._emit = emit
        self._began = False

    def __call__(self, piece: bytes) -> None:
        if not self._began and not self.fault and read_head(piece).kind == EXCEPTION:
            self.fault = piece
        elif self.fault:
            self.fault += piece
        else:
            self._began = True
            self._emit(piece)


class _Record:
    """The size, time and outcome of a call, for the metrics and the access log; it holds no secret."""

    def __init__(self, metrics: Metrics, call: Call, emit: Callable[[bytes], None]) -> None:
        self.error: HiveFederationError | None = None
        self.named: list[Reference] = []
        self._metrics = metrics
        self._method = call.method
        self._taken = len(call.message)
        self._caller = call.caller
        self._facts = call.facts
        self._emit = emit
        self._given = 0
        self._fault = False
        self._since = time.monotonic()

    def __call__(self, piece: bytes) -> None:
        if not self._given:
            head = read_head(piece)
            # In a result, field 0 is the return value; all other fields are exceptions.
            self._fault = head.kind == EXCEPTION or piece[head.body + 1 : head.body + 3] not in {b"", b"\0\0"}
        self._given += len(piece)
        self._emit(piece)

    def write(self) -> None:
        seconds = time.monotonic() - self._since
        status = str(status_of(self.error)) if self.error else "fault" if self._fault else "ok"
        known = self._method if self._method in ACCESS else "other"
        self._metrics.call(
            self._caller.front, known, status, seconds=seconds, taken=self._taken, given=self._given
        )
        if access_log.isEnabledFor(logging.INFO):
            access_log.info("%s", json.dumps(self._line(self._method, status, seconds), ensure_ascii=False))

    def _line(self, method: str, status: str, seconds: float) -> dict[str, object]:
        caller = self._caller
        line: dict[str, object] = {
            "front": caller.front,
            "peer": caller.peer,
            "user": caller.user,
            "authentication": caller.authentication,
            "method": method,
            "status": status,
            "ms": round(seconds * 1000, 3),
            "bytes_in": self._taken,
            "bytes_out": self._given,
        }
        if cluster := self._facts.cluster or caller.cluster:
            line["cluster"] = cluster
        if caller.trace:
            line["trace"] = trace_id(caller.trace)
        if self.named:
            line["databases"] = sorted({reference.database for reference in self.named})[:5]
        return line
