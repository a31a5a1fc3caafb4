"""Finds the tables, columns and functions of a view's parsed SQL text in one walk over its tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp


class ViewTree:
    """The tables, columns, functions and aliases of a parsed text, collected by one walk.

    The walk skips hints: an outdated name in a hint changes no rows. It tracks scopes by itself, because a
    search of the ancestors of each expression takes the square of a deep text's length.
    """

    def __init__(self, tree: exp.Expr) -> None:
        self.tables: list[exp.Table] = []
        self.columns: list[exp.Column] = []
        self.dots: list[exp.Dot] = []
        self.aliases: list[exp.TableAlias] = []
        self._common: set[int] = set()
        waiting: list[tuple[exp.Expr, _Scope | None]] = [(tree, None)]
        while waiting:
            node, scope = waiting.pop()
            if isinstance(node, exp.Hint):
                continue
            self._note(node, scope)
            waiting += reversed(list(_below(node, scope)))

    def is_common(self, table: exp.Table) -> bool:
        """Return whether a name without a database refers to a common table expression in scope."""
        return id(table) in self._common

    @property
    def references(self) -> list[tuple[str, ...]]:
        """Return catalog, database and name of each table."""
        return [
            tuple(lower(table.args.get(part)) for part in ("catalog", "db", "this"))
            for table in self.tables
            if isinstance(table.this, exp.Identifier)
        ]

    def _note(self, expression: exp.Expr, scope: _Scope | None) -> None:
        if isinstance(expression, exp.Table):
            self.tables.append(expression)
            if scope is not None and scope.has(lower(expression.this)):
                self._common.add(id(expression))
        elif isinstance(expression, exp.Column):
            self.columns.append(expression)
        elif isinstance(expression, exp.Dot):
            self.dots.append(expression)
        elif isinstance(expression, exp.TableAlias):
            self.aliases.append(expression)


@dataclass(frozen=True)
class _Scope:
    """The common table expressions in scope: the first ``first`` of a list, and those of the outer scopes."""

    places: Mapping[str, int]
    first: int
    around: _Scope | None

    def has(self, name: str) -> bool:
        scope: _Scope | None = self
        while scope is not None:
            if scope.places.get(name, scope.first) < scope.first:
                return True
            scope = scope.around
        return False


def _below(expression: exp.Expr, scope: _Scope | None) -> Iterator[tuple[exp.Expr, _Scope | None]]:
    """Yield the child expressions of an expression, each with its scope."""
    if isinstance(expression, exp.With):
        places = _places(expression)
        for number, common in enumerate(expression.expressions):
            # An expression can refer to earlier ones; to itself and later ones only if the list is recursive.
            yield (
                common,
                _Scope(places, len(expression.expressions) if expression.recursive else number, scope),
            )
        return
    common = expression.args.get("with_") or expression.args.get("with")
    inside = scope
    if isinstance(common, exp.With):
        places = _places(common)
        inside = _Scope(places, len(common.expressions), scope)
    for child in expression.iter_expressions():
        yield child, scope if child is common else inside


def _places(common: exp.With) -> dict[str, int]:
    """Return the first position of each name in a list of common table expressions."""
    positions: dict[str, int] = {}
    for number, expression in enumerate(common.expressions):
        positions.setdefault(expression.alias.lower(), number)
    return positions


def lower(identifier: exp.Expr | None) -> str:
    """Return an identifier's name in lower case; the empty text for ``None``."""
    return identifier.name.lower() if identifier is not None else ""
