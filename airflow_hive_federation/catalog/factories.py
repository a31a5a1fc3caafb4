"""Registers the factories of catalogs, which a statement names after VIA, and checks their properties.

A factory is data: names, properties, and the function that opens its catalog. Other packages add factories by
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
#: Names a connection that holds the secrets, which a statement may not contain.
CONNECTION = "hive.federation.connection"

_SECRET = re.compile(r"passw|secret|token|credential|access.?key|passphrase", re.IGNORECASE)
_KEY_TEXT = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY")
_USER_INFO = re.compile(r"(\w[\w+.-]*://)[^/@\s]+@")
HIDDEN = "***"


class Connections(Protocol):
    """A source of settings with secrets, for instance Airflow's connections."""

    def metastore(self, connection_id: str) -> MetastoreSettings:
        """Return the settings of a metastore.

        :raises ConfigurationError: if the connection does not exist.
        """

    def passphrase(self, connection_id: str) -> str | None:
        """Return the passphrase of private SSH keys.

        :raises ConfigurationError: if the connection does not exist.
        """

    def session(self, connection_id: str) -> Mapping[str, Any]:
        """Return keyword arguments of a ``boto3`` session, and the ``endpoint_url`` of its services.

        :raises ConfigurationError: if the connection does not exist.
        """

    def iceberg(self, connection_id: str) -> Mapping[str, str]:
        """Return the properties of an Iceberg catalog in pyiceberg's names, secret ones included.

        :raises ConfigurationError: if the connection does not exist.
        """


class NoConnections:
    """A source for callers that have no connections; every method raises an error."""

    def metastore(self, connection_id: str) -> MetastoreSettings:
        """Refuse :meth:`Connections.metastore`."""
        raise self._none(connection_id)

    def passphrase(self, connection_id: str) -> str | None:
        """Refuse :meth:`Connections.passphrase`."""
        raise self._none(connection_id)

    def session(self, connection_id: str) -> Mapping[str, Any]:
        """Refuse :meth:`Connections.session`."""
        raise self._none(connection_id)

    def iceberg(self, connection_id: str) -> Mapping[str, str]:
        """Refuse :meth:`Connections.iceberg`."""
        raise self._none(connection_id)

    def _none(self, connection_id: str) -> ConfigurationError:
        return ConfigurationError(
            f"Connection {connection_id!r} cannot be looked up here.",
            remedy=f"Run it in Airflow, or from hive-federation, or give properties instead of {CONNECTION}.",
        )


@dataclass(frozen=True, kw_only=True)
class Opening:
    """The arguments with which a factory opens a catalog.

    :param remote: local name of the remote, for errors.
    :param properties: checked properties of the factory.
    :param connections: looks up the connection that a property names.
    :param user: user of the calls, unless the properties name one; ``None`` is the system's user.
    """

    remote: str
    properties: Mapping[str, str]
    connections: Connections = field(default_factory=NoConnections)
    user: str | None = None


@dataclass(frozen=True, kw_only=True)
class Factory:
    """A factory of one kind of catalog.

    :param name: short name.
    :param class_names: simple names of the Java classes that a statement may name instead.
    :param properties: property names with their meanings.
    :param open: opens the catalog without connecting.
    :param prefixes: beginnings of further property names.
    :param required: groups of property names; each group needs at least one property.
    """

    name: str
    class_names: tuple[str, ...]
    properties: Mapping[str, str]
    open: Callable[[Opening], Catalog]
    prefixes: tuple[str, ...] = ()
    required: tuple[tuple[str, ...], ...] = ()

    def check(self, properties: Mapping[str, str]) -> None:
        """Refuse properties that are unknown, missing or secret.

        :raises ConfigurationError: a property is refused; the error names it and the most similar known one.
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
    """Find a factory by short name or Java class; ``None`` is Thrift, as in the design of remote tables.

    Only the simple name of a class counts, because the design and its implementations differ in packages.

    :raises ConfigurationError: if no factory has the name; the error names the most similar one.
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
    """Return the properties for display, with possible secrets hidden."""
    return {
        name: HIDDEN
        if _SECRET.search(name) or _KEY_TEXT.search(value)
        else _USER_INFO.sub(rf"\1{HIDDEN}@", value)
        for name, value in properties.items()
    }


@cache
def _of_others() -> tuple[Factory, ...]:
    factories = []
    for point in entry_points(group=ENTRY_POINTS):
        factory = point.load()
        if not isinstance(factory, Factory):
            raise ConfigurationError(
                f"Entry point {point.name!r} of {ENTRY_POINTS} is {type(factory).__name__}, not a Factory.",
                remedy=f"Correct or remove the package that has it ({point.value}).",
            )
        factories.append(factory)
    return tuple(factories)


def _refuse_secret(name: str, value: str) -> None:
    if _SECRET.search(name) or _KEY_TEXT.search(value) or _USER_INFO.search(value):
        raise ConfigurationError(
            f"The property {name!r} would put a secret into the metastore, where everybody reads it.",
            remedy=f"Put it into an Airflow connection, and name that one: '{CONNECTION}' = 'my_conn'.",
        )


def _nearest(name: str, known: Iterable[str]) -> str:
    by_lower = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    return f" Did you mean {by_lower[matches[0]]!r}?" if matches else ""
