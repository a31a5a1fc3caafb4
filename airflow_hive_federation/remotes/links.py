"""Converts a remote's link to and from the parameters of its local table or database, without any I/O."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from airflow_hive_federation.errors import CyclicRemoteError, RemoteError, RemoteUnsupportedError
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.remote_links import REMOTE_NAME
from airflow_hive_federation.remotes.statement import Kind, Name, literal

PREFIX = "hive.federation.remote."
#: Holds ``database.table``, or the database, at the remote.
NAME = REMOTE_NAME
#: Holds the factory as the statement names it.
VIA = f"{PREFIX}via"
#: Holds the properties as a JSON object.
PROPERTIES = f"{PREFIX}properties"
#: Limits the characters of the properties. Hive's own limit is its database's: 4,000 to 32,672 characters
#: (``PARAM_VALUE``).
MAX_PROPERTIES = 1 << 16
#: Marks a table that belongs to a remote database, whose link has the factory and the properties.
MEMBER = f"{PREFIX}member"
#: Holds the ids of the metastores behind the link, the nearest first.
PATH = f"{PREFIX}path"
#: Holds the last event of the remote that the link contains; it is set once the link is complete.
EVENT = f"{PREFIX}event"
#: Holds the last runs that have set the event, each with the event before its first try: see :class:`Run`.
RUN = f"{PREFIX}run"
#: A link keeps this many runs. Their text is shorter than the shortest limit of a parameter.
MAX_RUNS = 32
#: Holds the digest of the remote definition that was copied.
DEFINITION = f"{PREFIX}definition"
#: Holds the digest of the names of the remote database's tables, as the last refresh listed them; only for a
#: remote without events, which shows by it that tables were added or dropped.
TABLE_NAMES = f"{PREFIX}table-names"
#: Holds the digest of the column statistics of a partition that were copied.
STATISTICS = f"{PREFIX}statistics"
#: Names the way that an engine may read the table: ``files``, ``view``, or ``read_table`` for ACID tables.
READ_BY = f"{PREFIX}read-by"
#: Marks a local database as read-only: Hive refuses statements that write into it if its
#: ``EnforceReadOnlyDatabaseHook`` is configured.
READ_ONLY_DATABASE = {"readonly": "true"}

THRIFT = "thrift"
#: Stands for the last event of a remote that has no events.
NO_EVENT = -1


@dataclass(frozen=True, kw_only=True)
class Run:
    """A task's run that has refreshed a link, perhaps in several tries.

    A try that fails after it has set the link's event leaves no event for the next try to read, so the next
    try begins its report with the events after ``since``. Between two tries, other runs may refresh the link.

    :param key: a hexadecimal text that all tries of the run share, and no other run has.
    :param since: last event of the remote that the link contained before the first try.
    """

    key: str
    since: int

    def __str__(self) -> str:
        return f"{self.key} {self.since}"


@dataclass(frozen=True, kw_only=True)
class Link:
    """The stored link between a local table or database and its remote.

    :param kind: a table or a database.
    :param local: the local name; its ``database`` is always set.
    :param remote: the name at the remote; its ``database`` is always set.
    :param via: the factory as the statement names it; ``None`` is Thrift.
    :param properties: properties of the factory.
    :param member: the table belongs to a remote database, whose link has ``via`` and ``properties``.
    :param path: ids of the metastores behind the link, the nearest first.
    :param event_id: last event of the remote that the link contains; ``None`` while it is not complete.
    :param definition: digest of the remote definition that was copied.
    :param runs: the last runs that have set ``event_id``, the latest first.
    :param table_names: digest of the names of the remote database's tables at the last refresh, by
        :func:`names_digest`; empty for a remote with events.
    """

    kind: Kind
    local: Name
    remote: Name
    via: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    member: bool = False
    path: tuple[str, ...] = ()
    event_id: int | None = None
    definition: str = ""
    runs: tuple[Run, ...] = ()
    table_names: str = ""

    def parameters(self) -> dict[str, str]:
        """Return the link as parameters of the local table or database."""
        parts = (self.remote.database, self.remote.table)
        parameters = {NAME: ".".join(part for part in parts if part), PATH: ",".join(self.path)}
        if self.member:
            parameters[MEMBER] = "true"
        else:
            parameters[VIA] = self.via or THRIFT
            parameters[PROPERTIES] = json.dumps(dict(self.properties), sort_keys=True, ensure_ascii=False)
        if self.definition:
            parameters[DEFINITION] = self.definition
        if self.table_names:
            parameters[TABLE_NAMES] = self.table_names
        if self.event_id is not None:
            parameters[EVENT] = str(self.event_id)
        if self.runs:
            parameters[RUN] = ",".join(map(str, self.runs))
        return parameters

    def leads_to_the_same(self, other: Link) -> bool:
        """Return true if both links stand for the same remote object through the same factory."""
        return (self.kind, self.remote, self.via or THRIFT, dict(self.properties)) == (
            other.kind,
            other.remote,
            other.via or THRIFT,
            dict(other.properties),
        )

    def is_of_another(self, identity: str | None) -> bool:
        """Return true if the link was made from another metastore than the one that its address leads to now.

        :param identity: id of the present one; ``None`` if it has none.
        """
        return bool(identity and self.path and self.path[0] != identity)

    def statement(self, properties: Mapping[str, str]) -> str:
        """Return the statement that creates this remote, with these properties."""
        lines = [
            f"CREATE REMOTE {self.kind.value.upper()} {self.local}",
            f"CONNECTED TO {self.remote}",
            f"VIA {literal(self.via or THRIFT)}",
            *(f"  {literal(name)} = {literal(value)}" for name, value in sorted(properties.items())),
        ]
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class DamagedLink:
    """A link whose parameters were changed, so that it cannot be read.

    :param error: error of :func:`link_of`, which names the link and the remedy.
    """

    kind: Kind
    local: Name
    error: RemoteError


def readable_link(kind: Kind, local: Name, parameters: Mapping[str, str] | None) -> Link | DamagedLink | None:
    """Parse a link as :func:`link_of` does, and return a link that cannot be read instead of raising."""
    try:
        return link_of(kind, local, parameters)
    except RemoteError as error:
        return DamagedLink(kind=kind, local=local, error=error)


def link_of(kind: Kind, local: Name, parameters: Mapping[str, str] | None) -> Link | None:
    """Parse the link in a local table's or database's parameters; return ``None`` if it is not a remote.

    :raises RemoteError: if the parameters were damaged.
    """
    stored = parameters or {}
    if NAME not in stored:
        return None
    try:
        return Link(
            kind=kind,
            local=local,
            remote=_parsed(kind, stored[NAME]),
            via=stored.get(VIA),
            properties=_properties(stored.get(PROPERTIES, "{}")),
            member=is_member(stored),
            path=tuple(identity for identity in stored.get(PATH, "").split(",") if identity),
            event_id=_event_id(stored[EVENT]) if EVENT in stored else None,
            definition=stored.get(DEFINITION, ""),
            runs=tuple(map(_run, stored[RUN].split(","))) if RUN in stored else (),
            table_names=stored.get(TABLE_NAMES, ""),
        )
    except ValueError as error:
        raise RemoteError(
            f"The link of {kind} {local} cannot be read: {error}.",
            remedy=f"DROP REMOTE {kind.value.upper()} {local}, and create it again: its parameters "
            f"({PREFIX}…) were changed.",
            remote=str(local),
        ) from error


def is_member(parameters: Mapping[str, str] | None) -> bool:
    """Return true if a table's parameters make it part of a remote database."""
    return (parameters or {}).get(MEMBER) == "true"


