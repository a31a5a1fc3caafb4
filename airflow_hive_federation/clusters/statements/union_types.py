"""Finds the columns of set operations that have the same type in all branches. Pure.

``UNION``, ``INTERSECT`` and ``EXCEPT`` convert columns of different types to a common one, in which values
may compare otherwise: ``10 < 5`` is false, and ``'10' < '5'`` is true. Which type that is depends on the
engine and its settings. Therefore a condition on a column of the result holds for the rows of the branches
only if nothing was converted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from airflow_hive_federation.clusters.predicates.conditions import bound, columns_of
from airflow_hive_federation.clusters.statements.columns import key_of, plain_column
from airflow_hive_federation.clusters.statements.sources import (
    Conjuncts,
    Home,
    Scope,
    Source,
    Sources,
    common_of,
    entries_of,
    owner,
)
from airflow_hive_federation.clusters.statements.statement import TableName
from airflow_hive_federation.clusters.statements.trees import is_parenthesised

#: The type of a ``NULL``, which takes the type of the other branches.
_VOID = "void"
_SMALL_INTEGER = re.compile(r"[0-9]{1,9}")
#: The types of casts for which Hive and Spark agree, by their names in trees.
_CASTS = {
    "TEXT": "string",
    "TINYINT": "tinyint",
    "SMALLINT": "smallint",
    "INT": "int",
    "BIGINT": "bigint",
    "DATE": "date",
}
#: Functions whose results may be several columns.
_GENERATORS = frozenset(
    {"anonymous", "explode", "explodeouter", "inline", "posexplode", "posexplodeouter", "stack"}
)


@dataclass(frozen=True)
class _Columns:
    """The last columns of a query's result; a star hides the columns that a table has before its keys.

    :param types: the Hive types; ``None`` for an unknown one.
    :param whole: true if these are all columns.
    """

    names: tuple[str, ...] = ()
    types: tuple[str | None, ...] = ()
    whole: bool = False

    def type_of(self, name: str) -> str | None:
        return self.types[self.names.index(name)] if self.names.count(name) == 1 else None

    def renamed(self, names: tuple[str, ...]) -> _Columns:
        if not names:
            return self
        return replace(self, names=names) if self.whole and len(names) == len(self.names) else _UNKNOWN

    def before(self, others: _Columns) -> _Columns:
        """Return the columns with others to their right."""
        return _Columns(self.names + others.names, self.types + others.types, self.whole)

    def united(self, other: _Columns) -> _Columns:
        """Return the columns of the set operation of two queries, whose columns correspond by position."""
        count = min(len(self.names), len(other.names))
        mine, its = len(self.names) - count, len(other.names) - count
        types = zip(self.types[mine:], other.types[its:], strict=True)
        whole = (self.whole and not mine) or (other.whole and not its)
        return _Columns(self.names[mine:], tuple(_common_type(*pair) for pair in types), whole)


_UNKNOWN = _Columns()


class UnionTypes:
    """The types of the columns of a statement's queries; each query is examined once."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        # A node is kept with its columns, lest another one has its identity.
        self._found: dict[tuple[int, TableName | None], tuple[exp.Expr, _Columns]] = {}

    def unchanged(
        self,
        conditions: Conjuncts,
        node: exp.SetOperation,
        scope: Scope,
        home: Home,
        columns: tuple[str, ...],
    ) -> Conjuncts:
        """Return the conditions on a set operation's result that hold in its branches, too.

        Columns whose type is unknown, or not the same in all branches, become undecided.

        :param scope: the common table expressions in its scope, with its own.
        :param columns: the names of the result's columns, if they were renamed.
        """
        if not any(columns_of(condition) for condition in conditions):
            return conditions
        found = self._united(node, scope, home).renamed(columns)
        return tuple(
            bound(condition, lambda key: key if found.type_of(key.name) is not None else None)
            for condition in conditions
        )

    def _columns(self, node: exp.Expr, scope: Scope, home: Home) -> _Columns:
        place = (id(node), home.view)
        if place not in self._found:
            inner = {**scope, **common_of(node, scope)}
            self._found[place] = (node, self._of_query(node, inner, home))
        return self._found[place][1]

    def _of_query(self, node: exp.Expr, scope: Scope, home: Home) -> _Columns:
        if isinstance(node, exp.Select):
            return self._selected(node, scope, home)
        if isinstance(node, exp.SetOperation):
            return self._united(node, scope, home)
        if isinstance(node, exp.Subquery | exp.Paren) and not (
            node.args.get("joins") or node.args.get("pivots")
        ):
            return self._columns(node.this, scope, home)
        return _UNKNOWN

    def _united(self, node: exp.SetOperation, scope: Scope, home: Home) -> _Columns:
        if node.args.get("by_name"):
            return _UNKNOWN
        left, right = (self._columns(side, scope, home) for side in (node.left, node.right))
        return left.united(right)

    def _selected(self, node: exp.Select, scope: Scope, home: Home) -> _Columns:
        entries = list(entries_of(node))
        if any(entry.args.get("pivots") for entry in entries):
            return _UNKNOWN
        sources = [source for entry in entries for source in self._sources.of(entry, scope, home)]
        alone = len(entries) == len(sources) == 1 and not is_parenthesised(entries[0])
        found = _Columns(whole=True)
        for expression in reversed(node.expressions):
            if expression.is_star:
                starred = alone and not node.args.get("laterals")
                added = self._behind_star(expression, sources[0]) if starred else _UNKNOWN
            elif isinstance(expression, exp.QueryTransform | exp.Aliases) or expression.key in _GENERATORS:
                added = _UNKNOWN
            else:
                name = str(expression.alias_or_name).lower()
                added = _Columns((name,), (self._type(expression, sources),), whole=True)
            found = added.before(found)
            if not found.whole:
                break
        return found

    def _behind_star(self, expression: exp.Expr, source: Source) -> _Columns:
        star = expression
        if isinstance(expression, exp.Column):
            # Spark has stars of structs, too.
            star = expression.this if expression.table.lower() == source.alias else expression
        if not isinstance(star, exp.Star) or any(star.args.values()):
            return _UNKNOWN
        if source.read is None:
            return self._of_source(source)
        # The keys are a table's last columns.
        types = source.key_types
        return _Columns(tuple(types), tuple(map(_spelled, types.values())))

    def _type(self, expression: exp.Expr, sources: Sequence[Source]) -> str | None:
        """Return the type of an expression in a SELECT."""
        while isinstance(expression, exp.Alias | exp.Paren):
            expression = expression.this
        if isinstance(expression, exp.Null):
            return _VOID
        if isinstance(expression, exp.Literal):
            small = _SMALL_INTEGER.fullmatch(expression.name)
            return "string" if expression.is_string else "int" if small else None
        if isinstance(expression, exp.Cast):
            return None if expression.to.expressions else _CASTS.get(expression.to.this.name)
        column = plain_column(expression)
        key = key_of(column) if column is not None else None
        source = owner(key, sources) if key is not None else None
        if key is None or source is None:
            return None
        if source.read is None:
            return self._of_source(source).type_of(key.name)
        kind = source.key_types.get(key.name)
        return None if kind is None else _spelled(kind)

    def _of_source(self, source: Source) -> _Columns:
        if source.opaque or source.query is None or source.home is None:
            return _UNKNOWN
        return self._columns(source.query, source.scope or {}, source.home).renamed(source.columns)


def _common_type(left: str | None, right: str | None) -> str | None:
    """Return the type of both; ``None`` if one is unknown or converted."""
    if right in {left, _VOID}:
        return left
    return right if left == _VOID else None


def _spelled(kind: str) -> str:
    return "".join(kind.split()).lower()
