"""Runs a Hive transaction: it opens, locks, allocates write ids, sends heartbeats, and commits or aborts.

>>> with Transaction(client) as transaction:  # doctest: +SKIP
...     append(spark, client, "sales.orders", rows, transaction=transaction)
...     append(spark, client, "sales.lines", lines, transaction=transaction)

**Write conflicts are detected.** The metastore checks them only for a commit with ``exclWriteEnabled`` set to
false, which is not its default: otherwise both of two updates of one row would be kept, as two rows.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Self

from airflow_hive_federation.errors import (
    ConfigurationError,
    HiveFederationError,
    LockTimeoutError,
    TransactionAbortedError,
)
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.transactions.commits import commit_patiently
from airflow_hive_federation.transactions.heartbeat import SILENCE_SHARE, Heartbeat, transaction_timeout_s
from airflow_hive_federation.transactions.keeping import KeptFiles
from airflow_hive_federation.transactions.locks import (
    TableWrite,
    WriteKind,
    granted,
    lock_components,
    read_components,
    unnoted,
)
from airflow_hive_federation.transactions.snapshots import Snapshot, take_snapshots
from airflow_hive_federation.waiting import PollPolicy, boot_time_s

log = logging.getLogger(__name__)

LOCK_POLICY = PollPolicy(first_s=0.1, factor=1.5, longest_s=5.0, timeout_s=300.0)
MAX_STATEMENT_ID = 0xFFF
"""The highest statement id: Hive's row ids have 12 bits for the statement (``BucketCodec.V1``)."""


