"""How a remote is kept: in the parameters of the local table or database that stands for it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_hive_federation.errors import CyclicRemoteError, RemoteError
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.remote_links import REMOTE_NAME
from airflow_hive_federation.remotes.statement import Kind, Name, literal

PREFIX = "hive.federation.remote."
#: ``database.table``, or the database, at the remote.
NAME = REMOTE_NAME
#: The factory, as the statement names it.
VIA = f"{PREFIX}via"
#: The properties, as a JSON object.
PROPERTIES = f"{PREFIX}properties"
#: Characters of the properties. Hive's own limit is that of its database, 4,000 to 32,672 (``PARAM_VALUE``).
MAX_PROPERTIES = 1 << 16
#: Of a table that a remote database brought with it: that has factory and properties.
MEMBER = f"{PREFIX}member"
#: Ids of the metastores that lie behind the link, the nearest first.
PATH = f"{PREFIX}path"
#: Last event of the remote that the link contains. Set when the link is complete.
EVENT = f"{PREFIX}event"
#: Digest of the definition that was taken over.
DEFINITION = f"{PREFIX}definition"
#: In which way an engine may read it: ``files``, ``view``, or ``read_table`` for ACID tables.
READ_BY = f"{PREFIX}read-by"
#: Of a database: Hive refuses statements that write into it, where its ``EnforceReadOnlyDatabaseHook`` is
#: configured.
READ_ONLY_DATABASE = {"readonly": "true"}

THRIFT = "thrift"
#: Stands for the event of a remote that has none.
NO_EVENT = -1


@dataclass(frozen=True, kw_only=True)
class Link:
    """A remote, as it is stored.

    :param kind: a table or a database.
    :param local: the local name; its ``database`` is always set.
    :param remote: the name at the remote; its ``database`` is always set.
    :param via: the factory as the statement names it; ``None`` is Thrift.
    :param properties: of the factory.
    :param member: a table that came with a remote database, which has ``via`` and ``properties``.
    :param path: ids of the metastores behind it, the nearest first.
    :param event_id: last event of the remote that it contains; ``None`` while it is not complete.
    :param definition: digest of the definition that was taken over.
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

    def parameters(self) -> dict[str, str]:
        """Parameters of the local table or database."""
        parts = (self.remote.database, self.remote.table)
        found = {NAME: ".".join(part for part in parts if part), PATH: ",".join(self.path)}
        if self.member:
            found[MEMBER] = "true"
        else:
            found[VIA] = self.via or THRIFT
            found[PROPERTIES] = json.dumps(dict(self.properties), sort_keys=True, ensure_ascii=False)
        if self.definition:
            found[DEFINITION] = self.definition
        if self.event_id is not None:
            found[EVENT] = str(self.event_id)
        return found

    def leads_to_the_same(self, other: Link) -> bool:
        """Whether both stand for the same thing, reached in the same way."""
        return (self.kind, self.remote, self.via or THRIFT, dict(self.properties)) == (
            other.kind,
            other.remote,
            other.via or THRIFT,
            dict(other.properties),
        )

    def statement(self, properties: Mapping[str, str]) -> str:
        """The statement that makes this remote, with these properties shown."""
        lines = [
            f"CREATE REMOTE {self.kind.value.upper()} {self.local}",
            f"CONNECTED TO {self.remote}",
            f"VIA {literal(self.via or THRIFT)}",
            *(f"  {literal(name)} = {literal(value)}" for name, value in sorted(properties.items())),
        ]
        return "\n".join(lines)


def link_of(kind: Kind, local: Name, parameters: Mapping[str, str] | None) -> Link | None:
    """Read the link from a local table's or database's parameters; ``None`` if it is no remote.

    :raises RemoteError: if the parameters were damaged.
    """
    found = parameters or {}
    if NAME not in found:
        return None
    try:
        return Link(
            kind=kind,
            local=local,
            remote=_parsed(kind, found[NAME]),
            via=found.get(VIA),
            properties=_properties(found.get(PROPERTIES, "{}")),
            member=found.get(MEMBER) == "true",
            path=tuple(one for one in found.get(PATH, "").split(",") if one),
            event_id=int(found[EVENT]) if EVENT in found else None,
            definition=found.get(DEFINITION, ""),
        )
    except ValueError as error:
        raise RemoteError(
            f"The link of {kind} {local} cannot be read: {error}.",
            remedy=f"Somebody changed its parameters ({PREFIX}…). Drop it and create it again.",
            remote=str(local),
        ) from error


def path_behind(identity: str | None, parameters: Mapping[str, str] | None) -> tuple[str, ...]:
    """Ids of the metastores that a link passes: the remote's own, and those behind it if it is a link there.

    :param identity: id of the remote's metastore.
    :param parameters: of the remote's table or database.
    """
    behind = tuple(one for one in (parameters or {}).get(PATH, "").split(",") if one)
    return ((identity,) if identity else ()) + behind


def refuse_cycle(local: Name, remote: Name, path: tuple[str, ...], here: str | None) -> None:
    """Refuse a link that leads back to where it is made.

    A second name for what the same metastore has is no cycle, unless that leads back.

    :param path: ids of the metastores behind it, the nearest first.
    :param here: id of the local metastore.
    :raises CyclicRemoteError: if it does.
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


def _properties(text: str) -> dict[str, str]:
    """Read properties that anybody who may alter the table has written.

    :raises ValueError: if they are no JSON object of texts.
    """
    if len(text) > MAX_PROPERTIES:
        raise ValueError(f"{PROPERTIES} has more than {MAX_PROPERTIES} characters")
    try:
        found = bounded_json.loads(text)
    except ValueError:
        # Somebody may have written a secret there: the text is not repeated, nor what the parser says of it.
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError(f"{PROPERTIES} is no JSON object of texts")
    return found


def _parsed(kind: Kind, text: str) -> Name:
    """Read a name; the levels of an Iceberg namespace are parted by dots, too."""
    database, _, table = (text, "", None) if kind is Kind.DATABASE else text.rpartition(".")
    if table == "" or not all(database.split(".")):
        raise ValueError(f"{NAME} is {text!r}")
    return Name(database=database, table=table)
