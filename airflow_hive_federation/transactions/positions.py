"""Alters tables without setting back the positions of streams, which are parameters of the same tables.

A commit moves a position (``CommitTxnKeyValue``), and every change of a table replaces all of its parameters.
If a commit comes between the reading and the writing of the table, the change sets the position back, and the
stream reads its input twice. In the same way, two changes of one table or partition undo each other. Three
means prevent this:

- The metastore compares one parameter when it alters a table, and refuses the change if it has moved.
- A transaction that is going to move a position holds a lock of its own, the position's fence. Nobody moves
  a position while another process holds its fence.
- Those of this package who change cluster metadata, or withdraw statistics, hold one lock per table meanwhile
  (:func:`alone_altering`).

The first means needs no waiting, and also protects a position that a client without fences moves. The others
end with the locks, whose age is checked right before each change. If a process is suspended between that
check and the arrival of its call at the metastore, until the locks have ended, it may still set back a
position that is not compared. The end of the block then raises ``LockLostError``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from airflow_hive_federation.errors import MetastoreServerError, UnsupportedMethodError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.transactions.locks import held
from airflow_hive_federation.waiting import PollPolicy

PREFIX = "_meta"
"""Begins the key of every position (``TxnStore.TXN_KEY_START``)."""
WAITING = PollPolicy(first_s=0.05, longest_s=1.0, timeout_s=60.0)
#: The metastore sets this parameter, in seconds of its clock, with each change by Hive or Spark.
CHANGED = "transient_lastDdlTime"
_ATTEMPTS = 5
_METADATA = "metadata"


def positions(table: types.Table) -> dict[str, str]:
    """Return the positions that a table keeps, by key."""
    return {key: value for key, value in (table.parameters or {}).items() if key.startswith(PREFIX)}


def fence(database: str, table: str, key: str) -> types.LockComponent:
    """Return the lock that a transaction needs to move a position.

    It locks a table that does not exist, so that only processes that move this position, or alter the table,
    wait for it.
    """
    return types.LockComponent(
        type=types.LockType.EXCLUSIVE,
        level=types.LockLevel.TABLE,
        dbname=database,
        tablename=fence_name(table, key),
        operationType=types.DataOperationType.NO_TXN,
        isTransactional=False,
    )


def fence_name(table: str, key: str) -> str:
    """Return the name of the table that does not exist, which a position's fence locks.

    The metastore stores names of tables in lower case, and distinguishes keys of parameters by case. So ``^``
    marks the letters of a key that are in upper case.
    """
    marked = (f"^{letter.lower()}" if letter == "^" or letter != letter.lower() else letter for letter in key)
    return f"{table.lower()}:{''.join(marked)}"


@contextmanager
def still(
    client: MetastoreClient,
    database: str,
    table: str,
    keys: Collection[str],
    *,
    policy: PollPolicy = WAITING,
) -> Iterator[Callable[[], None]]:
    """Prevent commits from moving positions during the block, and yield a check that they are prevented.

    The locks of a killed or suspended process, and those of a longer block, expire after
    ``hive.txn.timeout``: call the check right before each change that replaces the positions.

    :param keys: the positions; nothing is locked without any. The caller's transaction must not move them.
    :raises LockTimeoutError: transactions that move the positions have not ended within the policy's
        ``timeout_s``.
    :raises LockLostError: as :func:`~airflow_hive_federation.transactions.locks.held`.
    """
    if not keys:
        yield unguarded
        return
    with held(
        client,
        [fence(database, table, key) for key in sorted(keys)],
        policy,
        f"{database}.{table} cannot be altered: for {policy.timeout_s} s, transactions have been about to "
        f"move {', '.join(sorted(keys))}.",
        remedy="Run this again when the streams into the table have committed.",
        tables=[f"{database}.{table}"],
    ) as check:
        yield check


def metadata_lock(database: str, table: str) -> types.LockComponent:
    """Return the lock of those who alter a table's cluster metadata, or statistics of transactional rows.

    As a position's fence, it locks a table that does not exist: no Hive statement waits for it. It lies in
    the table's own database, where whoever writes to the table may take locks.
    """
    return fence(database, table, _METADATA)


@contextmanager
def alone_altering(
    client: MetastoreClient, database: str, table: str, *, policy: PollPolicy = WAITING
) -> Iterator[Callable[[], None]]:
    """Exclude other changes of a table's metadata by this package during the block; yield a check of that.

    Changes of its partitions are excluded, too. Whoever also needs locks of the table or its partitions, or
    fences of its positions, takes those first: otherwise two processes would wait for each other.

    :raises LockTimeoutError: the lock is not granted within the policy's ``timeout_s``.
    :raises LockLostError: as :func:`~airflow_hive_federation.transactions.locks.held`.
    """
    name = f"{database}.{table}"
    with held(
        client,
        [metadata_lock(database, table)],
        policy,
        f"Other processes have held locks on {name} for {policy.timeout_s} s.",
        remedy="List the holders by SHOW LOCKS; a killed process's lock ends by hive.txn.timeout.",
        tables=[name],
    ) as check:
        yield check


def unguarded() -> None:
    """Check nothing: no lock and no transaction has to be alive."""


def alter_beside_streams(
    client: MetastoreClient,
    database: str,
    name: str,
    change: Callable[[types.Table], types.Table | None],
    *,
    own: Collection[str] = (),
    check: Callable[[], None] = unguarded,
    environment: Mapping[str, str] | None = None,
    valid_write_ids: str | None = None,
    write_id: int | None = None,
) -> None:
    """Alter a table as it is now, and keep the positions that streams commit meanwhile.

    The metastore compares one position, or else, since Hive 4, the time of the last change, in seconds, which
    shows most changes by Hive. Commits that would move other positions, and other changes by this package,
    are waited for, and kept waiting.

    :param change: changes the table, which was just read, and returns it; ``None`` leaves it as it is.
    :param own: keys of positions whose fences the caller's transaction holds.
    :param check: is called right before each change; it raises if the caller's locks, or the transaction that
        holds the fences of ``own``, may have ended.
    :param environment: see :meth:`MetastoreClient.alter_table`, as for the other parameters.
    :raises LockTimeoutError: if transactions that move positions do not end in time.
    :raises LockLostError: if this process was suspended, and the fences may have expired.
    :raises MetastoreServerError: if the metastore refuses the change, or others alter the table all the time.
    """
    held: list[str] = []
    failures = 0
    compares_time = True
    while True:
        with (
            still(client, database, name, held) as check_fences,
            alone_altering(client, database, name) as check_alone,
        ):
            table = client.get_table(database, name)
            present = positions(table)
            others = sorted(present.keys() - {*own})
            if not {*others[1:]} <= {*held}:
                held = others[1:]
                continue
            expected = _expected(table, others or sorted(present), time=compares_time)
            altered = change(table)
            if altered is None:
                return
            check()
            check_fences()
            check_alone()
            try:
                client.alter_table(
                    database,
                    name,
                    altered,
                    environment=environment,
                    valid_write_ids=valid_write_ids,
                    write_id=write_id,
                    expected_parameter=expected,
                )
                return
            except UnsupportedMethodError:
                if present or expected is None:
                    raise
                # Before Hive 4, metastores compare nothing.
                compares_time = False
            except MetastoreServerError as error:
                failures += 1
                if expected is None or "has been modified" not in error.message:
                    raise
                if failures == _ATTEMPTS:
                    raise MetastoreServerError(
                        f"{database}.{name} is altered all the time: {error.message}",
                        remedy="Try again.",
                        **error.facts,
                    ) from error


def _expected(table: types.Table, keys: Sequence[str], *, time: bool) -> tuple[str, str] | None:
    """Return what the metastore compares: the first position, or the time of the last change."""
    parameters = table.parameters or {}
    key = next(iter(keys), CHANGED if time else "")
    return (key, parameters[key]) if key in parameters else None
