"""The greedy choice of copies beside all choices there are."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import product

import pytest

from airflow_hive_federation.clusters.advice_choice import Bundle, Choice, choice_of, choose, numbers_of


def all_choices(bundles: Sequence[Bundle], costs: Sequence[int]) -> list[Choice]:
    """The choice of each set of elements."""
    return [choice_of(elements, bundles, costs) for elements in range(1 << len(costs))]


def best_of_paying(bundles: Sequence[Bundle], costs: Sequence[int], budget: int) -> int:
    """The most that bundles which pay by themselves save within the budget, by trying all sets of them."""
    paying = [bundle for bundle in bundles if bundle.saved > choice_of(bundle.elements, [], costs).cost]
    best = 0
    for taken in product((False, True), repeat=len(paying)):
        elements, groups = 0, {}
        for bundle, is_taken in zip(paying, taken, strict=True):
            if is_taken:
                elements |= bundle.elements
                groups[bundle.group] = bundle.saved
        if choice_of(elements, [], costs).cost <= budget:
            best = max(best, sum(groups.values()))
    return best


def random_case(seed: int) -> tuple[list[Bundle], list[int], int]:
    chance = random.Random(seed)
    costs = [chance.choice([0, 1, 2, 3, 5, 8, 13]) for _ in range(chance.randint(1, 6))]
    bundles = []
    for group in range(chance.randint(1, 5)):
        saved = chance.randint(0, 40)
        bundles += [
            Bundle(group=group, elements=chance.randrange(1, 1 << len(costs)), saved=saved)
            for _ in range(chance.randint(1, 2))
        ]
    return bundles, costs, chance.randint(0, sum(costs) + 1)


@pytest.mark.parametrize("start", range(0, 2000, 500))
def test_the_choice_keeps_its_bound_and_its_budget(start: int) -> None:
    for seed in range(start, start + 500):
        bundles, costs, budget = random_case(seed)
        chosen = choose(bundles, costs, budget)
        assert chosen == choice_of(chosen.elements, bundles, costs), seed
        assert chosen.cost <= budget, seed
        shared = max(
            len({bundle.group for bundle in bundles if bundle.elements >> number & 1})
            for number in range(len(costs))
        )
        bound = (1 - math.exp(-1 / max(shared, 1))) / 2
        assert chosen.saved >= bound * best_of_paying(bundles, costs, budget), seed


def test_nothing_is_chosen_that_does_not_help() -> None:
    for seed in range(2000):
        bundles, costs, budget = random_case(seed)
        chosen = choose(bundles, costs, budget)
        for number in numbers_of(chosen.elements):
            without = choice_of(chosen.elements & ~(1 << number), bundles, costs)
            assert without.saved - without.cost < chosen.saved - chosen.cost, seed
        # No element is there for nothing.
        needed = 0
        for bundle in bundles:
            if not bundle.elements & ~chosen.elements:
                needed |= bundle.elements
        assert chosen.elements == chosen.elements & needed, seed


def test_copies_that_several_groups_share_are_worth_their_sum() -> None:
    shared, own = 0b1, 0b10
    bundles = [
        Bundle(group=0, elements=shared, saved=60),
        Bundle(group=1, elements=shared, saved=60),
        Bundle(group=2, elements=own, saved=70),
    ]
    chosen = choose(bundles, [100, 50], 100)
    assert (chosen.elements, chosen.saved, chosen.cost) == (shared, 120, 100)


def test_a_large_bundle_is_taken_where_small_ones_would_fill_the_budget() -> None:
    # By the rate alone, the small bundle is taken, and the large one has no place any more.
    bundles = [Bundle(group=0, elements=0b1, saved=100), Bundle(group=1, elements=0b10, saved=5000)]
    assert choose(bundles, [1, 100], 100).saved == 5000


def test_without_a_budget_all_that_pays_is_taken_and_nothing_else() -> None:
    bundles = [
        Bundle(group=0, elements=0b01, saved=11),
        Bundle(group=1, elements=0b10, saved=10),
    ]
    assert choose(bundles, [10, 10], None).elements == 0b01
    assert choose([], [], None) == Choice()
    assert list(numbers_of(0b1010)) == [1, 3]


def test_the_better_of_two_greedy_choices_is_taken() -> None:
    # Counting what other groups save by the same copies leads to 88 here.
    assert choose(*random_case(92)).saved == 91
