"""Partitions whose files are written in another way than their table says. Pure.

``ALTER TABLE … SET FILEFORMAT`` (or ``SET SERDE``, ``ADD COLUMNS``) changes what later partitions are like.
Those made before keep their own format, SerDe and columns, by which Hive reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.storage.filesystem import canonical, join


class PartitionFormats:
    """The partitions of a table that are not like it. Of a table whose partitions all are, nothing is kept.

    :param table: storage descriptor of the table, as JSON values (:func:`~.wire.to_json`).
    """

    def __init__(self, table: Mapping[str, Any]) -> None:
        self._usual = _form(table)
        #: Storage descriptors of partitions as JSON values, each once, without their locations.
        self.storages: list[dict[str, Any]] = []
        self._indexes: dict[str, int | None] = {}

    @classmethod
    def of(cls, table: Any) -> PartitionFormats:
        """Begin with a wire ``Table``."""
        return cls(to_json(table.sd))

    def add(self, storage: Mapping[str, Any]) -> None:
        """Look at the storage descriptor of a partition, as JSON values."""
        form = _form(storage)
        if form != self._usual:
            if form not in self.storages:
                self.storages.append(form)
            self._indexes[canonical(storage["location"])] = self.storages.index(form)

    def noting(self, table: Any, partitions: Iterable[Any]) -> Iterator[Any]:
        """Look at wire ``Partition`` objects of a wire ``Table`` while they pass."""
        usual = table.sd
        for one in partitions:
            mine = one.sd
            # Quicker than to make JSON of a million that are alike.
            same = mine.inputFormat == usual.inputFormat and mine.cols == usual.cols
            if not (same and mine.serdeInfo == usual.serdeInfo):
                self.add(to_json(mine))
            yield one

    def among(self, locations: Iterable[str]) -> PartitionFormats:
        """Learn where all partitions lie, if some are not like the table; return the same object."""
        if self.storages:
            for location in locations:
                self._indexes.setdefault(canonical(location), None)
        return self

    def place(self, file: VisibleFile) -> tuple[str, str, int | None]:
        """Say in which partition a file lies: its listing may be that of the table's directory.

        :return: the partition's directory, the file's path in there, and the index of the partition's storage
            descriptor; ``None`` for a partition that is like its table.
        """
        parts = file.path.split("/")
        for depth in range(len(parts) - 1, 0, -1) if self._indexes else ():
            inner = join(file.directory, "/".join(parts[:depth]))
            if canonical(inner) in self._indexes:
                return inner, "/".join(parts[depth:]), self._indexes[canonical(inner)]
        return file.directory, file.path, self._indexes.get(canonical(file.directory))


def _form(storage: Mapping[str, Any]) -> dict[str, Any]:
    serde = storage.get("serdeInfo") or {}
    return {
        "cols": storage.get("cols", []),
        "inputFormat": storage.get("inputFormat", ""),
        "serdeInfo": {
            "serializationLib": serde.get("serializationLib", ""),
            "parameters": serde.get("parameters", {}),
        },
    }
