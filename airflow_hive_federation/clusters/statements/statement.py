"""Defines the analysis of a statement: the tables that it reads and writes, from its text alone. Pure.

Three parsers share the work. The small grammar of :mod:`~airflow_hive_federation.clusters.statements.grammar`
reads statements about clusters and databases, and the beginnings of all others
(``INSERT OVERWRITE TABLE … PARTITION (…) IF NOT EXISTS``). sqlglot's Hive dialect reads queries. Forms
unknown to sqlglot (``MAP … USING``; in older versions, a FROM clause of several tables before its SELECT)
have their tokens rewritten first. The text itself never changes, because the engine runs it.

A statement that cannot be read for certain is :class:`Unanalysable`; its tables are never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_MARK = "\0"


def placeholder(number: int) -> str:
    """Return a parameter's text in a tree. No statement contains it, because zero bytes are refused."""
    return f"{_MARK}{number}"


@dataclass(frozen=True, order=True)
class TableName:
    """The name of a table, in lower case.

    :param database: the database; ``None`` means the session's database.
    """

    database: str | None
    name: str

    def __str__(self) -> str:
        return self.name if self.database is None else f"{self.database}.{self.name}"


@dataclass(frozen=True, kw_only=True)
class Output:
    """A table that a statement writes, changes or removes.

    :param partition: the keys of a ``PARTITION`` clause, with their values; ``None`` for a value that is not
        in the text, as in a dynamic partition.
    :param temporary: true if the statement creates it for its session only.
    """

    table: TableName
    partition: tuple[tuple[str, str | None], ...] = ()
    temporary: bool = False


@dataclass(frozen=True, kw_only=True)
class Outline:
    """The places of tables in trees of queries, by the identities of their nodes; found once per template.

    :param tables: the tables of each tree.
    :param above: the nodes that contain a query or a table; a search may skip all other nodes.
    :param names: the tables that may be read, including the names of common table expressions.
    """

    tables: Mapping[int, tuple[Any, ...]] = field(default_factory=dict)
    above: frozenset[int] = frozenset()
    names: tuple[TableName, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A statement that was understood.

    :param verb: the first keywords, such as ``INSERT`` or ``ALTER TABLE``.
    :param described: the tables whose definition it uses, but whose rows it does not read.
    :param queries: the queries in the statement, as sqlglot's trees.
    :param uncertain: the strings that engines may read differently.
    :param parameters: the texts of strings for which the trees contain placeholders (see
        :func:`placeholder`). Statements that differ only in these share their trees.
    :param outline: the outline of its queries.
    """

    verb: str
    outputs: tuple[Output, ...] = ()
    described: tuple[TableName, ...] = ()
    queries: tuple[Any, ...] = ()
    uncertain: frozenset[str] = frozenset()
    parameters: tuple[str, ...] = ()
    outline: Outline = field(default_factory=Outline, compare=False, repr=False)

    def text(self, written: str) -> str:
        """Return the text of a string that the trees may contain as a placeholder."""
        return self.parameters[int(written[1:])] if written.startswith(_MARK) else written

    @property
    def names(self) -> tuple[TableName, ...]:
        """All tables that the statement names, including its common table expressions."""
        return (*self.described, *(output.table for output in self.outputs), *self.outline.names)


@dataclass(frozen=True)
class UseDatabase:
    """``USE database``."""

    database: str


@dataclass(frozen=True)
class UseCluster:
    """``USE CLUSTER name``; ``None`` for ``USE CLUSTER``, after which each statement is routed again."""

    cluster: str | None


@dataclass(frozen=True, kw_only=True)
class Unanalysable:
    """A statement whose tables are not known for certain.

    :param reason: the construct that was not understood, as a clause.
    :param line: the line of the construct, counted from 1.
    """

    reason: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.reason}"


Analysis = Statement | UseDatabase | UseCluster | Unanalysable


class UnreadableError(ValueError):
    """A statement cannot be read for certain; :func:`analyse` returns it as :class:`Unanalysable`."""

    def __init__(self, reason: str, start: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.start = start

    def at(self, text: str) -> Unanalysable:
        line = text.count("\n", 0, self.start) + 1
        return Unanalysable(
            reason=self.reason, line=line, column=self.start - text.rfind("\n", 0, self.start)
        )
