"""Routes every call of a federating gateway to the metastore that owns the call's databases and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from airflow_hive_federation.gateway.dispatch import Relay, no_clusters
from airflow_hive_federation.gateway.federation import lists, transaction_calls
from airflow_hive_federation.gateway.federation.metastores import Metastores
from airflow_hive_federation.gateway.federation.renaming import (
    Resolved,
    answer_of,
    arguments,
    keeps_names,
    result,
)
from airflow_hive_federation.gateway.federation.routes import DROPS_TABLE, ROUTES, Route
from airflow_hive_federation.gateway.federation.transactions import another_owner
from airflow_hive_federation.gateway.federation.views import defines_view
from airflow_hive_federation.gateway.handler import Call, Status, refused
from airflow_hive_federation.gateway.messages import Emit, read_head
from airflow_hive_federation.gateway.methods import ACCESS, Access
from airflow_hive_federation.gateway.reach import check_objects
from airflow_hive_federation.gateway.upstream import Upstream

#: The listener that writes notification events, without its package.
LISTENER = "DbNotificationListener"


class Federation:
    """One primary metastore, and others whose databases and tables have local names; see :class:`.Target`.

    :param metastores: all metastores of the federation.
    """

    wants_names = True

    def __init__(self, metastores: Metastores) -> None:
        self.metastores = metastores
        self._routes: dict[Route, Callable[[Call, Emit], None]] = {
            Route.NAMED: self._named,
            Route.DEFINES_DATABASE: self._named,
            Route.IN_TRANSACTION: self._named,
            Route.PRIMARY: metastores.members[metastores.primary].relay,
            Route.SETTING: self._setting,
            Route.TRANSACTION: self._transaction,
            Route.LOCK: lambda call, emit: transaction_calls.lock(metastores, call, emit),
            Route.LOCKS: lambda call, emit: transaction_calls.show_locks(metastores, call, emit),
            Route.LOCK_ID: lambda call, emit: transaction_calls.by_lock_id(metastores, call, emit),
            Route.WRITE_IDS: lambda call, emit: transaction_calls.write_ids(metastores, call, emit),
            Route.MIN_HISTORY: lambda call, emit: transaction_calls.min_history(metastores, call, emit),
            Route.ALL: lambda call, emit: lists.of_all(metastores, call, emit),
            Route.LISTING: lambda call, emit: lists.of_database(metastores, call, emit),
            Route.TABLES: lambda call, emit: lists.tables(metastores, call, emit),
            Route.UNKNOWN: self._of_unknown,
        }

    @property
    def upstreams(self) -> tuple[Upstream, ...]:
        """All upstreams of all metastores."""
        return tuple(
            upstream for member in self.metastores.members.values() for upstream in member.target.upstreams
        )

    @property
    def missing_parts(self) -> Mapping[str, float]:
        """Number of answers that lacked a metastore's part, per name of the metastore."""
        return self.metastores.missing.counts

    def relay(self, call: Call, emit: Emit) -> None:
        """See :meth:`.Target.relay`.

        :raises GatewayError: the call's databases and tables belong to several metastores, or the caller may
            not write to them.
        """
        self._routes[ROUTES[call.method]](call, emit)

    def relay_of_transactions(self) -> Relay | None:
        """See :meth:`.Target.relay_of_transactions`."""
        primary = self.metastores.primary
        return self.metastores.members[primary].relay if self.metastores.transactions_of == primary else None

    def check_cluster(self, name: str) -> None:
        """See :meth:`.Target.check_cluster`."""
        raise no_clusters(name)

    def serves_catalog(self, name: str) -> bool:
        """See :meth:`.Target.serves_catalog`; the primary's catalog has all local names."""
        return self.metastores.members[self.metastores.primary].target.serves_catalog(name)

    def close(self) -> None:
        """Close all connections."""
        self.metastores.close()

    def _named(self, call: Call, emit: Emit) -> None:
        resolved, links = self.metastores.resolve(call)
        if ROUTES[call.method] is Route.IN_TRANSACTION:
            owner = self._of_transaction(call.method, resolved)
        else:
            owner = self.metastores.one_owner(call.method, resolved)
        if owner != self.metastores.primary:
            self.metastores.check_writable(call, owner)
            check_objects(call.method, call.message, call.named, is_filtered=False)
            self._check_definition(call, resolved)
        self.metastores.send(call, owner, resolved, links, emit)

    def _transaction(self, call: Call, emit: Emit) -> None:
        owner = self.metastores.transactions_of
        if owner != self.metastores.primary:
            self.metastores.check_writable(call, owner)
        self.metastores.members[owner].relay(call, emit)

    def _setting(self, call: Call, emit: Emit) -> None:
        """Answer with a setting of the primary metastore, without its listener of notification events.

        Clients compare ids of events to see whether a database has changed. The primary's ids show no change
        of the others' databases, and clients that find no listener compare the databases themselves.
        """
        answer = self.metastores.members[self.metastores.primary].ask(call)
        value = result(call.method, answer)
        if isinstance(value, str) and LISTENER in value:
            listeners = [name for name in value.split(",") if LISTENER not in name]
            answer = answer_of(call.method, read_head(call.message).sequence_id, ",".join(listeners))
        emit(answer)

    def _of_unknown(self, call: Call, _emit: Emit) -> None:
        """Refuse a call by ids, which several metastores give independently of each other."""
        raise refused(
            Status.DENIED,
            f"{call.method}: the ids of the call do not show which of the metastores "
            f"{', '.join(self.metastores.members)} has given them.",
            remedy="Make the call at the metastore itself, or through a gateway that has no other one.",
        )

    def _of_transaction(self, method: str, resolved: Resolved) -> str:
        foreign = [
            ((reference.database, reference.table), place)
            for reference, place in resolved
            if place.owner != self.metastores.transactions_of
        ]
        if foreign:
            raise another_owner(method, self.metastores.transactions_of, foreign)
        return self.metastores.transactions_of

    def _check_definition(self, call: Call, resolved: Resolved) -> None:
        """Refuse calls that must not change, or show, an owner's data under a local name."""
        method = call.method
        if method == "get_next_notification" and not keeps_names(resolved):
            raise refused(
                Status.DENIED,
                f"{method}: messages of events name {resolved[0][1]}, not {resolved[0][0].database}.",
                remedy="Give the database its owner's name in the gateway's file, or ask its owner.",
            )
        if ROUTES[method] is Route.DEFINES_DATABASE:
            raise refused(
                Status.DENIED,
                f"{method}: {resolved[0][0].database} is the local name of database {resolved[0][1]}.",
                remedy="Create, alter or drop databases at the metastore that owns them.",
            )
        if method in DROPS_TABLE and any(self._stands_alone(reference.database) for reference, _ in resolved):
            raise refused(
                Status.DENIED,
                f"{method}: the table is the local name of {resolved[0][1]}.",
                remedy="Drop it at the metastore that owns it, or take its name out of the gateway's file.",
            )
        if ACCESS[method] is not Access.READ and defines_view(arguments(method, call.message)):
            raise refused(
                Status.DENIED,
                f"{method}: views of metastore {resolved[0][1].owner} are not written through this gateway, "
                "for their texts name databases by local names.",
                remedy="Create and alter views at the metastore that owns them.",
            )
        if method == "commit_txn" and resolved and not keeps_names(resolved):
            raise refused(
                Status.DENIED,
                "commit_txn: files and events of a commit name tables by local names.",
                remedy=f"Commit at metastore {resolved[0][1].owner} itself.",
            )

    def _stands_alone(self, database: str) -> bool:
        return self.metastores.owners.place(database, None).owner == self.metastores.primary
