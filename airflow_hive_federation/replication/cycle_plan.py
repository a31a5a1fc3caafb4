"""Plans a cycle: computes the changes that it would make, without making them.

A dump writes only its own directory. So a dry run writes a dump into a temporary directory, and compares it
with the target as a load would.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.progress.observers import LOGGED_QUIETLY, Observer
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.cut import Cut
from airflow_hive_federation.replication.dump.drain import begin_drain
from airflow_hive_federation.replication.dump.increment import dump_increment
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableWork
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.format.unfinished import unfinished_loads
from airflow_hive_federation.replication.load.copying import EarlierCopies, TableCopy, plan_copy
from airflow_hive_federation.replication.load.target_files import files_there
from airflow_hive_federation.replication.load.target_places import TargetPlaces
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.cycle_history import BOOTSTRAP, IDLE, INCREMENT
from airflow_hive_federation.replication.replica.database import expected_layout, find_layout, find_target
from airflow_hive_federation.replication.replica.differences import definition_differences
from airflow_hive_federation.replication.replica.markers import TargetState
from airflow_hive_federation.replication.replica.position import TargetPosition, read_position
from airflow_hive_federation.transactions.lease import LeaseKeeper, end_lease

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool


@dataclass(frozen=True, kw_only=True)
class PlannedTable:
    """The changes that a cycle would make to one table.

    :param action: ``create``, ``replace``, ``alter``, ``continue`` (rows, files, statistics) or ``drop``.
    :param files: number of files that would be copied.
    :param changes: fields of the definition that would change.
    """

    name: str
    action: str
    files: int = 0
    size_bytes: int = 0
    partitions_added: Sequence[str] = ()
    partitions_dropped: Sequence[str] = ()
    changes: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class CyclePlan:
    """The changes that a cycle would make.

    :param kind: ``bootstrap``, ``increment`` or ``idle``.
    :param event_id: the event that the target would reach.
    :param transactions: number of the source's transactions that would be replayed.
    :param waits_for: transactions that a bootstrap would wait for.
    :param skipped: the tables of the source that the policy selects but that are not replicated, each with
        the reason.
    :param retained: those of the skipped tables whose earlier replica the target keeps.
    :param unfinished: the dumps whose load has begun and was not published; the cycle repeats the work that
        they began on the target.
    """

    database: str
    kind: str
    event_id: int
    events: int = 0
    transactions: int = 0
    waits_for: Sequence[int] = ()
    tables: Sequence[PlannedTable] = field(default_factory=tuple)
    skipped: Mapping[str, str] = field(default_factory=dict)
    retained: Sequence[str] = ()
    unfinished: Sequence[str] = ()

    @property
    def files(self) -> int:
        """Return the number of files that would be copied."""
        return sum(table.files for table in self.tables)

    @property
    def size_bytes(self) -> int:
        """Return the number of bytes that would be copied."""
        return sum(table.size_bytes for table in self.tables)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "files": self.files, "size_bytes": self.size_bytes}


def plan_cycle(
    source: MetastorePool,
    target: MetastorePool,
    policy: ReplicationPolicy,
    *,
    cut: Cut | None = None,
    observer: Observer = LOGGED_QUIETLY,
) -> CyclePlan:
    """Plan the next cycle, and change neither side.

    :param source: connections to the source.
    :param target: connections to the target.
    :param cut: the moment of the plans of a group; by default, the plan takes a cut of its own.
    :raises HiveFederationError: the error with which the cycle would fail.
    """
    with tempfile.TemporaryDirectory(prefix="hive-federation-plan-") as directory:
        aside = replace(
            policy,
            dump_root=f"file:{directory}",
            functions_root=policy.root_of_functions,
            # A plan leaves nothing on the source.
            external_snapshots=False,
        )
        with target.client() as client:
            # A dump in its usual place would see these loads by itself.
            unfinished = _unfinished(client, policy)
            if find_target(client, policy).state is TargetState.LOADED:
                # So would the position: write ids of a killed load are the policy's own.
                position = read_position(client, policy)
                position.refuse_foreign_writes(policy)
                plan = _plan_increment(source, position, client, aside, cut=cut, observer=observer)
            else:
                plan = _plan_bootstrap(source, client, aside, observer)
    return replace(plan, unfinished=unfinished)


def _unfinished(target: MetastoreClient, policy: ReplicationPolicy) -> list[str]:
    """Return the dumps whose load into the target has begun and was not published."""
    state = find_target(target, policy).state
    if state not in {TargetState.LOADED, TargetState.LOADING}:
        return []
    loaded = (target.get_database(policy.target_database).parameters or {}).get(markers.CHECKPOINT, "")
    if state is TargetState.LOADING:
        return [loaded] if loaded else []
    return [dump.uri for dump in unfinished_loads(policy, loaded)]


def _plan_bootstrap(
    source: MetastorePool,
    target: MetastoreClient,
    policy: ReplicationPolicy,
    observer: Observer,
) -> CyclePlan:
    with source.client() as client:
        start = begin_drain(client, policy.source_database)
    dumped = dump_bootstrap(source, policy, start, observer=observer)
    end_lease(source, dumped.lease)
    directory = DumpDirectory(dumped.dump)
    layout = expected_layout(target, policy)
    if layout.managed:
        TargetPlaces(directory, layout).check_others(target)
    manifest = directory.manifest()
    return CyclePlan(
        database=policy.target_database,
        kind=BOOTSTRAP,
        event_id=start.event_id,
        waits_for=start.transactions,
        skipped=dumped.skipped,
        tables=[
            PlannedTable(name=entry.name, action="create", files=entry.files, size_bytes=entry.size_bytes)
            for entry in manifest.tables
        ],
    )


def _plan_increment(
    source: MetastorePool,
    position: TargetPosition,
    client: MetastoreClient,
    policy: ReplicationPolicy,
    *,
    cut: Cut | None,
    observer: Observer,
) -> CyclePlan:
    dumped = dump_increment(source, policy, position, cut=cut, observer=observer)
    plan = CyclePlan(
        database=policy.target_database,
        kind=IDLE if dumped.idle else INCREMENT,
        event_id=dumped.event_id,
        events=dumped.events,
        transactions=dumped.transactions,
        skipped=dumped.skipped,
        retained=dumped.retained,
    )
    if dumped.idle:
        return plan
    with LeaseKeeper(source, dumped.lease):
        directory = DumpDirectory(dumped.dump, policy.storage_options)
        comparison = _Comparison(client, policy, directory, position)
        tables = [*comparison.tables(), *comparison.dropped()]
    if cut is None:
        end_lease(source, dumped.lease)
    return replace(plan, tables=tables)


class _Comparison:
    """Compares an increment's dump with the target."""

    def __init__(
        self,
        client: MetastoreClient,
        policy: ReplicationPolicy,
        directory: DumpDirectory,
        position: TargetPosition,
    ) -> None:
        self._client = client
        self._policy = policy
        self._directory = directory
        self._manifest = directory.manifest()
        self._layout = find_layout(client, policy)
        TargetPlaces(directory, self._layout).check_others(client)
        self._position = position
        self._earlier = EarlierCopies(
            self._manifest.previous, policy.storage_options, unfinished=position.unfinished(policy)
        )

    def tables(self) -> Iterator[PlannedTable]:
        return map(self._table, self._manifest.changed_tables)

    def dropped(self) -> Iterator[PlannedTable]:
        return (PlannedTable(name=name, action="drop") for name in self._manifest.dropped)

    def _table(self, entry: TableEntry) -> PlannedTable:
        name = entry.name
        document = self._directory.table(name)
        new = entry.work is not TableWork.CONTINUE
        copy = self._copy(entry, document, new=new)
        partitions = {line.name for line in self._directory.partitions(name)}
        changes: list[str] = []
        existing: set[str] = set()
        if not new:
            current = self._client.get_table(self._policy.target_database, name)
            changes = [
                difference.what
                for difference in definition_differences(self._layout.table(document, {}), current)
            ]
            if current.partitionKeys:
                existing = set(self._client.list_partition_names(self._policy.target_database, name))
        action = (entry.work or TableWork.CREATE).value if new or not changes else "alter"
        return PlannedTable(
            name=name,
            action=action,
            files=len(copy.items),
            size_bytes=sum(item.size_bytes for item in copy.items),
            partitions_added=sorted(partitions - existing),
            partitions_dropped=sorted(existing - partitions),
            changes=changes,
        )

    def _copy(self, entry: TableEntry, document: TableDocument, *, new: bool) -> TableCopy:
        if not document.kind.has_files:
            return TableCopy()
        name = entry.name
        state = None if new else self._position.tables.get(name)
        return plan_copy(
            self._directory,
            self._layout,
            document,
            there=files_there(self._layout, document, self._policy.storage_options),
            visible=state.high_watermark if state else None,
            complete=state.complete if state else 0,
            before={} if new else self._earlier.files(document),
            repaired=self._earlier.overwritten(document),
            only=None if new else entry.changes.concerned,
        )
