"""Maps local names of databases and tables to the metastores that own them, and back; does no I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway.rules import Patterns

#: A local name: a database, and a table of it or ``None``.
LocalName = tuple[str, str | None]


@dataclass(frozen=True)
class OwnedName:
    """A database, or a table of it, at the metastore that owns it.

    :param owner: name of the upstream.
    :param database: the owner's name of the database, in lower case.
    :param table: the owner's name of the table; ``None`` for the whole database.
    """

    owner: str
    database: str
    table: str | None = None

    def __str__(self) -> str:
        name = self.database if self.table is None else f"{self.database}.{self.table}"
        return f"{name} of metastore {self.owner}"


@dataclass(frozen=True, kw_only=True)
class RemoteNames:
    """Local names of one other metastore's databases and tables.

    :param databases: local database → the owner's database.
    :param tables: local ``database.table`` → the owner's ``database.table``, for single tables in local
        databases.
    :param prefix: prefix that makes local names of the owner's databases; ``None`` makes none.
    :param shown: patterns of the databases that get a prefixed name, and that recorded links may lead to.
    """

    databases: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    prefix: str | None = None
    shown: tuple[str, ...] = ("*",)


@dataclass(frozen=True, kw_only=True)
class Link:
    """A remote that the primary metastore records, resolved to one of the gateway's metastores.
    :param place: the database or table that the local name stands for.
    """

    local: LocalName
    place: OwnedName


class Owners:
    """Finds the owner of a name: a remote, or else the primary metastore.

    :param primary: name of the primary metastore.
    :param remotes: name of each other metastore → the local names of its databases and tables.
    :raises ConfigurationError: two remotes have the same local name, or a name is malformed.
    """

    def __init__(self, primary: str, remotes: Mapping[str, RemoteNames]) -> None:
        self.primary = primary
        self._places: dict[LocalName, OwnedName] = {}
        self._shown = {owner: Patterns(names.shown) for owner, names in remotes.items()}
        self._prefixes: list[tuple[str, str, Patterns]] = []
        for owner, names in remotes.items():
            for local, remote_name in names.databases.items():
                self._add((_plain(local), None), OwnedName(owner, _plain(remote_name)))
            for local, remote_name in names.tables.items():
                database, table = _qualified(remote_name)
                self._add(_qualified(local), OwnedName(owner, database, table))
            if names.prefix is not None:
                self._prefixes.append((_plain(names.prefix), owner, Patterns(names.shown)))
        self._prefixes.sort(key=lambda entry: -len(entry[0]))
        for database, name in self._places:
            if name is not None and self._of_database(database) is not None:
                raise ConfigurationError(
                    f"{database}.{name} is a remote table in {database}, which is a remote database.",
                    remedy="Give it a name in a local database.",
                )

    def _add(self, local: LocalName, place: OwnedName) -> None:
        if local in self._places:
            name = ".".join(part for part in local if part)
            raise ConfigurationError(
                f"{name} stands for {self._places[local]} and for {place}.",
                remedy="Give each a local name of its own.",
            )
        self._places[local] = place

    def place(self, database: str, table: str | None, links: Iterable[Link] = ()) -> OwnedName:
        """Return the place of a local name; if it is no remote, the same name at the primary metastore.

        :param links: remotes that the primary metastore records; the gateway's own names take precedence.
        """
        if table is not None and (place := self._places.get((database, table))) is not None:
            return place
        if (place := self._of_database(database)) is not None:
            return OwnedName(place.owner, place.database, table)
        recorded = {link.local: link.place for link in links}
        if table is not None and (place := recorded.get((database, table))) is not None:
            return place
        if (place := recorded.get((database, None))) is not None:
            return OwnedName(place.owner, place.database, table)
        return OwnedName(self.primary, database, table)

    def is_configured(self, database: str, table: str | None) -> bool:
        """Return whether the gateway's file decides on a name, so that recorded links need no lookup."""
        return (database, table) in self._places or self._of_database(database) is not None

    def shows(self, place: OwnedName) -> bool:
        """Return whether the gateway's file makes a place visible, so that recorded links may lead to it."""
        named = self._places.values()
        return (
            self._shown[place.owner].match(place.database)
            or OwnedName(place.owner, place.database) in named
            or place in named
        )

    def names_of(self, place: OwnedName) -> list[LocalName]:
        """Return the names that the gateway's file gives to a place, or to the database of a table."""
        databases = self.local_names(place.owner, [place.database]).get(place.database, [])
        tables = [name for name, known in self.single_tables(place.owner).items() if known == place]
        return [*((name, place.table) for name in databases), *tables]

    def mapped_databases(self, owner: str) -> dict[str, str]:
        """Return the explicit databases of an owner, local name → the owner's name."""
        return {
            local: place.database
            for (local, table), place in self._places.items()
            if place.owner == owner and table is None
        }

    def prefix_of(self, owner: str) -> str | None:
        """Return the prefix of an owner's databases."""
        return next((prefix for prefix, prefix_owner, _ in self._prefixes if prefix_owner == owner), None)

    def single_tables(self, owner: str | None = None) -> dict[tuple[str, str], OwnedName]:
        """Return the single tables of an owner, or of all owners, local name → place."""
        return {
            (database, table): place
            for (database, table), place in self._places.items()
            if table is not None and owner in {None, place.owner}
        }

    def local_names(self, owner: str, databases: Iterable[str]) -> dict[str, list[str]]:
        """Return the local names of an owner's databases, the owner's name → local names."""
        local_by_remote: dict[str, list[str]] = {}
        mapped, prefix = self.mapped_databases(owner), self.prefix_of(owner)
        for remote_name in databases:
            names = [local for local, name in mapped.items() if name == remote_name]
            prefixed = None if prefix is None else f"{prefix}{remote_name}"
            if prefixed is not None and (place := self._of_database(prefixed)) is not None:
                # A longer prefix, or an explicit name, may have given this local name to another owner.
                names += (
                    [prefixed] if place == OwnedName(owner, remote_name) and prefixed not in names else []
                )
            if names:
                local_by_remote[remote_name] = names
        return local_by_remote

    def _of_database(self, database: str) -> OwnedName | None:
        if (place := self._places.get((database, None))) is not None:
            return place
        for prefix, owner, shown in self._prefixes:
            remote_name = database.removeprefix(prefix)
            if remote_name and remote_name != database and shown.match(remote_name):
                return OwnedName(owner, remote_name)
        return None


