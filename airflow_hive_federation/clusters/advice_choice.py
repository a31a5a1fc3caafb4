"""Chooses bundles of copies under a budget. Pure.

A bundle contains all elements that one group of statements lacks in one cluster. A part of a bundle has no
use, because a statement needs all its data in the cluster that runs it. Bundles share elements, and each
element is copied once. This is the set-union knapsack problem, which is hard; the greedy choice takes the
bundles that save the most bytes per byte copied (Moirai, SOSP 2025, and Yugong, VLDB 2019, choose tables to
replicate by the same measure).

The bound: let *d* be the largest number of groups that share an element. The choice saves at least
``(1 - exp(-1/d)) / 2`` of the best choice among bundles that save more than they cost (Arulselvan, "A note on
the set union knapsack problem", 2014, with the better of the greedy choice and the best single bundle).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """The elements that a group of statements lacks in one cluster.

    :param group: the number of the group.
    :param elements: the elements, as one bit each.
    :param saved: the bytes that no longer cross sites once the group runs in that cluster.
    """

    group: int
    elements: int
    saved: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A set of elements, with its savings and its cost.

    :param elements: the elements, as one bit each.
    :param saved: the bytes that no longer cross sites.
    :param cost: the bytes that are copied.
    """

    elements: int = 0
    saved: int = 0
    cost: int = 0


def choose(bundles: Sequence[Bundle], costs: Sequence[int], budget: int | None) -> Choice:
    """Choose elements within a budget, each of which saves more than it costs.

    :param costs: the bytes of each element.
    :param budget: the budget in bytes; ``None`` means no limit.
    """
    alike = _alike(bundles, len(costs))
    merged = [replace(bundle, elements=_merged(bundle.elements, alike)) for bundle in bundles]
    merged_costs = [cost_of(elements, costs) for elements in alike]
    choice = _chosen(merged, merged_costs, budget)
    return choice_of(sum(alike[number] for number in numbers_of(choice.elements)), bundles, costs)


def choice_of(elements: int, bundles: Sequence[Bundle], costs: Sequence[int]) -> Choice:
    """Return the choice of these elements, with all their savings and costs."""
    return Choice(elements=elements, saved=_saved(elements, bundles), cost=cost_of(elements, costs))


def cost_of(elements: int, costs: Sequence[int]) -> int:
    """Return the bytes of a set of elements."""
    return sum(costs[number] for number in numbers_of(elements))


def numbers_of(elements: int) -> Iterator[int]:
    """Yield the numbers of the elements, ascending."""
    while elements:
        lowest = elements & -elements
        yield lowest.bit_length() - 1
        elements ^= lowest


def _alike(bundles: Sequence[Bundle], elements: int) -> list[int]:
    """Return sets of elements that belong to the same bundles: thousands of partitions form few such sets."""
    owners: list[list[int]] = [[] for _ in range(elements)]
    for number, bundle in enumerate(bundles):
        for element in numbers_of(bundle.elements):
            owners[element].append(number)
    sets: dict[tuple[int, ...], int] = {}
    for element, of_element in enumerate(owners):
        key = tuple(of_element)
        sets[key] = sets.get(key, 0) | 1 << element
    return list(sets.values())


def _merged(elements: int, alike: Sequence[int]) -> int:
    return sum(1 << number for number, of_set in enumerate(alike) if of_set & elements)


def _chosen(bundles: Sequence[Bundle], costs: Sequence[int], budget: int | None) -> Choice:
    singles = (choice_of(bundle.elements, bundles, costs) for bundle in bundles)
    best = max((single for single in singles if _pays(single, budget)), key=_rank, default=Choice())
    greedy = (_greedy(bundles, costs, budget, together=together) for together in (True, False))
    return _without_idle(max(best, *greedy, key=_rank), bundles, costs)


def _greedy(bundles: Sequence[Bundle], costs: Sequence[int], budget: int | None, *, together: bool) -> Choice:
    """Repeatedly take the bundle that saves the most per byte, even if its savings alone do not pay.

    :param together: also count the savings of other groups by the same copies. Without it, the bound holds;
        with it, the choice is usually better.
    """
    now = Choice()
    served: set[int] = set()
    while True:
        best: tuple[float, Choice, int] | None = None
        remaining = [bundle for bundle in bundles if bundle.group not in served]
        for bundle in remaining:
            cost = cost_of(bundle.elements & ~now.elements, costs)
            elements = now.elements | bundle.elements
            saved = _saved(elements, remaining) if together else bundle.saved
            after = Choice(elements=elements, saved=now.saved + saved, cost=now.cost + cost)
            if budget is not None and after.cost > budget:
                continue
            rate = saved / cost if cost else float("inf")
            if best is None or rate > best[0]:
                best = rate, after, bundle.group
        if best is None:
            return now if together else choice_of(now.elements, bundles, costs)
        now = best[1]
        served |= _served(now.elements, bundles) if together else {best[2]}


def _without_idle(chosen: Choice, bundles: Sequence[Bundle], costs: Sequence[int]) -> Choice:
    """Remove elements that save no more than they cost, and elements that are useless without those."""
    while True:
        fewer = (_useful(chosen.elements & ~(1 << number), bundles) for number in numbers_of(chosen.elements))
        better = [
            choice
            for choice in (choice_of(each, bundles, costs) for each in fewer)
            if _net(choice) >= _net(chosen)
        ]
        if not better:
            return chosen
        chosen = max(better, key=_net)


def _useful(elements: int, bundles: Sequence[Bundle]) -> int:
    """Return the elements that belong to a complete bundle."""
    useful = 0
    for bundle in bundles:
        if not bundle.elements & ~elements:
            useful |= bundle.elements
    return useful


def _served(elements: int, bundles: Sequence[Bundle]) -> set[int]:
    return {bundle.group for bundle in bundles if not bundle.elements & ~elements}


def _saved(elements: int, bundles: Iterable[Bundle]) -> int:
    missing = ~elements
    return sum({bundle.group: bundle.saved for bundle in bundles if not bundle.elements & missing}.values())


def _pays(choice: Choice, budget: int | None) -> bool:
    return choice.saved > choice.cost and (budget is None or choice.cost <= budget)


def _net(choice: Choice) -> int:
    return choice.saved - choice.cost


def _rank(choice: Choice) -> tuple[int, int]:
    return choice.saved, -choice.cost