class TransactionState(StrEnum):
    """The state of a transaction."""

    NEW = "new"
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Transaction:
    """One transaction, as a context manager: it commits at the end, and aborts if the block raises.

    :param client: client of the metastore that owns the tables; used by the thread that enters the block.
        Heartbeats have a connection of their own.
    :param lock_policy: pauses and timeout of waiting for locks; ``timeout_s`` limits one :meth:`lock`.
    :param shared_writes: updates and deletes do not exclude each other; the first to commit wins
        (``hive.txn.xlock.write=false``).
    :param read_only: the transaction writes nothing, and leaves no notification event.
    """

    def __init__(
        self,
        client: MetastoreClient,
        *,
        lock_policy: PollPolicy = LOCK_POLICY,
        shared_writes: bool = False,
        read_only: bool = False,
    ) -> None:
        self._client = client
        self._kind = types.TxnType.READ_ONLY if read_only else types.TxnType.DEFAULT
        self._lock_policy = lock_policy
        self._shared_writes = shared_writes
        self._id: int | None = None
        self._state = TransactionState.NEW
        self._heart: Heartbeat | None = None
        self._doomed: str | None = None
        self._write_ids: dict[str, int] = {}
        self._statements: Counter[str] = Counter()
        self._done: dict[str, set[WriteKind]] = {}
        self._kept: KeptFiles | None = None
        self._clean_ups: list[Callable[[], None]] = []
        self.own_positions: set[str] = set()
        """Keys of the positions whose fences the transaction holds: no other moves them."""

    @property
    def id(self) -> int:
        """Return the transaction's id.

        :raises ConfigurationError: if the transaction has not been opened.
        """
        if self._id is None:
            raise ConfigurationError("The transaction is not open.", remedy="Use it in a with statement.")
        return self._id

    @property
    def state(self) -> TransactionState:
        """Return the transaction's state as far as this process knows it."""
        return self._state

    def __enter__(self) -> Self:
        if self._state is not TransactionState.NEW:
            raise ConfigurationError(f"The transaction was used before: it is {self._state}.")
        timeout_s = transaction_timeout_s(self._client)
        since_s = boot_time_s()
        self._id = self._client.open_txns(kind=self._kind)[0]
        self._state = TransactionState.OPEN
        self._heart = transaction_heartbeat(
            self._client, self._id, timeout_s=timeout_s, since_s=since_s
        ).start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._state is not TransactionState.OPEN:
            return
        if error is None:
            self.commit()
            return
        try:
            self.abort()
        except HiveFederationError as failure:
            # The block's own error is more important; without heartbeats, the metastore aborts by itself.
            error.add_note(f"Transaction {self.id} could not be aborted: {failure}")
            log.warning("transaction %d could not be aborted: %s", self.id, failure)

    def lock(self, writes: Sequence[TableWrite]) -> bool:
        """Request locks, wait until they are granted, and allocate the tables' write ids.

        This order makes a write id higher than those of all earlier commits: otherwise it would be below the
        base of an overwrite for which the lock waited, and its rows would be lost. The metastore records a
        write with the lock request, with the write id of that moment; without a write id, it never removes
        the record of an aborted write (``MarkCleanedFunction``). So the method requests the locks again, as
        writes. It does not matter if the metastore queues this request, because the transaction already has
        the locks.

        :return: whether the method had to wait, so that other transactions may have committed meanwhile.
        :raises LockTimeoutError: if they are not granted within the policy's ``timeout_s``.
        :raises TransactionAbortedError: if the metastore has aborted the transaction.
        """
        components = lock_components(writes, shared_writes=self._shared_writes)
        waited = self._lock(unnoted(components), {f"{write.database}.{write.table}" for write in writes})
        for write in writes:
            self.write_id(write.database, write.table)
        self._client.lock(components, txn_id=self.id)
        return waited

    def lock_to_read(self, tables: Collection[str]) -> bool:
        """Request readers' locks and wait until they are granted.

        :param tables: ``database.table`` names.
        :return: as :meth:`lock`, which also describes the errors.
        """
        return self._lock(read_components(tables), set(tables))

    def _lock(self, components: Sequence[types.LockComponent], tables: set[str]) -> bool:
        self.check()
        answer = self._client.lock(components, txn_id=self.id)
        if answer.state == types.LockState.ACQUIRED:
            return False
        if granted(self._client, answer, self._lock_policy, txn_id=self.id, check=self.check):
            return True
        names = sorted(tables)
        raise LockTimeoutError(
            f"Transaction {self.id} was not granted its locks on {', '.join(names)} in "
            f"{self._lock_policy.timeout_s} s.",
            remedy="Find the holders with SHOW LOCKS and SHOW TRANSACTIONS; wait longer, or abort them.",
            tables=names,
            lock_id=answer.lockid or 0,
            txn_id=self.id,
        )

    def write_id(self, database: str, table: str) -> int:
        """Return the transaction's write id on a table; the first call allocates it."""
        name = f"{database}.{table}".lower()
        if name not in self._write_ids:
            given = self._client.allocate_table_write_ids(database, table, [self.id])
            self._write_ids[name] = given[self.id]
        return self._write_ids[name]

    def next_statement_id(self, database: str, table: str) -> int:
        """Return a number for the next statement that writes to a table; the first one is 0.

        :raises ConfigurationError: after 4,096 statements.
        """
        name = f"{database}.{table}".lower()
        number = self._statements[name]
        if number > MAX_STATEMENT_ID:
            raise ConfigurationError(
                f"{name}: more than {MAX_STATEMENT_ID + 1} statements in one transaction.",
                remedy="Commit earlier.",
            )
        self._statements[name] += 1
        return number

    def claim(self, database: str, table: str, kinds: Collection[WriteKind]) -> None:
        """Record the changes of a statement to a table, and refuse those that the table's layout cannot hold.

        A transaction does not see its own writes: a second UPDATE would work on rows that the first has
        replaced, and both would leave a version of the row. A base hides all other files of its write id.

        :raises ConfigurationError: if this transaction has changed rows of the table before, or has
            overwritten it.
        """
        name = f"{database}.{table}".lower()
        before = self._done.setdefault(name, set())
        changes = {*kinds} - {WriteKind.INSERT}
        if (changes and before - {WriteKind.INSERT}) or WriteKind.OVERWRITE in before:
            raise ConfigurationError(
                f"Transaction {self.id} has changed rows of {name} before.",
                remedy="Commit first, or put both changes into one merge.",
            )
        before.update(kinds)

    def snapshots(self, tables: Sequence[str]) -> dict[str, Snapshot]:
        """Return one consistent snapshot of tables, whose files stay until the transaction ends.

        Call it after :meth:`lock` or :meth:`lock_to_read`.

        :param tables: ``database.table`` names of transactional tables.
        :return: snapshots by lower-case name.
        :raises LockTimeoutError: if partitions are added faster than they can be locked.
        """
        names = [name.lower() for name in tables]
        if self._kept is None:
            self._kept = KeptFiles(self._client, self.id)
        return self._kept.take(lambda: names, lambda: take_snapshots(self._client, names))

    def snapshot(self, database: str, table: str) -> Snapshot:
        """Return a snapshot of a table's committed data at this moment, as :meth:`snapshots` does."""
        name = f"{database}.{table}".lower()
        return self.snapshots([name])[name]

    def check(self) -> None:
        """Check that the transaction is open and may be committed.

        :raises ConfigurationError: if it is not open.
        :raises TransactionAbortedError: if the metastore has aborted it, or may do so because it has
            confirmed no heartbeat for too long, or if the transaction must not be committed any more.
        """
        if self._state is not TransactionState.OPEN:
            raise ConfigurationError(f"The transaction is not open: it is {self._state}.")
        loss = self._heart.loss if self._heart is not None else None
        if loss is not None or self._doomed:
            raise TransactionAbortedError(
                f"Transaction {self.id} cannot be committed: {self._doomed or (loss and loss.description)}.",
                remedy="Run the whole transaction again.",
                txn_id=self.id,
            ) from (loss.cause if loss else None)

    def doom(self, reason: str) -> None:
        """Prevent the commit of the transaction, because a statement failed half-way."""
        self._doomed = self._doomed or reason

    def on_abort(self, clean_up: Callable[[], None]) -> None:
        """Register a function to call after the transaction is aborted, to remove files for instance."""
        self._clean_ups.append(clean_up)

    def commit(self) -> None:
        """Commit the transaction, with the check for write conflicts.

        :raises TransactionAbortedError: on a conflict, or if the metastore has aborted the transaction.
        :raises OutcomeUnknownError: if the connection broke or the metastore failed, and repeated calls have
            not found out the outcome. The state is then unknown, as after each error but the first: neither
            :meth:`abort` nor the end of the block removes files any more.
        """
        try:
            self.check()
        except TransactionAbortedError:
            self.abort()
            raise
        # Whatever ends the call, an exception from a signal handler too, it may have committed: an abort must
        # not remove the files. If it has not, the metastore aborts the transaction, which has no heartbeats.
        self._state = TransactionState.UNKNOWN
        try:
            commit_patiently(lambda: self._client.commit_txn(self.id, excl_write_enabled=False), self.id)
            self._state = TransactionState.COMMITTED
        except TransactionAbortedError:
            self._state = TransactionState.OPEN
            self.abort()
            raise
        finally:
            self._stop_heart()

    def abort(self) -> None:
        """Abort the transaction, and then call the functions that were registered by :meth:`on_abort`.

        :raises MetastoreError: if the call to the metastore fails.
        """
        if self._state in {TransactionState.ABORTED, TransactionState.NEW}:
            return
        self._stop_heart()
        try:
            self._client.abort_txns([self.id])
        finally:
            if self._state is TransactionState.OPEN:
                self._state = TransactionState.ABORTED
                for clean_up in reversed(self._clean_ups):
                    clean_up()

    def _stop_heart(self) -> None:
        if self._heart is not None:
            self._heart.stop()
            self._heart = None


