"""Finds the partitions whose files a cycle's transactions have changed.

Hive's records of writes (``TXN_WRITE_NOTIFICATION_LOG``) do not name them all: of a statement that inserts
into two partitions of one table, Hive 4.2 records one. So the directories of all partitions are listed, and
compared with the digests of the dump before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.dump.contents import listed_places
from airflow_hive_federation.replication.dump.directory_digests import directory_digest
from airflow_hive_federation.replication.format.tables import PartitionTotals
from airflow_hive_federation.replication.metadata.table_locations import TableLocations
from airflow_hive_federation.storage.options import StorageOptions


def partitions_with_other_files(
    table: types.Table,
    before: Mapping[str, PartitionTotals],
    concerned: Collection[str],
    options: StorageOptions | None = None,
) -> set[str]:
    """List the directories of a table's partitions, and return the partitions with other files than before.

    :param before: its partitions in the dump before, by name.
    :param concerned: names of partitions that need no look, because the dump describes them anyway.
    """
    without = {name for name, total in before.items() if not total.digest}
    places = TableLocations(table)
    for name, total in before.items():
        if name not in without and name not in concerned:
            places.add_named(name, total.elsewhere)
    listings = listed_places(places, options, empty_directories=True)
    changed = {
        place.partition
        for place, listing in listings
        if directory_digest(listing) != before[place.partition].digest
    }
    return changed | without
