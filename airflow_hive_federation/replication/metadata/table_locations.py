"""Stores the directories of a table's data in a few bytes each, for tables of a million partitions. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.partitions import partition_name
from airflow_hive_federation.replication.format.files import DataLocation
from airflow_hive_federation.replication.metadata.locations import relative_to
from airflow_hive_federation.replication.metadata.spark_tables import data_location


class TableLocations:
    """The directories that hold a table's data.

    Most partitions lie in their default directory: for those, only the name is kept, as UTF-8.

    :param table: wire ``Table``. Without partitions, its only place is its own directory, if it has one.
    :param partitions: wire ``Partition`` objects to begin with; none is kept.
    """

    def __init__(self, table: types.Table, partitions: Iterable[types.Partition] = ()) -> None:
        self.root: str = data_location(table) or ""
        self._keys = [key.name or "" for key in table.partitionKeys or ()]
        self._names = bytearray()
        self._ends: array[int] = array("q")
        self._elsewhere: dict[int, str] = {}
        for partition in partitions:
            self.add(partition)

    def add(self, partition: types.Partition) -> str:
        """Add the place of a wire ``Partition``, and return the partition's name."""
        name = partition_name(self._keys, partition.values or ())
        location = partition.sd.location if partition.sd is not None else None
        if location != f"{self.root}/{name}":
            self._elsewhere[len(self._ends)] = location or ""
        self._add_name(name)
        return name

    def add_named(self, name: str, elsewhere: str) -> None:
        """Add the place of a partition.

        :param elsewhere: its location, unless it lies in its default directory.
        """
        if elsewhere:
            self._elsewhere[len(self._ends)] = elsewhere
        self._add_name(name)

    def _add_name(self, name: str) -> None:
        self._names += name.encode()
        self._ends.append(len(self._names))

    @property
    def partitions(self) -> int:
        """Return the number of partitions."""
        return len(self._ends)

    def names(self) -> Iterator[str]:
        """Yield the partitions' names."""
        begin = 0
        for end in self._ends:
            yield self._names[begin:end].decode()
            begin = end

    def __iter__(self) -> Iterator[DataLocation]:
        if self.root and not self._keys:
            yield DataLocation(partition="", location=self.root)
        for number, name in enumerate(self.names()):
            location = self._elsewhere.get(number) or f"{self.root}/{name}"
            yield DataLocation(partition=name, location=location)

    def outside(self) -> Iterator[DataLocation]:
        """Yield the places of partitions that lie outside the table's directory."""
        for place in self:
            if relative_to(place.location, self.root) is None:
                yield place

    def elsewhere(self) -> Iterator[DataLocation]:
        """Yield the places of partitions outside their default directory, inside the table's or not."""
        for number, name in enumerate(self.names()) if self._elsewhere else ():
            if number in self._elsewhere:
                yield DataLocation(partition=name, location=self._elsewhere[number])

    @property
    def apart(self) -> bool:
        """Return whether no place inside the table's directory can lie inside another, or be another."""
        return all(relative_to(location, self.root) is None for location in self._elsewhere.values())
