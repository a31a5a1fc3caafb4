"""Resolves remotes that the primary metastore records to metastores of the gateway, without a refresh."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow_hive_federation.catalog.factories import CONNECTION
from airflow_hive_federation.catalog.grpc import METASTORE_URIS
from airflow_hive_federation.catalog.thrift import ROUTE, URIS
from airflow_hive_federation.errors import ConfigurationError, RemoteError
from airflow_hive_federation.gateway.dispatch import Metastore
from airflow_hive_federation.gateway.federation.fan_out import Question
from airflow_hive_federation.gateway.federation.members import Member
from airflow_hive_federation.gateway.federation.owners import Link, LocalName, OwnedName
from airflow_hive_federation.gateway.federation.renaming import fault_of, fault_text, result
from airflow_hive_federation.gateway.handler import Call, Status, refused
from airflow_hive_federation.gateway.old_clients import is_unknown_method
from airflow_hive_federation.gateway.upstream import Identity
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.settings import MetastoreSettings
from airflow_hive_federation.remotes.links import link_of
from airflow_hive_federation.remotes.statement import Kind, Name
from airflow_hive_federation.tunnel.route import Hop, parse_route

#: Seconds for which the result of a lookup, a remote or none, is remembered per caller's identity and name.
REMEMBERED_S = 5.0
_MOST = 10_000
#: Property of a link with the remote's Hive catalog; clients' calls for local names are for ``hive``.
_CATALOG, _OURS = "metastore.catalog.default", "hive"
#: The SSH hops, a host and a port: one address may be another machine behind another hop.
Address = tuple[tuple[tuple[str, int | None], ...], str, int]


class Links:
    """Finds remotes that the primary metastore records in the properties of databases and tables.

    Any user who may alter a table may write its properties. So the gateway never connects to an address from
    a link. It follows a link only if its file has a metastore with one of the link's URIs, behind the same
    SSH hops, or with the id of the link's connection as a name. Any other link, and a link to another catalog
    than ``hive``, is a table of the primary metastore, as it is for an engine that calls that metastore. The
    same holds for a link to a database that the gateway's file does not show: the metastore that it leads to
    knows the gateway only, and would answer.

    A lookup that gets a fault decides nothing: the call is refused, and the next one looks again. Lookups go
    to the metastore's main servers, because a replica may not have a new link yet.

    :param members: the metastores of the gateway, by name.
    :param primary: name of the metastore that records the links.
    :param shows: decides whether a link may lead to a place.
    """

    def __init__(
        self, members: Mapping[str, Member], primary: str, shows: Callable[[OwnedName], bool]
    ) -> None:
        self._upstream = members[primary].target.upstream
        self._primary = Member(primary, Metastore(self._upstream), writable=True)
        self._shows = shows
        self._owners = {
            address: name
            for name, member in members.items()
            if name != primary
            for address in _addresses(member.target.upstream.settings)
        }
        self._catalogs = {
            name: member.target.upstream.settings.catalog
            for name, member in members.items()
            if name != primary
        }
        self._lock = threading.Lock()
        self._known: dict[tuple[Identity, LocalName], tuple[float, OwnedName | None]] = {}

    def find(self, call: Call, names: Sequence[LocalName]) -> tuple[Link, ...]:
        """Return the links that the primary metastore records under the given names.

        :param call: the call whose caller's identity the lookup uses.
        :raises GatewayError: a link cannot be read, or the primary metastore answers with a fault.
        :raises HiveFederationError: the primary metastore does not answer.
        """
        places: dict[LocalName, OwnedName] = {}
        for database, table in dict.fromkeys(names):
            if (place := self._place(call, (database, None))) is not None:
                places[database, None] = place
            elif table is not None and (place := self._place(call, (database, table))) is not None:
                places[database, table] = place
        return tuple(Link(local=local, place=place) for local, place in places.items())

    def _place(self, call: Call, local: LocalName) -> OwnedName | None:
        now = time.monotonic()
        # The metastore may deny one caller a definition that it shows to another one.
        key = self._upstream.identity_of(call.caller), local
        with self._lock:
            since, place = self._known.get(key, (-REMEMBERED_S, None))
        if now - since < REMEMBERED_S:
            return place
        place = self._ask(call, *local)
        with self._lock:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[key] = now, place
        return place

    def _ask(self, call: Call, database: str, table: str | None) -> OwnedName | None:
        method, answer = self._lookup(call, database, table)
        if isinstance(fault_of(method, answer), types.NoSuchObjectException):
            return None
        if (success := result(method, answer)) is None:
            name = database if table is None else f"{database}.{table}"
            raise refused(
                Status.FAILED,
                f"{call.method}: metastore {self._primary.name} does not show whether {name} is a remote: "
                f"{fault_text(method, answer)}",
                remedy=f"Look at that metastore. This gateway follows links, so the metastore has to let the "
                f"call's user read the definition of {name}.",
            )
        described = success.table if method == "get_table_req" else success
        return self._read(database, table, described.parameters)

    def _lookup(self, call: Call, database: str, table: str | None) -> tuple[str, bytes]:
        """Return the method of a lookup, and the primary metastore's answer."""
        questions = [Question("get_database", {"name": database})]
        if table is not None:
            request = types.GetTableRequest(
                dbName=database,
                tblName=table,
                # Without it, the metastore refuses insert-only tables (``HMSHandler.getTableInternal``).
                capabilities=types.ClientCapabilities(values=[types.ClientCapability.INSERT_ONLY_TABLES]),
            )
            # Servers before Hive 2.3 have the older method only.
            older = Question("get_table", {"dbname": database, "tbl_name": table})
            questions = [Question("get_table_req", {"req": request}), older]
        for question in questions:
            answer = self._primary.ask(question.call(replace(call, cancellation=None)))
            if not is_unknown_method(answer):
                break
        return question.method, answer

    def _read(self, database: str, table: str | None, parameters: Any) -> OwnedName | None:
        kind = Kind.DATABASE if table is None else Kind.TABLE
        try:
            link = link_of(kind, Name(database=database, table=table), parameters)
        except RemoteError as error:
            raise refused(Status.FAILED, error.message, remedy=error.remedy) from error
        if link is None or link.member or (owner := self._owner(link.properties)) is None:
            return None
        remote = link.remote
        place = OwnedName(
            owner, (remote.database or "").lower(), remote.table.lower() if remote.table else None
        )
        return place if self._shows(place) else None

    def _owner(self, properties: Mapping[str, str]) -> str | None:
        if properties.get(CONNECTION) in self._catalogs:
            owner = properties[CONNECTION]
        else:
            owners = {
                self._owners[address] for address in _addresses_of(properties) if address in self._owners
            }
            if len(owners) != 1:
                return None
            owner = owners.pop()
        return owner if properties.get(_CATALOG, self._catalogs[owner]) == _OURS else None


def _addresses(settings: MetastoreSettings) -> Iterator[Address]:
    hops: tuple[tuple[str, int | None], ...] = ()
    if settings.dialer is not None:
        from airflow_hive_federation.tunnel.tunnel import Tunnel

        if not isinstance(settings.dialer, Tunnel):
            return iter(())
        hops = _hops(settings.dialer.settings.hops)
    return ((hops, endpoint.host.lower(), endpoint.port) for endpoint in settings.endpoints())


def _addresses_of(properties: Mapping[str, str]) -> Iterator[Address]:
    """Return the addresses of a link; none if its properties name none that a remote could use."""
    text = ",".join(properties.get(name, "") for name in (URIS, METASTORE_URIS))
    uris = tuple(uri.strip() for uri in text.split(",") if uri.strip())
    try:
        hops = _hops(parse_route(properties[ROUTE]) if ROUTE in properties else ())
        endpoints = MetastoreSettings(uris=uris).endpoints() if uris else ()
    except ConfigurationError:
        return iter(())
    return ((hops, endpoint.host.lower(), endpoint.port) for endpoint in endpoints)


def _hops(hops: Sequence[Hop]) -> tuple[tuple[str, int | None], ...]:
    return tuple((hop.host.lower(), hop.port) for hop in hops)
