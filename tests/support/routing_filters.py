"""Random conditions on partition keys, for the statements of the routing model.

A condition is made for the parts that it leaves, so they are known without reading its text.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import date, timedelta

from airflow_hive_federation.model.partitions import DEFAULT_PARTITION

TABLES = ("t1", "t2", "t3", "t4", "t5")
#: The parts that a place reads, each the day or, for a second key, day/hour; ``None`` for all.
Parts = tuple[str, ...] | None
#: The days that filters name; the last one is ``current_date``.
ALL_DAYS = tuple(str(day) for day in range(6))
ALL_HOURS = ("0", "1", "2")
TODAY = date(2026, 3, 1)
#: The types of ``ds``; the last one is a string that holds a date.
KINDS = ("string", "int", "date", "day")
#: Conditions that no router can decide.
UNDECIDABLE = (
    "{}k = 1",
    "rand() > 0.5",
    "length({}ds) = 1",
    "{}ds RLIKE 'x'",
    "CAST({}ds AS DOUBLE) = 1",
    # Hive cuts values to this length, Spark does not.
    "CAST({}ds AS CHAR(1)) = '2'",
    "CAST({}ds AS VARCHAR(3)) = '202'",
    "CAST({}ds AS TIMESTAMP) > current_timestamp()",
)


class Chance:
    """Draws from one seed."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)

    def _chance(self, share: float) -> bool:
        return self._random.random() < share


