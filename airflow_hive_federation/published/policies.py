"""Publishes the state of replication policies: reads the documents before, folds, and writes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_hive_federation.published import folding
from airflow_hive_federation.published.directory import (
    CYCLES,
    POSITION,
    REPLICATION,
    TABLES,
    VERIFICATION,
    VERIFIED,
    D,
    StateDirectory,
    Subject,
    policy_key,
)
from airflow_hive_federation.published.documents import PolicyName, PolicyPosition, Publisher
from airflow_hive_federation.published.folding import Publication

if TYPE_CHECKING:
    from airflow_hive_federation.replication.replica.cycle_history import CycleRecord
    from airflow_hive_federation.replication.status import Lags, ReplicationStatus
    from airflow_hive_federation.replication.verify.report import VerificationReport
    from airflow_hive_federation.storage.options import StorageOptions


class PolicyPublisher:
    """Publishes what a task or command has learned about one policy.

    Every method raises a ``StorageError`` if a document cannot be written.

    :param directory: the directory of the documents.
    :param by: the task or command.
    :param options: storage options of the policy's dumps.
    """

    def __init__(
        self,
        directory: StateDirectory,
        policy: PolicyName,
        by: Publisher,
        *,
        options: StorageOptions | None = None,
    ) -> None:
        self._directory = directory
        self._options = options
        self._policy = policy
        self._key = policy_key(policy)
        self._by = by

    def status(self, status: ReplicationStatus) -> None:
        """Publish the result of a look at both sides."""
        now = self._now()
        before = self._directory.readable(REPLICATION, self._key, POSITION)
        self._write(POSITION, self._linked(folding.position_of_status(before, status, now)))
        if (tables := folding.tables_of_status(status, now)) is not None:
            self._write(TABLES, tables)
        self._cycles(status.cycles, now, ours=False)

    def wait(self, text: str) -> None:
        """Publish that a task waits, or that its wait is over.

        :param text: a description of the wait; empty at its end.
        """
        before = self._directory.readable(REPLICATION, self._key, POSITION)
        self._write(POSITION, folding.position_of_wait(before, text, self._now()))

    def lags(self, lags: Lags) -> None:
        """Publish the lags that a sensor has counted."""
        now = self._now()
        before = self._directory.readable(REPLICATION, self._key, POSITION)
        self._write(POSITION, folding.position_of_lags(before, lags, now))
        tables = self._directory.readable(REPLICATION, self._key, TABLES)
        self._write(TABLES, folding.tables_of_lags(tables, lags, now))

    def cycle(
        self,
        records: Sequence[CycleRecord],
        lags: Lags | None,
        *,
        skipped: dict[str, str] | None,
        dump: str = "",
    ) -> None:
        """Publish a cycle that has ended.

        :param records: the target's records of its last cycles, oldest first.
        :param lags: the lags after the cycle, if they could be counted.
        :param skipped: the tables that the cycle left out, with the reasons; ``None`` if nobody looked.
        :param dump: URI of the dump from which the target was last loaded.
        """
        now = self._now()
        self._cycles(records, now, ours=True)
        if lags is None:
            return
        before = self._directory.readable(REPLICATION, self._key, POSITION)
        position = folding.position_of_lags(before, lags, now)
        self._write(POSITION, self._linked(replace(position, dump=dump or position.dump)))
        tables = self._directory.readable(REPLICATION, self._key, TABLES)
        self._write(TABLES, folding.tables_of_lags(tables, lags, now, skipped=skipped))

    def failure(self, error: str, remedy: str, *, seconds: float) -> None:
        """Publish a cycle that has failed.

        :param error: the class and the message of the error.
        """
        before = self._directory.readable(REPLICATION, self._key, CYCLES)
        self._write(CYCLES, folding.with_failure(before, error, remedy, self._now(), seconds=seconds))

    def failover(self, event_id: int) -> None:
        """Publish a failover, after which the policy has no more cycles.

        :param event_id: last event of the target.
        """
        before = self._directory.readable(REPLICATION, self._key, CYCLES)
        self._write(CYCLES, folding.with_failover(before, event_id, self._now()))

    def verification(self, report: VerificationReport, *, whole: bool) -> None:
        """Publish a verification.

        :param whole: files and rows of all tables were compared.
        """
        now = self._now()
        self._write(VERIFICATION, folding.verification_of(report, now))
        if report.tables or whole:
            before = self._directory.readable(REPLICATION, self._key, VERIFIED)
            self._write(VERIFIED, folding.with_verified(before, report, now, whole=whole))

    def _cycles(self, records: Sequence[CycleRecord], now: Publication, *, ours: bool) -> None:
        before = self._directory.readable(REPLICATION, self._key, CYCLES)
        self._write(CYCLES, folding.with_records(before, records, now, ours=ours))

    def _linked(self, position: PolicyPosition) -> PolicyPosition:
        """Return a position with the web page of its dump."""
        from airflow_hive_federation.storage.web_addresses import web_address

        return replace(position, dump_url=web_address(position.dump, self._options) if position.dump else "")

    def _write(self, subject: Subject[D], document: D) -> None:
        self._directory.write(REPLICATION, self._key, subject, document)

    def _now(self) -> Publication:
        return Publication(policy=self._policy, at_s=round(time.time(), 3), by=self._by)
