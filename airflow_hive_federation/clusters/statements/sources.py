"""Finds the tables and queries behind the entries of FROM clauses. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from airflow_hive_federation.clusters.placement import CatalogFacts, Session, TableFacts
from airflow_hive_federation.clusters.predicates.conditions import Condition, Key
from airflow_hive_federation.clusters.predicates.sql import Conditions
from airflow_hive_federation.clusters.statements.columns import output_names
from airflow_hive_federation.clusters.statements.grammar import analyse
from airflow_hive_federation.clusters.statements.statement import (
    Outline,
    Statement,
    TableName,
    UnreadableError,
)
from airflow_hive_federation.clusters.statements.tokens import table_name
from airflow_hive_federation.clusters.statements.trees import names_a_table

MAX_VIEWS = 64

Conjuncts = tuple[Condition, ...]


@dataclass(frozen=True, kw_only=True)
class Read:
    """One place in a statement that reads a table.

    :param table: the name of the table, with the database.
    :param facts: the facts; ``None`` if the table does not exist in the metastore.
    :param temporary: the cluster of a temporary table of the session.
    :param conditions: the conditions on its partition keys; the statement reads only partitions that may
        satisfy all of them.
    :param views: the views through which it is read, with the outermost first.
    :param rows: true if its rows are read, and not only its definition.
    """

    table: TableName
    facts: TableFacts | None
    temporary: str | None = None
    conditions: Conjuncts = ()
    views: tuple[TableName, ...] = ()
    rows: bool = True


@dataclass(frozen=True)
class Common:
    """A common table expression and those in its scope; ``None`` for its own name inside a recursive one."""

    node: Any
    scope: Scope


#: The common table expressions that a query may name.
Scope = Mapping[str, Common | None]


@dataclass(frozen=True)
class Home:
    """The context that resolves the table names in a text."""

    database: str
    conditions: Conditions
    outline: Outline
    views: tuple[TableName, ...] = ()

    @property
    def view(self) -> TableName | None:
        """The view to whose text a query belongs; ``None`` for the statement itself."""
        return self.views[-1] if self.views else None


@dataclass(frozen=True, eq=False)
class Source:
    """An entry of a FROM clause: a table, or a query with the names of its columns.

    :param opaque: true if its columns are unknown, so that no condition is passed down.
    """

    alias: str
    database: str | None = None
    read: Read | None = None
    query: Any = None
    scope: Scope | None = None
    columns: tuple[str, ...] = ()
    home: Home | None = None
    opaque: bool = False

    @property
    def key_types(self) -> Mapping[str, str]:
        """The Hive types of a table's partition keys."""
        if self.opaque or self.read is None or self.read.facts is None:
            return {}
        return dict(self.read.facts.partition_keys)

    def provides(self, name: str) -> bool:
        """Return whether the source certainly has a column."""
        if self.opaque:
            return False
        if self.read is not None:
            return name in self.key_types
        if self.columns:
            return name in self.columns
        return self.query is not None and name in output_names(self.query)


def common_of(node: Any, scope: Scope) -> dict[str, Common]:
    """Return the common table expressions that a query begins with, each with those before it in scope."""
    clause = node.args.get("with_") or node.args.get("with")
    found: dict[str, Common] = {}
    for expression in clause.expressions if isinstance(clause, exp.With) else ():
        name = expression.alias.lower()
        below = {**scope, **found}
        found[name] = Common(expression, {**below, name: None} if clause.recursive else below)
    return found


