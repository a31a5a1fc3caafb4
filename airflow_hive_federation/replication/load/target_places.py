"""Assigns each directory of a target to its owner while a dump is loaded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.replication.dump.external_entries import dumped_entries
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.load.copying import TableCopy
from airflow_hive_federation.replication.metadata.definitions import table_kind
from airflow_hive_federation.replication.metadata.directories import (
    Claim,
    check_target,
    is_claimed,
    sharing,
    tables_with_files,
)
from airflow_hive_federation.replication.replica.database import (
    DEFAULT_DATABASE,
    check_other_roots,
    claim_roots,
    with_claimed,
)
from airflow_hive_federation.replication.replica.dumps_owner import metastore_id
from airflow_hive_federation.replication.replica.external_claims import (
    check_external_claims,
    claim_external,
    release_external,
)
from airflow_hive_federation.replication.replica.external_roots import read_roots
from airflow_hive_federation.replication.replica.layout import TargetLayout
from airflow_hive_federation.replication.replica.table_index import TableIndex
from airflow_hive_federation.storage.filesystem import canonical, innermost, join

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


class TargetPlaces:
    """The directories of all tables that the target will have, from this load and earlier ones.

    :param layout: maps its tables to the target.
    :param leaving: names of tables that are not external and that the load drops.
    :raises LocationConflictError: two of the directories collide.
    :raises HiddenLocationError: Hive would hide tables there.
    """

    def __init__(self, directory: DumpDirectory, layout: TargetLayout, leaving: Collection[str] = ()) -> None:
        self._layout = layout
        self._homes = TableIndex(directory)
        entries = self._homes.entries.values()
        external = {name: self._homes.of(name).uri for name in tables_with_files(entries, external=True)}
        self._claims: Sequence[Claim] = check_target(
            layout.policy,
            layout.managed,
            list(dumped_entries(external, layout.policy.storage_options)),
            {*tables_with_files(entries, external=False), *leaving},
        )
        self._sharing = sharing(self._claims)
        tables = {*external}
        self._external = [claim for claim in self._claims if claim.table in tables]

    def claim(self, client: MetastoreClient, *, anew: bool = False) -> None:
        """Record the directories of external tables for the target, before a file is written there.

        :param client: client of the target.
        :param anew: the target database has just been made.
        :raises LocationConflictError: another database of the target, or a target of another metastore, has
            directories that collide.
        """
        claim_external(metastore_id(client), self._layout.policy, self._external)
        claim_roots(client, self._layout, self._external, anew=anew)

    def release(self, client: MetastoreClient, parameters: Mapping[str, str] | None) -> None:
        """Let targets of other metastores have the directories that the target no longer needs.

        An increment calls this when it has emptied them, immediately before it publishes.

        :param client: client of the target.
        :param parameters: the parameters of the target database, with its recorded directories.
        """
        policy = self._layout.policy
        # A target without external tables leaves ``external_base`` alone, to which it may have no right.
        if self._external or read_roots(policy.target_database, parameters).uris:
            release_external(metastore_id(client), policy, self._external)

    def check_others(self, client: MetastoreClient) -> None:
        """Compare the directories of external tables with those of other databases, and record nothing.

        :param client: client of the target.
        :raises LocationConflictError: they collide.
        """
        check_external_claims(metastore_id(client), self._layout.policy, self._external)
        check_other_roots(client, self._layout, self._external)

    def recorded(self, parameters: dict[str, str]) -> dict[str, str]:
        """Return the parameters of the target database with its external directories on record."""
        return with_claimed(parameters, self._external)

    def owns(self, uri: str) -> bool:
        """Return whether a file lies in a directory that holds only files of this load.

        Such a directory belongs to a table of the dump. Unless the database was adopted, and may have tables
        that the source does not have, the directories of its managed tables and functions count too. Files of
        other databases that an earlier load of the policy has made do not lie in such directories.
        """
        return bool(innermost(canonical(uri), self._own))

    def each_once(self, items: Iterable[CopyItem]) -> Iterator[CopyItem]:
        """Yield the items, each target once, because tables that share a directory list the same files.

        If their listings differ, because a file was written in between, the first one holds: a file that
        differs from its listing is refused when it is copied.
        """
        if not self._sharing:
            yield from items
            return
        seen: set[str] = set()
        for item in items:
            target = canonical(item.target)
            if target not in seen:
                seen.add(target)
                yield item

    def spare_shared(self, copies: Mapping[str, TableCopy]) -> None:
        """Remove from each table's surplus files those that a table of the same directory has listed."""
        for name, copy in copies.items():
            others = self._sharing.get(name, frozenset()) - {name}
            if copy.extraneous and others:
                listed = {target for other in others for target in self._files(other)}
                copy.extraneous = [uri for uri in copy.extraneous if canonical(uri) not in listed]

    def drop_table(self, client: MetastoreClient, name: str) -> None:
        """Drop a table of the target; the data of an external table stays if another table has it.

        A metastore removes the directories of an external table that has ``external.table.purge``. By then,
        they may belong to a table that was renamed.
        """
        database = self._layout.policy.target_database
        wire_tables: list[types.Table] = list(client.get_tables(database, [name]))
        if not wire_tables:
            return
        shared = table_kind(wire_tables[0]) is TableKind.EXTERNAL and any(
            is_claimed(self._claims, location) for location in _locations(client, wire_tables[0])
        )
        client.drop_table(database, name, delete_data=not shared, if_exists=True)

    @cached_property
    def _own(self) -> frozenset[str]:
        policy = self._layout.policy
        places = [claim.target for claim in self._claims if claim.table]
        if not policy.into_existing:
            places.append(join(policy.functions_directory, policy.target_database))
            if policy.target_database != DEFAULT_DATABASE:
                places.append(self._layout.managed)
        return frozenset(map(canonical, places))

    def _files(self, name: str) -> Iterator[str]:
        home = self._homes.of(name)
        document = home.table(name)
        return (canonical(self._layout.file(document, file)) for file in home.files(name))


def _locations(client: MetastoreClient, table: types.Table) -> Iterator[str]:
    yield str(table.sd.location)
    if table.partitionKeys:
        partitions: Iterable[types.Partition] = client.iter_partitions(table.dbName, table.tableName)
        yield from (str(partition.sd.location) for partition in partitions)
