"""Answers questions about the trees of queries. Pure."""

from __future__ import annotations

from sqlglot import exp

#: Functions that represent the name of a table.
_NAMING = frozenset({"IDENTIFIER", "TABLE"})


def names_a_table(function: exp.Expr) -> bool:
    """Return whether a function takes a table, as in ``f(TABLE(t))``, or represents a table name."""
    return any(
        call.name.upper() in _NAMING and not call.find(exp.Query) for call in function.find_all(exp.Func)
    )


def is_parenthesised(node: object) -> bool:
    """Return whether an entry of a FROM clause is a join, or another entry, in parentheses."""
    return isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table | exp.Subquery)


def tables_of_common(tree: exp.Expr) -> tuple[exp.Expr, ...]:
    """Return the tables that the common table expressions of a query name."""
    common = tree.args.get("with_") or tree.args.get("with")
    return tuple(common.find_all(exp.Table)) if isinstance(common, exp.With) else ()


def is_referred_to(node: exp.Expr, name: str) -> bool:
    """Return whether a tree names a table, or a common table expression, without a database."""
    return any(
        isinstance(table.this, exp.Identifier) and not table.args.get("db") and table.name.lower() == name
        for table in node.find_all(exp.Table)
    )
