"""Removes from the tables of a target whose source is lost what loads have left, and no reader sees."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from airflow_hive_federation.acid.names import (
    DirectoryKind,
    DirectoryName,
    FileKind,
    is_acid_directory,
    parse_directory,
    parse_file,
    side_file,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyItem, FileEntry
from airflow_hive_federation.model.write_ids import RangeState, ValidWriteIds
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.load.copying import TableCopy
from airflow_hive_federation.replication.load.creating import is_ours
from airflow_hive_federation.replication.load.placing import place_staged
from airflow_hive_federation.replication.load.replay import Replay
from airflow_hive_federation.replication.metadata.definitions import table_kind
from airflow_hive_federation.replication.metadata.write_ids import (
    readable_write_ids,
    valid_transactions,
)
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.layout import STAGE
from airflow_hive_federation.storage.copying import CopySettings, copy_file, survey_targets
from airflow_hive_federation.storage.empty_directories import remove_empty_directory
from airflow_hive_federation.storage.filesystem import OBJECT_STORES, join, parse_location
from airflow_hive_federation.storage.listing import is_there, list_many
from airflow_hive_federation.storage.plan_files import read_outcomes
from airflow_hive_federation.storage.publishing import remove_file
from airflow_hive_federation.transactions.write_id_counts import max_allocated_write_id

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient

#: Ids of runs in the names of temporary files, which are hexadecimal, sort before this.
_AFTER_ALL_RUNS = "~"


@dataclass(frozen=True, kw_only=True)
class Removing:
    """The arguments that all removals share.

    :param check: runs before each removal, and raises if the cycle must end.
    """

    policy: ReplicationPolicy
    check: Callable[[], None]

    def listed(self, root: str) -> list[FileEntry]:
        """List the files below a directory; there are none if it does not exist."""
        return list_many([root], options=self.policy.storage_options, missing_ok=True)[root]

    def remove(self, root: str, paths: Sequence[str]) -> int:
        """Remove files below a directory, and directories that this leaves empty; return the number of files.

        :param paths: paths of the files below the directory.
        """
        options = self.policy.storage_options
        for path in paths:
            self.check()
            remove_file(join(root, path), options)
        for directory in sorted({posixpath.dirname(path) for path in paths} - {""}, reverse=True):
            self.check()
            remove_empty_directory(join(root, directory), options)
        return len(paths)


def finish_placing(removing: Removing, dump: DumpDirectory) -> None:
    """Move the hidden directories of a load to places beside which the load has moved others already.

    A load that has copied all its files may have been killed between the deletes and the inserts of a minor
    compaction. Each of these hides the smaller directories of both, so that rows would be missing.

    :param dump: a dump whose load has copied all its files.
    """
    options = removing.policy.storage_options
    staged: dict[str, str] = {}
    for target in read_outcomes(f"{dump.uri}/load/outcomes", options=options):
        partition, hidden, path = target.partition(f"/{STAGE}/")
        if hidden:
            name = path.partition("/")[0]
            staged[f"{partition}/{STAGE}/{name}"] = f"{partition}/{name}"
    there = {home for home in staged.values() if is_there(home, options=options)}
    begun = {posixpath.dirname(home) for home in there}
    left = {
        hidden: home
        for hidden, home in staged.items()
        # In an object store, a directory may have been moved in part.
        if posixpath.dirname(home) in begun
        and (home not in there or parse_location(home).scheme in OBJECT_STORES)
    }
    place_staged(TableCopy(staged=left), options, check=removing.check)


class LeftFiles:
    """The files in the directory of a transactional table whose source is lost.

    :param write_ids: the write ids that readers of the table see.
    :ivar table: name of the table.
    """

    def __init__(self, removing: Removing, table: types.Table, write_ids: ValidWriteIds) -> None:
        self._removing = removing
        self._policy = removing.policy
        self.table = str(table.tableName)
        self._kind = table_kind(table)
        self._write_ids = write_ids
        self.root = str(table.sd.location)

    @cached_property
    def _entries(self) -> dict[str, FileEntry]:
        return {entry.path: entry for entry in self._removing.listed(self.root)}

    def paths(self, part: RangeState) -> list[str]:
        """Return the paths of the files of which readers see this part."""
        return [path for path in self._entries if visible_part(path, self._write_ids, self._kind) is part]

    def drop_invisible_rows(self) -> None:
        """Write the files anew of which readers see some rows, without the others.

        A load that was killed may have replaced such a file by a copy with rows of transactions that it did
        not replay. They would become visible once the metastore has forgotten that these were aborted.
        """
        # Only the take-overs that need pyarrow load it.
        from airflow_hive_federation.acid.rewrite import rewrite_file

        options = self._policy.storage_options
        # A file with a side file was written here, while this database was a source.
        paths = [
            path
            for path in self.paths(RangeState.SOME)
            if parse_file(posixpath.basename(path)).kind is FileKind.BUCKET
            and side_file(path) not in self._entries
        ]
        # A take-over that was killed has left its temporary files.
        directories = sorted({join(self.root, posixpath.dirname(path)) for path in paths})
        survey_targets(directories, options=options, sweep_runs_before=_AFTER_ALL_RUNS)
        settings = CopySettings(options=options, rewrite=rewrite_file)
        for path in paths:
            self._removing.check()
            uri = join(self.root, path)
            copy_file(
                CopyItem(
                    source=uri,
                    target=uri,
                    size_bytes=self._entries[path].size_bytes,
                    visible_write_ids=self._write_ids.text(),
                ),
                settings,
            )

    def reserve_write_ids(self, client: MetastoreClient) -> None:
        """Keep writers of the table from receiving write ids in the ranges of files that stay.

        A bootstrap cuts a table below its lowest open write id, within a streaming batch, whose directory
        keeps its name. Hive passes over a delta whose write ids are in the range of a wider one
        (``AcidUtils.getAcidState``), so that rows of the next writers would be invisible.

        :param client: client of the target.
        """
        ranges = [name for path in self.paths(RangeState.SOME) for name in _directories(path)]
        highest = max((name.max_write_id for name in ranges), default=0)
        if highest <= self._write_ids.high_watermark:
            return
        reached = max_allocated_write_id(client, self._policy.target_database, self.table)
        writes = {self.table: [(number, number) for number in range(reached + 1, highest + 1)]}
        self._removing.check()
        replay = Replay(client, self._policy, table=self.table)
        replay.open(writes)
        replay.allocate(writes)
        for number, _ in writes[self.table]:
            replay.end(number)


def visible_part(path: str, write_ids: ValidWriteIds, kind: TableKind) -> RangeState:
    """Return whether readers of a transactional table see none, some or all rows of a file.

    :param path: path of the file below the table's directory.
    :param write_ids: the write ids that they see.
    :param kind: the table's kind. A file whose rows have no write ids of their own is visible as a whole, or
        not at all.
    """
    if STAGE in path.split("/"):
        return RangeState.NONE
    parts = {_visible_part(name, write_ids, kind) for name in _directories(path)}
    return next((part for part in (RangeState.NONE, RangeState.SOME) if part in parts), RangeState.ALL)


def _visible_part(name: DirectoryName, write_ids: ValidWriteIds, kind: TableKind) -> RangeState:
    low, high = name.min_write_id, name.max_write_id
    if name.kind is DirectoryKind.BASE or kind is not TableKind.FULL_ACID:
        waits = high > write_ids.high_watermark or write_ids.has_open(low, high)
        return RangeState.NONE if waits else RangeState.ALL
    part = write_ids.range_state(low, high)
    # A compaction of the target has left out the rows that nobody sees.
    return RangeState.ALL if part is RangeState.SOME and name.visibility_txn_id else part


def _directories(path: str) -> list[DirectoryName]:
    return [parse_directory(part) for part in path.split("/")[:-1] if is_acid_directory(part)]


def left_files(client: MetastoreClient, removing: Removing, changed: Collection[str]) -> Iterable[LeftFiles]:
    """Yield the files of each transactional table of the target that loads have made, or work on.

    Others are a user's own, and may have files of transactions that are still open.

    :param changed: names of the tables that unfinished loads work on; they may not have adopted them yet.
    """
    policy = removing.policy
    database = policy.target_database
    tables: list[types.Table] = list(client.get_tables(database, client.list_tables(database)))
    transactional = [
        candidate
        for candidate in tables
        if table_kind(candidate).transactional
        and policy.replicates(candidate.tableName)
        and (is_ours(candidate, policy) or candidate.tableName in changed)
    ]
    write_ids = readable_write_ids(client, transactional, valid_transactions(client.get_open_txns()))
    for table in transactional:
        if table.tableName in write_ids:
            yield LeftFiles(removing, table, write_ids[table.tableName])
