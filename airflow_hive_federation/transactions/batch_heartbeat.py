"""Heartbeats for all open transactions of a batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from airflow_hive_federation.errors import TransactionAbortedError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.transactions.heartbeat import SILENCE_SHARE, Heartbeat, Loss


class Heartbeats:
    """Keeps transactions alive until :meth:`stop`, over a connection of its own.

    When no heartbeat has come through for so long that the metastore may abort the transactions soon, all
    that are open count as lost.

    :param interval_s: seconds between two; half of ``hive.txn.timeout``.
    :param silence_s: seconds without a confirmed heartbeat after which the transactions count as lost; less
        than ``hive.txn.timeout``.
    :param since_s: moment (:func:`~airflow_hive_federation.waiting.boot_time_s`) before they were opened.
    :param on_lost: is called, in the thread that notices it, with transactions that are lost.
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
        # Held while a transaction ends, so that no heartbeat is sent for one that has just ended.
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
        """The transactions that the metastore has given up, or may give up before it hears of them again."""
        if self._heart.loss is not None:
            return frozenset({*self._lost, *self._open})
        return frozenset(self._lost)

    @property
    def loss(self) -> Loss | None:
        """Why all of them are lost, if they are."""
        return self._heart.loss

    def ended(self, txn_id: int) -> None:
        """Send no more for a transaction."""
        self._open = [one for one in self._open if one != txn_id]

    def stop(self) -> None:
        """Send no more."""
        self._heart.stop()

    def _beat(self, client: MetastoreClient) -> None:
        with self.ending:
            still = self._open
            if not still:
                return
            answer = client.heartbeat_txn_range(still[0], still[-1])
            lost = {*(answer.aborted or ()), *(answer.nosuch or ())} & set(still)
            if lost:
                self._lost |= lost
                self._on_lost(lost)
                if not set(still) - self._lost:
                    raise TransactionAbortedError(
                        f"The metastore has aborted transactions {still[0]} to {still[-1]}.", txn_id=still[0]
                    )

    def _lose_all(self, _loss: Loss) -> None:
        self._on_lost(self._open)
