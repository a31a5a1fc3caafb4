"""Finds the tables and columns of another database that the rows of a query come from. Pure.

sqlglot reads the query in the dialect of its database. Nothing is guessed: if a table, or the source of a
column, is not certain from the text, it is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect, NormalizationStrategy
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, build_scope

from airflow_hive_federation.clusters.statements.columns import result_column

#: Dialects whose names in sqlglot differ from those of Airflow's connections.
_DIALECTS = {"mssql": "tsql", "postgresql": "postgres"}
#: Names without brackets that databases may read as functions, although sqlglot reads columns.
_FUNCTIONS = frozenset(
    {
        *("user", "current_user", "session_user", "system_user", "current_role", "current_catalog"),
        *("current_schema", "current_database", "current_date", "current_time", "current_timestamp"),
        *("localtime", "localtimestamp", "sysdate", "systimestamp", "uid", "level", "rownum", "value"),
        *("true", "false", "null", "default", "nextval", "currval"),
    }
)
#: Clauses whose columns have names that no table has.
_RESHAPING = (exp.Pivot, exp.MatchRecognize)
#: The ways in which databases store names without quotes; others keep them as they are.
_FOLDS = {NormalizationStrategy.LOWERCASE: str.lower, NormalizationStrategy.UPPERCASE: str.upper}


@dataclass(frozen=True, kw_only=True)
class SourceColumn:
    """A column of a table of the query's database.

    :param table: the table, in the dialect's spelling.
    """

    table: str
    column: str


@dataclass(frozen=True, kw_only=True)
class QuerySources:
    """The tables that a query reads, and the columns that its result shows unchanged.

    :param tables: the tables, in the dialect's spelling, each once.
    :param columns: by columns of the result; columns that are computed, or not certain, are missing.
    """

    tables: tuple[str, ...] = ()
    columns: Mapping[str, SourceColumn] = field(default_factory=dict)


def dialect_of(names: Iterable[str]) -> str | None:
    """Return the first name that sqlglot has a dialect for, as sqlglot spells it.

    :param names: names that others have for the database's dialect, such as the type of its connection.
    """
    spelled = (_DIALECTS.get(name.lower(), name.lower()) for name in names if name)
    return next((name for name in spelled if Dialect.get(name) is not None), None)


def query_sources(sql: str, dialect: str | None, columns: Mapping[str, str]) -> QuerySources:
    """Return the sources of a query.

    :param sql: the query.
    :param dialect: sqlglot's name of its dialect; without one, sqlglot's own is used, and no column is known.
    :param columns: the names of the result's columns in lower case, each with the database's spelling.
    """
    try:
        scope = _scope(sql, dialect)
        tables = _tables(scope) if scope is not None else ()
        if scope is None or dialect is None:
            return QuerySources(tables=tuple(dict.fromkeys(_spelled(table, None) for table in tables)))
        behind = {name: _behind(scope, spelled, dialect) for name, spelled in columns.items()}
    # On some malformed input, sqlglot fails with an arbitrary exception.
    except (SqlglotError, AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError):
        return QuerySources()
    if not tables:
        return QuerySources()
    return QuerySources(
        tables=tuple(dict.fromkeys(_spelled(table, dialect) for table in tables)),
        columns={name: source for name, source in behind.items() if source is not None},
    )


def _scope(sql: str, dialect: str | None) -> Scope | None:
    trees = sqlglot.parse(sql, read=dialect)
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        return None
    tree: exp.Expr = trees[0]
    while type(tree) is exp.Subquery and all(
        not value for name, value in tree.args.items() if name != "this"
    ):
        tree = tree.this
    return build_scope(tree)


def _tables(root: Scope) -> Sequence[exp.Table]:
    """Return the tables of a query; none if one of them is not certain."""
    resolved: dict[int, object] = {}
    for scope in root.traverse():
        resolved.update({id(node): source for node, source in scope.selected_sources.values()})
    named = [table for table in root.expression.find_all(exp.Table) if _is_named(table)]
    if any(id(table) not in resolved for table in named):
        return ()
    found = [table for table in named if isinstance(resolved.get(id(table)), exp.Table)]
    # Databases compare names in ways of their own, and some let a common table expression read itself.
    common = {expression.alias.lower() for expression in root.expression.find_all(exp.CTE)}
    # Some databases unnest an array of another table by such a name.
    aliases = {table.alias_or_name.lower() for table in named}
    if any(table.parts[0].name.lower() in (aliases if table.db else common) for table in found):
        return ()
    return found


def _behind(scope: Scope, name: str, dialect: str) -> SourceColumn | None:
    """Return the column of a table that a column of a query's result shows unchanged."""
    select = scope.expression
    if not isinstance(select, exp.Select) or scope.outer_columns or select.find(*_RESHAPING):
        return None
    column = result_column(select, name.lower())
    if column is None:
        return None
    # A star shows the column under the name that the result has.
    is_starred = column.parent is None
    source = _source(scope, column)
    if not is_starred and _may_be_computed(column, select, dialect):
        return None
    if isinstance(source, Scope):
        return _behind(source, name if is_starred else column.name, dialect)
    if not isinstance(source, exp.Table) or not _is_named(source) or source.alias_column_names:
        return None
    spelled = name if is_starred else _folded(column.this, dialect).name
    return SourceColumn(table=_spelled(source, dialect), column=spelled)


def _source(scope: Scope, column: exp.Column) -> object:
    """Return the entry of the FROM clause that a column is certainly of."""
    select, sources = scope.expression, scope.selected_sources
    if not column.table:
        alone = len(sources) == 1 and not select.args.get("joins") and not select.args.get("laterals")
        return next(iter(sources.values()))[1] if alone else None
    # Some databases read the field of a column that is a record here.
    if column.args.get("db"):
        return None
    named = [source for alias, (_, source) in sources.items() if alias.lower() == column.table.lower()]
    return named[0] if len(named) == 1 else None


def _may_be_computed(column: exp.Column, select: exp.Select, dialect: str) -> bool:
    """Return whether a database may read a plain name as a function, a text, or an alias of this SELECT."""
    if column.table:
        return False
    name = column.name.lower()
    if column.this.quoted:
        # SQLite reads a text if there is no such column.
        return dialect == "sqlite"
    return name in _FUNCTIONS or any(
        isinstance(expression, exp.Alias)
        and expression.alias.lower() == name
        and expression.this is not column
        for expression in select.expressions
    )


def _is_named(table: exp.Table) -> bool:
    """Return whether it is a table with a name, and no function that returns rows."""
    return isinstance(table.this, exp.Identifier)


def _spelled(table: exp.Table, dialect: str | None) -> str:
    return ".".join(_folded(part, dialect).sql(dialect=dialect) for part in table.parts)


def _folded(identifier: exp.Expr, dialect: str | None) -> exp.Expr:
    """Return an identifier as its database stores it, if the database folds names without quotes."""
    strategy = Dialect.get_or_raise(dialect).normalization_strategy
    fold = None if identifier.args.get("quoted") else _FOLDS.get(strategy)
    return exp.to_identifier(fold(identifier.name)) if dialect and fold else identifier
