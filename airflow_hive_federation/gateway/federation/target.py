"""Routes every call of a federating gateway to the metastore that owns the call's databases and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway.dispatch import Call, Metastore, no_clusters
from airflow_hive_federation.gateway.federation import lists, transaction_calls
from airflow_hive_federation.gateway.federation.fan_out import Missing
from airflow_hive_federation.gateway.federation.links import Links
from airflow_hive_federation.gateway.federation.members import Member
from airflow_hive_federation.gateway.federation.owners import (
    Link,
    LocalName,
    Naming,
    Owners,
    RemoteNames,
)
from airflow_hive_federation.gateway.federation.renaming import (
    Resolved,
    arguments,
    keeps_names,
    to_client,
    to_owner,
)
from airflow_hive_federation.gateway.federation.routes import DROPS_TABLE, HARMLESS, ROUTES, Route
from airflow_hive_federation.gateway.federation.transactions import LockIds, another_owner
from airflow_hive_federation.gateway.federation.views import defines_view
from airflow_hive_federation.gateway.handler import Status, refused
from airflow_hive_federation.gateway.messages import Emit
from airflow_hive_federation.gateway.methods import ACCESS, Access
from airflow_hive_federation.gateway.upstream import Upstream


class OnMissing(StrEnum):
    """The result of a call to all metastores if one does not answer."""

    FAIL = "fail"
    PARTIAL = "partial"


@dataclass(frozen=True, kw_only=True)
class Remote:
    """Another metastore of a federation.

    :param target: sends calls to the metastore.
    :param names: local names of its databases and tables.
    :param timeout_s: seconds that the metastore has for a whole answer.
    :param writable: clients may write to it through the gateway; by default, they may only read.
    """

    target: Metastore
    names: RemoteNames = field(default_factory=RemoteNames)
    timeout_s: float = 30.0
    writable: bool = False


class Federation:
    """One primary metastore, and others whose databases and tables have local names; see :class:`.Target`.

    :param primary: the metastore that owns every name that is no remote.
    :param remotes: the other metastores, by their names.
    :param transactions_of: name of the metastore whose transactions clients get; the primary by default.
    :param on_missing: result of a call to all metastores if one of the remotes does not answer.
    :param part_timeout_s: seconds that each remote has for its part of a list.
    :param follow_links: the gateway resolves remotes that the primary metastore records to its own metastore
        with one of their URIs, so that they need no refresh.
    :raises ConfigurationError: a local name stands for two places, or ``transactions_of`` names no metastore
        of this gateway.
    """

    wants_names = True

    def __init__(
        self,
        primary: Metastore,
        remotes: Mapping[str, Remote],
        *,
        transactions_of: str | None = None,
        on_missing: OnMissing = OnMissing.FAIL,
        part_timeout_s: float = 5.0,
        follow_links: bool = False,
    ) -> None:
        self.primary = primary.upstream.name
        self.members = {
            self.primary: Member(self.primary, primary, writable=True),
            **{
                name: Member(name, remote.target, timeout_s=remote.timeout_s, writable=remote.writable)
                for name, remote in remotes.items()
            },
        }
        if self.primary in remotes:
            raise ConfigurationError(
                f"Two metastores are called {self.primary}.", remedy="Give one of them another name."
            )
        self.owners = Owners(self.primary, {name: remote.names for name, remote in remotes.items()})
        self.transactions_of = transactions_of or self.primary
        if self.transactions_of not in self.members:
            raise ConfigurationError(
                f"transactions_of is {transactions_of!r}, which is not a metastore of this gateway.",
                remedy=f"Give one of {', '.join(self.members)}.",
            )
        self.lock_ids = LockIds(self.members, self.transactions_of)
        self.part_timeout_s = part_timeout_s
        self.partial = on_missing is OnMissing.PARTIAL
        self.missing = Missing()
        self._links = Links(self.members, self.primary) if follow_links else None
        self._routes: dict[Route, Callable[[Call, Emit], None]] = {
            Route.NAMED: self._named,
            Route.DEFINES_DATABASE: self._named,
            Route.IN_TRANSACTION: self._named,
            Route.PRIMARY: self.members[self.primary].relay,
            Route.TRANSACTION: self.members[self.transactions_of].relay,
            Route.LOCK: lambda call, emit: transaction_calls.lock(self, call, emit),
            Route.LOCK_ID: lambda call, emit: transaction_calls.by_lock_id(self, call, emit),
            Route.WRITE_IDS: lambda call, emit: transaction_calls.write_ids(self, call, emit),
            Route.MIN_HISTORY: lambda call, emit: transaction_calls.min_history(self, call, emit),
            Route.ALL: lambda call, emit: lists.of_all(self, call, emit),
            Route.LISTING: lambda call, emit: lists.of_database(self, call, emit),
            Route.TABLES: lambda call, emit: lists.tables(self, call, emit),
        }

    @property
    def upstreams(self) -> tuple[Upstream, ...]:
        """All upstreams of all metastores."""
        return tuple(upstream for member in self.members.values() for upstream in member.target.upstreams)

    @property
    def missing_parts(self) -> Mapping[str, float]:
        """Number of answers that lacked a metastore's part, per name of the metastore."""
        return self.missing.counts

    def relay(self, call: Call, emit: Emit) -> None:
        """See :meth:`.Target.relay`.

        :raises GatewayError: the call's databases and tables belong to several metastores, or the caller may
            not write to them.
        """
        self._routes[ROUTES[call.method]](call, emit)

    def check_cluster(self, name: str) -> None:
        """See :meth:`.Target.check_cluster`."""
        raise no_clusters(name)

    def close(self) -> None:
        """Close all connections."""
        for member in self.members.values():
            member.target.close()

    # -- methods for the other modules of this package -----------------------------------------------------

    def resolve(self, call: Call) -> tuple[Resolved, tuple[Link, ...]]:
        """Return the place of each name in a call, and the recorded links among the names."""
        named = [reference for reference in call.named if reference.database]
        links = self.links(call, [(reference.database, reference.table) for reference in named])
        return [
            (reference, self.owners.place(reference.database, reference.table, links)) for reference in named
        ], links

    def links(self, call: Call, names: Sequence[LocalName]) -> tuple[Link, ...]:
        """Return the links that the primary metastore records under the given names."""
        if self._links is None:
            return ()
        unknown = [name for name in names if not self.owners.is_configured(*name)]
        return self._links.find(call, unknown) if unknown else ()

    def send(self, call: Call, owner: str, resolved: Resolved, links: tuple[Link, ...], emit: Emit) -> None:
        """Send a call to its owner under the owner's names, and emit the answer under local names."""
        member = self.members[owner]
        if owner == self.primary:
            member.relay(call, emit)
            return
        naming = self.naming(owner, resolved, links)
        answer = member.ask(replace(call, message=to_owner(call.message, resolved)))
        emit(to_client(call.method, answer, naming))

    def naming(self, owner: str, resolved: Resolved, links: tuple[Link, ...]) -> Naming:
        """Return the translation of the names in an owner's answer."""
        used = [
            ((reference.database, reference.table), place)
            for reference, place in resolved
            if place.owner == owner
        ]
        return Naming(self.owners, owner, used, links)

    def check_writable(self, method: str, owner: str) -> None:
        """Refuse a call that writes to a remote which the gateway may only read.

        :raises GatewayError: the call writes, and the remote is not writable.
        """
        if ACCESS[method] is Access.READ or method in HARMLESS or self.members[owner].writable:
            return
        raise refused(
            Status.DENIED,
            f"{method}: metastore {owner} can only be read through this gateway.",
            remedy=f"Write at {owner} itself, or ask the operator of the gateway to make it writable.",
        )

    def _named(self, call: Call, emit: Emit) -> None:
        resolved, links = self.resolve(call)
        if ROUTES[call.method] is Route.IN_TRANSACTION:
            owner = self._of_transaction(call.method, resolved)
        else:
            owner = self.one_owner(call.method, resolved)
        if owner != self.primary:
            self.check_writable(call.method, owner)
            self._check_definition(call, resolved)
        self.send(call, owner, resolved, links, emit)

    def one_owner(self, method: str, resolved: Resolved) -> str:
        """Return the single owner of a call's databases and tables; the primary if the call names none.

        :raises GatewayError: they have several owners.
        """
        owners = sorted({place.owner for _, place in resolved})
        if len(owners) > 1:
            places_by_name = {
                f"{reference.database}.{reference.table}" if reference.table else reference.database: str(
                    place
                )
                for reference, place in resolved
            }
            listed = ", ".join(f"{name} is {place}" for name, place in sorted(places_by_name.items()))
            raise refused(
                Status.FAILED,
                f"{method}: the objects of the call belong to several metastores: {listed}.",
                remedy="Make a call for each of them.",
            )
        return owners[0] if owners else self.primary

    def _of_transaction(self, method: str, resolved: Resolved) -> str:
        foreign = [
            ((reference.database, reference.table), place)
            for reference, place in resolved
            if place.owner != self.transactions_of
        ]
        if foreign:
            raise another_owner(method, self.transactions_of, foreign)
        return self.transactions_of

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
        return self.owners.place(database, None).owner == self.primary

    def named_owners(self) -> Iterator[str]:
        """Yield the names of the remotes."""
        return (name for name in self.members if name != self.primary)