@contextmanager
def joined(client: MetastoreClient, transaction: Transaction | None) -> Iterator[Transaction]:
    """Yield the caller's transaction, or a new one that ends with the block.

    The function neither commits nor aborts a caller's transaction; if the block raises, that transaction
    cannot be committed any more.
    """
    if transaction is None:
        with Transaction(client) as own:
            yield own
        return
    transaction.check()
    try:
        yield transaction
    except BaseException as error:
        transaction.doom(f"a statement of it failed ({type(error).__name__})")
        raise


def heartbeat_interval_s(client: MetastoreClient) -> float:
    """Return the seconds between two heartbeats: half of the metastore's ``hive.txn.timeout``."""
    return transaction_timeout_s(client) / 2


def transaction_heartbeat(
    client: MetastoreClient, txn_id: int, *, timeout_s: float, since_s: float
) -> Heartbeat:
    """Return the heartbeats of one transaction, which count it as lost before the metastore may abort it.

    :param client: a client of the metastore; heartbeats have a connection of their own.
    :param timeout_s: the metastore's ``hive.txn.timeout``.
    :param since_s: time (:func:`boot_time_s`) before the transaction was opened.
    """

    def beat(own: MetastoreClient) -> None:
        answer = own.heartbeat_txn_range(txn_id, txn_id)
        if txn_id in {*(answer.aborted or ()), *(answer.nosuch or ())}:
            raise TransactionAbortedError(
                f"The metastore has aborted transaction {txn_id}, by its timeout or by request.",
                remedy="Run it again. If its process was not suspended, raise hive.txn.timeout.",
                txn_id=txn_id,
            )

    return Heartbeat(
        client.settings,
        beat,
        name=f"transaction {txn_id}",
        interval_s=timeout_s / 2,
        silence_s=timeout_s * SILENCE_SHARE,
        since_s=since_s,
    )
