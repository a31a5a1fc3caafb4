"""Taking over from a source that is lost: the target is let go as far as it has got.

A load replays the source's transactions in their order, and each in all its tables at once. So whatever was
interrupted, a target shows the transactions of its source up to one of them: none is there in part, none is
there without those before. Two things are to be done before it may be written:

1. a load that had copied all its files needs no source any more: it is ended;
2. files that wait for transactions which will never be replayed are removed: a writer of the target would
   soon be given their write ids.

External and other tables without transactions have no such order: they are as far as they were copied.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.acid.names import is_acid_directory, parse_directory
from airflow_hive_federation.errors import FailoverError, NoSuchObjectError
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.replication.failover import SILENCE, let_go
from airflow_hive_federation.replication.format.directory import DumpDirectory, table_file
from airflow_hive_federation.replication.format.kinds import TableKind, TableWork
from airflow_hive_federation.replication.format.unfinished import COPY_PLAN, unfinished_loads
from airflow_hive_federation.replication.load.increment import load_increment
from airflow_hive_federation.replication.load.replay import Replay
from airflow_hive_federation.replication.metadata.definitions import table_kind
from airflow_hive_federation.replication.metadata.write_ids import readable_write_ids, valid_transactions
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.policy_changes import refuse_changed
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.cycle_lock import CycleLock
from airflow_hive_federation.replication.replica.database import find_layout
from airflow_hive_federation.replication.replica.layout import STAGE
from airflow_hive_federation.replication.replica.position import loaded_dump
from airflow_hive_federation.storage.filesystem import join, open_filesystem, storage_errors
from airflow_hive_federation.storage.listing import list_many
from airflow_hive_federation.storage.plan_files import read_outcomes, read_plan
from airflow_hive_federation.storage.publishing import remove_file

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TakeOverReport:
    """What a take-over has come to.

    :param database: the database of the former target, which may be written now.
    :param event_id: last event of the lost source that it has.
    :param removed: files removed that waited for transactions which were never replayed.
    """

    database: str
    event_id: int
    removed: int

    @property
    def word(self) -> str:
        """It in a sentence."""
        return (
            f"Taken over without its source: {self.database} may be written. It has the source's events up "
            f"to {self.event_id}; what the source did after is lost with it."
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "converged": False,
            "database": self.database,
            "event_id": self.event_id,
            "removed": self.removed,
            "word": self.word,
        }


def take_over(
    source: MetastorePool,
    target: MetastorePool,
    policy: ReplicationPolicy,
    *,
    progress: Callable[[str], None] = logger.info,
    on_step: Callable[[str], None] = lambda _: None,
) -> TakeOverReport:
    """Let a target go whose source does not answer. Killed anywhere, it is run again and goes on.

    :param source: connections to the source, which is asked whether it is there.
    :param target: connections to the target.
    :param on_step: told each step before it is taken; tests kill there.
    :raises FailoverError: the source answers, whether it has the database or not.
    :raises ConfigurationError: a load is to be ended, and the policy has changed since its dump was written.
    :raises TargetNotOursError: the target is not the policy's, or was never published.
    :raises CycleRunningError: a cycle works on the target.
    """
    _refuse_living(source, policy)
    with CycleLock(target, policy, progress=progress) as lock:
        with target.client() as client:
            unfinished = list(unfinished_loads(policy, loaded_dump(client, policy)))
        for dump in unfinished:
            if _is_copied(dump):
                on_step("end load")
                _end_load(source, lock, policy, dump, progress)
        with lock.target.client() as client:
            on_step("remove files")
            removing = _Removing(policy=policy, check=lock.check)
            removed = sum(_remove_orphans(client, removing, dump) for dump in unfinished)
            removed += _remove_invisible(client, removing)
            on_step("abort")
            Replay(client, policy).sweep(())
            event_id = int((client.get_database(policy.target_database).parameters or {})[markers.LAST_ID])
            on_step("let go")
            # Removing took its time: a source that has come back may be written.
            _refuse_living(source, policy)
            let_go(client, policy)
            lock.prove()
    report = TakeOverReport(database=policy.target_database, event_id=event_id, removed=removed)
    progress(report.word)
    return report


def _refuse_living(source: MetastorePool, policy: ReplicationPolicy) -> None:
    database = policy.source_database
    try:
        with source.client() as client:
            client.get_database(database)
    except SILENCE:
        return
    except NoSuchObjectError as error:
        # Another metastore answers, or the policy names another database: nothing tells that it is lost.
        raise FailoverError(
            f"The source of policy {policy.name!r} answers, but has no database {database}.",
            remedy="Check the connection to the source, and the name. If the database is gone for good, stop "
            "that metastore, or have the connection lead nowhere, and take over again.",
        ) from error
    raise FailoverError(
        f"The source of policy {policy.name!r} answers, and has database {database}.",
        remedy="Fail over as planned, which loses nothing; or stop that metastore.",
    )


def _is_copied(dump: DumpDirectory) -> bool:
    outcomes = read_outcomes(f"{dump.uri}/load/outcomes", options=dump.options)
    plan = read_plan(f"{dump.uri}/{COPY_PLAN}", options=dump.options)
    return all(item.target in outcomes for item in plan)


def _end_load(
    source: MetastorePool,
    lock: CycleLock,
    policy: ReplicationPolicy,
    dump: DumpDirectory,
    progress: Callable[[str], None],
) -> None:
    target, manifest = lock.target, dump.manifest()
    with target.client() as client:
        if loaded_dump(client, policy) != manifest["previous"]:
            return  # another of them has been ended
    refuse_changed(dump.uri, manifest, policy)
    try:
        load_increment(
            source,
            target,
            policy,
            dump.uri,
            run_copy=_nothing_to_copy,
            progress=progress,
            on_step=lambda _: lock.check(),
            check=lock.check,
        )
    except SILENCE:
        # The source's read transaction could not be ended, after the target was published.
        with target.client() as client:
            if loaded_dump(client, policy) != dump.uri:
                raise


def _nothing_to_copy(plan: str, _outcomes: str) -> None:
    raise FailoverError(
        f"Files that {plan} lists were copied, and are gone from the target.",
        remedy="Find who removes files there; then take over again.",
    )


@dataclass(frozen=True, kw_only=True)
class _Removing:
    """What removals have in common.

    :param check: is called before each file; raises if the cycle must end.
    """

    policy: ReplicationPolicy
    check: Callable[[], None]


def _remove_orphans(client: MetastoreClient, removing: _Removing, dump: DumpDirectory) -> int:
    """Remove what a load has copied for tables that it did not come to create."""
    policy = removing.policy
    layout, removed = find_layout(client, policy), 0
    there = set(client.list_tables(policy.target_database))
    for facts in dump.manifest()["tables"]:
        kind = TableKind(facts["kind"])
        # A table that was there before the load is not taken for an orphan because it is not listed now.
        made = facts["work"] in {TableWork.CREATE.value, TableWork.REPLACE.value}
        if facts["name"] in there or not made or not kind.has_files:
            continue
        if kind is not TableKind.EXTERNAL:
            document = dump.read_json(table_file("tables", facts["name"], ".json"))
            root = layout.directory(document, document["table"]["sd"]["location"], "")
            removed += _remove(removing, root, lambda _: True)
    return removed


def _remove_invisible(client: MetastoreClient, removing: _Removing) -> int:
    """Remove files of write ids that no reader of the target sees, and what waits in hidden places."""
    policy = removing.policy
    database = policy.target_database
    tables: list[Any] = list(client.get_tables(database, client.list_tables(database)))
    ours = [one for one in tables if table_kind(one).transactional and policy.replicates(one.tableName)]
    write_ids = readable_write_ids(client, ours, valid_transactions(client.get_open_txns()))
    return sum(
        _remove(removing, table.sd.location, invisible_to(write_ids[table.tableName]))
        for table in ours
        if table.tableName in write_ids
    )


def invisible_to(write_ids: ValidWriteIds) -> Callable[[str], bool]:
    """Make the test of whether no reader sees a file, by its path below the table's directory."""

    def invisible(path: str) -> bool:
        parts = path.split("/")
        if STAGE in parts:
            return True
        names = [parse_directory(part) for part in parts[:-1] if is_acid_directory(part)]
        return any(
            one.max_write_id > write_ids.high_watermark
            or write_ids.has_open(one.min_write_id, one.max_write_id)
            for one in names
        )

    return invisible


def _remove(removing: _Removing, root: str, unwanted: Callable[[str], bool]) -> int:
    """Remove files below a directory, and the directories that are empty then; return how many files."""
    policy = removing.policy
    listing = list_many([root], options=policy.storage_options, missing_ok=True)
    paths = [entry.path for entries in listing.values() for entry in entries if unwanted(entry.path)]
    for path in paths:
        removing.check()
        remove_file(join(root, path), policy.storage_options)
    for directory in sorted({posixpath.dirname(path) for path in paths} - {""}, reverse=True):
        removing.check()
        filesystem, known_as = open_filesystem(join(root, directory), policy.storage_options)
        with storage_errors(join(root, directory)):
            # (Object stores have no directories.)
            if filesystem.exists(known_as) and not filesystem.ls(known_as, detail=False):
                filesystem.rmdir(known_as)
    return len(paths)
