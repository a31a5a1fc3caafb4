"""Finds the dumps that together describe a table (:attr:`~.manifest.TableEntry.rest`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import DumpCorruptError

if TYPE_CHECKING:
    from airflow_hive_federation.replication.format.directory import DumpDirectory


def layers(dump: DumpDirectory, table: str) -> Iterator[tuple[DumpDirectory, frozenset[str]]]:
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
