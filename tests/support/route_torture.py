"""The router beside its model on ranges of seeds: ``make torture ARGS="--routes 1000000 --first 0"``.

The output names the seeds that are done, so ``--first`` with the next one continues an interrupted run. A
difference names its seed; ``--first SEED --routes 1`` repeats it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.support.routing_model import CATALOGS, compare

#: Seeds per piece of work: whole statements, and some seconds.
PIECE = 500 * CATALOGS


def run_routes(first: int, count: int, processes: int = 1) -> int:
    """Compare the cases of ``count`` seeds; return 1 at the first difference."""
    began, done, kinds = time.monotonic(), 0, Counter[str]()
    pieces = list(_pieces(first, count))
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for (begin, end), (differences, piece_kinds) in zip(pieces, pool.map(_compare, pieces), strict=True):
            if differences:
                print(differences, flush=True)
                pool.shutdown(cancel_futures=True)
                return 1
            kinds.update(piece_kinds)
            done += end - begin
            rate = done / (time.monotonic() - began)
            print(f"{done:,} of {count:,} routes, to seed {end - 1:,}, {rate:,.0f} per second", flush=True)
    print(", ".join(f"{number:,} {kind}" for kind, number in kinds.most_common()))
    return 0


def _pieces(first: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of seeds that end where a statement ends."""
    begin, last = first, first + count
    while begin < last:
        end = min((begin // PIECE + 1) * PIECE, last)
        yield begin, end
        begin = end


def _compare(seeds: tuple[int, int]) -> tuple[str, Counter[str]]:
    """Return the first difference of a range, or an empty text, and the kinds of the cases."""
    kinds: Counter[str] = Counter()
    for seed in range(*seeds):
        try:
            kinds[compare(seed)] += 1
        except AssertionError as error:
            return f"seed {seed}: {error}", kinds
    return "", kinds
