"""Takes a snapshot of tables, and keeps their files until a transaction ends, whatever the cleaner waits for.

Files are kept before the snapshot is taken. A table that was created in between is not kept, and where the
cleaner waits for locks (Hive 3.1), nor is a partition that was added in between: its deltas could be
compacted with later ones, and be removed while the snapshot still needs them. So the tables and partitions
are listed once more after the snapshot. If there are new ones, they are kept, and another snapshot is taken.
Tables and partitions of a later moment have no visible rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from airflow_hive_federation.errors import LockTimeoutError
from airflow_hive_federation.metastore import MetastoreClient

T = TypeVar("T")

#: Snapshots that are taken because tables or partitions came in between, before the attempt is given up.
_ATTEMPTS = 20


class KeptFiles:
    """Keeps the files of tables for one transaction.

    :param client: client of the metastore that owns the tables.
    :param txn_id: the open transaction.
    """

    def __init__(self, client: MetastoreClient, txn_id: int) -> None:
        self._client = client
        self._txn_id = txn_id
        self._registered: set[str] = set()
        self._locked: frozenset[str] | None = frozenset()

    def take(self, tables: Callable[[], Sequence[str]], snapshot: Callable[[], T]) -> T:
        """Keep the files of tables, and take a snapshot of them.

        :param tables: returns ``database.table`` names; it is called again if the tables may have changed.
        :param snapshot: takes the snapshot; it may be called several times, and the last result counts.
        :raises LockTimeoutError: if tables or partitions are added faster than they can be kept.
        """
        self._keep(tables())
        for _ in range(_ATTEMPTS):
            before = self._kept
            taken = snapshot()
            self._keep(tables())
            if self._kept == before:
                return taken
        raise LockTimeoutError(
            f"Tables or partitions are added faster than transaction {self._txn_id} can keep them: each of "
            f"{_ATTEMPTS} snapshots was out of date.",
            remedy="Run it again while fewer of them are added.",
            txn_id=self._txn_id,
        )

    @property
    def _kept(self) -> frozenset[str]:
        # Where the cleaner waits for locks, tables without any need none.
        return frozenset(self._registered) if self._locked is None else self._locked

    def _keep(self, tables: Sequence[str]) -> None:
        if self._locked is not None:
            self._locked = self._client.keep_history(self._txn_id, tables, locked=self._locked)
            self._registered |= set(tables)
            return
        missing = sorted(set(tables) - self._registered)
        if missing:
            self._client.keep_history(self._txn_id, missing)
            self._registered |= set(missing)
