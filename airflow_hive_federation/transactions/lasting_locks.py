"""Locks of processes that may hold them for hours, and that show by heartbeats that they live.

A lock outlives a killed process. A process that finds the lock taken compares the holder's heartbeats with
each other, never with its own clock, because clocks differ. It takes the lock over after :data:`SILENCE_S`
without one. A holder considers its lock lost sooner, :data:`LOST_AFTER_S` after the last confirmed heartbeat,
so that one that was suspended stops before others go on. (A metastore that does housekeeping removes such a
lock as well, after ``hive.txn.timeout``.)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from airflow_hive_federation.errors import NoSuchLockError
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.transactions.heartbeat import Heartbeat
from airflow_hive_federation.waiting import boot_time_s

#: Seconds between two heartbeats.
BEAT_S = 5.0
#: A holder whose last confirmed heartbeat is older than this, in seconds, considers the lock lost.
LOST_AFTER_S = 30.0
#: Others take a holder for dead after this many seconds without a heartbeat.
SILENCE_S = 45.0


@dataclass(frozen=True, kw_only=True)
class LastingLock:
    """An exclusive lock on a name.

    :param database: a name that Hive does not allow, so that the lock meets no others.
    :param name: the name within it; the databases of some metastores keep 128 characters.
    """

    database: str
    name: str

    def take(self, client: MetastoreClient, *, agent_info: str | None = None) -> int | None:
        """Request the lock; return its id, or ``None`` if another process has it.

        :param agent_info: a description of the process, for those who find the lock taken.
        """
        component = types.LockComponent(
            type=types.LockType.EXCLUSIVE,
            level=types.LockLevel.TABLE,
            dbname=self.database,
            tablename=self.name,
            operationType=types.DataOperationType.NO_TXN,
            isTransactional=False,
        )
        answer = client.lock([component], agent_info=agent_info)
        lock_id = int(answer.lockid or 0)
        if answer.state == types.LockState.ACQUIRED:
            return lock_id
        # A request that waits would keep others out like a held lock if this process were killed. Another one
        # may have removed it as the remains of a killed process.
        with suppress(NoSuchLockError):
            client.unlock(lock_id)
        return None

    def in_the_way(self, client: MetastoreClient) -> types.ShowLocksResponseElement | None:
        """Return the holder's lock, or else the first request that waits; ``None`` if there is none.

        A request waits only for an instant, until its process takes it back. If that process is killed
        meanwhile, the request stays, and keeps later ones out.
        """
        locks = [lock for lock in client.show_locks(database=self.database) if lock.tablename == self.name]
        return min(
            locks, key=lambda lock: (lock.state != types.LockState.ACQUIRED, lock.lockid or 0), default=None
        )


def heartbeat_of(
    settings: MetastoreSettings,
    lock_id: int,
    *,
    name: str,
    since_s: float,
    timeout_s: float,
    beat_s: float = BEAT_S,
    clock: Callable[[], float] = boot_time_s,
) -> Heartbeat:
    """Return the heartbeat of a lock that was taken, which is not started yet.

    :param settings: the metastore's; the heartbeat has a connection of its own.
    :param name: names the lock in messages.
    :param since_s: time by the clock before the lock was requested.
    :param timeout_s: seconds after which the metastore removes a lock without heartbeats.
    """
    silence_s = min(LOST_AFTER_S, timeout_s / 2)

    def beat(client: MetastoreClient) -> None:
        client.call("heartbeat", types.HeartbeatRequest(lockid=lock_id))

    return Heartbeat(
        settings,
        beat,
        name=name,
        interval_s=min(beat_s, silence_s / 4),
        silence_s=silence_s,
        since_s=since_s,
        clock=clock,
    )
