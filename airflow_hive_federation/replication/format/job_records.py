"""Defines the plan and the results of the Spark job that reads the rows of both sides. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.model import json_values
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.json_values import Fields, JsonObject
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.replication.format import values
from airflow_hive_federation.replication.format.kinds import TableKind

_STORAGE = json_values.list_of(values.struct(types.StorageDescriptor))
_FILES = json_values.list_of(json_values.pair_of(json_values.text, json_values.count))


@dataclass(frozen=True, kw_only=True)
class PlannedDirectory:
    """A directory of a table, and its files that are read.

    :param storage: index of the partition's storage descriptor; ``None`` for a partition with the table's.
    :param files: the files, with paths inside the directory.
    """

    location: str
    storage: int | None
    files: tuple[FileEntry, ...]

    @classmethod
    def from_json(cls, value: object) -> PlannedDirectory:
        """Read a directory.

        :raises ValueError: it is no such list of three.
        """
        location, storage, files = json_values.items(value, 3)
        return cls(
            location=json_values.text(location),
            storage=json_values.or_none(json_values.count)(storage),
            files=tuple(FileEntry(path=path, size_bytes=size_bytes) for path, size_bytes in _FILES(files)),
        )

    def to_json(self) -> list[object]:
        return [self.location, self.storage, [[file.path, file.size_bytes] for file in self.files]]


@dataclass(frozen=True, kw_only=True)
class SidePlan:
    """A line of the job's plan: a table as one side has it.

    :param side: ``source`` or ``target``.
    :param write_ids: its valid write ids; ``None`` for a table without.
    :param storages: distinct storage descriptors of partitions whose format differs from the table's.
    :param row_digests: take digests of the rows, not only their number.
    """

    side: str
    kind: TableKind
    table: types.Table
    write_ids: ValidWriteIds | None
    storages: tuple[types.StorageDescriptor, ...]
    directories: tuple[PlannedDirectory, ...]
    row_digests: bool = False

    @classmethod
    def from_json(cls, value: object) -> SidePlan:
        """Read a line.

        :raises ValueError: a field is missing, or has another type, or has a path that leads elsewhere.
        """
        fields = Fields(value)
        return cls(
            side=fields.needed("side", json_values.text),
            kind=fields.needed("kind", json_values.one_of(TableKind)),
            table=fields.needed("table", values.struct(types.Table)),
            write_ids=fields.needed("write_ids", values.write_ids),
            storages=fields.needed("storages", _STORAGE),
            directories=fields.needed("directories", json_values.list_of(PlannedDirectory.from_json)),
            row_digests=fields.optional("row_digests", json_values.flag, default=False),
        )

    def to_json(self) -> JsonObject:
        return {
            "side": self.side,
            "kind": self.kind.value,
            "table": to_json(self.table),
            "write_ids": self.write_ids.text() if self.write_ids else None,
            "storages": [to_json(storage) for storage in self.storages],
            "directories": [directory.to_json() for directory in self.directories],
            "row_digests": self.row_digests,
        }


@dataclass(frozen=True, kw_only=True)
class SideRows:
    """A line of the job's results: the rows of a table on one side.

    :param side: ``source`` or ``target``.
    :param rows: their number; ``None`` if they were not counted.
    :param row_digest: digest of the rows, if it was asked for.
    :param not_counted: the reason for which this package does not count rows of the format.
    :param unreadable: the error with which the rows could not be read.
    :param vanished: that error is that a file does not exist.
    """

    table: str
    side: str
    rows: int | None = None
    row_digest: str | None = None
    not_counted: str | None = None
    unreadable: str | None = None
    vanished: bool = False

    @classmethod
    def from_json(cls, value: object) -> SideRows:
        """Read a line.

        :raises ValueError: a field is missing, or has another type.
        """
        fields = Fields(value)
        return cls(
            table=fields.needed("table", json_values.text),
            side=fields.needed("side", json_values.text),
            rows=fields.needed("rows", json_values.or_none(json_values.count)),
            row_digest=fields.optional("row_digest", json_values.text, default=None),
            not_counted=fields.optional("not_counted", json_values.text, default=None),
            unreadable=fields.optional("unreadable", json_values.text, default=None),
            vanished=fields.optional("vanished", json_values.flag, default=False),
        )

    def to_json(self) -> JsonObject:
        written = {
            "row_digest": self.row_digest,
            "not_counted": self.not_counted,
            "unreadable": self.unreadable,
            "vanished": None if self.unreadable is None else self.vanished,
        }
        return {
            "table": self.table,
            "side": self.side,
            "rows": self.rows,
            **{name: value for name, value in written.items() if value is not None},
        }
