"""Defines the documents of one table in a dump: its definition, its partitions and its write ids. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import quote

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.model import json_values
from airflow_hive_federation.model.json_values import Fields, JsonObject
from airflow_hive_federation.model.partitions import partition_name
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.replication.format import values
from airflow_hive_federation.replication.format.files import DataLocation, VisibleFile
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.storage.filesystem import canonical, join
from airflow_hive_federation.storage.snapshot_paths import SnapshotPath

_KIND = json_values.one_of(TableKind)
_TABLE = values.struct(types.Table)
_PARTITION = values.struct(types.Partition)
_CONSTRAINTS = values.struct(types.SQLAllTableConstraints)
_PLACES = json_values.list_of(json_values.pair_of(values.partition_or_table, values.location))
_SNAPSHOTS = json_values.list_of(json_values.pair_of(values.location, values.location))
_VALUES = json_values.list_of(json_values.text)


@dataclass(frozen=True, kw_only=True)
class TableDocument:
    """The definition of a table of the source.

    :param table: wire ``Table`` with its column statistics; callers copy it before they change it.
    :param constraints: wire ``SQLAllTableConstraints``.
    :param write_ids: its valid write ids at the dump's cut; ``None`` for tables without.
    :param places: of an external table, its directory, and those of partitions outside of it.
    :param snapshots: the snapshots from which such directories are copied, by the directory's URI.
    """

    table: types.Table
    kind: TableKind
    constraints: types.SQLAllTableConstraints = field(default_factory=types.SQLAllTableConstraints)
    write_ids: ValidWriteIds | None = None
    places: tuple[DataLocation, ...] = ()
    snapshots: Mapping[str, SnapshotPath] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.table.tableName or ""

    @property
    def location(self) -> str:
        """Return the URI of the table's directory; empty for a table without."""
        return (self.table.sd.location or "") if self.table.sd is not None else ""

    @property
    def partition_keys(self) -> list[str]:
        """Return the names of the columns by which the table is partitioned."""
        return [key.name or "" for key in self.table.partitionKeys or ()]

    @property
    def write_ids_text(self) -> str | None:
        """Return the write ids in Hive's text form."""
        return self.write_ids.text() if self.write_ids else None

    def copied_uri(self, file: VisibleFile) -> str:
        """Return the URI from which a file of the table is copied."""
        inside = self.snapshots.get(file.directory)
        return join(inside.uri, file.path) if inside else file.uri

    @classmethod
    def from_json(cls, value: object) -> TableDocument:
        """Read a document.

        :raises ValueError: a field is missing, or has another type, or has a name or path that leads
            elsewhere.
        """
        fields = Fields(value)
        places = fields.optional("places", _PLACES, default=())
        snapshots = fields.optional("snapshots", _SNAPSHOTS, default=())
        return cls(
            table=fields.needed("table", _table),
            kind=fields.needed("kind", _KIND),
            constraints=fields.optional("constraints", _CONSTRAINTS, default=types.SQLAllTableConstraints()),
            write_ids=fields.needed("write_ids", values.write_ids),
            places=tuple(
                DataLocation(partition=partition, location=location) for partition, location in places
            ),
            snapshots={location: _snapshot(location, inside) for location, inside in snapshots},
        )

    @classmethod
    def of_table(cls, name: str) -> Callable[[object], TableDocument]:
        """Make a reader of the document of one table, which refuses that of another."""

        def read(value: object) -> TableDocument:
            document = cls.from_json(value)
            if document.name != name:
                raise ValueError(f"it describes table {document.name!r}")
            return document

        return read

    def to_json(self) -> JsonObject:
        snapshots = [[location, inside.uri] for location, inside in self.snapshots.items()]
        return {
            "table": to_json(self.table),
            "kind": self.kind.value,
            "constraints": to_json(self.constraints),
            "write_ids": self.write_ids_text,
            "places": [[place.partition, place.location] for place in self.places],
            **({"snapshots": snapshots} if snapshots else {}),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionLine:
    """A partition of a table of the source.

    Reading every field of its definition takes too long for every read of a line, so the line keeps it as it
    was written.

    :param values: the values of the table's partition keys.
    :param location: URI of its directory; empty if the definition has none.
    :param created_s: time at which it was created, in seconds since 1970.
    :param definition: wire ``Partition`` as JSON values.
    """

    name: str
    values: tuple[str, ...]
    location: str = ""
    created_s: int | None = None
    definition: JsonObject = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, partition: types.Partition) -> PartitionLine:
        """Return the line of a partition with its column statistics."""
        return cls(
            name=name,
            values=tuple(partition.values or ()),
            location=(partition.sd.location or "") if partition.sd is not None else "",
            created_s=partition.createTime,
            definition=to_json(partition),
        )

    @property
    def storage(self) -> JsonObject:
        """Return the storage descriptor as JSON values."""
        return json_values.json_object(self.definition.get("sd", {}))

    def partition(self) -> types.Partition:
        """Return a new wire ``Partition``.

        :raises ValueError: a field of the definition is not known, or has another type.
        """
        return _PARTITION(self.definition)

    def problem(self, keys: list[str]) -> str | None:
        """Return the error in the definition, which is read whole; ``None`` without one.

        :param keys: the names of the table's partition keys.
        """
        if len(self.values) != len(keys) or partition_name(keys, self.values) != self.name:
            return f"the partition {self.name!r} has the values {list(self.values)}"
        if not self.location:
            return f"the partition {self.name!r} has no location"
        try:
            self.partition()
        except ValueError as error:
            return str(error)
        return None

    @classmethod
    def from_json(cls, value: object) -> PartitionLine:
        """Read a line.

        :raises ValueError: a field is missing, or has another type, or has a name or path that leads
            elsewhere.
        """
        fields = Fields(value)
        name = fields.needed("name", values.partition_name)
        definition = fields.needed("partition", json_values.json_object)
        inside = Fields(definition)
        try:
            return cls(
                name=name,
                values=inside.needed("values", _VALUES),
                location=inside.optional("sd", _location, default=""),
                created_s=inside.optional("createTime", json_values.whole, default=None),
                definition=definition,
            )
        except ValueError as error:
            raise ValueError(f"partition: {error}") from error

    def to_json(self) -> JsonObject:
        return {"name": self.name, "partition": self.definition}


