"""Scenarios of Hive's replication suite, as data: statements of a source, and the rows of its replica."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastorePool
from tests.support.incrementing import Cycles

#: Rows of one column, apart by blanks, or whole rows.
Rows = str | Sequence[tuple[str | None, ...]]

_LOAD = re.compile(r"LOAD ROWS \((.*?)\) (OVERWRITE )?INTO (.*)", re.DOTALL)


@dataclass(frozen=True)
class Side:
    """One side of a scene: a database of the source or of the target."""

    pool: MetastorePool
    sql: HiveSql
    database: str


@dataclass(frozen=True)
class Scene:
    """One side of a scenario.

    :param name: begins the names of the scenario's tables.
    :param files: directory of its own, for files of external tables and rows to load.
    """

    name: str
    cycles: Cycles
    files: Path

    @property
    def source(self) -> Side:
        site = self.cycles
        return Side(site.source, site.source_sql, site.policy.source_database)

    @property
    def target(self) -> Side:
        site = self.cycles
        return Side(site.target, site.target_sql, site.policy.target_database)

    def text(self, template: str, side: Side) -> str:
        """A statement of a side: ``{db}`` is its database, ``{t}`` begins the scenario's tables in it."""
        return (
            template.replace("{db}", side.database)
            .replace("{t}", f"{side.database}.{self.name}_")
            .replace("{n}", f"{self.name}_")
            .replace("{files}", str(self.files))
        )

    def run(self, action: Action) -> None:
        """Do something to the source."""
        if callable(action):
            action(self)
            return
        for statement in statements(action):
            self.source.sql.execute(self._with_file(self.text(statement, self.source)))

    def rows(self, query: str, side: Side) -> list[Any]:
        """Return Hive's answer, sorted, without the blanks that fill up columns of a description."""
        answer = side.sql.execute(self.text(query, side))
        return sorted((tuple(value and value.rstrip(" ") for value in row) for row in answer), key=repr)

    def table(self, name: str, side: Side) -> Any:
        """A table of the scenario, with its column statistics as the metastore has them."""
        with side.pool.client() as client:
            return client.get_table(side.database, f"{self.name}_{name}".lower())

    def _with_file(self, statement: str) -> str:
        match = _LOAD.fullmatch(statement)
        if not match:
            return statement
        values, overwrite, table = match.groups()
        path = self.files / "_".join(values.split())
        path.write_text("".join(f"{value}\n" for value in values.split()), encoding="utf-8")
        return f"LOAD DATA LOCAL INPATH '{path}' {overwrite or ''}INTO TABLE {table}"


Action = str | Callable[[Scene], None]
Check = Callable[[Scene], None]


@dataclass(frozen=True)
class Step:
    """A change of a source before a cycle, and the target's rows after it.

    :param run: statements, a line break and a semicolon apart, or a function.
    :param rows: query → rows. The source has the same before the cycle.
    :param absent: tables that the target has not.
    :param meanwhile: what happens to the source between the cycle's dump and its load.
    :param checks: further expectations of the target.
    :param policy: fields of the policy that change with this cycle; only of a scenario with its own database.
    :param fails: pattern that the cycle's error matches; ``rows`` then hold of the target only. Likewise.
    """

    run: Action | Sequence[Action] = ""
    rows: Mapping[str, Rows] = field(default_factory=dict)
    absent: Sequence[str] = ()
    meanwhile: Action = ""
    checks: Sequence[Check] = ()
    policy: Mapping[str, Any] = field(default_factory=dict)
    fails: str = ""

    @property
    def actions(self) -> Sequence[Action]:
        return (self.run,) if isinstance(self.run, str) or callable(self.run) else self.run


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A scenario: the first step precedes the bootstrap, each other an increment.

    :param name: names it here, and begins its tables' names.
    :param hive: methods of Hive's test classes that it re-enacts.
    :param properties: of a database of its own, as in ``CREATE DATABASE name …``; ``None`` shares one.
    :param differs: fields of tables in which source and replica differ for good, with the reason.
    """

    name: str
    hive: Sequence[str]
    steps: Sequence[Step]
    properties: str | None = None
    differs: Mapping[str, str] = field(default_factory=dict)


def statements(text: str) -> list[str]:
    """The statements of a text."""
    return [
        statement.strip() for statement in re.split(r";\s*\n", text.strip().rstrip(";")) if statement.strip()
    ]


def expected(rows: Rows) -> list[Any]:
    """Rows as :meth:`Scene.rows` gives them."""
    expected = [(value,) for value in rows.split()] if isinstance(rows, str) else list(rows)
    return sorted(expected, key=repr)
