"""Random statements for the model of the routing rules, with the partitions that each of them reads.

A statement is built from the places that it reads, so their partitions are known without reading the text. A
place may be behind a view, a common table expression, a subquery or a join; it reads the partitions that are
left by all filters that may act on it in SQL.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
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
UNDECIDABLE = ("{}k = 1", "rand() > 0.5", "length({}ds) = 1", "{}ds RLIKE 'x'")
JOINS = (
    "JOIN",
    "INNER JOIN",
    "LEFT JOIN",
    "RIGHT JOIN",
    "FULL OUTER JOIN",
    "LEFT SEMI JOIN",
    "LEFT ANTI JOIN",
)


@dataclass(frozen=True)
class Written:
    """A statement.

    :param keys: the number of partition keys of each table.
    :param inputs: the tables that it reads, with the partitions.
    :param outputs: the tables that it writes, with the day, or day and hour, of a static partition.
    :param views: the text and the columns of each view, by name.
    :param kind: the type of the first partition key, of :data:`KINDS`.
    """

    keys: dict[str, int]
    kind: str
    inputs: tuple[tuple[str, Parts], ...]
    outputs: tuple[tuple[str, str | None], ...]
    sql: str
    views: dict[str, tuple[str, tuple[str, ...]]]


@dataclass
class Leaf:
    """A table that a place reads.

    :param open: true if a filter on the place acts on the table.
    """

    table: str
    parts: Parts
    open: bool = True

    def filter(self, parts: Parts) -> None:
        if self.open:
            self.parts = both(self.parts, parts)


@dataclass
class Place:
    """An entry of a FROM clause.

    :param like: the table whose partition keys it shows.
    """

    text: str
    like: str
    leaves: list[Leaf] = field(default_factory=list)
    alias: str = ""


class Chance:
    """Draws from one seed."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)

    def _chance(self, share: float) -> bool:
        return self._random.random() < share


