"""Transactions of the source are merged where one of the target shows the same after it."""

from __future__ import annotations

import random
from collections.abc import Collection

import pytest

from airflow_hive_federation.replication.dump.merging import Merging, leaders
from airflow_hive_federation.replication.dump.pairs import Pairs
from tests.support.examples import seeds


def writes(**tables: list[tuple[int, int]]) -> dict[str, Pairs]:
    return {table: Pairs(pairs) for table, pairs in tables.items()}


def merged(ends: list[int], written: dict[str, Pairs], alone: Collection[int] = ()) -> Merging:
    return Merging(zip(ends, leaders(ends, written, alone), strict=True))


def test_transactions_of_different_tables_are_one() -> None:
    merging = merged([1, 2, 3], writes(a=[(1, 7)], b=[(2, 1)], c=[(3, 5)]))
    assert list(merging.leaders) == [1]
    assert [merging.leader(txn) for txn in (1, 2, 3, 9)] == [1, 1, 1, 9]
    assert merging.merged(writes(c=[(3, 5), (9, 6)])) == {"c": [(1, 5), (9, 6)]}


def test_a_table_that_is_written_again_begins_another() -> None:
    merging = merged([1, 3, 2, 4], writes(a=[(1, 1), (2, 2)], b=[(3, 1), (4, 2)]))
    assert list(merging.leaders) == [1, 2]
    assert [merging.leader(txn) for txn in (1, 2, 3, 4)] == [1, 2, 1, 2]


def test_what_has_a_transaction_of_its_own_stays_alone() -> None:
    merging = merged([1, 2, 3, 4], writes(a=[(1, 1)], b=[(2, 1)], c=[(3, 1)], d=[(4, 1)]), alone=[2])
    assert list(merging.leaders) == [1, 2, 3]


def test_a_run_of_a_load_that_was_killed_gets_no_more_members() -> None:
    # Transaction 5 ended without an event, so it comes last in each dump. Transaction 7 wrote to its table.
    written = writes(a=[(1, 1)], t=[(5, 1), (7, 2)])
    killed = merged([1, 5], written)
    assert list(killed.leaders) == [1]
    assert list(leaders([1, 7, 5], written, begun=[killed])) == [1, 7, 1]


def test_nothing_ended() -> None:
    merging = merged([], {})
    assert list(merging.leaders) == []
    assert merging.leader(4) == 4


@pytest.mark.parametrize("seed", seeds(20))
def test_no_leader_has_two_write_ids_in_a_table_and_the_order_stays(seed: int) -> None:
    rng = random.Random(seed)
    ends = rng.sample(range(1, 400), 200)
    tables = {
        name: Pairs((txn, place + 1) for place, txn in enumerate(sorted(rng.sample(range(1, 400), 60))))
        for name in "abcdef"
    }
    alone = set(rng.sample(ends, 5))
    merging = merged(ends, tables, alone)
    for pairs in merging.merged(tables).values():
        assert len({txn for txn, _ in pairs}) == len(pairs)
    led = [merging.leader(txn) for txn in ends]
    assert list(dict.fromkeys(led)) == list(merging.leaders)
    assert all(
        ends.index(transaction) == led.index(transaction) <= place for place, transaction in enumerate(led)
    )
    # What comes later changes nobody's leader.
    fewer = merged(ends[:150], tables, alone)
    assert [fewer.leader(txn) for txn in ends[:150]] == led[:150]
    assert all(merging.leader(txn) == txn and led.count(txn) == 1 for txn in alone)
