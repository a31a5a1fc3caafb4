"""Formats the results of measurements and keeps them in a file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

#: Microseconds: an aim of 5 ms is missed by 5.2 ms.
_PLACES = 6


@dataclass(frozen=True, kw_only=True)
class Result:
    """One comparison of ours with a peer.

    :param id: id of the part it belongs to.
    :param work: the work that both did.
    :param ours_s: our seconds.
    :param peer: name of the peer.
    :param peer_s: the peer's seconds.
    :param ratio: as ``aim`` reads it: ``peer_s / ours_s`` where more is better, ``ours_s / peer_s`` where the
        peer is a limit that cannot be beaten.
    :param aim: a condition on ``ratio`` or ``ours_s``; empty where there is none.
    """

    id: str
    work: str
    ours_s: float
    peer: str
    peer_s: float
    ratio: float
    aim: str

    @property
    def reached(self) -> bool:
        """Return whether the aim is reached; true without an aim."""
        if not self.aim:
            return True
        name, sign, bound = self.aim.split()
        value = self.ratio if name == "ratio" else self.ours_s
        return value >= float(bound) if sign == ">=" else value <= float(bound)


def faster(
    part: str, work: str, *, ours_s: float, peer: str, peer_s: float, at_least: float | None
) -> Result:
    """A result whose ratio is the peer's time divided by ours."""
    aim = "" if at_least is None else f"ratio >= {at_least:g}"
    return _result(part, work, ours_s, peer, peer_s, peer_s / ours_s, aim)


def beside_limit(part: str, work: str, *, ours_s: float, peer: str, peer_s: float, at_most: float) -> Result:
    """A result whose ratio is our time divided by the limit's."""
    return _result(part, work, ours_s, peer, peer_s, ours_s / peer_s, f"ratio <= {at_most:g}")


def seconds(part: str, work: str, *, ours_s: float, peer: str, peer_s: float, at_most_s: float) -> Result:
    """A result whose aim is in seconds; its ratio is ours to the peer's."""
    return _result(part, work, ours_s, peer, peer_s, ours_s / peer_s, f"ours_s <= {at_most_s:g}")


def _result(part: str, work: str, ours_s: float, peer: str, peer_s: float, ratio: float, aim: str) -> Result:
    return Result(
        id=part,
        work=work,
        ours_s=round(ours_s, _PLACES),
        peer=peer,
        peer_s=round(peer_s, _PLACES),
        ratio=round(ratio, 4),
        aim=aim,
    )


def append(path: Path, results: Iterable[Result]) -> None:
    """Append results to a JSON array in a file; what is there stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    text = json.dumps([*known, *map(asdict, results)], indent=1, ensure_ascii=False) + "\n"
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _shown(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.2f} ms"


def table(results: Sequence[Result]) -> str:
    """The results as text, a line each."""
    head = ("id", "peer", "ours", "peer's", "ratio", "aim", "")
    rows = [
        (
            result.id,
            result.peer,
            _shown(result.ours_s),
            _shown(result.peer_s),
            f"{result.ratio:.2f}",
            result.aim,
            "" if not result.aim else "reached" if result.reached else "MISSED",
        )
        for result in results
    ]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    )
