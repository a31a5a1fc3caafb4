"""Records the last cycles of a target in the target database itself. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields

from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.json_values import list_of, reader_of
from airflow_hive_federation.progress.events import Published
from airflow_hive_federation.replication.replica.markers import CYCLES

#: A database's parameter holds 4,000 characters (``DATABASE_PARAMS.PARAM_VALUE``).
_LIMIT = 3_900

BOOTSTRAP = "bootstrap"
INCREMENT = "increment"
IDLE = "idle"


@dataclass(frozen=True, kw_only=True)
class CycleRecord:
    """The record of a published cycle.

    :param kind: ``bootstrap``, ``increment``, or ``idle`` for cycles that found nothing to do.
    :param event_id: last event of the target after the cycle.
    :param ended_s: its end, in seconds since 1970, by the clock of the machine that ran it.
    :param seconds: duration of its load.
    :param cycles: number of idle cycles in a row that this record stands for; 1 for other kinds.
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
        """Return the throughput of the load, 0 if it copied nothing."""
        return self.size_bytes / self.seconds if self.seconds else 0.0


def published(database: str, record: CycleRecord) -> Published:
    """Return the event of a target that a load has published.

    :param database: the database of the target.
    """
    return Published(
        database=database,
        event_id=record.event_id,
        files=record.files,
        size_bytes=record.size_bytes,
        seconds=record.seconds,
    )


def with_cycle(parameters: Mapping[str, str] | None, record: CycleRecord) -> dict[str, str]:
    """Return the parameter that lists the cycles, with one more; the oldest records give way.

    :param parameters: parameters of the target database.
    """
    records = [*read_cycles(parameters), record]
    if len(records) > 1 and records[-2].kind == record.kind == IDLE:
        records[-2:] = [CycleRecord(**{**asdict(record), "cycles": records[-2].cycles + record.cycles})]
    while len(text := _text(records)) > _LIMIT:
        del records[0]
    return {CYCLES: text}


def read_cycles(parameters: Mapping[str, str] | None) -> list[CycleRecord]:
    """Return the cycles that a target database has recorded, oldest first; none if they cannot be read."""
    try:
        return list(_RECORDS(bounded_json.loads((parameters or {}).get(CYCLES, "[]"))))
    except ValueError:
        # The record was changed by hand or by a later version. It is a convenience, and its loss stops no
        # cycle.
        return []


_RECORDS = list_of(reader_of(CycleRecord))


def _text(records: Sequence[CycleRecord]) -> str:
    # Values that equal their defaults are left out, because the parameter has little room.
    defaults = {field.name: field.default for field in fields(CycleRecord)}
    lines = [
        {name: value for name, value in asdict(record).items() if value != defaults[name]}
        for record in records
    ]
    return json.dumps(lines, separators=(",", ":"))
