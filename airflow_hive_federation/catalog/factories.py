"""From what a statement says after VIA to a kind of catalog: the registry, and the check of properties.

A factory is data: names, properties, and the function that opens its catalog. Other packages add theirs by
entry points of the group ``airflow_hive_federation.catalogs``, each of which is a :class:`Factory`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Protocol

from airflow_hive_federation.catalog.roles import Catalog
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore import MetastoreSettings

ENTRY_POINTS = "airflow_hive_federation.catalogs"
#: Names a connection that has what may not stand in a statement.
CONNECTION = "hive.federation.connection"

_SECRET = re.compile(r"passw|secret|token|credential|access.?key|passphrase", re.IGNORECASE)
_KEY_TEXT = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY")
_USER_INFO = re.compile(r"(\w[\w+.-]*://)[^/@\s]+@")
HIDDEN = "***"


class Connections(Protocol):
    """Where settings with secrets come from: Airflow's connections, at the surface."""

    def metastore(self, connection_id: str) -> MetastoreSettings:
        """Settings of a metastore.

        :raises ConfigurationError: if there is no such connection.
        """

    def passphrase(self, connection_id: str) -> str | None:
        """Passphrase of private SSH keys.

        :raises ConfigurationError: if there is no such connection.
        """

    def session(self, connection_id: str) -> Mapping[str, Any]:
        """Keyword arguments of a ``boto3`` session, and the ``endpoint_url`` of the connection's services.

        :raises ConfigurationError: if there is no such connection.
        """

    def iceberg(self, connection_id: str) -> Mapping[str, str]:
        """Properties of an Iceberg catalog as pyiceberg knows them, secret ones included.

        :raises ConfigurationError: if there is no such connection.
        """


class NoConnections:
    """For callers that have none."""

    def metastore(self, connection_id: str) -> MetastoreSettings:
        """See :meth:`Connections.metastore`."""
        raise self._none(connection_id)

    def passphrase(self, connection_id: str) -> str | None:
        """See :meth:`Connections.passphrase`."""
        raise self._none(connection_id)

    def session(self, connection_id: str) -> Mapping[str, Any]:
        """See :meth:`Connections.session`."""
        raise self._none(connection_id)

    def iceberg(self, connection_id: str) -> Mapping[str, str]:
        """See :meth:`Connections.iceberg`."""
        raise self._none(connection_id)

    def _none(self, connection_id: str) -> ConfigurationError:
        return ConfigurationError(
            f"Connection {connection_id!r} cannot be looked up here.",
            remedy=f"Run it in Airflow, or from hive-federation, or give properties instead of {CONNECTION}.",
        )


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What a factory is given.

    :param remote: the remote's local name, for errors.
    :param properties: checked ones.
    :param connections: where a property's connection is looked up.
    :param user: in whose name to ask, where the properties do not say; ``None`` is the system's user.
    """

    remote: str
    properties: Mapping[str, str]
    connections: Connections = field(default_factory=NoConnections)
    user: str | None = None


@dataclass(frozen=True, kw_only=True)
class Factory:
    """A kind of catalog.

    :param name: short name.
    :param class_names: simple names of the Java classes that a statement may give for it.
    :param properties: name → what it means.
    :param prefixes: beginnings of further property names.
    :param required: groups of names; of each group at least one must be given.
    :param open: opens the catalog; does not connect.
    """

    name: str
    class_names: tuple[str, ...]
    properties: Mapping[str, str]
    open: Callable[[Opening], Catalog]
    prefixes: tuple[str, ...] = ()
    required: tuple[tuple[str, ...], ...] = ()

    def check(self, properties: Mapping[str, str]) -> None:
        """Refuse properties that the factory does not know, lacks, or that hold secrets.

        :raises ConfigurationError: it names the property, and the nearest one that there is.
        """
        for name, value in properties.items():
            self._check_known(name)
            _refuse_secret(name, value)
        for group in self.required:
            if not any(properties.get(name) for name in group):
                raise ConfigurationError(
                    f"A remote VIA '{self.name}' needs the property {' or '.join(map(repr, group))}.",
                    remedy=f"Add '{group[0]}' = '…'.",
                )

    def _check_known(self, name: str) -> None:
        if name in self.properties or (self.prefixes and name.startswith(self.prefixes)):
            return
        raise ConfigurationError(
            f"A remote VIA '{self.name}' has no property {name!r}.{_nearest(name, self.properties)}",
            remedy=f"Known ones are {', '.join(sorted(self.properties))}.",
        )


def find_factory(via: str | None, known: Iterable[Factory]) -> Factory:
    """Find a factory by short name or Java class; ``None`` is Thrift, as the proposal has it.

    A class counts by its simple name: the packages that the proposal and its implementations name differ.

    :raises ConfigurationError: if there is none; it names the nearest.
    """
    names: dict[str, Factory] = {}
    for factory in [*known, *_of_others()]:
        for name in (factory.name, *factory.class_names):
            names[name.lower()] = factory
    wanted = "thrift" if via is None else via.rpartition(".")[2].lower()
    if wanted not in names:
        shown = sorted({name for factory in names.values() for name in (factory.name, *factory.class_names)})
        raise ConfigurationError(
            f"There is no factory {via!r}.{_nearest(wanted, shown)}",
            remedy=f"Known ones are {', '.join(shown)}.",
        )
    return names[wanted]


def shown_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties as they may be shown: what is or may be secret is hidden."""
    return {
        name: HIDDEN
        if _SECRET.search(name) or _KEY_TEXT.search(value)
        else _USER_INFO.sub(rf"\1{HIDDEN}@", value)
        for name, value in properties.items()
    }


@cache
def _of_others() -> tuple[Factory, ...]:
    found = []
    for point in entry_points(group=ENTRY_POINTS):
        factory = point.load()
        if not isinstance(factory, Factory):
            raise ConfigurationError(
                f"Entry point {point.name!r} of {ENTRY_POINTS} is {type(factory).__name__}, not a Factory.",
                remedy=f"Correct or remove the package that has it ({point.value}).",
            )
        found.append(factory)
    return tuple(found)


def _refuse_secret(name: str, value: str) -> None:
    if _SECRET.search(name) or _KEY_TEXT.search(value) or _USER_INFO.search(value):
        raise ConfigurationError(
            f"The property {name!r} would put a secret into the metastore, where everybody reads it.",
            remedy=f"Put it into an Airflow connection, and name that one: '{CONNECTION}' = 'my_conn'.",
        )


def _nearest(name: str, known: Iterable[str]) -> str:
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    return f" Did you mean {by_lower[found[0]]!r}?" if found else ""
