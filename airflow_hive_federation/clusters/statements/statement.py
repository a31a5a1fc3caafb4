"""The tables that a statement reads and writes, from its text alone. Pure.

The text is read by three means. Statements about clusters and databases, and the beginnings of all others
(``INSERT OVERWRITE TABLE … PARTITION (…) IF NOT EXISTS``), are read by the small grammar of
:mod:`~airflow_hive_federation.clusters.statements.grammar`. Queries are read by sqlglot's Hive dialect, and
the forms that it does not know (``MAP … USING``, ``TRANSFORM (*)``) after a rewriting of their tokens. The
text itself is never changed: it is what the engine runs.

A statement that cannot be read for certain is :class:`Unanalysable`. It is never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_MARK = "\0"


def placeholder(number: int) -> str:
    """The text that stands for a parameter in a tree. No statement contains it: zero bytes are refused."""
    return f"{_MARK}{number}"


@dataclass(frozen=True, order=True)
class TableName:
    """The name of a table, in lower case.

    :param database: ``None`` where the session's database is meant.
    """

    database: str | None
    name: str

    def __str__(self) -> str:
        return self.name if self.database is None else f"{self.database}.{self.name}"


@dataclass(frozen=True, kw_only=True)
class Output:
    """A table that a statement writes, changes or removes.

    :param partition: keys of a ``PARTITION`` clause with their values; ``None`` for a value that the text
        does not spell out, as in a dynamic partition.
    :param temporary: the statement creates it for its session only.
    """

    table: TableName
    partition: tuple[tuple[str, str | None], ...] = ()
    temporary: bool = False


@dataclass(frozen=True, kw_only=True)
class Outline:
    """The places of tables in trees of queries, by the identities of their nodes; found once per template.

    :param tables: the tables of each tree.
    :param above: nodes with a query or a table among what they contain; all other nodes need no look.
    :param names: the tables that may be read, names of common table expressions among them.
    """

    tables: Mapping[int, tuple[Any, ...]] = field(default_factory=dict)
    above: frozenset[int] = frozenset()
    names: tuple[TableName, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A statement that was understood.

    :param verb: its first words, such as ``INSERT`` or ``ALTER TABLE``.
    :param described: tables whose definition it uses, and none of their rows.
    :param queries: the queries in it, as sqlglot's trees.
    :param uncertain: its strings that engines may read differently.
    :param parameters: the texts of strings that the trees hold the numbers of, as :func:`placeholder` writes
        them. Statements that differ in these only share their trees.
    :param outline: of its queries.
    """

    verb: str
    outputs: tuple[Output, ...] = ()
    described: tuple[TableName, ...] = ()
    queries: tuple[Any, ...] = ()
    uncertain: frozenset[str] = frozenset()
    parameters: tuple[str, ...] = ()
    outline: Outline = field(default_factory=Outline, compare=False, repr=False)

    def text(self, written: str) -> str:
        """The text of a string that the trees may hold as a placeholder."""
        return self.parameters[int(written[1:])] if written.startswith(_MARK) else written

    @property
    def names(self) -> tuple[TableName, ...]:
        """All tables that the statement names, and its common table expressions."""
        return (*self.described, *(one.table for one in self.outputs), *self.outline.names)


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
    :param line: where it stands, from 1 on.
    """

    reason: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.reason}"


Analysis = Statement | UseDatabase | UseCluster | Unanalysable


class UnreadableError(ValueError):
    """A statement that cannot be read for certain; :func:`analyse` returns it as :class:`Unanalysable`."""

    def __init__(self, reason: str, start: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.start = start

    def at(self, text: str) -> Unanalysable:
        line = text.count("\n", 0, self.start) + 1
        return Unanalysable(
            reason=self.reason, line=line, column=self.start - text.rfind("\n", 0, self.start)
        )
