"""Finds partitions whose files have another format than their table. Pure.

``ALTER TABLE … SET FILEFORMAT`` (or ``SET SERDE``, ``ADD COLUMNS``) changes the format of later partitions.
Earlier partitions keep their own format, SerDe and columns, by which Hive reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import from_json, to_json
from airflow_hive_federation.model import json_values
from airflow_hive_federation.model.json_values import JsonObject
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.storage.filesystem import canonical, join


class PartitionFormats:
    """The partitions of a table whose formats differ from the table's.

    The object stores nothing for a table without such partitions.

    :param table: storage descriptor of the table, as JSON values (:func:`~.wire.to_json`).
    """

    def __init__(self, table: JsonObject) -> None:
        self._usual = _form(table)
        #: The distinct storage descriptors of such partitions as JSON values, without their locations.
        self.storages: list[dict[str, object]] = []
        self._indexes: dict[str, int | None] = {}

    @classmethod
    def of(cls, table: types.Table) -> PartitionFormats:
        """Begin with a wire ``Table``."""
        return cls(to_json(table.sd or types.StorageDescriptor()))

    def add(self, storage: JsonObject) -> None:
        """Record the storage descriptor of a partition (JSON values) if it differs from the table's."""
        form = _form(storage)
        if form != self._usual:
            if form not in self.storages:
                self.storages.append(form)
            self._indexes[canonical(str(storage["location"]))] = self.storages.index(form)

    def noting(self, table: types.Table, partitions: Iterable[types.Partition]) -> Iterator[types.Partition]:
        """Yield wire ``Partition`` objects of a wire ``Table``, and record their formats."""
        usual = table.sd or types.StorageDescriptor()
        for partition in partitions:
            storage = partition.sd or types.StorageDescriptor()
            # This is quicker than converting a million equal descriptors to JSON.
            same = storage.inputFormat == usual.inputFormat and storage.cols == usual.cols
            if not (same and storage.serdeInfo == usual.serdeInfo):
                self.add(to_json(storage))
            yield partition

    def among(self, locations: Iterable[str]) -> PartitionFormats:
        """Record the locations of all partitions, if some differ from the table; return the same object."""
        if self.storages:
            for location in locations:
                self._indexes.setdefault(canonical(location), None)
        return self

    def descriptors(self) -> tuple[types.StorageDescriptor, ...]:
        """Return the distinct storage descriptors of such partitions, without their locations."""
        return tuple(from_json(types.StorageDescriptor, storage) for storage in self.storages)

    def place(self, file: VisibleFile) -> tuple[str, str, int | None]:
        """Find the partition that holds a file, which a listing of the table's directory does not name.

        :return: the partition's directory, the file's path inside it, and the index of the partition's
            storage descriptor; ``None`` for a partition with the table's format.
        """
        parts = file.path.split("/")
        for depth in range(len(parts) - 1, 0, -1) if self._indexes else ():
            inner = join(file.directory, "/".join(parts[:depth]))
            if canonical(inner) in self._indexes:
                return inner, "/".join(parts[depth:]), self._indexes[canonical(inner)]
        return file.directory, file.path, self._indexes.get(canonical(file.directory))


def _form(storage: JsonObject) -> dict[str, object]:
    serde = json_values.json_object(storage.get("serdeInfo") or {})
    return {
        "cols": storage.get("cols", []),
        "inputFormat": storage.get("inputFormat", ""),
        "serdeInfo": {
            "serializationLib": serde.get("serializationLib", ""),
            "parameters": serde.get("parameters", {}),
        },
    }