class Statements(Chance):
    """A random statement from one seed."""

    def statement(self) -> Written:
        self._keys = {name: self._random.choice([0, 0, 1, 1, 2]) for name in TABLES}
        self._kind = self._random.choice(KINDS)
        self._views: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._common: list[str] = []
        self._unreferred: list[Leaf] = []
        self._aliases = 0
        names = self._random.choices(TABLES, k=self._random.randint(0, 4))
        places = [place for name in names for place in self._places(name)]
        if self._chance(0.15):
            self._unreferred.append(self._common_expression(self._random.choice(TABLES)))
        clause, visible = self._joined(places)
        outputs = tuple(self._outputs())
        heads = self._heads(outputs)
        below, conditions = self._nested() if self._chance(0.3) else ([], [])
        # The condition of one of several inserts leaves the rows of the others.
        if visible and len(heads) < 2 and self._chance(0.3):
            conditions += self._filter(self._random.choice(visible), act=True)
        leaves = [*self._unreferred, *(leaf for place in places for leaf in place.leaves), *below]
        inputs = tuple((leaf.table, leaf.parts) for leaf in leaves)
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return Written(self._keys, self._kind, inputs, outputs, self._sql(clause, heads, where), self._views)

    # -- filters -------------------------------------------------------------------------------------------

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

    def _filter(self, place: Place, *, act: bool) -> list[str]:
        """Return conditions on a place, and let them act on its tables."""
        parts = self._parts(place.like)
        if act:
            for leaf in place.leaves:
                leaf.filter(parts)
        condition = self._condition(place.like, parts, f"{place.alias}." if place.alias else "")
        return [condition] if condition else []

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

    # -- places --------------------------------------------------------------------------------------------

    def _places(self, name: str) -> Iterator[Place]:
        """Yield one or two entries of a FROM clause that read a table."""
        kinds = [
            "table",
            "table",
            "view",
            "views",
            "common",
            "twice",
            "derived",
            "limited",
            "grouped",
            "union",
        ]
        match self._random.choice(kinds):
            case "table":
                yield self._entry(Place(name, name, [Leaf(name, None)]))
            case "derived":
                inside = self._parts(name)
                yield self._entry(Place(f"({self._query(name, name, inside)})", name, [Leaf(name, inside)]))
            case "limited":
                # A filter behind the limit must not act before it.
                inside = self._parts(name)
                query = f"{self._query(name, name, inside)} LIMIT 5"
                yield self._entry(Place(f"({query})", name, [Leaf(name, inside, open=False)]))
            case "grouped":
                inside, columns = self._parts(name), ", ".join(self._columns(name)[1:])
                shown = f"max(k) AS k, {columns}" if columns else "max(k) AS k"
                query = self._query(name, name, inside, shown) + (f" GROUP BY {columns}" if columns else "")
                yield self._entry(Place(f"({query})", name, [Leaf(name, inside)]))
            case "union":
                yield self._entry(self._union(name))
            case "view" | "views" as kind:
                inside = self._parts(name)
                inner = self._view(name, name, inside)
                if kind == "views":
                    again = self._parts(name)
                    inner, inside = self._view(name, inner, again), both(inside, again)
                yield self._entry(Place(inner, name, [Leaf(name, inside)]))
            case kind:
                leaf = self._common_expression(name)
                inner = f"c{len(self._common)}"
                for _ in range(2 if kind == "twice" else 1):
                    yield self._entry(Place(inner, name, [Leaf(name, leaf.parts)]))

    def _union(self, name: str) -> Place:
        """Return two tables below a set operation; a star hides which column of the second is which."""
        other = self._random.choice([table for table in TABLES if self._keys[table] == self._keys[name]])
        inside, beside = self._parts(name), self._parts(other)
        columns = self._columns(name)
        operator = self._random.choice(["UNION ALL", "UNION", "UNION DISTINCT", "EXCEPT", "INTERSECT"])
        star = self._chance(0.2)
        left = self._query(name, name, inside, "*" if star else ", ".join(columns))
        right = self._query(other, other, beside, "*" if star else ", ".join(columns))
        leaves = [Leaf(name, inside), Leaf(other, beside, open=not star)]
        return Place(f"({left} {operator} {right})", name, leaves)

    def _view(self, table: str, below: str, parts: Parts) -> str:
        name = f"v{len(self._views) + 1}"
        columns = self._columns(table)
        # A metastore has the text with the names of all columns.
        self._views[name] = self._query(below, table, parts, ", ".join(columns)), columns
        return name

    def _common_expression(self, name: str) -> Leaf:
        parts = self._parts(name)
        self._common.append(f"c{len(self._common) + 1} AS ({self._query(name, name, parts)})")
        return Leaf(name, parts)

    def _nested(self) -> tuple[list[Leaf], list[str]]:
        """Return the table that a subquery of a condition reads, and the condition."""
        name = self._random.choice(TABLES)
        parts = self._parts(name)
        query = self._query(name, name, parts, columns="k")
        test = self._random.choice(
            ["EXISTS ({})", "NOT EXISTS ({})", "1 IN ({})", "1 = (SELECT max(k) FROM ({}) AS m)"]
        )
        return [Leaf(name, parts)], [test.format(query)]

    def _query(self, source: str, like: str, parts: Parts, columns: str = "*") -> str:
        condition = self._condition(like, parts)
        return f"SELECT {columns} FROM {source}" + (f" WHERE {condition}" if condition else "")

    def _columns(self, name: str) -> tuple[str, ...]:
        return ("k", "ds", "hr")[: self._keys[name] + 1]

    def _entry(self, place: Place) -> Place:
        """Give a place an alias, and some places a filter of their own."""
        self._aliases += 1
        place.alias = f"a{self._aliases}"
        parts = self._parts(place.like)
        if self._chance(0.6) and parts is not None:
            for leaf in place.leaves:
                leaf.filter(parts)
            source = f"{place.text} AS d" if place.text.startswith("(") else place.text
            place.text = f"({self._query(source, place.like, parts)})"
        place.text = f"{place.text} AS {place.alias}"
        return place

    # -- joins ---------------------------------------------------------------------------------------------

    def _joined(self, places: Sequence[Place]) -> tuple[str, list[Place]]:
        """Return the FROM clause, and the places that conditions behind it may name."""
        if not places:
            return "(SELECT 1 AS x) AS nothing", []
        text, visible = places[0].text, [places[0]]
        for added in places[1:]:
            join = self._random.choice(JOINS) if self._chance(0.7) else "CROSS JOIN"
            text += f" {join} {added.text}"
            if join != "CROSS JOIN":
                conditions = [f"{visible[-1].alias}.k = {added.alias}.k"]
                for place in (*visible, added):
                    if self._chance(0.4):
                        conditions += self._filter(place, act=_acts(join, place is added))
                self._random.shuffle(conditions)
                text += f" ON {' AND '.join(conditions)}"
            if join not in {"LEFT SEMI JOIN", "LEFT ANTI JOIN"}:
                visible.append(added)
        return text, visible

    # -- outputs -------------------------------------------------------------------------------------------

    def _outputs(self) -> Iterator[tuple[str, str | None]]:
        for _ in range(self._random.choice([0, 0, 1, 1, 2])):
            name = self._random.choice([*TABLES, "new1"])
            static = self._keys.get(name, 0) and self._chance(0.5)
            hour = (
                f"/{self._random.choice(ALL_HOURS)}"
                if self._keys.get(name) == 2 and self._chance(0.5)
                else ""
            )
            yield name, f"{self._random.randint(0, 5)}{hour}" if static else None

    def _heads(self, outputs: Sequence[tuple[str, str | None]]) -> list[str]:
        heads = [self._head(name, part) for name, part in outputs]
        if self._chance(0.1):
            # A directory is in no cluster.
            local = self._random.choice(["", "LOCAL "])
            heads.insert(self._random.randint(0, len(heads)), f"INSERT OVERWRITE {local}DIRECTORY '/out'")
        return heads

    def _head(self, name: str, part: str | None) -> str:
        verb = self._random.choice(["INSERT INTO TABLE", "INSERT INTO", "INSERT OVERWRITE TABLE"])
        absent = part is not None and verb == "INSERT OVERWRITE TABLE" and self._chance(0.5)
        return f"{verb} {name}{self._partition(name, part)}{' IF NOT EXISTS' if absent else ''}"

    def _partition(self, name: str, part: str | None) -> str:
        keys = self._columns(name)[1:] if name in self._keys else ()
        if part is None:
            # Dynamic, with and without the clause.
            return f" PARTITION ({', '.join(keys)})" if keys and self._chance(0.5) else ""
        day, _, hour = part.partition("/")
        text = key_text(self._kind, day)
        values = [f"ds = {text}" if self._kind == "int" else f"ds = '{text}'"]
        if len(keys) == 2:
            values.append(f"hr = {hour}" if hour else "hr")
        return f" PARTITION ({', '.join(values)})"

    def _sql(self, clause: str, heads: Sequence[str], where: str) -> str:
        common = f"WITH {', '.join(self._common)} " if self._common else ""
        if not heads:
            return f"{common}SELECT * FROM {clause}{where}"
        if len(heads) == 1 and self._chance(0.5):
            return f"{common}{heads[0]} SELECT * FROM {clause}{where}"
        first, *others = heads
        inserts = " ".join([f"{first} SELECT *{where}", *(f"{head} SELECT *" for head in others)])
        return f"{common}FROM {clause} {inserts}"


def _acts(join: str, added: bool) -> bool:
    """Return true if rows that fail a condition of ON cannot reach the result, by the side of the join."""
    if join in {"JOIN", "INNER JOIN", "LEFT SEMI JOIN"}:
        return True
    return added if join in {"LEFT JOIN", "LEFT ANTI JOIN"} else not added and join == "RIGHT JOIN"


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
