"""One cycle of a target at a time.

A cycle holds an exclusive lock of the target's metastore, in a database that does not exist, so that nobody
else's locks meet it. Taking it is one step of the metastore's own, which two cycles cannot both get through.

A lock outlives a process that is killed. Its holder shows by heartbeats that it lives: who finds the lock
taken looks on for a while, and takes it over if none came. Only changes of the heartbeat's time are looked
at, never the time itself, for clocks differ. (The metastore's housekeeper removes such a lock as well, after
``hive.txn.timeout``.)
"""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from airflow_hive_federation.errors import CycleRunningError, MetastoreError, NoSuchLockError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.policy import ReplicationPolicy

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool

logger = logging.getLogger(__name__)

#: The database that locks are named after; Hive allows no such name.
LOCK_DATABASE = "hive.federation"
_BEAT_S = 5.0
#: A holder that has given no sign for this long is dead.
_SILENCE_S = 45.0
_LOOK_S = 1.0


class CycleLock:
    """Holds the lock of a policy's target while the block runs.

    :param pool: connections to the target, two at least.
    :param silence_s: seconds without a heartbeat after which a holder counts as dead.
    :param progress: told when somebody is waited for.
    :raises CycleRunningError: another cycle is at work.
    """

    def __init__(
        self,
        pool: MetastorePool,
        policy: ReplicationPolicy,
        *,
        silence_s: float = _SILENCE_S,
        progress: Callable[[str], None] = logger.info,
    ) -> None:
        self._pool = pool
        self._policy = policy
        self._silence_s = silence_s
        self._progress = progress
        self._agent = f"policy {policy.name}, process {os.getpid()}"
        self._id = 0
        self._lost = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="cycle-lock", daemon=True)

    def __enter__(self) -> Self:
        with self._pool.client() as client:
            while not self._take(client):
                self._bury(client)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()
        try:
            with self._pool.client() as client:
                client.unlock(self._id)
        except MetastoreError as failed:
            # The block's own error is the news; without heartbeats the lock does not last.
            logger.warning("The lock of %s was not released: %s", self._policy.target_database, failed)

    def check(self) -> None:
        """Make sure that the lock is still ours.

        :raises CycleRunningError: it was taken over: this process had given no sign for too long.
        """
        if self._lost:
            raise CycleRunningError(
                f"This cycle of policy {self._policy.name!r} has lost its lock of target database "
                f"{self._policy.target_database}: it had not been heard of for a while.",
                remedy="Run it again; if it was stopped on purpose, another one has taken its place.",
                policy=self._policy.name,
                holder="",
            )

    def _take(self, client: MetastoreClient) -> bool:
        component = types.LockComponent(
            type=types.LockType.EXCLUSIVE,
            level=types.LockLevel.TABLE,
            dbname=LOCK_DATABASE,
            tablename=self._policy.target_database,
            operationType=types.DataOperationType.NO_TXN,
            isTransactional=False,
        )
        answer: Any = client.lock([component], agent_info=self._agent)
        if answer.state == types.LockState.ACQUIRED:
            self._id = answer.lockid
            return True
        client.unlock(answer.lockid)
        return False

    def _bury(self, client: MetastoreClient) -> None:
        """Return when the lock may be free, or who had it is dead and the lock removed.

        :raises CycleRunningError: the holder lives.
        """
        seen = _in_the_way(client, self._policy.target_database)
        if seen is None:
            # Another asked at the same moment and took its request back, as we did. Not in step again.
            time.sleep(random.SystemRandom().uniform(0.0, _LOOK_S))
            return
        self._progress(
            f"{self._policy.target_database} is locked by {described(seen)}; looking whether it lives."
        )
        database = self._policy.target_database
        began = time.monotonic()
        while time.monotonic() - began < self._patience_s(seen):
            time.sleep(_LOOK_S)
            now = _in_the_way(client, database)
            if now is None or (now.lockid != seen.lockid and now.state == types.LockState.WAITING):
                return
            if (now.lockid, now.lastheartbeat) != (seen.lockid, seen.lastheartbeat):
                raise CycleRunningError(
                    f"Another cycle works on target database {database}: {described(now)}.",
                    remedy="Let it end; then run this one again.",
                    policy=self._policy.name,
                    holder=described(now),
                )
        self._progress(f"{described(seen)} is dead: its lock is removed.")
        try:
            client.unlock(seen.lockid)
        except NoSuchLockError:
            logger.info("Somebody else has removed lock %d", seen.lockid)

    def _patience_s(self, lock: Any) -> float:
        # Three heartbeats, not none: containers may share a host's name and not its processes.
        return min(self._silence_s, 3 * _BEAT_S) if _is_dead_here(lock) else self._silence_s

    def _beat(self) -> None:
        request = types.HeartbeatRequest(lockid=self._id)
        while not self._stopped.wait(_BEAT_S):
            try:
                with self._pool.client() as client:
                    client.call("heartbeat", request)
            except NoSuchLockError:
                self._lost = True
                return
            except MetastoreError as error:
                logger.warning("Heartbeat of the lock of %s failed: %s", self._policy.target_database, error)


def holder_of(client: MetastoreClient, target_database: str) -> Any:
    """The lock that a cycle of a target holds (wire ``ShowLocksResponseElement``), or ``None``."""
    found = _in_the_way(client, target_database)
    return found if found is not None and found.state == types.LockState.ACQUIRED else None


def described(lock: Any) -> str:
    """A holder in words."""
    return f"{lock.agentInfo} of {lock.user} on {lock.hostname}"


def _in_the_way(client: MetastoreClient, target_database: str) -> Any:
    """The lock that keeps others out: its holder's; else the first that waits.

    Who waits for an instant only: it takes its request back, or, killed meanwhile, leaves it, and a lock that
    waits keeps later ones out as one that is held does.
    """
    locks = [one for one in client.show_locks(database=LOCK_DATABASE) if one.tablename == target_database]
    return min(locks, key=lambda one: (one.state != types.LockState.ACQUIRED, one.lockid), default=None)


def _is_dead_here(lock: Any) -> bool:
    """Whether the holder was, as it seems, a process of this machine that is no more."""
    agent, _, pid = str(lock.agentInfo).rpartition(" ")
    if lock.hostname != socket.gethostname() or not agent.endswith("process") or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
