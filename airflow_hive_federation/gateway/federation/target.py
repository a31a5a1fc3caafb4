"""The target of a gateway that federates: every call goes to the metastore that owns what it names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway.dispatch import Call, Metastore
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
    """What becomes of a call to all metastores if one does not answer."""

    FAIL = "fail"
    PARTIAL = "partial"


@dataclass(frozen=True, kw_only=True)
class Remote:
    """Another metastore of a federation.

    :param target: the way there.
    :param names: local names of what it owns.
    :param timeout_s: seconds that it has for a whole answer.
    :param writable: clients may write there through the gateway; remotes are for reading by default.
    """

    target: Metastore
    names: RemoteNames = field(default_factory=RemoteNames)
    timeout_s: float = 30.0
    writable: bool = False


class Federation:
    """One primary metastore, and others whose databases and tables have local names; see :class:`.Target`.

    :param primary: owns whatever is no remote.
    :param remotes: the others, by their names.
    :param transactions_of: name of the metastore whose transactions clients get; the primary by default.
    :param on_missing: what becomes of a call to all if one of the others does not answer.
    :param part_timeout_s: seconds that each of the others is given for its part of a list.
    :param follow_links: remotes that the primary metastore has recorded are led to the metastore of this
        gateway that has their URIs, so that they need no refresh.
    :raises ConfigurationError: a local name stands for two things, or ``transactions_of`` for nothing.
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
                name: Member(name, one.target, timeout_s=one.timeout_s, writable=one.writable)
                for name, one in remotes.items()
            },
        }
        if self.primary in remotes:
            raise ConfigurationError(
                f"Two metastores are called {self.primary}.", remedy="Give one of them another name."
            )
        self.owners = Owners(self.primary, {name: one.names for name, one in remotes.items()})
        self.transactions_of = transactions_of or self.primary
        if self.transactions_of not in self.members:
            raise ConfigurationError(
                f"transactions_of is {transactions_of!r}, which is no metastore of this gateway.",
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
        """All upstreams."""
        return tuple(one for member in self.members.values() for one in member.target.upstreams)

    @property
    def missing_parts(self) -> Mapping[str, float]:
        """How many answers were given without the part of a metastore, by its name."""
        return self.missing.counts

    def relay(self, call: Call, emit: Emit) -> None:
        """See :meth:`.Target.relay`.

        :raises GatewayError: what it names belongs to several metastores, or may not be written.
        """
        self._routes[ROUTES[call.method]](call, emit)

    def close(self) -> None:
        """Close all connections."""
        for member in self.members.values():
            member.target.close()

    # -- parts, for the modules beside this one ------------------------------------------------------------

    def resolve(self, call: Call) -> tuple[Resolved, tuple[Link, ...]]:
        """Return what the names of a call stand for, and the recorded links among them."""
        named = [one for one in call.named if one.database]
        links = self.links(call, [(one.database, one.table) for one in named])
        return [(one, self.owners.place(one.database, one.table, links)) for one in named], links

    def links(self, call: Call, names: Sequence[LocalName]) -> tuple[Link, ...]:
        """Return the links that the primary metastore has recorded under some names."""
        if self._links is None:
            return ()
        asked = [one for one in names if not self.owners.is_configured(*one)]
        return self._links.find(call, asked) if asked else ()

    def send(self, call: Call, owner: str, resolved: Resolved, links: tuple[Link, ...], emit: Emit) -> None:
        """Have one owner answer a call, under the names that it knows."""
        member = self.members[owner]
        if owner == self.primary:
            member.relay(call, emit)
            return
        naming = self.naming(owner, resolved, links)
        answer = member.ask(replace(call, message=to_owner(call.message, resolved)))
        emit(to_client(call.method, answer, naming))

    def naming(self, owner: str, resolved: Resolved, links: tuple[Link, ...]) -> Naming:
        """Return the names in an owner's answer."""
        used = [((one.database, one.table), place) for one, place in resolved if place.owner == owner]
        return Naming(self.owners, owner, used, links)

    def check_writable(self, method: str, owner: str) -> None:
        """Refuse a call that writes into a remote that is for reading.

        :raises GatewayError: it is.
        """
        if ACCESS[method] is Access.READ or method in HARMLESS or self.members[owner].writable:
            return
        raise refused(
            Status.DENIED,
            f"{method}: metastore {owner} is for reading through this gateway.",
            remedy=f"Write at {owner} itself, or have whoever runs the gateway make it writable.",
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
        """Return the one owner of what a call names; the primary if it names nothing.

        :raises GatewayError: there are several.
        """
        owners = sorted({place.owner for _, place in resolved})
        if len(owners) > 1:
            named = {
                f"{one.database}.{one.table}" if one.table else one.database: str(place)
                for one, place in resolved
            }
            listed = ", ".join(f"{name} is {place}" for name, place in sorted(named.items()))
            raise refused(
                Status.FAILED,
                f"{method}: what it names belongs to several metastores: {listed}.",
                remedy="Make a call for each of them.",
            )
        return owners[0] if owners else self.primary

    def _of_transaction(self, method: str, resolved: Resolved) -> str:
        foreign = [
            ((one.database, one.table), place)
            for one, place in resolved
            if place.owner != self.transactions_of
        ]
        if foreign:
            raise another_owner(method, self.transactions_of, foreign)
        return self.transactions_of

    def _check_definition(self, call: Call, resolved: Resolved) -> None:
        """Refuse what would change, or show, an owner's data by a name that is only a local one."""
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
        if method in DROPS_TABLE and any(self._stands_alone(one.database) for one, _ in resolved):
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
