"""A target in an object store in memory, whose processes are killed or suspended between any two calls.

Of the metastore it has what keeps readers out: transactions, those of a replay with their map, and locks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from fsspec.implementations.memory import MemoryFileSystem

from airflow_hive_federation.errors import NoSuchTransactionError
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.idl import types

TABLE = "s3://w/t"


class KillError(BaseException):
    """The process is dead: no handler of an error of it makes a call any more."""


@dataclass
class Life:
    """One process, of which a call may not return.

    :param calls: number of calls after which the process is killed or suspended; ``None`` for never.
    :param meanwhile: runs while the process is suspended; without it, the process is killed.
    """

    calls: int | None = None
    meanwhile: Callable[[], None] | None = None
    is_dead: bool = False
    has_slept: bool = False

    def call(self) -> None:
        """Count a call, right before it is carried out."""
        if self.is_dead:
            raise KillError
        if self.calls is None:
            return
        self.calls -= 1
        if self.calls >= 0:
            return
        if self.meanwhile is None:
            self.is_dead = True
            raise KillError
        meanwhile, self.calls = self.meanwhile, None
        meanwhile()
        self.has_slept = True


class Store(MemoryFileSystem):  # type: ignore[misc]
    """An object store, as one process sees it."""

    protocol = ("s3", "s3a")
    store: dict[str, Any] = {}  # noqa: RUF012 - the class has one as well
    pseudo_dirs: list[str] = [""]  # noqa: RUF012
    cachable = False
    life = Life()

    def find(self, path: str, *arguments: Any, **options: Any) -> Any:
        found = super().find(path, *arguments, **options)
        if isinstance(found, dict):
            return {name.lstrip("/"): {**info, "name": name.lstrip("/")} for name, info in found.items()}
        return [name.lstrip("/") for name in found]

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        self.life.call()
        super().cp_file(path1, path2, **options)

    def rm_file(self, path: str) -> None:
        self.life.call()
        super().rm_file(path)

    def call_s3(self, *_: Any, **__: Any) -> None:
        """Remove an object for a directory, of which there is none."""

    def names(self) -> list[str]:
        """Return the paths of the table's files."""
        return sorted(name.removeprefix("/w/t/") for name in self.store)


@dataclass
class Metastore:
    """The state of the target's metastore.

    :ivar states: the states of transactions by their ids: open, committed or aborted.
    :ivar replayed: the ids of transactions of a replay by the name and the number of the map.
    :ivar locks: the transaction of each lock on the table, in the order of the requests.
    """

    states: dict[int, str] = field(default_factory=dict)
    hosts: dict[int, str] = field(default_factory=dict)
    replayed: dict[tuple[str, int], int] = field(default_factory=dict)
    locks: list[int] = field(default_factory=list)

    def time_out(self) -> None:
        """Abort each transaction that has been silent for ``hive.txn.timeout``."""
        for txn, state in self.states.items():
            if state == "open" and txn not in self.replayed.values():
                self.states[txn] = "aborted"

    def keeps_readers_out(self) -> bool:
        """Return whether a transaction has the lock on the table."""
        return any(self.states[txn] == "open" for txn in self.locks)

    def open_ones(self) -> list[int]:
        return [txn for txn, state in self.states.items() if state == "open"]


class Client:
    """A client of the metastore in one process."""

    settings = MetastoreSettings(uris=("thrift://target:1",))

    def __init__(self, metastore: Metastore, life: Life, refuse: Callable[[], None] = lambda: None) -> None:
        self._metastore, self._life = metastore, life
        #: Refuses calls that write.
        self._refuse = refuse

    def get_config_value(self, _name: str, default: str) -> str:
        return default

    def open_txns(
        self,
        count: int = 1,
        *,
        host: str = "",
        kind: types.TxnType = types.TxnType.DEFAULT,
        repl_policy: str = "",
        source_txn_ids: Collection[int] = (0,),
    ) -> list[int]:
        self._write()
        assert count == 1
        (number,) = source_txn_ids
        known = self._metastore.replayed.get((repl_policy, number))
        if known is not None:
            return [known]
        txn = len(self._metastore.states) + 1
        self._metastore.states[txn] = "open"
        self._metastore.hosts[txn] = host
        if kind == types.TxnType.REPL_CREATED:
            self._metastore.replayed[repl_policy, number] = txn
        return [txn]

    def get_open_txns(self) -> types.GetOpenTxnsResponse:
        self._life.call()
        return types.GetOpenTxnsResponse(
            txn_high_water_mark=len(self._metastore.states),
            open_txns=self._metastore.open_ones(),
            abortedBits=b"",
        )

    def heartbeat_txn_range(self, first: int, last: int) -> types.HeartbeatTxnRangeResponse:
        self._life.call()
        states = {txn: self._metastore.states.get(txn, "none") for txn in range(first, last + 1)}
        return types.HeartbeatTxnRangeResponse(
            aborted=[txn for txn, state in states.items() if state == "aborted"],
            nosuch=[txn for txn, state in states.items() if state in {"none", "committed"}],
        )

    def lock(self, _components: object, *, txn_id: int) -> types.LockResponse:
        self._write()
        if self._metastore.states.get(txn_id) != "open":
            raise NoSuchTransactionError(f"No such transaction txnid:{txn_id}")
        self._metastore.locks.append(txn_id)
        lock_id = len(self._metastore.locks)
        return types.LockResponse(lockid=lock_id, state=self._lock_state(lock_id))

    def check_lock(self, lock_id: int, *, txn_id: int) -> types.LockResponse:
        self._life.call()
        assert self._metastore.locks[lock_id - 1] == txn_id
        return types.LockResponse(lockid=lock_id, state=self._lock_state(lock_id))

    def show_locks(self, **_: str) -> list[types.ShowLocksResponseElement]:
        self._life.call()
        return [
            types.ShowLocksResponseElement(
                lockid=lock_id,
                tablename="t",
                txnid=txn,
                type=types.LockType.EXCLUSIVE,
                state=self._lock_state(lock_id),
            )
            for lock_id, txn in enumerate(self._metastore.locks, 1)
            if self._metastore.states[txn] == "open"
        ]

    def commit_txn(
        self, number: int, *, repl_policy: str = "", excl_write_enabled: bool = False, **_: object
    ) -> None:
        self._write()
        txn = self._metastore.replayed.pop((repl_policy, number), None) if repl_policy else number
        if txn is not None:
            self._metastore.states[txn] = "committed"

    def abort_txns(self, txns: Collection[int]) -> None:
        self._write()
        self._metastore.states |= dict.fromkeys(txns, "aborted")
        for key in [key for key, txn in self._metastore.replayed.items() if txn in txns]:
            del self._metastore.replayed[key]

    def call(self, method: str) -> SimpleNamespace:
        assert method == "get_open_txns_info"
        return SimpleNamespace(open_txns=list(self._infos()))

    def _infos(self) -> Iterator[types.TxnInfo]:
        for txn in self._metastore.open_ones():
            yield types.TxnInfo(id=txn, state=types.TxnState.OPEN, hostname=self._metastore.hosts.get(txn))

    def _lock_state(self, lock_id: int) -> types.LockState:
        """Return the state of a lock: it waits for all earlier ones, which may be waiting themselves."""
        txn = self._metastore.locks[lock_id - 1]
        earlier = self._metastore.locks[: lock_id - 1]
        others = {other for other in earlier if self._metastore.states[other] == "open"} - {txn}
        return types.LockState.WAITING if others else types.LockState.ACQUIRED

    def _write(self) -> None:
        self._refuse()
        self._life.call()
