"""Drains a source: a bootstrap waits for the transactions that were open at its start.

Only transactions that can still change the database count: they hold write ids of its tables, or write locks
in it. Hive's own dump (``ReplDumpTask.getValidTxnListForReplDump``) polls every five minutes and is stalled
by any open transaction that holds no lock at all; this module reads the write ids themselves.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.json_values import Fields, count, list_of, text
from airflow_hive_federation.progress.events import (
    DrainStarted,
    TransactionsAborted,
    TransactionsEnded,
    TransactionsOpen,
)
from airflow_hive_federation.progress.observers import LOGGED, Observer
from airflow_hive_federation.replication.metadata.write_ids import valid_transactions
from airflow_hive_federation.replication.policy import DRAIN_POLL
from airflow_hive_federation.waiting import wait_until

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient

#: These lock types of the metastore announce a write (``LockType``: SHARED_READ is 1).
_WRITE_LOCK_TYPES = frozenset({2, 3, 4})
#: Highest number of table names in one ``get_valid_write_ids`` call.
_TABLES_PER_CALL = 500


@dataclass(frozen=True, kw_only=True)
class DrainStart:
    """The start of a bootstrap.

    :param database: source database.
    :param event_id: last notification event of the source at that moment; increments begin after it.
    :param transactions: ids of the transactions to wait for, ascending.
    :param moment_ms: that moment in milliseconds since 1970, which distinguishes two bootstraps at one event:
        files of external tables come and go without an event.
    """

    database: str
    event_id: int
    transactions: tuple[int, ...]
    moment_ms: int

    @property
    def dump_name(self) -> str:
        """Return the name of the directory of the bootstrap's dump."""
        return f"{self.event_id}-{self.moment_ms}"

    @property
    def event(self) -> DrainStarted:
        """Return the start as an event of progress."""
        return DrainStarted(database=self.database, event_id=self.event_id, transactions=self.transactions)

    def to_json(self) -> dict[str, object]:
        return {
            "database": self.database,
            "event_id": self.event_id,
            "transactions": list(self.transactions),
            "moment_ms": self.moment_ms,
        }

    @classmethod
    def from_json(cls, value: object) -> DrainStart:
        """Return the start from the result of a task.

        :raises ConfigurationError: it is not such a result.
        """
        try:
            fields = Fields(value)
            return cls(
                database=fields.needed("database", text),
                event_id=fields.needed("event_id", count),
                transactions=fields.needed("transactions", list_of(count)),
                moment_ms=fields.needed("moment_ms", count),
            )
        except ValueError as error:
            raise ConfigurationError(
                f"The start of the bootstrap is not the result of a drain: {error}.",
                remedy="Give the result of an OpenTransactionsDrainSensor.",
            ) from error


def begin_drain(client: MetastoreClient, database: str) -> DrainStart:
    """Read the last event id, then the open transactions that write to the database.

    The order matters. A transaction that begins in between is waited for although the increments would have
    brought it, which is harmless; in the opposite order, both would miss it.

    :raises NoSuchObjectError: the database does not exist.
    """
    client.get_database(database)
    moment_ms = time.time_ns() // 1_000_000
    event_id = client.get_current_notification_event_id()
    answer = client.get_open_txns()
    opened = open_transactions(answer)
    writers = _write_lock_holders(client, database) & set(opened)
    unlocked = [txn for txn in opened if txn not in writers]
    writers |= _write_id_holders(client, database, unlocked, answer.txn_high_water_mark)
    return DrainStart(
        database=database, event_id=event_id, transactions=tuple(sorted(writers)), moment_ms=moment_ms
    )


def still_open(client: MetastoreClient, start: DrainStart) -> tuple[int, ...]:
    """Return those of the start's transactions that are neither committed nor aborted yet."""
    if not start.transactions:
        return ()
    opened = set(open_transactions(client.get_open_txns()))
    return tuple(txn for txn in start.transactions if txn in opened)


def state_of(start: DrainStart, remaining: tuple[int, ...]) -> TransactionsOpen | TransactionsEnded:
    """Return the event of a look at the start's transactions.

    :param remaining: those that are still open.
    """
    if remaining:
        return TransactionsOpen(database=start.database, transactions=remaining)
    return TransactionsEnded(database=start.database)


def abort_remaining(
    client: MetastoreClient, start: DrainStart, *, observer: Observer = LOGGED
) -> tuple[int, ...]:
    """Abort those of the start's transactions that are still open, and return their ids."""
    remaining = still_open(client, start)
    if remaining:
        client.abort_txns(list(remaining))
        observer(TransactionsAborted(database=start.database, transactions=remaining))
    return remaining


def drain(
    client: MetastoreClient,
    start: DrainStart,
    *,
    timeout_s: float,
    observer: Observer = LOGGED,
) -> tuple[int, ...]:
    """Wait until the start's transactions have ended, and abort the remaining ones after the timeout.

    :param timeout_s: seconds to wait (``hive.repl.bootstrap.dump.open.txn.timeout``).
    :param observer: receives the transactions that are still open after each poll.
    :return: ids of the transactions that were aborted.
    """
    ended = has_drained(client, start, timeout_s=timeout_s, observer=observer)
    return () if ended else abort_remaining(client, start, observer=observer)


def has_drained(
    client: MetastoreClient,
    start: DrainStart,
    *,
    timeout_s: float,
    observer: Observer = LOGGED,
) -> bool:
    """Wait as :func:`drain` does, abort nothing, and return whether all have ended in time."""

    def ended() -> bool:
        remaining = still_open(client, start)
        if start.transactions:
            observer(state_of(start, remaining))
        return not remaining

    return wait_until(ended, replace(DRAIN_POLL, timeout_s=timeout_s))


def open_transactions(answer: types.GetOpenTxnsResponse) -> tuple[int, ...]:
    """Return the ids in a ``GetOpenTxnsResponse`` that are open, not aborted."""
    return valid_transactions(answer).open_ids


def _write_lock_holders(client: MetastoreClient, database: str) -> set[int]:
    return {
        lock.txnid
        for lock in client.show_locks(database=database)
        if lock.txnid and lock.dbname == database and lock.type in _WRITE_LOCK_TYPES
    }


def _write_id_holders(
    client: MetastoreClient, database: str, candidates: Sequence[int], high_watermark: int | None
) -> set[int]:
    """Return the candidates that hold write ids of the database's tables.

    The metastore has no call that lists a transaction's write ids. But ``get_valid_write_ids`` takes a
    transaction list from the caller, and returns the write ids of the transactions that are open in it: a
    list with one open transaction yields that transaction's write ids. (Its high watermark must be the true
    one, because ids above it count as open too.)
    """
    if not candidates:
        return set()
    names = [f"{database}.{table}" for table in client.list_tables(database)]
    tables = _tables_with_open_write_ids(client, names, candidates, high_watermark)
    return {txn for txn in candidates if _tables_with_open_write_ids(client, tables, [txn], high_watermark)}


def _tables_with_open_write_ids(
    client: MetastoreClient, names: Sequence[str], transactions: Iterable[int], high_watermark: int | None
) -> list[str]:
    ids = sorted(transactions)
    text = f"{high_watermark}:{ids[0]}:{','.join(map(str, ids))}:"
    tables: list[str] = []
    for first in range(0, len(names), _TABLES_PER_CALL):
        answer = client.get_valid_write_ids(
            list(names[first : first + _TABLES_PER_CALL]), valid_txn_list=text
        )
        tables += [name for name, write_ids in answer.items() if write_ids.invalidWriteIds]
    return tables
