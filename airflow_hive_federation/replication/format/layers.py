"""Finds the dumps that together describe a table (:attr:`~.manifest.TableEntry.rest`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

from airflow_hive_federation.errors import DumpCorruptError
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.storage.options import StorageOptions


class LayeredDump(Protocol):
    """The part of :class:`~.directory.DumpDirectory` that its layers are found by."""

    uri: str
    options: StorageOptions | None

    def __init__(self, uri: str, options: StorageOptions | None = None) -> None: ...

    @property
    def dump_finished(self) -> bool: ...

    def entry(self, table: str) -> TableEntry | None: ...


DumpT = TypeVar("DumpT", bound=LayeredDump)


def layers(dump: DumpT, table: str) -> Iterator[tuple[DumpT, frozenset[str]]]:
    """Yield the dumps that together describe a table, the latest first.

    :return: each with the names of the partitions that later ones describe, or know to be gone.
    :raises DumpCorruptError: a dump among them is gone, or does not describe the table.
    """
    described: frozenset[str] = frozenset()
    yield dump, described
    entry = dump.entry(table)
    for uri in entry.rest if entry else ():
        described = described.union((entry and entry.changes.concerned) or ())
        layer = type(dump)(uri, dump.options)
        entry = layer.entry(table) if layer.dump_finished else None
        if entry is None:
            raise DumpCorruptError(
                f"Dump {dump.uri} refers to dump {uri} for partitions of table {table}; that dump is gone "
                "or does not describe the table.",
                remedy="Restore that directory. If it is lost, drop the table on the target: the next cycle "
                "copies it anew.",
                dump=dump.uri,
                file=uri,
            )
        yield layer, described
