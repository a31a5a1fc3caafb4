"""Publishes staged files as a statement of a transaction: names, partitions, events, statistics.

Only the commit of the transaction makes rows visible. A driver killed at any point of this module leaves
directories of a write id, which the metastore aborts when heartbeats are missing, and perhaps empty
partitions, as Hive does.

The metastore knows every partition that a transaction writes to (its "components") before the first file has
its final name. It forgets an aborted transaction whose components are cleaned, and the write ids of the
transaction then count as valid: rows in a partition that it does not know would become visible. Its first
``add_dynamic_partitions`` replaces the component of the whole table (``TxnHandler.addDynamicPartitions``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.acid.names import ACID_VERSION, VERSION_FILE
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.objects import Described
from airflow_hive_federation.storage.filesystem import (
    canonical,
    join,
    open_filesystem,
    parse_location,
    storage_errors,
)
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.publishing import make_directory, remove_file, rename, write_atomically
from airflow_hive_federation.storage.trees import remove_tree
from airflow_hive_federation.storage.unfinished_uploads import RECORD, finish, has_uploads
from airflow_hive_federation.tables.write.partitions import (
    NO_STATS_UPDATE,
    check_alike,
    create_partitions,
    new_partition,
    partitions_of,
)
from airflow_hive_federation.tables.write.plan import (
    Destination,
    StagedFile,
    TableLayout,
    file_name,
    partition_names,
    statement_directory,
)
from airflow_hive_federation.transactions.locks import WriteKind, operation_type
from airflow_hive_federation.transactions.positions import alone_altering, alter_beside_streams, unguarded
from airflow_hive_federation.transactions.transaction import Transaction
from airflow_hive_federation.waiting import PollPolicy, retry

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


_ACCURATE = "COLUMN_STATS_ACCURATE"
_THREADS = 8
_REMOVALS = 8
_RACES = PollPolicy(first_s=0.01, factor=2.0)


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A statement of a transaction on one table.

    :param static_values: value texts of the only partition that the statement writes to, if it is known
        beforehand; ``()`` for a table without partitions.
    """

    client: MetastoreClient
    transaction: Transaction
    layout: TableLayout
    write_id: int
    statement_id: int
    kind: WriteKind
    static_values: tuple[str, ...] | None
    storage_options: StorageOptions | None = field(repr=False)

    @property
    def deletes(self) -> bool:
        """Return whether the statement's files are delete deltas."""
        return self.kind is WriteKind.DELETE

    @property
    def directory(self) -> str:
        """Return the name of the statement's directory in each partition."""
        return statement_directory(
            self.write_id, self.statement_id, deletes=self.deletes, overwrite=self.overwrites
        )

    @property
    def destination(self) -> Destination | None:
        """Return the final names that tasks upload files to; ``None`` if they write hidden files."""
        layout = self.layout
        if not has_uploads(layout.location):
            return None
        return Destination(
            location=layout.location,
            key_names=tuple(layout.key_names),
            directory=self.directory,
            is_full_acid=layout.is_full_acid,
        )

    @property
    def overwrites(self) -> bool:
        """Return whether the statement replaces the existing rows."""
        return self.kind is WriteKind.OVERWRITE


@dataclass(frozen=True, kw_only=True)
class Publication:
    """The staged files of one statement.

    :param update: the files belong to an UPDATE, not to a plain INSERT or DELETE.
    """

    statement: Statement
    files: Sequence[StagedFile]
    update: bool = False

    @property
    def registered_as(self) -> types.DataOperationType:
        """Return the type of write with which the metastore records the partitions."""
        return operation_type(WriteKind.UPDATE if self.update else self.statement.kind)


@dataclass(frozen=True, kw_only=True)
class _Placed:
    """A publication with the directory of each of its partitions, by value texts.

    A table without partitions has one entry, of no values.
    """

    publication: Publication
    places: Mapping[tuple[str, ...], str]


def publish(publications: Sequence[Publication]) -> None:
    """Give the files of statements their final names, and register them with the metastore.

    :param publications: statements of one transaction on one table, in their order.
    :raises ConfigurationError: if a partition's storage differs from the table's, or files of two
        partitions would replace each other.
    :raises StorageError: if a file cannot be renamed.
    :raises MetastoreError: if the metastore refuses a request.
    """
    all_placed = [placed for publication in publications if (placed := _placed(publication)) is not None]
    _register(all_placed)
    for placed in all_placed:
        statement, directories = placed.publication.statement, list(placed.places.values())
        statement.transaction.on_abort(partial(remove_trees, directories, statement.storage_options))
        written = _move(statement, placed.publication.files, placed.places)
        for values, paths in written.items():
            statement.client.call("add_write_notification_log", _notification(statement, values, paths))
    _mark_stale(all_placed)


def remove_trees(uris: Sequence[str], storage_options: StorageOptions | None) -> None:
    """Remove directories; a missing directory is not an error.

    :raises StorageError: if a directory cannot be removed.
    """
    for uri in uris:
        filesystem, path = open_filesystem(uri, storage_options)
        with storage_errors(uri):
            _remove_tree(filesystem, path)


