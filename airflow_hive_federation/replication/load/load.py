"""Loads a dump into the target.

The load has these steps, in this order; each can be killed and repeated:

1. Foreign writes to the target are looked for: the load continues only if it finds none (see :mod:`.survey`).
2. Tables and partitions whose names or directories now stand for others are dropped.
3. Files are copied. Files that readers could see too early wait in hidden places (see :mod:`.copying`).
   Meanwhile, the source's transactions are opened on the target, existing transactional tables get their
   write ids, and those that keep their shape lose the statistics of their rows: readers see nothing of it,
   however long the copy takes to succeed.
4. Functions and tables get their new shape, and new tables their write ids. Before that, the remains of
   killed loads and compactions leave the directories of new tables and partitions (see :mod:`.remains`).
5. The transactions end in the source's order: with each, its rows become visible, in all tables at once (see
   :mod:`.replay`). Consecutive transactions that wrote to different tables are one (see :mod:`.merging`).
6. Partitions, tables and files that the source no longer has are dropped.
7. Statistics are written, dangling transactions are aborted, and compactions are requested (see
   :mod:`.target_compactions`).
8. ``repl.last.id`` moves, which publishes the load.

A bootstrap is the same load into a target that has nothing yet (see :mod:`.first_load`). Its tables are
created with all that they have, so steps 5 to 7 are left out.

Only the last step marks the dump as loaded, and every step reads from the target the work that remains.

A file of the source that is gone makes the dump out of date: the same load finds it gone again, and only
another dump lists the present files. A file of the target that is gone is copied again by the same load.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import DumpIncompleteError, FileVanishedError
from airflow_hive_federation.progress.events import Published
from airflow_hive_federation.progress.kinds import Step
from airflow_hive_federation.progress.observers import LOGGED, Observer, Steps
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.manifest import FinishedLoad
from airflow_hive_federation.replication.load.first_load import FirstLoad
from airflow_hive_federation.replication.load.replay import OpenedTransactions
from airflow_hive_federation.replication.load.stages import Stage, StagedLoad, to_end
from airflow_hive_federation.replication.load.summary import CopyRunner, LoadSummary
from airflow_hive_federation.replication.load.target_load import TargetLoad
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.transactions.lease import LeaseKeeper, end_lease

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastorePool


def load_into_target(
    source: MetastorePool,
    target_pool: MetastorePool,
    policy: ReplicationPolicy,
    dump: str,
    *,
    run_copy: CopyRunner,
    threads: int = 4,
    observer: Observer = LOGGED,
    check: Callable[[], None] = lambda: None,
    given_up: Collection[str] = (),
    sweeps: bool = True,
) -> LoadSummary:
    """Load a finished dump; one that was published already changes nothing.

    :param source: connections to the source: its cleaner is held back while files are copied.
    :param target_pool: connections to the target.
    :param dump: URI of the dump, of a bootstrap or an increment.
    :param run_copy: carries out a copy plan (URI of the plan, URI of the directory for outcomes).
    :param threads: number of tables that a bootstrap creates in parallel.
    :param observer: receives the events of progress.
    :param check: runs before each step and before each file is moved or removed, and raises if the cycle
        must end.
    :param given_up: URIs of dumps whose loads have begun since this dump was made. No file of theirs may be
        in the way.
    :param sweeps: abort dangling transactions. Files of killed loads may wait for these: a take-over removes
        all such files before it aborts any transaction.
    :raises DumpIncompleteError: the dump is not finished, or the source has removed files it lists.
    :raises FileVanishedError: a file that was copied is gone from the target.
    :raises DumpCorruptError: the dump is not as it was written.
    :raises TargetNotOursError: the target database is not this policy's.
    :raises TargetChangedError: the target stands at another event, somebody wrote to it, a table of it is
        not the policy's, or rows would show twice after compactions of both sides.
    :raises CompactionRunningError: a compaction of the target is in the way of one of the source, or of a
        table or partition that was dropped and is made anew.
    :raises LocationConflictError: tables would share or nest directories of the target.
    :raises HiddenLocationError: Hive would hide tables of the target.
    """
    return to_end(
        staged_load(
            source,
            target_pool,
            policy,
            dump,
            run_copy=run_copy,
            threads=threads,
            observer=observer,
            check=check,
            given_up=given_up,
            sweeps=sweeps,
        )
    )


def staged_load(
    source: MetastorePool,
    target_pool: MetastorePool,
    policy: ReplicationPolicy,
    dump: str,
    *,
    run_copy: CopyRunner,
    threads: int = 4,
    observer: Observer = LOGGED,
    check: Callable[[], None] = lambda: None,
    opened: OpenedTransactions | None = None,
    given_up: Collection[str] = (),
    sweeps: bool = True,
) -> StagedLoad:
    """Load a dump as :func:`load_into_target` does, and pause at each stage.

    :param opened: the transactions of the policy's group. The group ends them between the stages
        ``ALLOCATED`` and ``PREPARED``, and aborts dangling ones after that.
    :param given_up: see :func:`load_into_target`.
    :param sweeps: see :func:`load_into_target`.
    """
    directory = DumpDirectory(dump, policy.storage_options)
    step = Steps(observer, policy.target_database, check)
    kind = TargetLoad if directory.manifest().is_increment else FirstLoad
    with target_pool.client() as client:
        load = kind(
            client,
            policy,
            directory,
            pool=target_pool,
            threads=threads,
            observer=observer,
            step=step,
            check=check,
            opened=opened,
            given_up=given_up,
        )
        published_id = load.published_event()
        if published_id is None:
            current = _of_present_files(run_copy, directory)
            in_group = opened is not None
            yield from _carry_out(load, source, current, in_group=in_group, sweeps=sweeps and not in_group)
        else:
            observer(Published(database=policy.target_database, event_id=published_id, earlier=True))
    # The source's cleaner may go on, also if an earlier run published the dump.
    step(Step.END_LEASE)
    end_lease(source, load.lease)
    summary = load.summary()
    directory.finish_load(FinishedLoad(database=summary.database, event_id=summary.event_id))
    return summary


def _carry_out(
    load: TargetLoad, source: MetastorePool, run_copy: CopyRunner, *, in_group: bool, sweeps: bool
) -> Iterator[Stage]:
    load.check_dump()
    load.claim_places()
    with LeaseKeeper(source, load.lease):
        load.survey()
        yield Stage.SURVEYED
        load.make_room()
        load.copy(run_copy)
    yield Stage.COPIED
    load.shape()
    if load.is_increment:
        load.allocate()
        load.keep_compactions_away()
        yield Stage.ALLOCATED
        if not in_group:
            load.end_transactions()
        load.keep_compactions_away()
        load.drop()
        load.describe()
        if sweeps:
            load.sweep()
    load.note_files()
    load.request_compactions()
    yield Stage.PREPARED
    load.publish()


def _of_present_files(run_copy: CopyRunner, directory: DumpDirectory) -> CopyRunner:
    """Return the copy job, which alone reads files of the source, with the error of an outdated dump."""

    def run(plan: str, outcomes: str) -> None:
        try:
            run_copy(plan, outcomes)
        except FileVanishedError as error:
            raise _out_of_date(directory, error) from error

    return run


def _out_of_date(directory: DumpDirectory, error: FileVanishedError) -> DumpIncompleteError:
    again = (
        "Begin a new cycle: it dumps anew from where the target stands"
        if directory.manifest().is_increment
        else "Begin again with the drain and the dump"
    )
    return DumpIncompleteError(
        f"Dump {directory.uri} is out of date: {error.message}",
        remedy=f"{again} (in Airflow: run the DAG, or clear its first task). Files that were copied are not "
        "copied again. If the file is in its place, a machine of the job does not see it, for want of a "
        "mount for instance: mend that, and load again.",
        dump=directory.uri,
        path=error.facts.get("path"),
    )
