from __future__ import annotations

import sys

import pytest

from airflow_hive_federation.replication.dump.pairs import Pairs


def test_a_sequence_of_pairs() -> None:
    pairs = Pairs([(1, 2), (3, 4), (5, 6)])
    assert list(pairs) == [(1, 2), (3, 4), (5, 6)]
    assert (pairs[0], pairs[-1], pairs[1:], len(pairs)) == ((1, 2), (5, 6), [(3, 4), (5, 6)], 3)
    assert pairs == ((1, 2), (3, 4), (5, 6))
    assert pairs != [(1, 2)]
    assert pairs != 7
    with pytest.raises(IndexError):
        pairs[3]


def test_by_the_second_number() -> None:
    assert Pairs([(9, 3), (8, 1), (7, 3)]).ascending() == [(8, 1), (7, 3)]
    pairs = Pairs([(9, 1), (8, 2)])
    assert pairs.ascending() is pairs
    assert Pairs().ascending() == []


def test_a_million_take_sixteen_bytes_each() -> None:
    pairs = Pairs((number, number) for number in range(10_000))
    assert sum(map(sys.getsizeof, vars(pairs).values())) < 20 * 10_000