def _remove_tree(filesystem: AbstractFileSystem, path: str) -> None:
    """Remove a directory that another process may remove at the same time, by repeated attempts."""

    def remove() -> None:
        for _ in range(_REMOVALS):
            # The file system may have cached a listing of the store from before the removal.
            filesystem.invalidate_cache(path)
            if not filesystem.exists(path):
                return
            remove_tree(filesystem, path)

    retry(remove, _RACES, tries=_REMOVALS, on=FileNotFoundError)


def _placed(publication: Publication) -> _Placed | None:
    """Create the missing partitions of a statement, and return its directories; ``None`` without any."""
    statement, files = publication.statement, publication.files
    values = sorted({file.values for file in files})
    if statement.static_values is not None and statement.overwrites:
        values = [statement.static_values]
    if not values:
        return None
    layout, client = statement.layout, statement.client
    table = client.get_table(layout.database, layout.table)
    if not layout.partition_keys:
        places = _places(statement, {(): table})
        _check_apart(statement, files, places)
        return _Placed(publication=publication, places=places)
    partitions = partitions_of(client, layout, values)
    # A statement that is refused creates no partition.
    if not statement.deletes:
        check_alike(layout, table, list(partitions.values()))
    missing = _missing(statement, table, [texts for texts in values if texts not in partitions])
    _check_apart(statement, files, _places(statement, partitions | missing))
    created = create_partitions(client, layout, missing)
    check_alike(layout, table, list(created.values()))
    partitions |= created
    places = _places(statement, partitions)
    _check_apart(statement, files, places)
    return _Placed(publication=publication, places=places)


def _missing(
    statement: Statement, table: types.Table, values: Sequence[tuple[str, ...]]
) -> dict[tuple[str, ...], types.Partition]:
    """Return the partitions that a statement has to create."""
    layout = statement.layout
    if values and (statement.deletes or statement.kind is WriteKind.UPDATE):
        name = partition_names(layout, values)[0]
        raise ConfigurationError(
            f"{layout.name} has no partition {name}.",
            remedy="Read the rows again: the partition was dropped after they were read.",
        )
    return {
        texts: new_partition(table, texts, f"{layout.location}/{name}", statement.write_id)
        for name, texts in zip(partition_names(layout, values), values, strict=True)
    }


def _places(
    statement: Statement, described: Mapping[tuple[str, ...], Described]
) -> dict[tuple[str, ...], str]:
    """Return the directory of a statement in each partition, or in the table."""
    return {
        texts: f"{described[texts].sd.location.rstrip('/')}/{statement.directory}"
        for texts in sorted(described)
    }


def _check_apart(
    statement: Statement, files: Sequence[StagedFile], places: Mapping[tuple[str, ...], str]
) -> None:
    """Refuse files of two partitions that would replace each other, because the partitions share a directory.

    An upload of a partition outside of its table's directory passes through the directory that has the
    partition's name, which may be that of another partition.
    """
    passed = statement.destination
    owners: dict[str, tuple[str, ...]] = {}
    for file in files:
        uris = [_target(statement, file, places), *([passed.uri(file.values, file.bucket)] if passed else [])]
        for uri in uris:
            owner = owners.setdefault(canonical(uri), file.values)
            if owner != file.values:
                first, second = partition_names(statement.layout, [owner, file.values])
                raise ConfigurationError(
                    f"{statement.layout.name}: files of partitions {first} and {second} would replace each "
                    f"other: {uri}.",
                    remedy="Give each partition a directory of its own, by ALTER TABLE … SET LOCATION.",
                )


def _target(statement: Statement, file: StagedFile, places: Mapping[tuple[str, ...], str]) -> str:
    return f"{places[file.values]}/{file_name(file.bucket, is_full_acid=statement.layout.is_full_acid)}"


def _move(
    statement: Statement, files: Sequence[StagedFile], places: Mapping[tuple[str, ...], str]
) -> dict[tuple[str, ...], list[str]]:
    written: dict[tuple[str, ...], list[str]] = {values: [] for values in places}
    moves = []
    for file in files:
        target = _target(statement, file, places)
        written[file.values].append(target)
        moves.append((file.path, target))
    for place in places.values():
        _make_directory(statement, place)
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(lambda move: _publish_file(move[0], move[1], statement.storage_options), moves))
    return written


def _make_directory(statement: Statement, uri: str) -> None:
    make_directory(uri, statement.storage_options)
    # An object store keeps no directory without a file. Hive ignores the version file in insert-only tables.
    if statement.layout.is_full_acid or statement.overwrites:
        write_atomically(join(uri, VERSION_FILE), [ACID_VERSION.encode()], statement.storage_options)


def _publish_file(source: str, target: str, storage_options: StorageOptions | None) -> None:
    if not source.endswith(RECORD):
        _rename(source, target, storage_options)
        return
    place = finish(source, storage_options)
    if canonical(place) != canonical(target):
        # The partition does not lie in its table's directory, which its writer did not know.
        try:
            _rename(place, target, storage_options)
        except BaseException:
            remove_file(place, storage_options)
            raise