def names_digest(names: Iterable[str]) -> str:
    """Return a digest of names of tables or partitions, in any order."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:16]


def path_behind(identity: str | None, parameters: Mapping[str, str] | None) -> tuple[str, ...]:
    """Return the ids of the metastores behind a link: the remote's own, then those behind a link there.

    :param identity: id of the remote's metastore.
    :param parameters: parameters of the remote's table or database.
    """
    behind = tuple(
        metastore_id for metastore_id in (parameters or {}).get(PATH, "").split(",") if metastore_id
    )
    return ((identity,) if identity else ()) + behind


def refuse_cycle(local: Name, remote: Name, path: tuple[str, ...], here: str | None) -> None:
    """Refuse a link that leads back to the metastore in which it is made.

    A second name for an object of the same metastore is not a cycle, unless that object is a link that leads
    back.

    :param path: ids of the metastores behind the link, the nearest first.
    :param here: id of the local metastore.
    :raises CyclicRemoteError: if the link leads back.
    """
    if here is None or here not in path:
        return
    if path[0] == here and here not in path[1:] and local != remote:
        return
    raise CyclicRemoteError(
        f"{remote}, to which {local} would be connected, is a remote that leads back to this metastore.",
        remedy="Connect to the original table instead.",
        remote=str(local),
    )


def refuse_location(link: Link, location: str | None) -> None:
    """Refuse a location with a name ``.`` or ``..``, which Hadoop's ``Path`` never has.

    Rules of access that compare the beginnings of locations would take it for a place in another directory.

    :raises RemoteUnsupportedError: if it has such a name; ``location`` is the location.
    """
    if not {".", ".."}.isdisjoint((location or "").split("/")):
        raise RemoteUnsupportedError(
            f"{link.remote}, to which {link.local} is linked, has the location {location!r}, in which a name "
            "'.' or '..' leads out of its directory.",
            remedy="Alter the location at the remote: write it without such names.",
            remote=str(link.local),
            location=location,
        )


def _run(text: str) -> Run:
    key, _, since = text.partition(" ")
    return Run(key=key, since=_event_id(since))


def _event_id(text: str) -> int:
    number = int(text)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"the event {number} is longer than 8 bytes")
    return number


def _properties(text: str) -> dict[str, str]:
    """Parse the properties, which any user who may alter the table can have written.

    :raises ValueError: if they are not a JSON object of texts.
    """
    if len(text) > MAX_PROPERTIES:
        raise ValueError(f"{PROPERTIES} has more than {MAX_PROPERTIES} characters")
    try:
        properties = bounded_json.loads(text)
    except ValueError:
        # The text may contain a secret, so the error repeats neither the text nor the parser's message.
        properties = None
    if not isinstance(properties, dict) or not all(isinstance(value, str) for value in properties.values()):
        raise ValueError(f"{PROPERTIES} is not a JSON object of strings")
    return properties


def _parsed(kind: Kind, text: str) -> Name:
    """Parse a name, in which dots also separate the levels of an Iceberg namespace."""
    database, _, table = (text, "", None) if kind is Kind.DATABASE else text.rpartition(".")
    if table == "" or not all(database.split(".")):
        raise ValueError(f"{NAME} is {text!r}")
    return Name(database=database, table=table)
