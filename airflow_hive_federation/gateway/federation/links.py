"""Resolves remotes that the primary metastore records to metastores of the gateway, without a refresh."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow_hive_federation.catalog.factories import CONNECTION
from airflow_hive_federation.catalog.thrift import URIS
from airflow_hive_federation.errors import RemoteError
from airflow_hive_federation.gateway.dispatch import Call
from airflow_hive_federation.gateway.federation.fan_out import Question
from airflow_hive_federation.gateway.federation.members import Member
from airflow_hive_federation.gateway.federation.owners import Link, LocalName, OwnedName
from airflow_hive_federation.gateway.federation.renaming import result
from airflow_hive_federation.gateway.handler import Status, refused
from airflow_hive_federation.metastore.settings import MetastoreSettings
from airflow_hive_federation.remotes.links import link_of
from airflow_hive_federation.remotes.statement import Kind, Name

#: Seconds for which the result of a lookup, a remote or none, is remembered per name.
REMEMBERED_S = 5.0
_MOST = 10_000


class Links:
    """Finds remotes that the primary metastore records in the properties of databases and tables.

    Any user who may alter a table may write its properties. So the gateway never connects to an address from
    a link. It follows a link only if its file has a metastore with one of the link's URIs, or with the id of
    the link's connection as a name. Any other link is a table of the primary metastore, as it is for an
    engine that calls that metastore.

    :param members: the metastores of the gateway, by name.
    :param primary: name of the metastore that records the links.
    """

    def __init__(self, members: Mapping[str, Member], primary: str) -> None:
        self._primary = members[primary]
        self._owners = {
            address: name
            for name, member in members.items()
            if name != primary
            for address in _addresses(member.target.upstream.settings)
        }
        self._names = frozenset(members) - {primary}
        self._lock = threading.Lock()
        self._known: dict[LocalName, tuple[float, OwnedName | None]] = {}

    def find(self, call: Call, names: Sequence[LocalName]) -> tuple[Link, ...]:
        """Return the links that the primary metastore records under the given names.

        :param call: the call whose caller's identity the lookup uses.
        :raises GatewayError: a link cannot be read.
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
        with self._lock:
            since, place = self._known.get(local, (-REMEMBERED_S, None))
        if now - since < REMEMBERED_S:
            return place
        place = self._ask(call, *local)
        with self._lock:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[local] = now, place
        return place

    def _ask(self, call: Call, database: str, table: str | None) -> OwnedName | None:
        if table is None:
            question = Question("get_database", {"name": database})
        else:
            question = Question("get_table", {"dbname": database, "tbl_name": table})
        lookup = question.call(replace(call, cancellation=None))
        described = result(question.method, self._primary.ask(lookup))
        # A fault here needs no handling: the call itself goes to the primary next and gets the same fault.
        return None if described is None else self._read(database, table, described.parameters)

    def _read(self, database: str, table: str | None, parameters: Any) -> OwnedName | None:
        kind = Kind.DATABASE if table is None else Kind.TABLE
        try:
            link = link_of(kind, Name(database=database, table=table), parameters)
        except RemoteError as error:
            raise refused(Status.FAILED, error.message, remedy=error.remedy) from error
        if link is None or link.member or (owner := self._owner(link.properties)) is None:
            return None
        remote = link.remote
        return OwnedName(
            owner, (remote.database or "").lower(), remote.table.lower() if remote.table else None
        )

    def _owner(self, properties: Mapping[str, str]) -> str | None:
        if properties.get(CONNECTION) in self._names:
            return properties[CONNECTION]
        uris = tuple(uri.strip() for uri in properties.get(URIS, "").split(",") if uri.strip())
        owners = {self._owners[address] for address in _addresses_of(uris) if address in self._owners}
        return owners.pop() if len(owners) == 1 else None


def _addresses(settings: MetastoreSettings) -> Iterator[tuple[str, int]]:
    return ((endpoint.host.lower(), endpoint.port) for endpoint in settings.endpoints())


def _addresses_of(uris: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    return _addresses(MetastoreSettings(uris=uris)) if uris else iter(())
