"""Finds what later loads have dropped or replaced of a load that has copied all its files.

Before a load copies files, it drops the tables and partitions whose names stand for others now. While it
copies, it replaces files of tables without transactions. An earlier load that needs such a file, or such a
table, cannot be ended any more, and nobody can undo that. Whatever else is in its way can be remedied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableKind, TableWork
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.replication.format.unfinished import COPY_PLAN
from airflow_hive_federation.replication.load.copying import partition_names
from airflow_hive_federation.replication.load.making_room import directories_around
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.database import find_layout
from airflow_hive_federation.replication.replica.layout import TargetLayout, final_uri
from airflow_hive_federation.storage.filesystem import canonical
from airflow_hive_federation.storage.listing import is_there
from airflow_hive_federation.storage.plan_files import read_plan

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


class OvertakenError(Exception):
    """The error for a load that cannot be ended because of a later one. The take-over logs it."""


def refuse_dropped(
    client: MetastoreClient, policy: ReplicationPolicy, dump: DumpDirectory, later: Iterable[str]
) -> None:
    """Refuse to end a load that continues a table which a later load has dropped.

    The dump of the load describes only the partitions that it concerns, and lists no file of the others.

    :param client: client of the target.
    :param dump: the dump of the load.
    :param later: URIs of dumps whose loads have begun since.
    :raises OvertakenError: the target lacks such a table.
    """
    there = set(client.list_tables(policy.target_database))
    dropped = [entry for entry in _entries(policy, later) if entry.name not in there and _is_remade(entry)]
    names = {entry.name for entry in dropped}
    for entry in dump.manifest().changed_tables:
        if entry.name in names and entry.work is TableWork.CONTINUE and entry.kind.has_files:
            raise OvertakenError(f"table {policy.target_database}.{entry.name} was dropped")


def overtaken_files(
    client: MetastoreClient, policy: ReplicationPolicy, dump: DumpDirectory, later: Iterable[str]
) -> frozenset[str]:
    """Return the files of a load that later ones may have dropped or replaced, by canonical URI.

    :param client: client of the target.
    :param dump: the dump of the load.
    :param later: URIs of dumps whose loads have begun since.
    """
    begun, options, layout = list(later), policy.storage_options, find_layout(client, policy)
    plans = [f"{uri}/{COPY_PLAN}" for uri in begun]
    replaced = {
        canonical(final_uri(item.target))
        for plan in plans
        # A load that was killed before has dropped what it was about to make anew, and copied nothing.
        if is_there(plan, options=options)
        for item in read_plan(plan, options=options)
    }
    others = [(other, entry) for other in _dumps(policy, begun) for entry in other.manifest().changed_tables]
    for entry in dump.manifest().changed_tables:
        if not entry.kind.has_files:
            continue
        same = [(other, its) for other, its in others if its.name == entry.name]
        whole = any(_is_remade(its) for _, its in same)
        dropped = {name for other, its in same for name in _dropped(other, its, layout, dump, entry)}
        if whole or dropped:
            document = dump.table(entry.name)
            replaced.update(
                canonical(layout.file(document, file))
                for file in dump.files(entry.name, only=entry.described)
                if whole or file.partition in dropped
            )
    return frozenset(replaced)


def _dropped(
    other: DumpDirectory, its: TableEntry, layout: TargetLayout, dump: DumpDirectory, entry: TableEntry
) -> frozenset[str]:
    """Return the partitions of a load that another load may have dropped before it copied files.

    :param other: the dump of the other load.
    :param its: the table's entry there.
    :param dump: the dump of the load.
    :param entry: the table's entry there.
    """
    renewed, gone = frozenset(its.changes.renewed), frozenset(its.changes.gone)
    if not gone or its.kind is TableKind.EXTERNAL or not its.kind.has_files:
        return renewed
    around = directories_around(other, layout, other.table(its.name), its)
    places = partition_names(dump, layout, dump.table(entry.name), entry.described)
    return renewed | {name for place, name in places.items() if name in gone and place in around}


def _dumps(policy: ReplicationPolicy, uris: Iterable[str]) -> list[DumpDirectory]:
    return [DumpDirectory(uri, policy.storage_options) for uri in uris]


def _entries(policy: ReplicationPolicy, later: Iterable[str]) -> Iterator[TableEntry]:
    for dump in _dumps(policy, later):
        yield from dump.manifest().changed_tables


def _is_remade(entry: TableEntry) -> bool:
    """Return whether a load drops a table before it makes another one of that name."""
    return entry.work is TableWork.REPLACE
