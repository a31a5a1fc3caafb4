"""Takes over a target whose source is lost: finishes its loads and lets it go at the event it has reached.

A load replays the source's transactions in their order, and each in all its tables at once. So whatever was
interrupted, a target shows all transactions of its source up to one of them, none in part, and none without
those before it. Two steps precede the first write to such a target:

1. The last load, if it had copied all its files, no longer needs the source, so it is finished.
2. Files that wait for transactions which will never be replayed are removed, because writers of the target
   would soon receive the write ids of these files. A file of a streaming batch may hold rows of such
   transactions beside rows that readers see: it keeps only the latter.

External tables, and other tables without transactions, have no such order: they hold the files that were
copied so far.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import FailoverError, FileVanishedError, NoSuchObjectError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyOutcome
from airflow_hive_federation.model.write_ids import RangeState
from airflow_hive_federation.progress.events import TakenOver
from airflow_hive_federation.progress.kinds import Step
from airflow_hive_federation.progress.observers import LOGGED, Observer, Steps
from airflow_hive_federation.progress.words import words
from airflow_hive_federation.replication.failover import SILENCE, let_go
from airflow_hive_federation.replication.failover_results import FailoverResult
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableKind, TableWork
from airflow_hive_federation.replication.format.unfinished import COPY_PLAN, begun_since, unfinished_loads
from airflow_hive_federation.replication.group_policy import refuse_alone
from airflow_hive_federation.replication.left_files import LeftFiles, Removing, finish_placing
from airflow_hive_federation.replication.load.load import load_into_target
from airflow_hive_federation.replication.load.replay import Replay
from airflow_hive_federation.replication.load.summary import CopyRunner
from airflow_hive_federation.replication.metadata.definitions import table_kind
from airflow_hive_federation.replication.metadata.write_ids import readable_write_ids, valid_transactions
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.policy_changes import refuse_changed
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.cycle_lock import CycleLock
from airflow_hive_federation.replication.replica.database import find_layout
from airflow_hive_federation.replication.replica.layout import final_uri
from airflow_hive_federation.replication.replica.position import loaded_dump
from airflow_hive_federation.storage.digests import digest_file
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.plan_files import read_outcomes, read_plan

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool


@dataclass(frozen=True, kw_only=True)
class TakeOverReport:
    """The result of a take-over.

    :param database: the database of the former target, which may now be written.
    :param event_id: last event of the lost source that the database has.
    :param removed: number of files removed that waited for transactions which were never replayed.
    """

    database: str
    event_id: int
    removed: int

    @property
    def summary(self) -> str:
        """Return the report as one sentence."""
        return words(self.event)

    @property
    def event(self) -> TakenOver:
        """Return the report as an event of progress."""
        return TakenOver(database=self.database, event_id=self.event_id)

    def result(self) -> FailoverResult:
        """Return the report as tasks and commands return it."""
        return FailoverResult(
            converged=False,
            database=self.database,
            event_id=self.event_id,
            removed=self.removed,
            summary=self.summary,
        )


def take_over(
    source: MetastorePool,
    target: MetastorePool,
    policy: ReplicationPolicy,
    *,
    observer: Observer = LOGGED,
) -> TakeOverReport:
    """Let go of a target whose source does not answer.

    If a run is killed at any point, the next run continues it.

    :param source: connections to the source, which must not answer.
    :param target: connections to the target.
    :param observer: receives the events of progress.
    :raises FailoverError: the source answers, whether or not it has the database.
    :raises ConfigurationError: a load remains to be finished, and the policy has changed since its dump was
        written.
    :raises TargetNotOursError: the target is not the policy's, or was never published.
    :raises CycleRunningError: a cycle works on the target.
    :raises GroupMembershipError: the policy belongs to a consistency group.
    """
    refuse_alone(policy, "take its target over")
    refuse_living(source, policy)
    with CycleLock(target, policy, observer=observer) as lock:
        step = Steps(observer, policy.target_database)
        with target.client() as client:
            unfinished = list(unfinished_loads(policy, loaded_dump(client, policy)))
        for dump in unfinished:
            if is_latest(dump, unfinished) and is_copied(dump):
                step(Step.END_LOAD)
                _end_load(source, lock, policy, dump, observer)
        with lock.target.client() as client:
            removed = remove_unfinished(client, policy, unfinished, check=lock.check, step=step)
            step(Step.ABORT)
            Replay(client, policy).sweep(())
            # The removals took time, and a source that has come back meanwhile may be written.
            report = release(source, client, policy, removed=removed, step=step)
            lock.prove()
    observer(report.event)
    return report


def remove_unfinished(
    client: MetastoreClient,
    policy: ReplicationPolicy,
    unfinished: Iterable[DumpDirectory],
    *,
    check: Callable[[], None],
    step: Steps,
) -> int:
    """Remove the files that wait for transactions of the source, and return their number.

    Run it before the transactions are aborted: the metastore forgets aborted transactions after a while, and
    readers then see the files of their write ids.

    :param client: client of the target.
    :param unfinished: dumps of loads that have begun, and are not finished.
    :param check: runs before each removal, and raises if the take-over must end.
    """
    step(Step.REMOVE_FILES)
    removing = Removing(policy=policy, check=check)
    dumps = list(unfinished)
    removed = sum(_remove_orphans(client, removing, dump) for dump in dumps)
    for dump in filter(is_copied, dumps):
        finish_placing(removing, dump)
    changed = {entry.name for dump in dumps for entry in dump.manifest().changed_tables}
    return removed + _remove_invisible(client, removing, changed)


def release(
    source: MetastorePool, client: MetastoreClient, policy: ReplicationPolicy, *, removed: int, step: Steps
) -> TakeOverReport:
    """Let the target go, after the transactions of the source are aborted there.

    :param client: client of the target.
    :param removed: number of files that the take-over has removed.
    :raises FailoverError: the source answers.
    """
    event_id = int((client.get_database(policy.target_database).parameters or {})[markers.LAST_ID])
    step(Step.LET_GO)
    refuse_living(source, policy)
    let_go(client, policy)
    return TakeOverReport(database=policy.target_database, event_id=event_id, removed=removed)


def refuse_living(source: MetastorePool, policy: ReplicationPolicy) -> None:
    """Refuse to take a target over whose source answers.

    :raises FailoverError: the source answers, whether or not it has the database.
    """
    database = policy.source_database
    try:
        with source.client() as client:
            client.get_database(database)
    except SILENCE:
        return
    except NoSuchObjectError as error:
        # Another metastore may answer, or the policy may name another database: neither shows that the source
        # is lost.
        raise FailoverError(
            f"The source of policy {policy.name!r} answers, but has no database {database}.",
            remedy="Check the connection to the source, and the name. If the database is gone for good, stop "
            "that metastore, or have the connection lead nowhere, and take over again.",
        ) from error
    raise FailoverError(
        f"The source of policy {policy.name!r} answers, and has database {database}.",
        remedy="Fail over as planned, which loses nothing; or stop that metastore.",
    )


def is_latest(dump: DumpDirectory, unfinished: Iterable[DumpDirectory]) -> bool:
    """Return whether no other of the unfinished loads has begun since a dump was made.

    An earlier load cannot be ended any more: a later one may have changed the tables since.
    """
    return not begun_since(dump, (other.uri for other in unfinished))


def is_copied(dump: DumpDirectory) -> bool:
    """Return whether a load of a dump has copied all its files."""
    recorded = _recorded(f"{dump.uri}/load/outcomes", dump.options)
    plan = read_plan(f"{dump.uri}/{COPY_PLAN}", options=dump.options)
    return all(final_uri(item.target) in recorded for item in plan)


def _recorded(outcomes: str, options: StorageOptions | None) -> dict[str, CopyOutcome]:
    """Return the recorded copies of a load by the final URI of the file.

    A run may have copied a file to a hidden directory, and placed it. The plan of the next run then has the
    file in its place.
    """
    copied = read_outcomes(outcomes, options=options)
    return {final_uri(target): outcome for target, outcome in copied.items()}


def _end_load(
    source: MetastorePool,
    lock: CycleLock,
    policy: ReplicationPolicy,
    dump: DumpDirectory,
    observer: Observer,
) -> None:
    target, manifest = lock.target, dump.manifest()
    with target.client() as client:
        if loaded_dump(client, policy) != manifest.previous:
            return  # Another load from the same position has been finished.
    refuse_changed(dump.uri, manifest, policy)
    try:
        load_into_target(
            source,
            target,
            policy,
            dump.uri,
            run_copy=nothing_to_copy(policy.storage_options),
            observer=observer,
            check=lock.check,
        )
    except SILENCE:
        # The source's read transaction could not be ended, after the target was published.
        with target.client() as client:
            if loaded_dump(client, policy) != dump.uri:
                raise


def nothing_to_copy(options: StorageOptions | None) -> CopyRunner:
    """Return a function that copies no file of a plan: a load that has copied all its files needs no more.

    A plan still lists each file without some of its rows, because a listing does not show whether the target
    has the same ones. The record of their copy does.

    :raises FailoverError: the function finds that a file is not as it was copied.
    """

    def check(plan: str, outcomes: str) -> None:
        recorded = _recorded(outcomes, options)
        items = read_plan(plan, options=options)
        if not all(_has_bytes(item.target, recorded.get(final_uri(item.target)), options) for item in items):
            raise FailoverError(
                f"Files that {plan} lists were copied, and are gone from the target.",
                remedy="Find and stop the process that removes files there; then take over again.",
            )

    return check


def _has_bytes(uri: str, outcome: CopyOutcome | None, options: StorageOptions | None) -> bool:
    """Return whether a file is as a copy has left it."""
    try:
        return outcome is not None and digest_file(uri, options=options).digest == outcome.digest
    except FileVanishedError:
        return False


def _remove_orphans(client: MetastoreClient, removing: Removing, dump: DumpDirectory) -> int:
    """Remove the files that a load has copied for tables that it did not yet create."""
    policy = removing.policy
    layout, removed = find_layout(client, policy), 0
    existing = set(client.list_tables(policy.target_database))
    for entry in dump.manifest().tables:
        # A load that continues a table copies into one that existed before: even if the table is not listed
        # now, its files are no orphans.
        makes_table = entry.work in {TableWork.CREATE, TableWork.REPLACE}
        if entry.name in existing or not makes_table or not entry.kind.has_files:
            continue
        if entry.kind is not TableKind.EXTERNAL:
            document = dump.table(entry.name)
            root = layout.directory(document, document.location, "")
            removed += removing.remove(root, [file.path for file in removing.listed(root)])
    return removed


def _remove_invisible(client: MetastoreClient, removing: Removing, changed: Collection[str]) -> int:
    """Remove files whose write ids no reader of the target sees, and files in hidden directories.

    :param changed: names of the tables into whose files a load may have copied rows that no reader sees.
    """
    policy = removing.policy
    database = policy.target_database
    tables: list[types.Table] = list(client.get_tables(database, client.list_tables(database)))
    transactional = [
        candidate
        for candidate in tables
        if table_kind(candidate).transactional and policy.replicates(candidate.tableName)
    ]
    write_ids = readable_write_ids(client, transactional, valid_transactions(client.get_open_txns()))
    removed = 0
    for table in transactional:
        if table.tableName in write_ids:
            left = LeftFiles(removing, table, write_ids[table.tableName])
            removed += removing.remove(left.root, left.paths(RangeState.NONE))
            if table.tableName in changed:
                left.drop_invisible_rows()
            left.reserve_write_ids(client)
    return removed
