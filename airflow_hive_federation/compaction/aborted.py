"""Removes the directories of aborted transactions before the metastore forgets these transactions.

Hive's worker leaves the directories to the cleaner and reports a write id. The metastore forgets the aborted
transactions up to that write id (``MarkCleanedFunction``), and their write ids are valid from then on. But
the cleaner also treats every transaction as open that began after the oldest transaction that a reader has
seen open (``CompactionCleaner``, ``findMinTxnIdSeenOpen``): it leaves the directories of such transactions,
and only checks that no *obsolete* directory remains. Rows of aborted transactions then become visible. So
this module removes the directories first, and reports a write id up to which no readable file has rows of an
aborted transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from airflow_hive_federation.acid.markers import chosen
from airflow_hive_federation.acid.names import is_acid_directory, parse_directory
from airflow_hive_federation.acid.snapshot import AcidState
from airflow_hive_federation.compaction.files import remove_directories
from airflow_hive_federation.compaction.plan import compactor_write_ids
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import CompactorWriteIds
from airflow_hive_federation.storage.filesystem import is_below, join
from airflow_hive_federation.storage.listing import list_files
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.transactions.snapshots import Snapshot


def forgettable(state: AcidState, write_ids: CompactorWriteIds) -> int:
    """Return the highest write id up to which no directory that stays has rows of an aborted transaction.

    A delta of a streaming batch stays although the compactor cannot read it: others read it, now or later.

    :param state: snapshot of a table or partition that loses only the directories of aborted transactions.
    :param write_ids: write ids that the compactor may read.
    """
    # A compactor leaves out rows of aborted transactions, so its directories hold none of them.
    kept = [delta.name for delta in (*state.deltas, *state.delete_deltas)]
    kept += [parse_directory(path.rpartition("/")[2]) for path in state.invisible]
    ranges = [(name.min_write_id, name.max_write_id) for name in kept if not name.visibility_txn_id]
    for write_id in write_ids.aborted_ids:
        if any(low <= write_id <= high for low, high in ranges):
            return write_id - 1
    return write_ids.high_watermark


def sweep_table(
    client: MetastoreClient, table: types.Table, snapshot: Snapshot, options: StorageOptions | None = None
) -> int:
    """Remove the directories of aborted transactions from all partitions of a table.

    The sweep includes directories without a partition, whose transaction aborted before it created one.

    :param table: the table as the metastore describes it.
    :returns: the write id up to which the metastore may forget aborted transactions.
    :raises StorageError: a directory cannot be listed or removed.
    """
    highest = snapshot.write_ids.for_compactor().high_watermark
    for location in _locations(client, table):
        entries = list_files(location, options=options, missing_ok=True, empty_directories=True)
        for home, listing in _homes(entries).items():
            directory = join(location, home) if home else location
            write_ids = compactor_write_ids(snapshot.write_ids, listing, snapshot.txns)
            state = chosen(directory, listing, write_ids, snapshot.txns, options)
            remove_directories(directory, state.aborted, options)
            highest = min(highest, forgettable(state, write_ids))
    return highest


def _locations(client: MetastoreClient, table: types.Table) -> Iterator[str]:
    """Yield the table's directory, and the directories of partitions that lie outside it."""
    yield table.sd.location
    for described in client.iter_partitions(table.dbName, table.tableName):
        partition = described
        if not is_below(partition.sd.location, table.sd.location):
            yield partition.sd.location


def _homes(listing: Iterable[FileEntry]) -> Mapping[str, list[FileEntry]]:
    """Group the files below bases and deltas by the parent directory of the base or delta."""
    homes: defaultdict[str, list[FileEntry]] = defaultdict(list)
    for entry in listing:
        *parents, _ = parts = entry.path.split("/")
        depth = next((index for index, part in enumerate(parents) if is_acid_directory(part)), None)
        if depth is not None and not any(part.startswith((".", "_")) for part in parents[:depth]):
            homes["/".join(parts[:depth])].append(replace(entry, path="/".join(parts[depth:])))
    return homes
