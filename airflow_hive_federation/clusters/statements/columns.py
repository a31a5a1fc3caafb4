"""Traces the columns of a query's result back to the columns of its sources. Pure."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from airflow_hive_federation.clusters.predicates.conditions import Key

_GROUPINGS = ("grouping_sets", "cube", "rollup", "totals", "all")


def keeps_filters(node: exp.Expr) -> bool:
    """Return whether a filter on a query's result may move to its sources without changing the result.

    It may not if the query counts rows (``LIMIT``, ``OFFSET``) or compares rows with each other (window
    functions).
    """
    if any(node.args.get(name) for name in ("limit", "offset", "fetch", "sample", "qualify", "windows")):
        return False
    if not isinstance(node, exp.Select):
        return True
    distinct, group = node.args.get("distinct"), node.args.get("group")
    if distinct is not None and isinstance(distinct, exp.Distinct) and distinct.args.get("on"):
        return False
    if group is not None and any(group.args.get(name) for name in _GROUPINGS):
        return False
    return not any(expression.find(exp.Window, exp.QueryTransform) for expression in node.expressions)


def output_names(node: object) -> tuple[str, ...]:
    """Return the names of the result's columns; an empty tuple if a star or a script hides them."""
    while isinstance(node, exp.Subquery | exp.Paren | exp.SetOperation):
        node = node.left if isinstance(node, exp.SetOperation) else node.this
    if not isinstance(node, exp.Select):
        return ()
    names = []
    for expression in node.expressions:
        if expression.is_star or isinstance(expression, exp.QueryTransform | exp.Aliases):
            return ()
        names.append(str(expression.alias_or_name).lower())
    return tuple(names)


def column_behind(node: exp.Expr, name: str, columns: tuple[str, ...]) -> Key | None:
    """Return the source column behind a column of a SELECT's result; ``None`` if it is computed or unknown.

    :param columns: the names of the result's columns, if they were renamed.
    """
    column = result_column(node, name, columns)
    group = node.args.get("group")
    if column is None or (
        group is not None and not any(_same(column, expression) for expression in group.expressions)
    ):
        return None
    return key_of(column)


def result_column(node: exp.Expr, name: str, columns: tuple[str, ...] = ()) -> Any:
    """Return the column, as the SELECT spells it, that a column of its result shows unchanged.

    :param name: the name of the result's column, in lower case.
    :param columns: the names of the result's columns, if they were renamed.
    :return: ``None`` if the column is computed or unknown.
    """
    names = output_names(node)
    if columns:
        if len(columns) != len(names) or columns.count(name) != 1:
            return None
        return plain_column(node.expressions[columns.index(name)])
    if names:
        return plain_column(node.expressions[names.index(name)]) if names.count(name) == 1 else None
    return _behind_star(node, name)


def key_of(column: exp.Column) -> Key:
    """Return a column of a query as one of its sources."""
    database = column.args.get("db")
    return Key(column.name.lower(), column.table.lower() or None, database and database.name.lower())


def plain_column(node: object) -> Any:
    """Return the column that an expression shows unchanged; ``None`` if it is computed."""
    while isinstance(node, exp.Alias | exp.Paren):
        node = node.this
    return node if isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier) else None


def _behind_star(node: exp.Expr, name: str) -> object:
    """Return the column that a star contributes under its own name."""
    stars = [expression for expression in node.expressions if expression.is_star]
    named_columns = [expression for expression in node.expressions if not expression.is_star]
    if len(stars) != 1 or any(str(expression.alias_or_name).lower() == name for expression in named_columns):
        return None
    star = stars[0].this if isinstance(stars[0], exp.Column) else stars[0]
    if not isinstance(star, exp.Star) or any(star.args.values()):
        return None
    if any(isinstance(expression, exp.QueryTransform | exp.Aliases) for expression in named_columns):
        return None
    table = stars[0].args.get("table") if isinstance(stars[0], exp.Column) else None
    return exp.Column(this=exp.to_identifier(name), table=table and table.copy())


def _same(column: exp.Column, grouped: Any) -> bool:
    grouped = plain_column(grouped)
    if grouped is None or grouped.name.lower() != column.name.lower():
        return False
    tables = {grouped.table.lower(), column.table.lower()} - {""}
    return len(tables) <= 1
