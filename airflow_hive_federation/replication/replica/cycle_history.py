"""What the last cycles of a target did, kept in the target database itself. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.replication.replica.markers import CYCLES

#: A database's parameter holds 4,000 characters (``DATABASE_PARAMS.PARAM_VALUE``).
_LIMIT = 3_900

BOOTSTRAP = "bootstrap"
INCREMENT = "increment"
IDLE = "idle"


@dataclass(frozen=True, kw_only=True)
class CycleRecord:
    """A cycle that was published.

    :param kind: ``bootstrap``, ``increment``, or ``idle`` for cycles that found nothing to do.
    :param event_id: last event of the target after it.
    :param ended_s: its end, in seconds since 1970, by the clock of whoever ran it.
    :param seconds: duration of its load.
    :param cycles: how many there were of an idle one, one after the other.
    """

    kind: str
    event_id: int
    ended_s: int
    seconds: float = 0.0
    events: int = 0
    tables: int = 0
    files: int = 0
    size_bytes: int = 0
    transactions: int = 0
    cycles: int = 1

    @property
    def bytes_per_s(self) -> float:
        """Throughput of the load, 0 where nothing was copied."""
        return self.size_bytes / self.seconds if self.seconds else 0.0


def with_cycle(parameters: Mapping[str, str] | None, record: CycleRecord) -> dict[str, str]:
    """The parameter that says what the cycles were, with one more; the oldest give way.

    :param parameters: parameters of the target database.
    """
    found = [*read_cycles(parameters), record]
    if len(found) > 1 and found[-2].kind == record.kind == IDLE:
        found[-2:] = [CycleRecord(**{**asdict(record), "cycles": found[-2].cycles + record.cycles})]
    while len(text := _text(found)) > _LIMIT:
        del found[0]
    return {CYCLES: text}


def read_cycles(parameters: Mapping[str, str] | None) -> list[CycleRecord]:
    """The cycles that a target database tells of, oldest first; none where it tells nothing readable."""
    try:
        found = bounded_json.loads((parameters or {}).get(CYCLES, "[]"))
        return [_record(values) for values in found]
    except (ValueError, TypeError, AttributeError):
        # By hand, or by a later version. What the cycles were is a convenience: it stops none.
        return []


def _record(values: Mapping[str, Any]) -> CycleRecord:
    names = {field.name for field in fields(CycleRecord)}
    return CycleRecord(**{name: value for name, value in values.items() if name in names})


def _text(found: Sequence[CycleRecord]) -> str:
    # Defaults are left out, for there is little room.
    defaults = {field.name: field.default for field in fields(CycleRecord)}
    lines = [{name: value for name, value in asdict(one).items() if value != defaults[name]} for one in found]
    return json.dumps(lines, separators=(",", ":"))
