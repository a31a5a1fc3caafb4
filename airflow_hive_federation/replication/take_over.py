"""Takes over a target whose source is lost: finishes its loads and lets it go at the event it has reached.

A load replays the source's transactions in their order, and each in all its tables at once. So whatever was
interrupted, a target shows all transactions of its source up to one of them, none in part, and none without
those before it. Two steps precede the first write to such a target:

1. The last load that had copied all its files no longer needs the source, so it is finished. A load changes
   the shape of no table, and ends no transaction, before all its files are copied. So the loads that began
   later have left files and open transactions, and their files are removed first. But a load drops tables
   and partitions that it is about to make anew before it copies anything (see :mod:`.overtaken_loads`). If
   the earlier load needs one of them, it stays as it is: unfinished. The report names those that the target
   lacks in the end.
2. Files that wait for transactions which will never be replayed are removed, because writers of the target
   would soon receive the write ids of these files. A file of a streaming batch may hold rows of such
   transactions beside rows that readers see: it keeps only the latter.

External tables, and other tables without transactions, have no such order: they hold the files that were
copied so far.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import (
    DumpCorruptError,
    DumpIncompleteError,
    FailoverError,
    FileVanishedError,
    NoSuchObjectError,
)
from airflow_hive_federation.model.files import CopyOutcome
from airflow_hive_federation.model.write_ids import RangeState
from airflow_hive_federation.progress.events import TakenOver
from airflow_hive_federation.progress.kinds import Step
from airflow_hive_federation.progress.observers import LOGGED, Observer, Steps
from airflow_hive_federation.progress.quantities import first_of
from airflow_hive_federation.progress.words import words
from airflow_hive_federation.replication.failover import SILENCE, let_go
from airflow_hive_federation.replication.failover_results import FailoverResult
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableKind, TableWork
from airflow_hive_federation.replication.format.unfinished import (
    COPY_PLAN,
    begun_since,
    cleared_since,
    unsettled_loads,
)
from airflow_hive_federation.replication.group_policy import refuse_alone
from airflow_hive_federation.replication.left_files import Removing, finish_placing, left_files
from airflow_hive_federation.replication.load.load import load_into_target
from airflow_hive_federation.replication.load.replay import Replay
from airflow_hive_federation.replication.load.summary import CopyRunner
from airflow_hive_federation.replication.overtaken_loads import (
    OvertakenError,
    overtaken_files,
    refuse_dropped,
)
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.policy_changes import refuse_changed
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.cycle_lock import CycleLock
from airflow_hive_federation.replication.replica.database import find_layout
from airflow_hive_federation.replication.replica.layout import final_uri
from airflow_hive_federation.replication.replica.missing_objects import missing_objects
from airflow_hive_federation.replication.replica.position import loaded_dump
from airflow_hive_federation.replication.replica.table_index import TableIndex
from airflow_hive_federation.storage.digests import digest_file
from airflow_hive_federation.storage.filesystem import canonical, join
from airflow_hive_federation.storage.listing import is_there
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.plan_files import read_outcomes, read_plan

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TakeOverReport:
    """The result of a take-over.

    :param database: the database of the former target, which may now be written.
    :param event_id: last event of the lost source that the database has.
    :param removed: number of files removed that waited for transactions which were never replayed.
    :param missing: names of tables that the target had at that event and lacks, and of partitions, as
        ``table/partition``. A killed load has dropped them, in order to make them anew.
    """

    database: str
    event_id: int
    removed: int
    missing: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """Return the report as one sentence."""
        return words(self.event)

    @property
    def event(self) -> TakenOver:
        """Return the report as an event of progress."""
        return TakenOver(database=self.database, event_id=self.event_id, missing=self.missing)

    def result(self) -> FailoverResult:
        """Return the report as tasks and commands return it."""
        return FailoverResult(
            converged=False,
            database=self.database,
            event_id=self.event_id,
            removed=self.removed,
            missing=self.missing,
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
            loaded = loaded_dump(client, policy)
        unfinished = unsettled_loads(policy, loaded)
        removed = 0
        if dump := last_copied(dump for dump in unfinished if dump.manifest().previous == loaded):
            later = begun_since(dump, (other.uri for other in unfinished))
            if later:
                with lock.target.client() as client:
                    removed = make_way(client, policy, dump, unfinished, check=lock.check, step=step)
            step(Step.END_LOAD)
            _end_load(source, lock, policy, dump, later=later, observer=observer)
        with lock.target.client() as client:
            removed += remove_unfinished(client, policy, unfinished, check=lock.check, step=step)
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
    return removed + _remove_invisible(client, removing, _changed_tables(dumps))


def make_way(
    client: MetastoreClient,
    policy: ReplicationPolicy,
    dump: DumpDirectory,
    unfinished: Sequence[DumpDirectory],
    *,
    check: Callable[[], None],
    step: Steps,
) -> int:
    """Remove the files that no reader sees and that a load does not need, and return their number.

    A later load may have copied a part of a compaction's result, and readers would take that part for all
    rows of this load's transactions.

    :param client: client of the target.
    :param dump: the dump of the load that is about to be ended.
    :param unfinished: dumps of all loads that have begun, and are not finished.
    :param check: runs before each removal, and raises if the take-over must end.
    """
    step(Step.REMOVE_FILES)
    removing = Removing(policy=policy, check=check)
    layout = find_layout(client, policy)
    needed: set[str] = set()
    for entry in dump.manifest().changed_tables:
        if entry.kind.has_files:
            document = dump.table(entry.name)
            files = dump.files(entry.name, only=entry.described)
            needed.update(canonical(layout.file(document, file)) for file in files)
    removed = 0
    for other in unfinished:
        removed += _remove_orphans(client, removing, other, needed)
    for left in left_files(client, removing, _changed_tables(unfinished)):
        paths = [path for path in left.paths(RangeState.NONE) if not _is_needed(left.root, path, needed)]
        removed += removing.remove(left.root, paths)
    return removed


def release(
    source: MetastorePool, client: MetastoreClient, policy: ReplicationPolicy, *, removed: int, step: Steps
) -> TakeOverReport:
    """Let the target go, after the transactions of the source are aborted there.

    :param client: client of the target.
    :param removed: number of files that the take-over has removed.
    :raises FailoverError: the source answers.
    """
    event_id = int((client.get_database(policy.target_database).parameters or {})[markers.LAST_ID])
    missing = _missing(client, policy, event_id)
    step(Step.LET_GO)
    refuse_living(source, policy)
    let_go(client, policy)
    return TakeOverReport(
        database=policy.target_database, event_id=event_id, removed=removed, missing=missing
    )


def _missing(client: MetastoreClient, policy: ReplicationPolicy, event_id: int) -> tuple[str, ...]:
    database = policy.target_database
    try:
        missing = missing_objects(client, policy)
    except (DumpIncompleteError, DumpCorruptError) as error:
        # The dump may be lost with the source. The target itself needs it no more.
        logger.warning(
            "Killed loads may have dropped tables of target database %s: its dump of event %s, which names "
            "them, cannot be read. %s",
            database,
            event_id,
            error,
        )
        return ()
    if missing:
        logger.warning(
            "Target database %s lacks %s, which it had at event %s: killed loads have dropped them.",
            database,
            first_of(missing),
            event_id,
        )
    return tuple(missing)


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


def last_copied(dumps: Iterable[DumpDirectory]) -> DumpDirectory | None:
    """Return the last of some loads that have copied all their files; ``None`` if none has.

    An earlier one cannot be ended any more: one that has copied all may have changed the tables since.
    """
    copied = [dump for dump in dumps if is_copied(dump)]
    uris = [dump.uri for dump in copied]
    return next((dump for dump in copied if not begun_since(dump, uris)), None)


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
    *,
    later: Sequence[str],
    observer: Observer,
) -> None:
    """End a load that has copied all its files.

    :param later: URIs of dumps whose loads have begun since.
    """
    target = lock.target
    try:
        refuse_changed(dump.uri, dump.manifest(), policy)
        load_into_target(
            source,
            target,
            policy,
            dump.uri,
            run_copy=nothing_more_to_copy(target, policy, dump, later),
            observer=observer,
            check=lock.check,
            given_up=later,
            # The take-over itself aborts the transactions, after it has removed the files that wait for them.
            sweeps=False,
        )
    except SILENCE:
        # The source's read transaction could not be ended, after the target was published.
        with target.client() as client:
            if loaded_dump(client, policy) != dump.uri:
                raise
    except OvertakenError as error:
        note_not_ended(dump.uri, error)


def note_not_ended(dump: str, error: OvertakenError) -> None:
    """Log that an earlier load cannot be ended."""
    logger.warning("The load of %s stays unfinished, because of a later one: %s", dump, error)


def _digests_before(dump: DumpDirectory) -> dict[str, str]:
    """Return the digests of files without write ids that the target had before a load, by canonical URI."""
    manifest = dump.manifest()
    index = TableIndex(DumpDirectory(manifest.previous, dump.options))
    return {
        uri: digest
        for entry in manifest.changed_tables
        if entry.kind.has_files and not entry.kind.transactional and entry.name in index
        for uri, digest in index.digests(entry.name).items()
    }


def nothing_more_to_copy(
    target: MetastorePool, policy: ReplicationPolicy, dump: DumpDirectory, later: Sequence[str]
) -> CopyRunner:
    """Return :func:`nothing_to_copy` for a load, after which others may have begun.

    :param target: connections to the target.
    :param dump: the dump of the load.
    :param later: URIs of dumps whose loads have begun to copy since.
    :raises OvertakenError: the load cannot be ended any more.
    """
    since = {*later, *cleared_since(policy, dump)}
    if not since:
        return nothing_to_copy(policy.storage_options)
    with target.client() as client:
        refuse_dropped(client, policy, dump, since)
        overtaken = overtaken_files(client, policy, dump, since)
    return nothing_to_copy(policy.storage_options, overtaken, _digests_before(dump))


def nothing_to_copy(
    options: StorageOptions | None,
    overtaken: Collection[str] = (),
    before: Mapping[str, str] | None = None,
) -> CopyRunner:
    """Return a function that copies no file of a plan: a load that has copied all its files needs no more.

    A plan still lists each file without some of its rows, because a listing does not show whether the target
    has the same ones. The record of their copy does.

    :param overtaken: see :func:`.overtaken_loads.overtaken_files`. A later load may have replaced a file
        without some of its rows by one that has these rows and more.
    :param before: digests of files that the load has not copied, because the target had them, by canonical
        URI. A plan lists them if a later load was about to replace them.
    :raises OvertakenError: the function finds that a later load has dropped or replaced a file.
    :raises FailoverError: the function finds that a file is not as it was copied, for another reason.
    """

    def check(plan: str, outcomes: str) -> None:
        recorded = _recorded(outcomes, options)
        for item in read_plan(plan, options=options):
            outcome, uri = recorded.get(final_uri(item.target)), canonical(item.target)
            digest = outcome.digest if outcome else (before or {}).get(uri)
            may_grow = outcome is not None and item.visible_write_ids and uri in overtaken
            grown = may_grow and is_there(item.target, options=options)
            if not (grown or _has_digest(item.target, digest, options)):
                if uri in overtaken:
                    raise OvertakenError(f"{item.target} was dropped or replaced")
                raise FailoverError(
                    f"{item.target}, which {plan} lists, was copied, and is gone or has other bytes.",
                    remedy="Find and stop the process that changes files there; then take over again.",
                )

    return check


def _has_digest(uri: str, digest: str | None, options: StorageOptions | None) -> bool:
    """Return whether a file is as a copy has left it."""
    try:
        return digest is not None and digest_file(uri, options=options).digest == digest
    except FileVanishedError:
        return False


def _remove_orphans(
    client: MetastoreClient, removing: Removing, dump: DumpDirectory, needed: Collection[str] = ()
) -> int:
    """Remove the files that a load has copied for tables that it did not yet create.

    :param needed: canonical URIs of files that stay.
    """
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
            paths = [file.path for file in removing.listed(root) if not _is_needed(root, file.path, needed)]
            removed += removing.remove(root, paths)
    return removed


def _is_needed(root: str, path: str, needed: Collection[str]) -> bool:
    return canonical(final_uri(join(root, path))) in needed


def _remove_invisible(client: MetastoreClient, removing: Removing, changed: Collection[str]) -> int:
    """Remove files whose write ids no reader of the target sees, and files in hidden directories.

    :param changed: names of the tables into whose files a load may have copied rows that no reader sees.
    """
    removed = 0
    for left in left_files(client, removing, changed):
        removed += removing.remove(left.root, left.paths(RangeState.NONE))
        if left.table in changed:
            left.drop_invisible_rows()
        left.reserve_write_ids(client)
    return removed


def _changed_tables(dumps: Iterable[DumpDirectory]) -> set[str]:
    return {entry.name for dump in dumps for entry in dump.manifest().changed_tables}