def entries_of(select: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the entries of a SELECT's FROM clause whose columns it can name, with those that are joined."""
    begin = select.args.get("from_") or select.args.get("from")
    if begin is not None:
        yield from _with_joined(begin.this)
    for join in _showing(select):
        yield from _with_joined(join.this)


def _with_joined(entry: exp.Expr) -> Iterator[exp.Expr]:
    yield entry
    for join in _showing(entry):
        yield join.this


def _showing(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the joins whose right sides stay visible."""
    for join in node.args.get("joins") or ():
        if not hides_right_side(join):
            yield join


def hides_right_side(join: exp.Expr) -> bool:
    """Return whether the columns of a join's right side cannot be named behind it: it is a semi-join."""
    return str(join.args.get("kind") or "").upper() in {"SEMI", "ANTI"}


def owner(column: Key, sources: Sequence[Source]) -> Source | None:
    """Return the source that certainly provides a column; ``None`` if several may, or none does."""
    if column.qualifier is not None:
        owners = [
            source
            for source in sources
            if source.alias == column.qualifier and column.database in {None, source.database}
        ]
    elif len(sources) == 1 and sources[0].query is not None:
        return sources[0]
    else:
        owners = [source for source in sources if source.provides(column.name)]
    if len(owners) != 1 or (owners[0].query is None and not owners[0].provides(column.name)):
        return None
    return owners[0]


class Sources:
    """Resolves the names in FROM clauses by a catalog and a session."""

    def __init__(self, catalog: CatalogFacts, session: Session) -> None:
        self._catalog = catalog
        self._session = session

    def of(self, node: object, scope: Scope, home: Home) -> Iterator[Source]:
        """Yield the sources that an entry of a FROM clause represents, without those of its joins.

        :raises UnreadableError: a view cannot be read or refers to itself, or a name belongs to another
            catalog.
        """
        if isinstance(node, exp.Table):
            yield self._table(node, scope, home)
        elif isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table | exp.Subquery):
            yield from self._parenthesised(node, scope, home)
        elif isinstance(node, exp.Subquery):
            columns = tuple(name.lower() for name in node.alias_column_names)
            yield Source(alias=node.alias.lower(), query=node, scope=scope, columns=columns, home=home)

    def read(self, name: TableName, home: Home) -> Read:
        """Return the table that a name means."""
        if name.database is None and not home.views and name.name in self._session.temporary:
            return Read(table=name, facts=None, temporary=self._session.temporary[name.name])
        full = TableName(name.database or home.database, name.name)
        facts = self._catalog.table(full.database or "", full.name)
        return Read(table=full, facts=facts, views=home.views)

    def _parenthesised(self, node: Any, scope: Scope, home: Home) -> Iterator[Source]:
        """Yield the sources of ``(a JOIN b ON …)``, whose tables are visible outside the parentheses."""
        sources = [*self.of(node.this, scope, home)]
        for join in node.this.args.get("joins") or ():
            added = self.of(join.this, scope, home)
            if hides_right_side(join):
                # So it owns no name outside either.
                added = (replace(source, alias="", opaque=True) for source in added)
            sources += added
        for source in sources:
            # Under an alias, its columns can no longer be identified by the table's own name.
            yield replace(source, alias="", opaque=True) if node.alias else source

    def _table(self, node: Any, scope: Scope, home: Home) -> Source:
        if not isinstance(node.this, exp.Identifier):
            if not isinstance(node.this, exp.Func) or names_a_table(node.this):
                raise UnreadableError("a table has no plain name")
            return Source(alias=node.alias.lower())
        start = int(node.this.meta.get("start", 0))
        name = table_name([part.name for part in node.parts], start)
        alias = (node.alias or name.name).lower()
        renamed = tuple(column.lower() for column in node.alias_column_names)
        if name.database is None and name.name in scope:
            return self._common(scope[name.name], alias, renamed, home)
        read = self.read(name, home)
        if read.facts is None or not read.facts.is_view:
            # Renamed columns are no longer the partition keys.
            return Source(alias=alias, database=read.table.database, read=read, opaque=bool(renamed))
        return self._view(read, alias, renamed, home)

    @staticmethod
    def _common(common: Common | None, alias: str, renamed: tuple[str, ...], home: Home) -> Source:
        if common is None:
            return Source(alias=alias)
        columns = renamed or tuple(column.lower() for column in common.node.alias_column_names)
        # A recursive expression reads rows that its result does not contain.
        recursive = common.scope.get(common.node.alias.lower(), common) is None
        return Source(
            alias=alias,
            query=common.node.this,
            scope=common.scope,
            columns=columns,
            home=home,
            opaque=recursive,
        )

    @staticmethod
    def _view(read: Read, alias: str, renamed: tuple[str, ...], home: Home) -> Source:
        facts = read.facts
        assert facts is not None
        assert facts.view_text is not None
        if read.table in home.views:
            raise UnreadableError(f"the view {read.table} refers to itself")
        if len(home.views) >= MAX_VIEWS:
            raise UnreadableError(f"more than {MAX_VIEWS} views refer to one another")
        analysis = analyse(facts.view_text)
        if not isinstance(analysis, Statement) or analysis.outputs or len(analysis.queries) != 1:
            raise UnreadableError(f"the definition of the view {read.table} cannot be read ({analysis})")
        inside = Home(
            facts.view_database or facts.database,
            Conditions(analysis.uncertain, analysis.text),
            analysis.outline,
            (*home.views, read.table),
        )
        return Source(
            alias=alias,
            database=read.table.database,
            query=analysis.queries[0],
            columns=renamed or facts.columns or ("",),
            home=inside,
        )
