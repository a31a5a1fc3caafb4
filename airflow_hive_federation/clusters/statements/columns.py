"""The columns of a query's answer, and the columns of its sources behind them. Pure."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from airflow_hive_federation.clusters.predicates.conditions import Key

_GROUPINGS = ("grouping_sets", "cube", "rollup", "totals", "all")


def keeps_filters(node: Any) -> bool:
    """Tell whether filtering the rows of a query's sources instead of its answer leaves the answer as it is.

    That holds unless rows are counted off (``LIMIT``, ``OFFSET``) or looked at beside each other (window
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
    return not any(one.find(exp.Window, exp.QueryTransform) for one in node.expressions)


def output_names(node: Any) -> tuple[str, ...]:
    """Names of the columns of a query's answer; none if a star or a script hides them."""
    while isinstance(node, exp.Subquery | exp.Paren | exp.SetOperation):
        node = node.left if isinstance(node, exp.SetOperation) else node.this
    if not isinstance(node, exp.Select):
        return ()
    names = []
    for one in node.expressions:
        if one.is_star or isinstance(one, exp.QueryTransform | exp.Aliases):
            return ()
        names.append(str(one.alias_or_name).lower())
    return tuple(names)


def column_behind(node: Any, name: str, columns: tuple[str, ...]) -> Key | None:
    """The column of a SELECT's sources that a column of its answer is; ``None`` if it is computed, or not
    known.

    :param columns: the names of the answer's columns, if they were renamed.
    """
    found = _column(node, name, columns)
    group = node.args.get("group")
    if found is None or (group is not None and not any(_same(found, one) for one in group.expressions)):
        return None
    database = found.args.get("db")
    return Key(found.name.lower(), found.table.lower() or None, database and database.name.lower())


def _column(node: Any, name: str, columns: tuple[str, ...]) -> Any:
    names = output_names(node)
    if columns:
        if len(columns) != len(names) or columns.count(name) != 1:
            return None
        return _plain(node.expressions[columns.index(name)])
    if names:
        return _plain(node.expressions[names.index(name)]) if names.count(name) == 1 else None
    return _behind_star(node, name)


def _plain(node: Any) -> Any:
    while isinstance(node, exp.Alias | exp.Paren):
        node = node.this
    return node if isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier) else None


def _behind_star(node: Any, name: str) -> Any:
    """The column that a star brings along under its own name."""
    stars = [one for one in node.expressions if one.is_star]
    others = [one for one in node.expressions if not one.is_star]
    if len(stars) != 1 or any(str(one.alias_or_name).lower() == name for one in others):
        return None
    star = stars[0].this if isinstance(stars[0], exp.Column) else stars[0]
    if not isinstance(star, exp.Star) or any(star.args.values()):
        return None
    if any(isinstance(one, exp.QueryTransform | exp.Aliases) for one in others):
        return None
    table = stars[0].args.get("table") if isinstance(stars[0], exp.Column) else None
    return exp.Column(this=exp.to_identifier(name), table=table and table.copy())


def _same(column: Any, grouped: Any) -> bool:
    grouped = _plain(grouped)
    if grouped is None or grouped.name.lower() != column.name.lower():
        return False
    tables = {grouped.table.lower(), column.table.lower()} - {""}
    return len(tables) <= 1
