"""Finds the metastore that owns a call's databases and tables, and sends the call there under its names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway.dispatch import Metastore
from airflow_hive_federation.gateway.federation.fan_out import Missing
from airflow_hive_federation.gateway.federation.links import Links
from airflow_hive_federation.gateway.federation.members import Member
from airflow_hive_federation.gateway.federation.owners import (
    Link,
    LocalName,
    Naming,
    OwnedName,
    Owners,
    RemoteNames,
)
from airflow_hive_federation.gateway.federation.renaming import (
    Resolved,
    arguments,
    check_request,
    to_client,
    to_owner,
)
from airflow_hive_federation.gateway.federation.routes import HARMLESS
from airflow_hive_federation.gateway.federation.transactions import LockIds, changes_data
from airflow_hive_federation.gateway.handler import Call, Status, refused
from airflow_hive_federation.gateway.messages import Emit, read_head
from airflow_hive_federation.gateway.methods import ACCESS, Access
from airflow_hive_federation.gateway.names import catalogs
from airflow_hive_federation.metastore.connection import message_types


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


class Metastores:
    """The metastores of a federation, and the databases and tables that each of them owns.

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
                name: Member(
                    name,
                    remote.target,
                    timeout_s=remote.timeout_s,
                    writable=remote.writable,
                    clients_catalog=primary.upstream.settings.catalog,
                )
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
        self._links = Links(self.members, self.primary, self.owners.shows) if follow_links else None

    @property
    def follows_links(self) -> bool:
        """True if remotes that the primary metastore records are resolved to other metastores."""
        return self._links is not None

    def is_of_another_catalog(self, call: Call) -> bool:
        """Return whether a call names a catalog that only the primary metastore can have.

        Local names of databases and tables belong to the primary's own catalog.
        """
        serves = self.members[self.primary].target.serves_catalog
        names = catalogs(call.message, read_head(call.message).body, message_types(call.method)[0])
        return not all(serves(name.name) for name in names)

    def resolve(self, call: Call) -> tuple[Resolved, tuple[Link, ...]]:
        """Return the place of each name in a call, and the recorded links among the names.

        :raises GatewayError: as :meth:`links`.
        """
        named = [reference for reference in call.named if reference.database]
        names = [(reference.database, reference.table) for reference in named]
        has_others = any(self.owners.place(*name).owner != self.primary for name in names)
        # Most calls name no remote, and long ones are not read again.
        if (has_others or self.follows_links) and self.is_of_another_catalog(call):
            places = [OwnedName(self.primary, *name) for name in names]
            return list(zip(named, places, strict=True)), ()
        links = self._links_among(call, names)
        places = [self.owners.place(*name, links) for name in names]
        return list(zip(named, places, strict=True)), links

    def links(self, call: Call, names: Sequence[LocalName]) -> tuple[Link, ...]:
        """Return the links that the primary metastore records under the given names, in its own catalog.

        :raises GatewayError: a link cannot be looked up or read, or leads to an object that the caller may
            not use by its own name.
        """
        if not self.follows_links or self.is_of_another_catalog(call):
            return ()
        return self._links_among(call, names)

    def _links_among(self, call: Call, names: Sequence[LocalName]) -> tuple[Link, ...]:
        if self._links is None:
            return ()
        unknown = [name for name in names if not self.owners.is_configured(*name)]
        links = self._links.find(call, unknown) if unknown else ()
        for database, table in unknown if links else ():
            self._check_permitted(call, (database, table), self.owners.place(database, table, links))
        return links

    def _check_permitted(self, call: Call, local: LocalName, place: OwnedName) -> None:
        # Whoever may write a table decides where its link leads, and rules have only seen the table's name.
        if call.permits is None or place.owner == self.primary:
            return
        names = self.owners.names_of(place)
        if names and not any(call.permits(*name) for name in names):
            name = ".".join(part for part in local if part)
            raise refused(
                Status.DENIED,
                f"{call.method}: {name} is a link to {place}, and user {call.caller.user!r} may not "
                f"{ACCESS[call.method]} that through this gateway.",
                remedy="Ask the operator of the gateway for a rule, or for an entry in its allow-list.",
            )

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

    def check_writable(self, call: Call, owner: str) -> None:
        """Refuse a call that writes to a remote which the gateway may only read.

        :raises GatewayError: the call writes, and the remote is not writable.
        :raises MalformedMessage: the call is a commit without a request.
        """
        method = call.method
        if ACCESS[method] is Access.READ or self.members[owner].writable:
            return
        if method == "commit_txn":
            values = arguments(method, call.message)
            check_request(values)
            harmless = not changes_data(values.rqst)
        else:
            harmless = method in HARMLESS
        if harmless:
            return
        raise refused(
            Status.DENIED,
            f"{method}: metastore {owner} can only be read through this gateway.",
            remedy=f"Write at {owner} itself, or ask the operator of the gateway to make it writable.",
        )

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

    def named_owners(self) -> Iterator[str]:
        """Yield the names of the remotes."""
        return (name for name in self.members if name != self.primary)

    def close(self) -> None:
        """Close all connections."""
        for member in self.members.values():
            member.target.close()
