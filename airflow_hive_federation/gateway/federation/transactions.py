"""Decides which locks and tables a transaction may use when a gateway has several metastores; does no I/O.

A transaction id belongs to one metastore, and so do all things that depend on it: locks, write ids, and the
directories of an ACID table that a reader sees. For example, a compaction writes ``base_0000005_v0000203``,
and a reader takes it only if transaction 203 is committed in the list that it got with ``get_open_txns``
(``AcidUtils``). In the list of another metastore, 203 may be unknown, so that committed rows vanish without
an error; or it may be committed there, and still be running here. So the clients of a gateway get the
transactions of *one* metastore, and the gateway refuses ACID tables of other metastores inside these
transactions. Another gateway, at a port of its own, may serve the transactions of another metastore.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from airflow_hive_federation.errors import ConfigurationError, GatewayError
from airflow_hive_federation.gateway.federation.owners import LocalName, OwnedName
from airflow_hive_federation.gateway.handler import Status, refused
from airflow_hive_federation.metastore.idl import types

#: Database of a lock that stands for read locks of other metastores' tables. No real database has dots.
NOTHING = "hive.federation.elsewhere"
_OWNER_BITS, _ID_BITS = 15, 48
_READS = frozenset(
    {None, types.DataOperationType.SELECT, types.DataOperationType.UNSET, types.DataOperationType.NO_TXN}
)


class LockIds:
    """Encodes the owner of a lock in its id, so that every process of the gateway can find the owner.

    Ids from the metastore whose transactions the gateway serves stay unchanged. Other ids carry a number of
    their owner above their 48 lowest bits; Hive counts locks from 1.

    :param owners: names of all metastores.
    :param unmarked: name of the metastore whose ids stay unchanged.
    :raises ConfigurationError: two names have the same number.
    """

    def __init__(self, owners: Iterable[str], unmarked: str) -> None:
        self._unmarked = unmarked
        self._numbers = {owner: zlib.crc32(owner.encode()) % ((1 << _OWNER_BITS) - 1) + 1 for owner in owners}
        self._owners = {number: owner for owner, number in self._numbers.items()}
        if len(self._owners) < len(self._numbers):
            raise ConfigurationError(
                f"Two of the metastores {', '.join(self._numbers)} cannot be distinguished by their locks.",
                remedy="Give one of them another name.",
            )

    def mark(self, owner: str, lock_id: int) -> int:
        """Return the lock id that clients get."""
        return lock_id if owner == self._unmarked else lock_id | self._numbers[owner] << _ID_BITS

    def read(self, lock_id: int) -> tuple[str, int]:
        """Return the owner of a lock, and the owner's own id of the lock.

        :raises GatewayError: no metastore of this gateway gave the lock.
        """
        if (number := lock_id >> _ID_BITS) <= 0:
            return self._unmarked, lock_id
        if number not in self._owners:
            raise refused(
                Status.FAILED,
                f"No metastore of this gateway has granted lock {lock_id}.",
                remedy="Send the call to the gateway that returned the lock.",
            )
        return self._owners[number], lock_id & ((1 << _ID_BITS) - 1)


def locked(
    request: Any, places: Sequence[OwnedName], transactions_of: str
) -> tuple[str, list[tuple[Any, OwnedName]]]:
    """Return the metastore that has to give a lock, and the components to lock there.

    In a transaction, the lock leaves out tables of other metastores that are only read and are not ACID
    tables: their metastore does not know the transaction, and no client would send heartbeats for that lock.

    :param request: wire ``LockRequest``.
    :param places: place of each component of the request.
    :return: name of the metastore, and its components with their places.
    :raises GatewayError: the lock would span several metastores.
    """
    components = list(zip(request.component, places, strict=True))
    if request.txnid:
        foreign = [
            (component, place)
            for component, place in components
            if place.owner != transactions_of and (component.isTransactional or not _only_reads(component))
        ]
        if foreign:
            raise another_owner("lock", transactions_of, [(_name(part), place) for part, place in foreign])
        return transactions_of, [pair for pair in components if pair[1].owner == transactions_of]
    owners = sorted({place.owner for place in places}) or [transactions_of]
    if len(owners) > 1:
        listed = _listed([(_name(component), place) for component, place in components])
        raise refused(
            Status.FAILED,
            f"lock: one lock cannot be of several metastores: {listed}.",
            remedy="Ask for a lock for the tables of each metastore.",
        )
    return owners[0], components


def writes(request: Any) -> bool:
    """Return whether a wire ``LockRequest`` is for more than reading."""
    return not all(map(_only_reads, request.component))


def changes_data(request: types.CommitTxnRequest) -> bool:
    """Return whether a commit changes more than its transaction, whose changes earlier calls have made.

    A commit may set a parameter of any table, note a database's last replicated event, and write events.
    """
    return bool(request.keyValue is not None or request.replLastIdInfo is not None or request.writeEventInfos)


def another_owner(
    method: str, transactions_of: str, named: Sequence[tuple[LocalName, OwnedName]]
) -> GatewayError:
    """Make the error that refuses a transaction over two metastores.

    :param named: databases and tables of other metastores, with their places.
    """
    owner = named[0][1].owner
    return refused(
        Status.FAILED,
        f"{method}: a transaction belongs to one metastore, and through this gateway that is "
        f"{transactions_of}. {_listed(named)}.",
        remedy=f"Use a gateway that serves the transactions of {owner} (transactions_of), or work at {owner} "
        "itself; to combine ACID tables of both, copy or replicate one first.",
    )


def _only_reads(component: types.LockComponent) -> bool:
    return (
        component.type == types.LockType.SHARED_READ
        and component.operationType in _READS
        and not component.isDynamicPartitionWrite
    )


def _name(component: types.LockComponent) -> LocalName:
    return component.dbname, component.tablename


def _listed(named: Iterable[tuple[LocalName, OwnedName]]) -> str:
    owners = {f"{database}.{table}" if table else database: place.owner for (database, table), place in named}
    return ", ".join(f"{name} belongs to {owner}" for name, owner in sorted(owners.items()))