class Naming:
    """Translates the names in an owner's answer into local names, which clients of the gateway know.

    :param owners: the owners of all local names.
    :param owner: the metastore that answers.
    :param used: local names in the call, with their places; the answer repeats these names.
    :param links: remotes that the primary metastore records.
    """

    def __init__(
        self,
        owners: Owners,
        owner: str,
        used: Sequence[tuple[LocalName, OwnedName]],
        links: Iterable[Link] = (),
    ) -> None:
        self.owner = owner
        self._owners = owners
        links = [link for link in links if link.place.owner == owner]
        named = [*((link.local, link.place) for link in links), *used]
        self._databases: dict[str, str] = {}
        for local, place in named:
            # The local database of a single table is not a local name of the table's own database.
            if owners.place(local[0], None, links) == OwnedName(owner, place.database):
                self._databases[place.database] = local[0]
        self._tables: dict[LocalName, LocalName] = {
            (place.database, place.table): local for local, place in named if place.table
        }
        for name, place in owners.single_tables(owner).items():
            self._tables.setdefault((place.database, place.table), name)

    def local(self, database: str, table: str | None) -> LocalName:
        """Return the local name of a database or table of the owner.

        A database without a local name gets a name that no database can have, so that it is not mistaken for
        a database of the primary metastore.
        """
        if self.owner == self._owners.primary or not database:
            return database, table
        if (known := self._tables.get((database, table))) is not None:
            return known
        if (name := self.database(database)) is not None:
            return name, table
        if table is None:
            alone = {
                local[0]
                for (remote_database, _), local in self._tables.items()
                if remote_database == database
            }
            if len(alone) == 1:
                return alone.pop(), None
        return f"{self.owner}::{database}", table

    def database(self, database: str) -> str | None:
        """Return the local name of a whole database; ``None`` if it has none."""
        if self.owner == self._owners.primary:
            return database
        if database in self._databases:
            return self._databases[database]
        names = self._owners.local_names(self.owner, [database]).get(database)
        return names[0] if names else None


def _plain(name: str) -> str:
    if not re.fullmatch(r"[^\s.@#:]+", name):
        raise ConfigurationError(f"{name!r} is no name of a database.", remedy="Write it as Hive knows it.")
    return name.lower()


def _qualified(name: str) -> tuple[str, str]:
    database, _, table = name.partition(".")
    if not table:
        raise ConfigurationError(f"{name!r} is no name of a table.", remedy="Write database.table.")
    return _plain(database), _plain(table)
