"""Heartbeats for all open transactions of a batch, from a thread with a connection of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection

from airflow_hive_federation.errors import MetastoreError
from airflow_hive_federation.metastore import MetastoreClient

log = logging.getLogger(__name__)


class Heartbeats:
    """Tells the metastore that transactions are alive until :meth:`stop`.

    :param interval_s: seconds between two; half of ``hive.txn.timeout``.
    :param on_lost: told, in the thread of the heartbeats, which transactions the metastore has given up.
    """

    def __init__(
        self,
        client: MetastoreClient,
        txn_ids: list[int],
        interval_s: float,
        *,
        on_lost: Callable[[Collection[int]], None] = lambda _txn_ids: None,
    ) -> None:
        self._on_lost = on_lost
        self._client = MetastoreClient(client.settings)
        self._interval_s = interval_s
        self._open = list(txn_ids)
        self._lost: set[int] = set()
        # Held while a transaction ends, so that no heartbeat is sent for one that has just ended.
        self.ending = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"hive-ingest-{txn_ids[0]}", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> frozenset[int]:
        """The transactions that the metastore has given up."""
        return frozenset(self._lost)

    def ended(self, txn_id: int) -> None:
        """Send no more for a transaction."""
        self._open = [one for one in self._open if one != txn_id]

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join()
        self._client.close()

    def _beat(self) -> None:
        pause_s = self._interval_s
        while not self._stopped.wait(pause_s):
            with self.ending:
                still = self._open
                if not still:
                    return
                try:
                    answer = self._client.heartbeat_txn_range(still[0], still[-1])
                except MetastoreError as error:
                    # The transactions live on until their timeout: ask again soon.
                    log.warning("heartbeat of transactions %d to %d: %s", still[0], still[-1], error)
                    pause_s = self._interval_s / 10
                    continue
                pause_s = self._interval_s
                lost = {*(answer.aborted or ()), *(answer.nosuch or ())} & set(still)
                if lost:
                    self._lost |= lost
                    self._on_lost(lost)
