"""Runs one cycle of a target at a time, by a lock in the target's metastore.

A cycle holds an exclusive lock of the target's metastore, in a database that does not exist, so that it meets
no other locks. The metastore grants it in a single step, so it never grants it to two cycles.

A lock outlives a killed process. Its holder proves by heartbeats that it lives: a process that finds the lock
taken watches it for a while, and takes it over if no heartbeat came. The watcher compares heartbeats with
each other, never with its own clock, because clocks differ. (The metastore's housekeeper removes such a lock
as well, after ``hive.txn.timeout``.)

A suspended holder may wake up and continue beside its successor. Four things keep it from changing anything:

- **The age of its last heartbeat.** A holder stops 30 s after the last confirmed heartbeat; others take over
  after 45 s of silence. Every call that writes checks that age immediately before it is sent
  (:meth:`CycleLock.allow`).
- **A proof.** Before a call that publishes or drops, the metastore confirms the lock once more. A successor
  has removed it.
- **The epoch**, a number that grows with every holder, is written to the target database when the lock is
  taken, and is compared with every proof.
- **The fence of copies** (:mod:`~airflow_hive_federation.storage.fence`) is raised to the epoch, and stops
  copy jobs that were started before.

No call of a metastore writes a database's parameters, or drops a table, on the condition that a lock is held.
So one gap remains: a holder that is suspended between the proof and the sending of that one call, for longer
than 45 s, sends the call when it wakes up. That call is its last, and the holder reports
:class:`CycleLostError` after it.

Reads are not guarded. A holder that wakes up may therefore read a target that its successor has changed, and
fail because of it; it reports :class:`CycleLostError`, with that error as the cause.
"""

from __future__ import annotations

