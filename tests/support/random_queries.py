"""Random queries over a few partitioned tables, in the SQL that Hive, Spark and SQLite share."""

from __future__ import annotations

import random

#: Tables with their partition keys; all have the columns k, p and q.
TABLES = {"t": ("p",), "u": ("p", "q"), "w": ("q",), "x": ()}
#: The types of the columns p and q, whether they are keys or not.
TYPES = {"p": "string", "q": "int"}
#: They have another order as texts than as numbers.
VALUES = ("1", "2", "10")


class Queries:
    """Queries from one seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._aliases = 0

    def query(self) -> str:
        if self._chance(0.25):
            names = [f"c{number}" for number in range(self._random.randint(1, 2))]
            parts = []
            for number, name in enumerate(names):
                parts.append(f"{name} AS ({self._select(2, names[:number])})")
            return f"WITH {', '.join(parts)} {self._select(2, names)}"
        return self._select(3, [])

    def _select(self, depth: int, common: list[str]) -> str:
        sides = [self._plain(depth, common)]
        while self._chance(0.2) and depth:
            sides.append(self._plain(depth - 1, common))
        operator = self._random.choice([" UNION ALL ", " UNION ", " EXCEPT ", " INTERSECT "])
        return operator.join(sides)

    def _plain(self, depth: int, common: list[str]) -> str:
        sources = [self._source(depth, common)]
        clause = sources[0][0]
        while self._chance(0.45) and len(sources) < 3:
            text, alias = self._source(depth, common)
            kind = self._random.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN"])
            clause += f" {kind} {text}"
            before = [source for _, source in sources]
            sources.append((text, alias))
            if kind != "CROSS JOIN":
                on = f"{self._random.choice(before)}.k = {alias}.k"
                extra = self._chance(0.5)
                clause += f" ON {on}" + (f" AND {self._condition([*before, alias], 1)}" if extra else "")
        aliases = [alias for _, alias in sources]
        relation = self._random.choice(aliases)
        columns = f"{relation}.k AS k, {self._random.choice(aliases)}.p AS p, {relation}.q AS q"
        if len(sources) == 1 and self._chance(0.4):
            columns = self._random.choice(["k, p, q", "k, p, q", "k, q AS p, p AS q"])
        where = f" WHERE {self._condition(aliases, 2, depth, common)}" if self._chance(0.7) else ""
        tail = ""
        if self._chance(0.15):
            columns, tail = (
                f"max({relation}.k) AS k, {relation}.p AS p, {relation}.q AS q",
                f" GROUP BY {relation}.p, {relation}.q",
            )
        elif self._chance(0.1):
            columns = f"min({relation}.k) AS k, max({relation}.p) AS p, max({relation}.q) AS q"
        elif self._chance(0.1) and len(sources) == 1:
            columns = f"k, max({relation}.p) OVER () AS p, {relation}.q AS q"
        return f"SELECT {columns} FROM {clause}{where}{tail}"

    def _source(self, depth: int, common: list[str]) -> tuple[str, str]:
        self._aliases += 1
        alias = f"s{self._aliases}"
        choice = self._random.random()
        if common and choice < 0.4:
            return f"{self._random.choice(common)} AS {alias}", alias
        if depth and choice < 0.6:
            inner = self._select(depth - 1, common)
            if self._chance(0.3):
                inner = f"SELECT * FROM ({inner}) AS i{self._aliases}"
            elif self._chance(0.1):
                inner = f"SELECT k, p, q FROM ({inner}) AS i{self._aliases} ORDER BY k, p, q LIMIT 2"
            return f"({inner}) AS {alias}", alias
        if choice < 0.7:
            return f"view_{self._random.choice(['t', 'u'])} AS {alias}", alias
        return f"{self._random.choice(list(TABLES))} AS {alias}", alias

    def _condition(
        self, aliases: list[str], depth: int, below: int = 0, common: list[str] | None = None
    ) -> str:
        choice = self._random.random()
        if depth and choice < 0.25:
            operator = self._random.choice(["AND", "OR"])
            return (
                f"({self._condition(aliases, depth - 1, below, common)} {operator} "
                f"{self._condition(aliases, depth - 1, below, common)})"
            )
        if depth and choice < 0.35:
            return f"(NOT {self._condition(aliases, depth - 1, below, common)})"
        if below and choice < 0.45 and common is not None:
            test = self._random.choice(["IN", "NOT IN"])
            return f"{self._random.choice(aliases)}.p {test} (SELECT p FROM ({self._select(0, common)}) AS n)"
        column = f"{self._random.choice(aliases)}.{self._random.choice('ppqqk')}"
        if len(aliases) == 1 and self._chance(0.3):
            column = self._random.choice("pq")
        value = f"'{self._random.choice(VALUES)}'"
        return self._random.choice(
            [
                f"{column} = {value}",
                f"{column} <> {value}",
                f"{column} >= {value}",
                f"{column} IN ({value}, '2')",
                f"{column} NOT IN ({value}, '1')",
                f"{column} BETWEEN {value} AND '2'",
                f"{column} IS NULL",
                f"{column} IS NOT NULL",
                f"{column} = {self._random.choice(aliases)}.p",
            ]
        )

    def _chance(self, share: float) -> bool:
        return self._random.random() < share
