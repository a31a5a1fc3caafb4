"""Draining: a bootstrap waits for the transactions that were open when it was asked for.

Only those count that can still change the database: they hold write ids of its tables, or write locks in it.
Hive's own dump (``ReplDumpTask.getValidTxnListForReplDump``) polls every five minutes and is stalled by any
open transaction that holds no lock at all; here the write ids themselves are asked for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.replication.metadata.write_ids import valid_transactions
from airflow_hive_federation.waiting import PollPolicy, wait_until

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient

logger = logging.getLogger(__name__)

#: Lock types of the metastore that announce a write (``LockType``: SHARED_READ is 1).
_WRITE_LOCK_TYPES = frozenset({2, 3, 4})
#: Table names asked for in one ``get_valid_write_ids`` call.
_TABLES_PER_CALL = 500


@dataclass(frozen=True, kw_only=True)
class DrainStart:
    """The moment a bootstrap was asked for.

    :param database: source database.
    :param event_id: last notification event of the source at that moment; increments begin after it.
    :param transactions: ids of the transactions to wait for, ascending.
    :param moment_ms: that moment in milliseconds since 1970, which tells two bootstraps at one event apart:
        files of external tables come and go without an event.
    """

    database: str
    event_id: int
    transactions: tuple[int, ...]
    moment_ms: int

    @property
    def dump_name(self) -> str:
        """Name of the directory of the bootstrap's dump."""
        return f"{self.event_id}-{self.moment_ms}"

    def to_json(self) -> dict[str, Any]:
        return {
            "database": self.database,
            "event_id": self.event_id,
            "transactions": list(self.transactions),
            "moment_ms": self.moment_ms,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> DrainStart:
        return cls(
            database=values["database"],
            event_id=int(values["event_id"]),
            transactions=tuple(values["transactions"]),
            moment_ms=int(values["moment_ms"]),
        )


def begin_drain(client: MetastoreClient, database: str) -> DrainStart:
    """Note the last event id, then the open transactions that write to the database.

    The order matters: a transaction that begins in between is waited for although the increments would have
    brought it, which is harmless; the other way round it would be lost to both.

    :raises NoSuchObjectError: there is no such database.
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
    """Those of the start's transactions that are neither committed nor aborted yet."""
    if not start.transactions:
        return ()
    opened = set(open_transactions(client.get_open_txns()))
    return tuple(txn for txn in start.transactions if txn in opened)


def abort_remaining(client: MetastoreClient, start: DrainStart) -> tuple[int, ...]:
    """Abort what is still open of the start's transactions; return their ids. Others are not touched."""
    remaining = still_open(client, start)
    if remaining:
        logger.warning(
            "Aborting %d transaction(s) of database %s that did not end in time: %s",
            len(remaining),
            start.database,
            ", ".join(map(str, remaining)),
        )
        client.abort_txns(list(remaining))
    return remaining


def drain(
    client: MetastoreClient,
    start: DrainStart,
    *,
    timeout_s: float,
    poll: PollPolicy | None = None,
    on_wait: Callable[[Sequence[int]], None] | None = None,
) -> tuple[int, ...]:
    """Wait until the start's transactions have ended; abort what is left after the timeout.

    :param timeout_s: seconds to wait (``hive.repl.bootstrap.dump.open.txn.timeout``).
    :param poll: how often to ask; the default notices an end within two seconds.
    :param on_wait: told the ids that are still open after each question.
    :return: ids of the transactions that were aborted.
    """
    ended = has_drained(client, start, timeout_s=timeout_s, poll=poll, on_wait=on_wait)
    return () if ended else abort_remaining(client, start)


def has_drained(
    client: MetastoreClient,
    start: DrainStart,
    *,
    timeout_s: float,
    poll: PollPolicy | None = None,
    on_wait: Callable[[Sequence[int]], None] | None = None,
) -> bool:
    """Wait as :func:`drain` does, and abort nothing; return whether all have ended in time."""

    def ended() -> bool:
        remaining = still_open(client, start)
        if remaining and on_wait:
            on_wait(remaining)
        return not remaining

    return wait_until(ended, poll or PollPolicy(first_s=0.2, longest_s=2.0, timeout_s=timeout_s))


def open_transactions(answer: Any) -> tuple[int, ...]:
    """Ids that are open, not aborted, in a ``GetOpenTxnsResponse``."""
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
    """Which of the candidates hold write ids of the database's tables.

    The metastore has no call that lists a transaction's write ids. But ``get_valid_write_ids`` reports, for
    a transaction list of the caller's, the write ids of the transactions that list calls open: a list with
    one open transaction gives that transaction's write ids. (Its high watermark must be the true one: ids
    above it count as open too.)
    """
    if not candidates:
        return set()
    names = [f"{database}.{table}" for table in client.list_tables(database)]
    concerned = _tables_with_open_write_ids(client, names, candidates, high_watermark)
    return {
        txn for txn in candidates if _tables_with_open_write_ids(client, concerned, [txn], high_watermark)
    }


def _tables_with_open_write_ids(
    client: MetastoreClient, names: Sequence[str], transactions: Iterable[int], high_watermark: int | None
) -> list[str]:
    ids = sorted(transactions)
    text = f"{high_watermark}:{ids[0]}:{','.join(map(str, ids))}:"
    found: list[str] = []
    for first in range(0, len(names), _TABLES_PER_CALL):
        answer = client.get_valid_write_ids(
            list(names[first : first + _TABLES_PER_CALL]), valid_txn_list=text
        )
        found += [name for name, write_ids in answer.items() if write_ids.invalidWriteIds]
    return found