class PartitionTotals(NamedTuple):
    """The number and size of a partition's files, and the state of its directory.

    :param name: name of the partition.
    :param elsewhere: its location, unless it lies in its default directory.
    :param digest: digest of its directory's listing; empty if the end of an open transaction may change the
        files that readers see there.
    """

    name: str
    files: int
    size_bytes: int
    elsewhere: str = ""
    digest: str = ""

    @classmethod
    def from_json(cls, value: object) -> PartitionTotals:
        """Read a line.

        :raises ValueError: it is no such list of five.
        """
        name, files, size_bytes, elsewhere, digest = json_values.items(value, 5)
        return cls(
            values.partition_name(name),
            json_values.count(files),
            json_values.count(size_bytes),
            values.location_or_none(elsewhere),
            json_values.text(digest),
        )

    @staticmethod
    def file_of(table: str) -> str:
        """Return the name of the file that has the totals of a table's partitions.

        Earlier versions wrote ``partition_totals``, without places and digests. Their dumps count as dumps
        without totals: the next increment describes the whole table.
        """
        return table_file("partition_states", table, ".jsonl")


class EndedTransaction(NamedTuple):
    """A transaction of the source that ended in a cycle.

    :param leader: the transaction that stands for it on the target.
    """

    txn: int
    committed: bool
    leader: int

    @classmethod
    def from_json(cls, value: object) -> EndedTransaction:
        """Read a line.

        :raises ValueError: it is no such list of three.
        """
        txn, committed, leader = json_values.items(value, 3)
        return cls(json_values.whole(txn), json_values.flag(committed), json_values.whole(leader))


#: Reads the transaction and the write id of a line.
read_write = json_values.pair_of(json_values.whole, json_values.whole)


def table_file(folder: str, table: str, suffix: str) -> str:
    """Return the name of a table's file in a dump; characters that file systems do not accept are quoted."""
    return f"{folder}/{quote(table, safe='')}{suffix}"


def read_database(value: object) -> types.Database:
    """Read the wire ``Database`` of a dump.

    :raises ValueError: a field is not known, has another type, or has a name that leads elsewhere.
    """
    database = values.struct(types.Database)(value)
    if database.name is not None:
        values.name(database.name)
    return database


def read_function(value: object) -> types.Function:
    """Read a wire ``Function`` of a dump.

    :raises ValueError: a field is missing, is not known, has another type, or has a name or path that leads
        elsewhere.
    """
    function = values.struct(types.Function)(value)
    values.name(function.functionName)
    if function.dbName is not None:
        values.name(function.dbName)
    for resource in function.resourceUris or ():
        values.resource(resource.uri)
    return function


def _table(value: object) -> types.Table:
    table = _TABLE(value)
    values.table_name(table.tableName)
    if table.dbName is not None:
        values.name(table.dbName)
    if table.sd is not None:
        values.location_or_none(table.sd.location)
    for key in table.partitionKeys or ():
        json_values.text(key.name)
    return table


def _snapshot(location: str, uri: str) -> SnapshotPath:
    inside = SnapshotPath.parse(uri)
    if inside is None or canonical(inside.live_uri) != canonical(location):
        raise ValueError(f"{uri!r} is no snapshot of {location!r}")
    return inside


def _location(value: object) -> str:
    return Fields(value).optional("location", values.location_or_none, default="")
