"""What aborted transactions have left, and up to which write id the metastore may forget them.

Hive's worker leaves their directories to the cleaner, and tells it a write id: up to that one, the metastore
forgets which transactions have aborted (``MarkCleanedFunction``), and their write ids are valid from then on.
But the cleaner takes all that began after the oldest transaction that a reader has seen open for open too
(``CompactionCleaner``, ``findMinTxnIdSeenOpen``): it leaves such directories where they are, and checks only
that nothing *obsolete* remains. Rows of aborted transactions become visible. So the directories go first, and
the write id is such that no file of a reader has rows of an aborted transaction up to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from airflow_hive_federation.acid.markers import chosen
from airflow_hive_federation.acid.names import is_acid_directory
from airflow_hive_federation.acid.snapshot import AcidState
from airflow_hive_federation.compaction.files import remove_directories
from airflow_hive_federation.compaction.plan import compactor_write_ids
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import CompactorWriteIds
from airflow_hive_federation.storage.filesystem import is_below, join
from airflow_hive_federation.storage.listing import list_files
from airflow_hive_federation.transactions.snapshots import Snapshot


def forgettable(state: AcidState, write_ids: CompactorWriteIds) -> int:
    """Highest write id up to which no directory that is read has rows of an aborted transaction.

    :param state: of a directory that stays as it is, but for the directories of aborted transactions.
    :param write_ids: what the compactor may read.
    """
    # A compactor leaves those rows out, so its directories hold none of them.
    kept = [one.name for one in (*state.deltas, *state.delete_deltas) if not one.name.visibility_txn_id]
    ranges = [(name.min_write_id, name.max_write_id) for name in kept]
    for write_id in write_ids.aborted_ids:
        if any(low <= write_id <= high for low, high in ranges):
            return write_id - 1
    return write_ids.high_watermark


def sweep_table(
    client: MetastoreClient, table: Any, snapshot: Snapshot, options: Mapping[str, Any] | None = None
) -> int:
    """Remove the directories of aborted transactions from all of a partitioned table.

    Also where there is no partition: the transaction has aborted before it made one.

    :param table: the metastore's table.
    :returns: the write id up to which the metastore may forget aborted ones.
    :raises StorageError: a directory cannot be listed or removed.
    """
    highest = snapshot.write_ids.for_compactor().high_watermark
    for location in _locations(client, table):
        found = list_files(location, options=options, missing_ok=True, empty_directories=True)
        for home, listing in _homes(found).items():
            place = join(location, home) if home else location
            write_ids = compactor_write_ids(snapshot.write_ids, listing)
            state = chosen(place, listing, write_ids, snapshot.txns, options)
            remove_directories(place, state.aborted, options)
            highest = min(highest, forgettable(state, write_ids))
    return highest


def _locations(client: MetastoreClient, table: Any) -> Iterator[str]:
    """The table's directory, and those of partitions that lie elsewhere."""
    yield table.sd.location
    for one in client.iter_partitions(table.dbName, table.tableName):
        partition: Any = one
        if not is_below(partition.sd.location, table.sd.location):
            yield partition.sd.location


def _homes(listing: Iterable[FileEntry]) -> Mapping[str, list[FileEntry]]:
    """Files below bases and deltas, by the directory in which these lie."""
    found: defaultdict[str, list[FileEntry]] = defaultdict(list)
    for entry in listing:
        *parents, _ = parts = entry.path.split("/")
        depth = next((index for index, part in enumerate(parents) if is_acid_directory(part)), None)
        if depth is not None and not any(part.startswith((".", "_")) for part in parents[:depth]):
            found["/".join(parts[:depth])].append(replace(entry, path="/".join(parts[depth:])))
    return found
