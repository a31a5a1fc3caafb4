"""Defines the description, as JSON, of a transactional table that a routed statement reads.

:mod:`airflow_hive_federation.clusters.acid_inputs` writes it, and
:mod:`airflow_hive_federation.spark.acid_tables` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import from_json, to_json
from airflow_hive_federation.model.json_values import (
    Fields,
    JsonObject,
    json_object,
    list_of,
    or_none,
    text,
)
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds


@dataclass(frozen=True, kw_only=True)
class DescribedDirectory:
    """A directory of a table or partition that the statement reads.

    :param location: the URI of the directory.
    :param values: the values of the partition; empty for a table without partitions.
    :param storage: the storage descriptor of the partition; ``None`` for a table without partitions.
    :param content: digest of the files of a copy (:func:`.model.content_marks.content_mark`), which must all
        be there when the directory is read; ``None`` for a primary.
    """

    location: str
    values: tuple[str, ...] = ()
    storage: types.StorageDescriptor | None = None
    content: str | None = None

    @classmethod
    def from_json(cls, value: object) -> DescribedDirectory:
        """Read a directory.

        :raises ValueError: a field is missing, or has another type.
        """
        fields = Fields(value)
        return cls(
            location=fields.needed("location", text),
            values=fields.needed("values", list_of(text)),
            storage=fields.needed("storage", or_none(_storage)),
            content=fields.needed("content", or_none(text)),
        )

    def to_json(self) -> JsonObject:
        storage = None if self.storage is None else to_json(self.storage)
        return {
            "location": self.location,
            "values": list(self.values),
            "storage": storage,
            "content": self.content,
        }


@dataclass(frozen=True, kw_only=True)
class DescribedRead:
    """The directories that one snapshot covers.

    :param write_ids: the write ids of the table that the statement sees.
    :param txns: the transactions that it sees.
    """

    write_ids: ValidWriteIds
    txns: ValidTxns
    directories: tuple[DescribedDirectory, ...]

    @classmethod
    def from_json(cls, value: object) -> DescribedRead:
        """Read the directories of a snapshot.

        :raises ValueError: a field is missing, or has another type.
        """
        fields = Fields(value)
        return cls(
            write_ids=ValidWriteIds.parse(fields.needed("write_ids", text)),
            txns=ValidTxns.parse(fields.needed("txns", text)),
            directories=fields.needed("places", list_of(DescribedDirectory.from_json)),
        )

    def to_json(self) -> JsonObject:
        return {
            "write_ids": self.write_ids.text(),
            "txns": self.txns.text(),
            "places": [directory.to_json() for directory in self.directories],
        }


@dataclass(frozen=True, kw_only=True)
class DescribedTable:
    """A transactional table that the statement reads.

    :param reads: its directories, by snapshot.
    """

    table: types.Table
    reads: tuple[DescribedRead, ...]

    @classmethod
    def from_json(cls, value: object) -> DescribedTable:
        """Read a description.

        :raises ValueError: a field is missing, or has another type.
        :raises WireFormatError: the table has a field of another type.
        """
        fields = Fields(value)
        return cls(
            table=from_json(types.Table, dict(fields.needed("table", json_object))),
            reads=fields.needed("reads", list_of(DescribedRead.from_json)),
        )

    def to_json(self) -> JsonObject:
        return {"table": to_json(self.table), "reads": [read.to_json() for read in self.reads]}


def _storage(value: object) -> types.StorageDescriptor:
    return from_json(types.StorageDescriptor, dict(json_object(value)))
