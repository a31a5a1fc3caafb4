"""Lists the directories of a table that a reader opens, and takes the snapshot of each."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_hive_federation.acid.history import check_history
from airflow_hive_federation.acid.markers import chosen, read_marker
from airflow_hive_federation.acid.names import VERSION_FILE
from airflow_hive_federation.acid.snapshot import AcidState
from airflow_hive_federation.errors import AcidFormatError, ConfigurationError, NoSuchObjectError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.partitions import partition_name, unescape
from airflow_hive_federation.model.types import Column
from airflow_hive_federation.storage.filesystem import canonical
from airflow_hive_federation.storage.listing import list_many
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.side_by_side import side_by_side
from airflow_hive_federation.tables.read.partition_scans import PartitionState
from airflow_hive_federation.tables.read.pruning import Bucketing, Predicate, only_buckets
from airflow_hive_federation.transactions.snapshots import Snapshot, is_transactional

_VERSION = b"2"


def directories_to_read(
    client: MetastoreClient,
    table: types.Table,
    partitions: Sequence[str] | None,
    *,
    snapshot: Snapshot | None,
    predicate: Predicate | None = None,
    storage_options: StorageOptions | None = None,
) -> list[PartitionState]:
    """List the directories of a table and choose the files to read in each.

    :param table: the metastore's table.
    :param partitions: names of partitions; ``None`` reads all.
    :param snapshot: snapshot to read; ``None`` for a table that is not transactional.
    :param predicate: condition on the rows; partitions and bucket files without such rows are left out.
    :raises NoSuchObjectError: if a named partition does not exist.
    :raises ConfigurationError: if partitions are named and the table has none.
    :raises AcidFormatError: if directories break Hive's layout, are of an unknown version, or belong to
        several partitions.
    """
    places = _places(client, table, partitions, predicate)
    listings = list_many(
        [storage.location for storage, _ in places],
        options=storage_options,
        missing_ok=True,
        empty_directories=snapshot is not None,
    )
    states = []
    for storage, values in places:
        listing = listings[storage.location]
        if snapshot is None:
            state = _everything(listing)
        else:
            state = chosen(storage.location, listing, snapshot.write_ids, snapshot.txns, storage_options)
            check_history(storage.location, state, snapshot.write_ids)
        if predicate is not None and is_transactional(table):
            state = _only_wanted_buckets(state, storage, table, predicate)
        states.append(PartitionState(location=storage.location, state=state, values=values, storage=storage))
    _check_versions(states, storage_options)
    return states


def _places(
    client: MetastoreClient, table: types.Table, partitions: Sequence[str] | None, predicate: Predicate | None
) -> list[tuple[types.StorageDescriptor, tuple[str, ...]]]:
    name = f"{table.dbName}.{table.tableName}"
    if not table.partitionKeys:
        if partitions is not None:
            raise ConfigurationError(
                f"{name} has no partitions to choose from.", remedy="Leave partitions out."
            )
        return [(table.sd, ())]
    names = partitions
    if predicate is not None:
        if names is None:
            names = client.list_partition_names(table.dbName, table.tableName)
        keys = [Column.of(key.name, key.type) for key in table.partitionKeys]
        values = [[unescape(part.partition("=")[2]) for part in partition.split("/")] for partition in names]
        names = [names[index] for index in predicate.partitions(keys, values)]
        if not names:
            return []
    described = list(client.iter_partitions(table.dbName, table.tableName, names=names))
    if partitions is not None and names is not None and len(described) != len(set(names)):
        raise NoSuchObjectError(
            f"{name} has {len(described)} of the {len(set(names))} partitions named.",
            remedy="Compare with SHOW PARTITIONS.",
        )
    _refuse_shared_locations(table, described)
    return [(partition.sd, tuple(partition.values)) for partition in described]


def _refuse_shared_locations(table: types.Table, partitions: Sequence[types.Partition]) -> None:
    """Refuse partitions that share a directory.

    Hive returns the files of a shared directory once per partition; a scan here returns a file once.
    """
    keys = [key.name for key in table.partitionKeys]
    names: dict[str, str] = {}
    for partition in partitions:
        name = partition_name(keys, partition.values)
        other = names.setdefault(canonical(partition.sd.location), name)
        if other != name:
            raise AcidFormatError(
                f"Partitions {other} and {name} of {table.dbName}.{table.tableName} have one location, "
                f"{partition.sd.location}.",
                remedy="Read them one at a time (partitions=[…]), or give them locations of their own.",
                path=partition.sd.location,
            )


def _everything(listing: Sequence[FileEntry]) -> AcidState:
    visible = tuple(entry for entry in listing if not _is_hidden(entry) and entry.size_bytes)
    return AcidState(base=None, originals=visible, deltas=(), delete_deltas=())


def _is_hidden(entry: FileEntry) -> bool:
    return any(part.startswith(("_", ".")) for part in entry.path.split("/"))


def _check_versions(states: Sequence[PartitionState], storage_options: StorageOptions | None) -> None:
    # The same directory name in several partitions means the same statement, which has one version.
    marks = {
        directory.name: f"{partition.location}/{entry.path}"
        for partition in states
        for directory in partition.state.directories
        for entry in directory.markers
        if entry.path.endswith(f"/{VERSION_FILE}")
    }
    side_by_side(lambda uri: _check_version(uri, storage_options), list(marks.values()))


def _check_version(uri: str, storage_options: StorageOptions | None) -> None:
    version = read_marker(uri, storage_options).strip()
    if version != _VERSION:
        raise AcidFormatError(
            f"The directory of {uri} is of ACID version {version.decode(errors='replace')!r}.",
            remedy="Only version 2 can be read, which Hive has written since 3.0. Compact older tables "
            "(major) by Hive.",
            path=uri,
        )


def _only_wanted_buckets(
    state: AcidState, storage: types.StorageDescriptor, table: types.Table, predicate: Predicate
) -> AcidState:
    columns = [Column.of(field.name, field.type) for field in table.sd.cols]
    bucketing = Bucketing.of(storage, columns, (table.parameters or {}).get("bucketing_version", "1"))
    wanted = None if bucketing is None else predicate.buckets(bucketing)
    if bucketing is None or wanted is None:
        return state
    return only_buckets(state, wanted, bucketing.count)