import logging
import os
import random
import re
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from airflow_hive_federation.errors import (
    CycleLostError,
    CycleRunningError,
    MetastoreError,
    NoSuchLockError,
    NoSuchObjectError,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.progress.events import LockContended, LockRemoved
from airflow_hive_federation.progress.observers import LOGGED, Observer
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.dumps_owner import claim_dumps, metastore_id
from airflow_hive_federation.storage.fence import raise_fence, read_fence, write_ticket
from airflow_hive_federation.storage.filesystem import join
from airflow_hive_federation.transactions.heartbeat import Heartbeat, Loss, transaction_timeout_s
from airflow_hive_federation.transactions.lasting_locks import BEAT_S, SILENCE_S, LastingLock, heartbeat_of
from airflow_hive_federation.waiting import boot_time_s

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool

logger = logging.getLogger(__name__)

#: Locks name this database; Hive allows no such name.
LOCK_DATABASE = "hive.federation"
_BEAT_S = BEAT_S
_LOOK_S = 1.0
#: A confirmation of the lock that is no older than this, in seconds, is proof enough for a call that only
#: adds.
_FRESH_S = 1.0
#: The metastore keeps 128 characters of the name of a lock's holder.
_LONGEST_NAME = 75
#: :class:`CycleLock` names itself in this form: a description, its process, and the set of processes among
#: which that number counts.
_AGENT = re.compile(r"(?P<words>.*, process (?P<pid>\d+)) \((?P<processes>.*)\)")
#: Calls that publish or remove begin with one of these.
_DECISIVE = ("abort_", "alter_database", "create_database", "drop_", "truncate_")


class CycleLock:
    """Holds the lock of a policy's target while the block runs.

    :param pool: connections to the target. Heartbeats have a connection of their own.
    :param silence_s: seconds without a heartbeat after which another holder counts as dead.
    :param fences: stop copy jobs of the cycles before, by the policy's fence of copies.
    :param observer: receives the waits for other holders.
    :raises CycleRunningError: another cycle is at work.
    :raises CycleLostError: the block failed, and the lock is lost. The block's error is the cause.
    :raises LocationConflictError: the policy's dumps are those of a target of another metastore.
    :raises StorageError: the fence of copies cannot be raised.
    """

    def __init__(
        self,
        pool: MetastorePool,
        policy: ReplicationPolicy,
        *,
        silence_s: float | None = None,
        fences: bool = True,
        observer: Observer = LOGGED,
    ) -> None:
        self._pool = pool
        self._policy = policy
        self._silence_s = SILENCE_S if silence_s is None else silence_s
        self._fences = fences
        self._observer = observer
        self._agent = f"policy {policy.name[:_LONGEST_NAME]}, process {os.getpid()} ({_processes()})"
        self._id = 0
        self._epoch = 0
        self._heart: Heartbeat | None = None

    @property
    def epoch(self) -> int:
        """Return the number of this cycle: higher than those of all earlier holders of the lock."""
        return self._epoch

    @property
    def target(self) -> MetastorePool:
        """Return the pool, whose writing calls pass through :meth:`allow` first."""
        return self._pool.guarded(self.allow)

    def __enter__(self) -> Self:
        with self._pool.client() as client:
            timeout_s = transaction_timeout_s(client)
            asked_s = boot_time_s()
            while not self._take(client):
                self._bury(client)
                asked_s = boot_time_s()
        self._heart = heartbeat_of(
            self._pool.settings,
            self._id,
            name=f"lock {self._id} of {self._policy.target_database}",
            since_s=asked_s,
            timeout_s=timeout_s,
            beat_s=_BEAT_S,
            clock=boot_time_s,
        ).start()
        try:
            self._claim()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        heart, self._heart = self._heart, None
        loss: Loss | None = None
        if heart is not None:
            if isinstance(error, Exception) and not isinstance(error, CycleLostError):
                # A holder that was suspended meets its successor's target and reports something else.
                heart.send()
                loss = heart.loss
            heart.stop()
        try:
            with self._pool.client() as client:
                client.unlock(self._id)
        except MetastoreError as failed:
            # The block's own error matters more, and without heartbeats the lock does not last.
            logger.warning("The lock of %s was not released: %s", self._policy.target_database, failed)
        if loss is not None:
            raise self._lost(loss.reason.value, loss.description) from error

    def check(self) -> None:
        """Make sure that this cycle still holds the lock, by the age of its last heartbeat or by a call.

        :raises CycleLostError: it was taken over, or no heartbeat was confirmed for too long.
        """
        self._refuse(self._held.prove(fresh_s=_FRESH_S))

    def prove(self) -> None:
        """Have the metastore confirm that this cycle holds the lock, and that the target's epoch is its own.

        :raises CycleLostError: it was taken over, or no heartbeat was confirmed for too long.
        """
        heart = self._held
        self._refuse(heart.prove())
        with heart.client() as client:
            epoch = self._write_epoch(client)
        if epoch > self._epoch:
            heart.give_up(
                CycleLostError(
                    f"the target is at epoch {epoch}, this cycle is of epoch {self._epoch}",
                    policy=self._policy.name,
                    holder="",
                )
            )
        self._refuse(heart.loss)

    def allow(self, method: str) -> None:
        """Make sure that a call of the metastore may be sent now; see :meth:`MetastoreClient.guarded`.

        :raises CycleLostError: the lock is lost.
        """
        if method.startswith(_DECISIVE):
            self.prove()
        else:
            self.check()

    def write_ticket(self, plans: str) -> None:
        """Have the copy job of a plan stop when another cycle begins.

        :param plans: URI of the plan's directory.
        """
        write_ticket(plans, self._fence_uri, self._epoch, self._policy.storage_options)

    @property
    def _held(self) -> Heartbeat:
        if self._heart is None:
            raise self._lost("released", "it was released, and something went on")
        return self._heart

    @property
    def _fence_uri(self) -> str:
        # Each target has a fence of its own, for a policy that had another target before.
        return join(self._policy.directory, "_fences", quote(self._policy.target_database, safe=""))

    def _refuse(self, loss: Loss | None) -> None:
        if loss is not None:
            raise self._lost(loss.reason.value, loss.description) from loss.cause

    def _lost(self, reason: str, explanation: str) -> CycleLostError:
        return CycleLostError(
            f"This cycle of policy {self._policy.name!r} has lost its lock of target database "
            f"{self._policy.target_database}: {explanation}.",
            remedy="Run it again; if it was stopped on purpose, another one has taken its place.",
            policy=self._policy.name,
            holder="",
            reason=reason,
        )

    def _claim(self) -> None:
        """Give this cycle its number, and write the number to the target database and the fence."""
        options = self._policy.storage_options
        heart = self._held
        fence = 0
        if self._fences:
            with heart.client() as client:
                metastore = metastore_id(client)
            claim_dumps(metastore, self._policy)
            fence = read_fence(self._fence_uri, options)
        with heart.client() as client:
            # Ids of locks grow, unless the metastore is made anew.
            self._epoch = max(self._id, self._read_epoch(client) + 1, fence + 1)
        self.prove()
        if self._fences:
            raise_fence(self._fence_uri, self._epoch, options)

    def _read_epoch(self, client: MetastoreClient) -> int:
        try:
            parameters = client.get_database(self._policy.target_database).parameters or {}
        except NoSuchObjectError:
            return 0
        return int(parameters.get(markers.EPOCH, 0))

    def _write_epoch(self, client: MetastoreClient) -> int:
        """Raise the epoch in the policy's database to this cycle's, and return the epoch that was found.

        A lower epoch is found by a cycle that has made or adopted the database, or whose predecessor was
        suspended in the middle of a call that wrote all parameters.
        """
        try:
            database = client.get_database(self._policy.target_database)
        except NoSuchObjectError:
            return 0
        parameters = database.parameters or {}
        epoch = int(parameters.get(markers.EPOCH, 0))
        if epoch < self._epoch and parameters.get(markers.POLICY) == self._policy.name:
            database.parameters = {**parameters, markers.EPOCH: str(self._epoch)}
            with client.guarded(lambda _: self._refuse(self._held.loss)):
                client.alter_database(self._policy.target_database, database)
        return epoch

    def _take(self, client: MetastoreClient) -> bool:
        lock_id = _lock(self._policy.target_database).take(client, agent_info=self._agent)
        if lock_id is None:
            return False
        self._id = lock_id
        return True

    def _bury(self, client: MetastoreClient) -> None:
        """Return when the lock may be free, or when its holder is dead and the lock removed.

        :raises CycleRunningError: the holder lives.
        """
        lock = _lock(self._policy.target_database).in_the_way(client)
        found_s = boot_time_s()
        if lock is None:
            # Another cycle requested the lock at the same moment, and both took their requests back. A random
            # pause keeps them out of step.
            time.sleep(random.SystemRandom().uniform(0.0, _LOOK_S))
            return
        database = self._policy.target_database
        self._observer(LockContended(database=database, holder=described(lock)))
        patience_s = self._patience_s(lock)
        looked_s = found_s
        # The last look comes after the wait is over, because this process may have been suspended, too. The
        # last call of a poll policy begins at the timeout, or before it.
        while looked_s - found_s < patience_s:
            time.sleep(_LOOK_S)
            looked_s = boot_time_s()
            current = _lock(database).in_the_way(client)
            if current is None or (
                current.lockid != lock.lockid and current.state == types.LockState.WAITING
            ):
                return
            if (current.lockid, current.lastheartbeat) != (lock.lockid, lock.lastheartbeat):
                raise CycleRunningError(
                    f"Another cycle works on target database {database}: {described(current)}.",
                    remedy="Let it end; then run this one again.",
                    policy=self._policy.name,
                    holder=described(current),
                )
        self._observer(LockRemoved(database=database, holder=described(lock)))
        try:
            client.unlock(lock.lockid)
        except NoSuchLockError:
            logger.info("Somebody else has removed lock %d", lock.lockid)

    def _patience_s(self, lock: types.ShowLocksResponseElement) -> float:
        # Even a process that is known to be gone gets the time of some heartbeats: its last call may be on
        # its way.
        return min(self._silence_s, 3 * _BEAT_S) if _is_dead_here(lock) else self._silence_s


def holder_of(client: MetastoreClient, target_database: str) -> types.ShowLocksResponseElement | None:
    """Return the lock that a cycle of a target holds (wire ``ShowLocksResponseElement``), or ``None``."""
    lock = _lock(target_database).in_the_way(client)
    return lock if lock is not None and lock.state == types.LockState.ACQUIRED else None


def described(lock: types.ShowLocksResponseElement) -> str:
    """Return a description of a lock's holder."""
    agent = _AGENT.fullmatch(str(lock.agentInfo))
    return f"{agent['words'] if agent else lock.agentInfo} of {lock.user} on {lock.hostname}"


def _lock(target_database: str) -> LastingLock:
    return LastingLock(database=LOCK_DATABASE, name=target_database)


@cache
def _processes() -> str:
    """Return the boot and the PID namespace in which this process has its number.

    Containers may share a host's name and not its processes. The result is empty if the system does not
    report these names.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        return f"{boot[:8]} {Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _is_dead_here(lock: types.ShowLocksResponseElement) -> bool:
    """Return whether the holder ran among the processes that this one sees, and has ended."""
    agent = _AGENT.fullmatch(str(lock.agentInfo))
    if agent is None or not _processes() or agent["processes"] != _processes():
        return False
    try:
        os.kill(int(agent["pid"]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
