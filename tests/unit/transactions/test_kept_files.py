"""Snapshots whose files are kept, beside cleaners that wait for different things."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import pytest

from airflow_hive_federation.errors import LockTimeoutError
from airflow_hive_federation.transactions.keeping import KeptFiles

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


class Metastore:
    """A metastore with a new partition at each of the first ``growing`` calls, or without locks."""

    def __init__(self, growing: int | None) -> None:
        self.growing = growing
        self.asked: list[list[str]] = []

    def keep_history(
        self, _txn_id: int, names: Sequence[str], *, locked: frozenset[str] = frozenset()
    ) -> frozenset[str] | None:
        self.asked.append(list(names))
        if self.growing is None:
            return None
        return locked | {f"db.t/p={min(len(self.asked), self.growing)}"}


def take(metastore: Metastore) -> int:
    """Return the number of the snapshot that counts."""
    taken: list[int] = []
    kept = KeptFiles(cast("MetastoreClient", metastore), 1)

    def snapshot() -> int:
        taken.append(len(taken) + 1)
        return taken[-1]

    return kept.take(lambda: ["db.t"], snapshot)


def test_the_snapshot_counts_after_which_no_partition_is_new() -> None:
    assert take(Metastore(growing=1)) == 1
    assert take(Metastore(growing=4)) == 4


def test_partitions_that_come_too_fast_are_an_error() -> None:
    with pytest.raises(LockTimeoutError, match="faster than transaction 1 can keep"):
        take(Metastore(growing=1000))


def test_a_cleaner_that_waits_for_transactions_is_asked_once_per_table() -> None:
    metastore = Metastore(growing=None)
    assert take(metastore) == 1
    assert metastore.asked == [["db.t"]]
    kept = KeptFiles(cast("MetastoreClient", metastore), 1)
    for names in (["db.t"], ["db.t", "db.u"]):
        kept.take(lambda names=names: names, lambda: None)
    assert metastore.asked[1:] == [["db.t"], ["db.u"]]


def test_a_table_that_is_created_before_the_snapshot_is_kept_by_another_one() -> None:
    """Its first commit may belong to the first snapshot, whose files nothing would keep."""
    metastore = Metastore(growing=None)
    tables, taken = ["db.t"], []

    def snapshot() -> int:
        taken.append(list(metastore.asked))
        tables[:] = ["db.t", "db.u"]
        return len(taken)

    assert KeptFiles(cast("MetastoreClient", metastore), 1).take(lambda: list(tables), snapshot) == 2
    assert taken == [[["db.t"]], [["db.t"], ["db.u"]]]


def test_tables_that_come_too_fast_are_an_error() -> None:
    kept, tables = KeptFiles(cast("MetastoreClient", Metastore(growing=None)), 1), ["db.t"]
    with pytest.raises(LockTimeoutError, match="faster than transaction 1 can keep"):
        kept.take(lambda: list(tables), lambda: tables.append(f"db.t{len(tables)}"))
