"""Sends heartbeats for all open transactions of a batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from airflow_hive_federation.errors import TransactionAbortedError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.transactions.heartbeat import SILENCE_SHARE, Heartbeat, Loss


class Heartbeats:
    """Keeps transactions alive until :meth:`stop`, over a connection of its own.

    If the metastore has confirmed no heartbeat for so long that it may abort the transactions soon, all open
    ones count as lost.

    :param interval_s: seconds between two heartbeats; half of ``hive.txn.timeout``.
    :param silence_s: seconds without a confirmed heartbeat after which the transactions count as lost; less
        than ``hive.txn.timeout``.
    :param since_s: time (:func:`~airflow_hive_federation.waiting.boot_time_s`) before they were opened.
    :param on_lost: receives the ids of lost transactions, in the thread that detects the loss.
    """

    def __init__(
        self,
        client: MetastoreClient,
        txn_ids: list[int],
        interval_s: float,
        *,
        silence_s: float | None = None,
        since_s: float | None = None,
        on_lost: Callable[[Collection[int]], None] = lambda _txn_ids: None,
    ) -> None:
        self._on_lost = on_lost
        self._open = list(txn_ids)
        self._lost: set[int] = set()
        # Held while a transaction ends, so that no heartbeat names a transaction that has just ended.
        self.ending = threading.Lock()
        self._heart = Heartbeat(
            client.settings,
            self._beat,
            name=f"transactions {txn_ids[0]} to {txn_ids[-1]}",
            interval_s=interval_s,
            silence_s=2 * interval_s * SILENCE_SHARE if silence_s is None else silence_s,
            since_s=since_s,
            on_loss=self._lose_all,
        ).start()

    @property
    def lost(self) -> frozenset[int]:
        """Return the transactions that the metastore has aborted, or may abort before the next heartbeat."""
        if self._heart.loss is not None:
            return frozenset({*self._lost, *self._open})
        return frozenset(self._lost)

    @property
    def unended(self) -> tuple[int, ...]:
        """Return the transactions that have not ended."""
        return tuple(self._open)

    @property
    def loss(self) -> Loss | None:
        """Return the reason why all of them are lost; ``None`` if they are not."""
        return self._heart.loss

    def ended(self, txn_id: int) -> None:
        """Send no more heartbeats for a transaction."""
        self._open = [open_id for open_id in self._open if open_id != txn_id]

    def stop(self) -> None:
        """Send no more heartbeats."""
        self._heart.stop()

    def _beat(self, client: MetastoreClient) -> None:
        with self.ending:
            open_ids = self._open
            if not open_ids:
                return
            answer = client.heartbeat_txn_range(open_ids[0], open_ids[-1])
            lost = {*(answer.aborted or ()), *(answer.nosuch or ())} & set(open_ids)
            if lost:
                self._lost |= lost
                self._on_lost(lost)
                if not set(open_ids) - self._lost:
                    raise TransactionAbortedError(
                        f"The metastore has aborted transactions {open_ids[0]} to {open_ids[-1]}.",
                        remedy="Run it again. If its process was not suspended, raise hive.txn.timeout.",
                        txn_id=open_ids[0],
                    )

    def _lose_all(self, _loss: Loss) -> None:
        self._on_lost(self._open)