class Filters(Chance):
    """Random conditions on the tables of one statement."""

    #: The number of partition keys of each table.
    _keys: dict[str, int]
    #: The type of the first partition key, of :data:`KINDS`.
    _kind: str

    def _parts(self, name: str) -> Parts:
        if not self._keys[name] or self._chance(0.4):
            return None
        days = self._days()
        if self._keys[name] == 1:
            return days
        form = self._random.choice(["both", "both", "hours", "pairs"])
        hours = tuple(hour for hour in ALL_HOURS if self._chance(0.5)) or ("1",)
        if form == "both":
            return _product(days, hours)
        if form == "hours":
            return _product((*ALL_DAYS, DEFAULT_PARTITION), hours)
        return tuple(self._random.sample(_product(ALL_DAYS, ALL_HOURS), self._random.randint(1, 4)))

    def _days(self) -> tuple[str, ...]:
        if self._chance(0.4):
            first = self._random.randint(0, 5)
            return ALL_DAYS[first : self._random.randint(first, 5) + 1]
        return tuple(day for day in ALL_DAYS if self._chance(0.4)) or ("0",)

    def _condition(self, name: str, parts: Parts, prefix: str = "") -> str:
        """Return a condition that leaves these parts; empty if it would leave all."""
        doubt = self._random.choice(UNDECIDABLE if self._keys[name] else UNDECIDABLE[:2]).format(prefix)
        if parts is None:
            if not self._keys[name]:
                return doubt if self._chance(0.1) else ""
            days = self._random.choice(list(self._days_filters(self._days(), prefix)))
            return f"({days} OR {doubt})" if self._chance(0.2) else ""
        if self._keys[name] == 1:
            filters = list(self._days_filters(parts, prefix))
        else:
            filters = list(self._hour_filters(parts, prefix))
        condition = f"({self._random.choice(filters)})"
        return f"{condition} AND {doubt}" if self._chance(0.15) else condition

    def _days_filters(self, days: tuple[str, ...], prefix: str) -> Iterator[str]:
        """Yield the conditions that leave these days."""
        ds = f"{prefix}ds"
        yield f"{ds} IN ({', '.join(map(self._literal, days))})"
        yield " OR ".join(f"{ds} = {self._literal(day)}" for day in days)
        others = [day for day in ALL_DAYS if day not in days]
        if others:
            yield f"{ds} NOT IN ({', '.join(map(self._literal, others))})"
            yield f"NOT ({' OR '.join(f'{self._literal(day)} = {ds}' for day in others)})"
        first, last = days[0], days[-1]
        if days == ALL_DAYS[int(first) : int(last) + 1]:
            yield f"{ds} BETWEEN {self._literal(first)} AND {self._literal(last)}"
            yield f"{ds} >= {self._literal(first)} AND {self._literal(last)} >= {ds}"
            if last == ALL_DAYS[-1]:
                yield f"{ds} > {self._literal(first)} OR {ds} = {self._literal(first)}"
        yield from self._casts(ds, days)
        if self._kind in {"string", "day"}:
            texts = [key_text(self._kind, day) for day in days]
            yield " OR ".join(f"{ds} LIKE '{text}{self._random.choice(['', '%'])}'" for text in texts)
            yield (
                " OR ".join(f"{ds} LIKE '{self._random.choice(['%', '_'])}{text[1:]}'" for text in texts)
                if (self._kind == "day")
                else f"{ds} LIKE '_' AND {ds} IN ({', '.join(map(self._literal, days))})"
            )
            if others:
                texts = [key_text(self._kind, day) for day in others]
                yield " AND ".join(f"{ds} NOT LIKE '{text}%'" for text in texts)

    def _casts(self, ds: str, days: tuple[str, ...]) -> Iterator[str]:
        """Yield conditions on the key, or on constants, in another type."""
        texts = [key_text(self._kind, day) for day in days]
        quoted = [f"'{text}'" for text in texts]
        yield f"CAST({ds} AS STRING) IN ({', '.join(quoted)})"
        if self._kind in {"string", "int"}:
            yield f"CAST({ds} AS {self._random.choice(['INT', 'BIGINT'])}) IN ({', '.join(texts)})"
            yield f"CAST({ds} AS INT) + 1 IN ({', '.join(str(int(text) + 1) for text in texts)})"
            to = "INT" if self._kind == "int" else "STRING"
            yield " OR ".join(f"{ds} = CAST({text} AS {to})" for text in self._random.choice([texts, quoted]))
        else:
            of_day = self._random.choice(["to_date({})", "CAST({} AS DATE)"]).format(ds)
            yield f"{of_day} IN ({', '.join(quoted)})"
            yield " OR ".join(f"{ds} = CAST({text} AS DATE)" for text in quoted)
            yield f"date_format({ds}, 'yyyy-MM-dd') IN ({', '.join(quoted)})"
            parts = [(text[:4], int(text[5:7]), int(text[8:])) for text in texts]
            yield " OR ".join(
                f"(year({ds}) = {year} AND month({ds}) = {month} AND day({ds}) = {day})"
                for year, month, day in parts
            )

    def _hour_filters(self, parts: tuple[str, ...], prefix: str) -> Iterator[str]:
        """Yield the conditions on two keys that leave these parts."""
        pairs = [tuple(part.split("/")) for part in parts]
        days, hours = _distinct(day for day, _ in pairs), _distinct(hour for _, hour in pairs)
        hour_in = f"{prefix}hr IN ({', '.join(map(self._hour, hours))})"
        hour_or = " OR ".join(f"{prefix}hr = {self._hour(hour)}" for hour in hours)
        product = set(parts) == set(_product(days, hours))
        if product and DEFAULT_PARTITION in days:
            yield hour_in
            yield hour_or
        else:
            if product:
                one = self._random.choice(list(self._days_filters(days, prefix)))
                yield f"({one}) AND {hour_in}"
                yield f"({hour_or}) AND ({one})"
                yield f"NOT (NOT ({one}) OR NOT {hour_in})"
            rows = [f"({self._literal(day)}, {self._hour(hour)})" for day, hour in pairs]
            yield f"({prefix}ds, {prefix}hr) IN ({', '.join(rows)})"
            if self._kind in {"string", "day"}:
                # Of a null key it is null, or a text that no filter has.
                joined = f"concat({prefix}ds, '-', {prefix}hr)"
                texts = [f"'{key_text(self._kind, day)}-{hour}'" for day, hour in pairs]
                yield f"{joined} IN ({', '.join(texts)})"
                yield " OR ".join(f"{joined} = {text}" for text in texts)
            yield " OR ".join(
                f"{prefix}ds = {self._literal(day)} AND {prefix}hr = {self._hour(hour)}"
                for day, hour in pairs
            )

    def _literal(self, day: str) -> str:
        text, back = key_text(self._kind, day), len(ALL_DAYS) - 1 - int(day)
        if self._kind in {"date", "day"} and self._chance(0.3):
            return self._random.choice(
                [f"date_sub(current_date, {back})", f"date_add(current_date(), -{back})"]
            )
        if self._kind == "date" and self._chance(0.3):
            return f"DATE '{text}'"
        return text if self._kind == "int" and self._chance(0.7) else f"'{text}'"

    def _hour(self, hour: str) -> str:
        return hour if self._chance(0.7) else f"'{hour}'"


def _product(days: Sequence[str], hours: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{day}/{hour}" for day in days for hour in hours)


def _distinct(values: Iterator[str]) -> tuple[str, ...]:
    return tuple(sorted(set(values)))


def key_text(kind: str, day: str) -> str:
    """Return the metastore's text of a day."""
    if day == DEFAULT_PARTITION or kind in {"string", "int"}:
        return day
    return str(TODAY - timedelta(days=len(ALL_DAYS) - 1 - int(day)))


def both(first: Parts, second: Parts) -> Parts:
    """Return the parts that two filters leave."""
    if first is None or second is None:
        return second if first is None else first
    return tuple(part for part in first if part in second)