def _rename(source: str, target: str, storage_options: StorageOptions | None) -> None:
    from_store, to_store = parse_location(source), parse_location(target)
    if (from_store.scheme, from_store.authority) != (to_store.scheme, to_store.authority):
        raise ConfigurationError(
            f"{target} lies in another store than its table: it cannot be written.",
            remedy="Keep a table's partitions in one store.",
        )
    filesystem, source_path = open_filesystem(source, storage_options)
    with storage_errors(target):
        rename(filesystem, source_path, open_filesystem(target, storage_options)[1])


def _register(all_placed: Sequence[_Placed]) -> None:
    """Name the partitions of all statements to the metastore, before a file has its final name in one."""
    names: dict[types.DataOperationType, set[str]] = {}
    for placed in all_placed:
        statement = placed.publication.statement
        if statement.layout.partition_keys and statement.static_values is None:
            added = partition_names(statement.layout, list(placed.places))
            names.setdefault(placed.publication.registered_as, set()).update(added)
    for kind, added_names in names.items():
        statement = all_placed[0].publication.statement
        request = types.AddDynamicPartitions(
            txnid=statement.transaction.id,
            writeid=statement.write_id,
            dbname=statement.layout.database,
            tablename=statement.layout.table,
            partitionnames=sorted(added_names),
            operationType=kind,
        )
        statement.client.call("add_dynamic_partitions", request)


def _notification(
    statement: Statement, values: tuple[str, ...], paths: Sequence[str]
) -> types.WriteNotificationLogRequest:
    data = types.InsertEventRequestData(
        replace=statement.overwrites,
        filesAdded=list(paths),
        # Hive sends empty checksums for stores without checksums.
        filesAddedChecksum=["" for _ in paths],
        subDirectoryList=[path.rsplit("/", 2)[1] for path in paths],
    )
    return types.WriteNotificationLogRequest(
        txnId=statement.transaction.id,
        writeId=statement.write_id,
        db=statement.layout.database,
        table=statement.layout.table,
        fileInfo=data,
        partitionVals=list(values) or None,
    )


def _mark_stale(all_placed: Sequence[_Placed]) -> None:
    """Withdraw the accuracy of statistics, as they are now: altering replaces a whole table or partition."""
    values = sorted({texts for placed in all_placed for texts in placed.places})
    if not values:
        return
    statement = all_placed[0].publication.statement
    layout, client = statement.layout, statement.client
    stale = (
        claiming_accuracy(list(partitions_of(client, layout, values).values()))
        if layout.partition_keys
        else claiming_accuracy([client.get_table(layout.database, layout.table)])
    )
    if not stale:
        return
    seen = statement.transaction.snapshot(layout.database, layout.table).write_ids.text()
    own = statement.transaction.own_positions
    withdraw_accuracy(
        client,
        layout,
        stale,
        write_id=statement.write_id,
        seen=seen,
        own_positions=own,
        check=statement.transaction.check,
    )


def claiming_accuracy(described: Sequence[Described]) -> list[Described]:
    """Return the tables or partitions whose statistics are marked as accurate."""
    return [entity for entity in described if _ACCURATE in (entity.parameters or {})]


def withdraw_accuracy(
    client: MetastoreClient,
    layout: TableLayout,
    stale: Sequence[Any],
    *,
    write_id: int,
    seen: str,
    own_positions: Collection[str] = (),
    check: Callable[[], None] = unguarded,
) -> None:
    """Remove the mark of accuracy from statistics: Hive answers ``count(*)`` from marked statistics.

    :param stale: partitions, or the table alone if it has no partitions; all are read again, under a lock:
        a change of cluster metadata since they were read would be lost.
    :param write_id: write id of the transaction that makes the statistics stale.
    :param seen: the table's valid write ids, in Hive's text form.
    :param own_positions: keys of positions that only the caller's transaction moves.
    :param check: is called right before each change; it raises if the caller's transaction may have ended.
    :raises LockTimeoutError: if streams that commit positions of the table, or processes that change its
        cluster metadata, do not let it be altered.
    :raises LockLostError: if this process was suspended, and others may have altered the table or partitions.
    :raises MetastoreError: if the metastore refuses the change, or others alter the table all the time.
    """

    def withdrawn(now: Any) -> Any:
        if not claiming_accuracy([now]):
            return None
        del now.parameters[_ACCURATE]
        now.writeId = write_id
        return now

    if layout.partition_keys:
        values = [tuple(partition.values or ()) for partition in stale]
        with alone_altering(client, layout.database, layout.table) as check_alone:
            now = partitions_of(client, layout, values).values()
            changed = [partition for partition in map(withdrawn, now) if partition is not None]
            if changed:
                check()
                check_alone()
                client.alter_partitions(
                    layout.database,
                    layout.table,
                    changed,
                    environment=NO_STATS_UPDATE,
                    valid_write_ids=seen,
                    write_id=write_id,
                )
        return
    alter_beside_streams(
        client,
        layout.database,
        layout.table,
        withdrawn,
        own=own_positions,
        check=check,
        environment=NO_STATS_UPDATE,
        valid_write_ids=seen,
        write_id=write_id,
    )
