"""The choice of bundles of copies under a budget. Pure.

A bundle is all that one group of statements lacks in one cluster: a part of it is of no use, for a statement
runs where it has everything. Bundles share elements, and an element is paid for once. This is the set-union
knapsack problem, which is hard; the greedy choice takes what saves the most bytes per byte copied (Moirai,
SOSP 2025, and Yugong, VLDB 2019, choose tables to replicate by the same measure).

The bound: let *d* be the number of groups that share an element, at most. The choice saves at least
``(1 - exp(-1/d)) / 2`` of the best choice among bundles that save more than they cost (Arulselvan, "A note on
the set union knapsack problem", 2014, with the better of the greedy choice and the best single bundle).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """The elements that a group of statements lacks in one cluster.

    :param group: number of the group.
    :param elements: a bit per element.
    :param saved: bytes that no longer cross sites once the group runs there.
    """

    group: int
    elements: int
    saved: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """Chosen elements, and what they are good for.

    :param elements: a bit per element.
    :param saved: bytes that no longer cross sites.
    :param cost: bytes that are copied.
    """

    elements: int = 0
    saved: int = 0
    cost: int = 0


def choose(bundles: Sequence[Bundle], costs: Sequence[int], budget: int | None) -> Choice:
    """Choose elements of at most a budget. Each bundle that is taken saves more than it adds in cost.

    :param costs: bytes per element.
    :param budget: bytes; ``None`` is without limit.
    """
    singles = (choice_of(one.elements, bundles, costs) for one in bundles)
    best = max((one for one in singles if _pays(one, budget)), key=_rank, default=Choice())
    greedy = (_greedy(bundles, costs, budget, together=together) for together in (True, False))
    return _without_idle(max(best, *greedy, key=_rank), bundles, costs)


def choice_of(elements: int, bundles: Sequence[Bundle], costs: Sequence[int]) -> Choice:
    """The choice of these elements, with all that they save and cost."""
    return Choice(elements=elements, saved=_saved(elements, bundles, ()), cost=cost_of(elements, costs))


def cost_of(elements: int, costs: Sequence[int]) -> int:
    """The bytes of elements."""
    return sum(costs[number] for number in numbers_of(elements))


def numbers_of(elements: int) -> Iterator[int]:
    """The numbers of elements, ascending."""
    while elements:
        lowest = elements & -elements
        yield lowest.bit_length() - 1
        elements ^= lowest


def _greedy(bundles: Sequence[Bundle], costs: Sequence[int], budget: int | None, *, together: bool) -> Choice:
    """Take the bundle that saves the most per byte, again and again.

    :param together: count what other groups save by the same copies, too. Without it, the bound holds; with
        it, the choice is better as a rule.
    """
    now = Choice()
    served: set[int] = set()
    while True:
        best: tuple[float, Choice, int] | None = None
        for one in bundles:
            if one.group in served:
                continue
            cost = cost_of(one.elements & ~now.elements, costs)
            elements = now.elements | one.elements
            saved = _saved(elements, bundles, served) if together else one.saved
            after = Choice(elements=elements, saved=now.saved + saved, cost=now.cost + cost)
            if saved <= cost or (budget is not None and after.cost > budget):
                continue
            rate = saved / cost if cost else float("inf")
            if best is None or rate > best[0]:
                best = rate, after, one.group
        if best is None:
            return now if together else choice_of(now.elements, bundles, costs)
        now = best[1]
        served |= _served(now.elements, bundles) if together else {best[2]}


def _without_idle(found: Choice, bundles: Sequence[Bundle], costs: Sequence[int]) -> Choice:
    """Leave out elements that save no more than they cost, each with those that are of no use without it."""
    while True:
        fewer = (_useful(found.elements & ~(1 << number), bundles) for number in numbers_of(found.elements))
        better = [
            one for one in (choice_of(each, bundles, costs) for each in fewer) if _net(one) >= _net(found)
        ]
        if not better:
            return found
        found = max(better, key=_net)


def _useful(elements: int, bundles: Sequence[Bundle]) -> int:
    """The elements that belong to a bundle which is whole."""
    useful = 0
    for one in bundles:
        if not one.elements & ~elements:
            useful |= one.elements
    return useful


def _served(elements: int, bundles: Sequence[Bundle]) -> set[int]:
    return {one.group for one in bundles if not one.elements & ~elements}


def _saved(elements: int, bundles: Sequence[Bundle], served: Collection[int]) -> int:
    by_group = {
        one.group: one.saved for one in bundles if one.group not in served and not one.elements & ~elements
    }
    return sum(by_group.values())


def _pays(one: Choice, budget: int | None) -> bool:
    return one.saved > one.cost and (budget is None or one.cost <= budget)


def _net(one: Choice) -> int:
    return one.saved - one.cost


def _rank(one: Choice) -> tuple[int, int]:
    return one.saved, -one.cost
