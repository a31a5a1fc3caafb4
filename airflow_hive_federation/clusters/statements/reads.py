"""Finds the tables that queries read, each with the conditions on its partition keys. Pure.

A condition of a ``WHERE`` or ``ON`` clause excludes a partition if no row of the partition can reach the
result. Therefore it is not used above a ``LIMIT`` or a window function, nor from the ``ON`` of a join that
keeps the table's other rows, and above an outer join only if it rejects nulls. Conditions on a subquery, a
common table expression or a view are passed down to its tables if the column of its result is a plain column
of one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from airflow_hive_federation.clusters.placement import CatalogFacts, Session, TableFacts
from airflow_hive_federation.clusters.predicates.conditions import (
    NEVER,
    Condition,
    Key,
    bound,
    cannot_be_true,
    columns_of,
    conjuncts,
    rejects_nulls,
)
from airflow_hive_federation.clusters.predicates.sql import Conditions
from airflow_hive_federation.clusters.statements.columns import column_behind, keeps_filters, output_names
from airflow_hive_federation.clusters.statements.grammar import analyse
from airflow_hive_federation.clusters.statements.statement import (
    Outline,
    Statement,
    TableName,
    UnreadableError,
)
from airflow_hive_federation.clusters.statements.tokens import table_name

MAX_VIEWS = 64
#: The largest number of walks of subqueries, because a text of n common table expressions may refer to 2^n
#: tables.
MAX_WALKS = 5_000

#: Functions that represent the name of a table.
_NAMING = frozenset({"IDENTIFIER", "TABLE"})
#: The base class of all nodes, under its name in older and newer versions.
_NODE: Any = getattr(exp, "Expr", exp.Expression)
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
class _Common:
    """A common table expression and those in its scope; ``None`` for its own name inside a recursive one."""

    node: Any
    scope: Mapping[str, _Common | None]


@dataclass(frozen=True)
class _Home:
    """The context that resolves the table names in a text."""

    database: str
    conditions: Conditions
    outline: Outline
    views: tuple[TableName, ...] = ()


@dataclass(frozen=True, eq=False)
class _Source:
    """An entry of a FROM clause: a table, or a query with the names of its columns.

    :param opaque: true if its columns are unknown, so that no condition is passed down.
    """

    alias: str
    database: str | None = None
    read: Read | None = None
    query: Any = None
    scope: Mapping[str, _Common | None] | None = None
    columns: tuple[str, ...] = ()
    home: _Home | None = None
    opaque: bool = False

    def provides(self, name: str) -> bool:
        """Return whether the source certainly has a column."""
        if self.opaque:
            return False
        if self.read is not None:
            facts = self.read.facts
            return facts is not None and any(name == key for key, _ in facts.partition_keys)
        if self.columns:
            return name in self.columns
        return self.query is not None and name in output_names(self.query)


class _From:
    """The sources of a FROM clause, with the conditions that each join imposes on them."""

    def __init__(self) -> None:
        self._conditions: dict[_Source, Conjuncts] = {}
        self._visible: list[_Source] = []
        #: True if some join adds rows of nulls.
        self.outer = False

    def add(self, sources: Sequence[_Source]) -> None:
        self._visible += sources
        for source in sources:
            self._conditions[source] = ()

    def join(self, join: Any, added: Sequence[_Source], on: Conjuncts) -> None:
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        hides = kind in {"SEMI", "ANTI"}
        before, within = list(self._visible), [*self._visible, *added]
        for source in added:
            self._conditions[source] = ()
        concerned: list[_Source] = []
        if (not hides and (side == "RIGHT" or not side)) or kind == "SEMI":
            concerned += before
        # The ON of a parenthesised join may concern only some of its parts.
        if (side in {"", "LEFT"} or hides) and len(added) == 1:
            concerned += added
        self._put(concerned, within, on)
        self.outer |= bool(side) and not hides
        # The right side of a semi-join is no longer visible.
        self._visible = before if hides else within

    def _put(self, sources: Sequence[_Source], within: Sequence[_Source], on: Conjuncts) -> None:
        for condition in on:
            owners = {column: _owner(column, within) for column in columns_of(condition)}
            concerned = set(owners.values())
            never = any(source not in concerned for source in sources) and cannot_be_true(condition)
            for source in sources:
                if source in concerned:
                    self._conditions[source] += (_bound_to(source, owners, condition),)
                elif never:
                    self._conditions[source] += (NEVER,)

    def filtered(self, filters: Conjuncts) -> Iterator[tuple[_Source, Conjuncts]]:
        """Yield the sources, each with the conditions that its rows must satisfy."""
        self._put(self._visible, self._visible, filters)
        for source, conditions in self._conditions.items():
            yield (
                source,
                tuple(condition for condition in conditions if not self.outer or rejects_nulls(condition)),
            )


def reads(statement: Statement, catalog: CatalogFacts, session: Session) -> tuple[Read, ...]:
    """Return the tables that a statement reads, one entry per place.

    :raises UnreadableError: a view cannot be read or refers to itself, or a name belongs to another catalog.
    """
    walk = _Walk(catalog, session)
    home = _Home(session.database, Conditions(statement.uncertain, statement.text), statement.outline)
    for name in statement.described:
        walk.describe(name, home)
    try:
        for tree in statement.queries:
            walk.whole(tree, home)
    except RecursionError as error:
        raise UnreadableError("it is nested too deeply to be analysed") from error
    return tuple(dict.fromkeys(walk.found))


class _Walk:
    def __init__(self, catalog: CatalogFacts, session: Session) -> None:
        self._catalog = catalog
        self._session = session
        self._walks = 0
        self._seen: set[int] = set()
        self._plainly: set[tuple[int, TableName | None]] = set()
        self.found: list[Read] = []

    def describe(self, name: TableName, home: _Home) -> None:
        read = self._read(name, home)
        # A view has no cluster, and its definition is in the metastore, which all clusters share.
        if read.facts is None or not read.facts.is_view:
            self.found.append(replace(read, rows=False))

    def whole(self, tree: object, home: _Home, pushed: Conjuncts = (), columns: tuple[str, ...] = ()) -> None:
        """Walk the tree of a text, and check that the walk has reached every table in it."""
        if isinstance(tree, exp.Delete | exp.Update | exp.Merge):
            self._changed(tree, home)
        else:
            self._query(tree, {}, home, pushed, columns)
        for table in home.outline.tables[id(tree)]:
            if id(table) not in self._seen and isinstance(table.this, exp.Identifier):
                raise UnreadableError(f"{table.name} stands where no table was expected")

    def _changed(self, tree: Any, home: _Home) -> None:
        # The changed table is an output: the statement runs in its primary cluster, which holds all its data.
        self._seen.add(id(tree.this))
        scope = self._scope(tree, {}, home)
        using = tree.args.get("using")
        sources = list(self._sources(using, scope, home)) if isinstance(using, _NODE) else []
        for source in sources:
            self._descend(source, ())
        self._nested(tree, scope, home, skip=("this", "using", "with", "with_"))

    # -- queries -------------------------------------------------------------------------------------------

    def _query(
        self,
        node: object,
        scope: Mapping[str, object],
        home: _Home,
        pushed: Conjuncts,
        columns: tuple[str, ...],
    ) -> None:
        self._walks += 1
        if self._walks > MAX_WALKS:
            raise UnreadableError(f"it contains more than {MAX_WALKS} subqueries, views included")
        scope = self._scope(node, scope, home)
        if isinstance(node, exp.Subquery | exp.Paren) and not isinstance(node.this, exp.Table):
            keep = keeps_filters(node)
            self._query(node.this, scope, home, pushed if keep else (), columns)
            self._nested(node, scope, home, skip=("this", "joins", "with", "with_"))
        elif isinstance(node, exp.SetOperation):
            self._set_operation(node, scope, home, pushed, columns)
        elif isinstance(node, exp.Select):
            self._select(node, scope, home, _renamed(node, pushed, columns))
        elif isinstance(node, exp.Subquery | exp.Table):
            for source in self._sources(node, scope, home):
                self._descend(source, ())
        else:
            self._nested(node, scope, home, skip=("with", "with_"))

    def _scope(self, node: Any, scope: Mapping[str, Any], home: _Home) -> Mapping[str, object]:
        """Return the common table expressions in the scope of a query."""
        common = node.args.get("with_") or node.args.get("with")
        if not isinstance(common, exp.With):
            return scope
        inner: dict[str, _Common | None] = dict(scope)
        for expression in common.expressions:
            name = expression.alias.lower()
            below = {**inner, name: None} if common.recursive else dict(inner)
            inner[name] = _Common(expression, below)
            # Engines analyse a common table expression even if nothing refers to it.
            if not _is_referred_to(node, name):
                self._query(expression.this, below, home, (), ())
        return inner

    def _set_operation(
        self,
        node: Any,
        scope: Mapping[str, Any],
        home: _Home,
        pushed: Conjuncts,
        columns: tuple[str, ...],
    ) -> None:
        names = columns or output_names(node.left)
        keep = keeps_filters(node) and not node.args.get("by_name")
        self._query(node.left, scope, home, pushed if keep else (), columns)
        # The columns of the other side correspond by position, which stars hide.
        aligned = keep and len(names) == len(output_names(node.right)) > 0
        self._query(node.right, scope, home, pushed if aligned else (), names if aligned else ())
        self._nested(node, scope, home, skip=("this", "expression", "with", "with_"))

    def _select(self, node: Any, scope: Mapping[str, Any], home: _Home, pushed: Conjuncts) -> None:
        begin = node.args.get("from_") or node.args.get("from")
        clause = _From()
        joins = list(node.args.get("joins") or ())
        if begin is not None:
            clause.add(list(self._sources(begin.this, scope, home)))
            clause.outer = _is_parenthesised(begin.this)
            joins = [*(begin.this.args.get("joins") or ()), *joins]
        for join in joins:
            added = list(self._sources(join.this, scope, home))
            inner = join.this.args.get("joins") or ()
            for part in inner:
                added += self._sources(part.this, scope, home)
                self._nested(part, scope, home, skip=("this",))
            on = join.args.get("on")
            on_conditions = tuple(conjuncts(home.conditions.condition(on))) if on is not None else ()
            clause.join(join, added, on_conditions)
            clause.outer |= bool(inner) or _is_parenthesised(join.this)
        where = node.args.get("where")
        filters = tuple(conjuncts(home.conditions.condition(where.this))) if where is not None else ()
        for source, conditions in clause.filtered((*filters, *pushed)):
            self._descend(source, conditions)
        self._nested(node, scope, home, skip=("from", "from_", "joins", "with", "with_"))
        for join in joins:
            self._nested(join, scope, home, skip=("this",))

    # -- sources -------------------------------------------------------------------------------------------

    def _sources(self, node: object, scope: Mapping[str, object], home: _Home) -> Iterator[_Source]:
        """Yield the entries of a FROM clause that a node represents; the caller handles its joins."""
        if isinstance(node, exp.Table):
            yield self._table(node, scope, home)
            self._nested(node, scope, home, skip=("joins",))
        elif isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table | exp.Subquery):
            yield from self._parenthesised(node, scope, home)
        elif isinstance(node, exp.Subquery):
            yield self._derived(node, scope, home)
        elif isinstance(node, _NODE):
            self._nested(node, scope, home)

    def _parenthesised(self, node: Any, scope: Mapping[str, Any], home: _Home) -> Iterator[_Source]:
        """Yield the sources of ``(a JOIN b ON …)``, whose tables are visible outside the parentheses."""
        sources = [*self._sources(node.this, scope, home)]
        for join in node.this.args.get("joins") or ():
            sources += self._sources(join.this, scope, home)
            self._nested(join, scope, home, skip=("this",))
        for source in sources:
            # Under an alias, its columns can no longer be identified by the table's own name.
            yield replace(source, alias="", opaque=True) if node.alias else source

    def _derived(self, node: Any, scope: Mapping[str, Any], home: _Home) -> _Source:
        columns = tuple(name.lower() for name in node.alias_column_names)
        return _Source(alias=node.alias.lower(), query=node, scope=scope, columns=columns, home=home)

    def _table(self, node: Any, scope: Mapping[str, Any], home: _Home) -> _Source:
        self._seen.add(id(node))
        if not isinstance(node.this, exp.Identifier):
            if not isinstance(node.this, exp.Func) or _names_a_table(node.this):
                raise UnreadableError("a table has no plain name")
            return _Source(alias=node.alias.lower())
        start = int(node.this.meta.get("start", 0))
        name = table_name([part.name for part in node.parts], start)
        alias = (node.alias or name.name).lower()
        renamed = tuple(column.lower() for column in node.alias_column_names)
        if name.database is None and name.name in scope:
            return self._common(scope[name.name], alias, renamed, home)
        read = self._read(name, home)
        if read.facts is None or not read.facts.is_view:
            # Renamed columns are no longer the partition keys.
            return _Source(alias=alias, database=read.table.database, read=read, opaque=bool(renamed))
        return self._view(read, alias, renamed, home)

    def _common(self, common: Any, alias: str, renamed: tuple[str, ...], home: _Home) -> _Source:
        if common is None:
            return _Source(alias=alias)
        columns = renamed or tuple(column.lower() for column in common.node.alias_column_names)
        # A recursive expression reads rows that its result does not contain.
        recursive = common.scope.get(common.node.alias.lower(), common) is None
        return _Source(
            alias=alias,
            query=common.node.this,
            scope=common.scope,
            columns=columns,
            home=home,
            opaque=recursive,
        )

    def _view(self, read: Read, alias: str, renamed: tuple[str, ...], home: _Home) -> _Source:
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
        inside = _Home(
            facts.view_database or facts.database,
            Conditions(analysis.uncertain, analysis.text),
            analysis.outline,
            (*home.views, read.table),
        )
        return _Source(
            alias=alias,
            database=read.table.database,
            query=analysis.queries[0],
            columns=renamed or facts.columns or ("",),
            home=inside,
        )

    def _read(self, name: TableName, home: _Home) -> Read:
        if name.database is None and not home.views and name.name in self._session.temporary:
            return Read(table=name, facts=None, temporary=self._session.temporary[name.name])
        full = TableName(name.database or home.database, name.name)
        facts = self._catalog.table(full.database or "", full.name)
        return Read(table=full, facts=facts, views=home.views)

    def _descend(self, source: _Source, conditions: Conjuncts) -> None:
        if source.read is not None:
            keys = dict(source.read.facts.partition_keys) if source.read.facts is not None else {}
            self.found.append(replace(source.read, conditions=conditions if keys else ()))
        elif source.query is not None and source.home is not None:
            self._below(source, conditions, source.home)

    def _below(self, source: _Source, conditions: Conjuncts, home: _Home) -> None:
        many = self._walks > MAX_WALKS // 5
        useful = (
            ()
            if many or source.opaque
            else tuple(condition for condition in conditions if columns_of(condition))
        )
        view = home.views[-1] if home.views else None
        if not useful:
            # Another walk of the same query would find nothing new.
            if (id(source.query), view) in self._plainly:
                return
            self._plainly.add((id(source.query), view))
        if source.scope is None:
            self.whole(source.query, home, useful, source.columns)
        else:
            self._query(source.query, source.scope, home, useful, source.columns)

    def _nested(self, node: Any, scope: Mapping[str, Any], home: _Home, skip: Sequence[str] = ()) -> None:
        """Walk the queries within a node's expressions."""
        for key, value in node.args.items():
            if key in skip:
                continue
            for child in value if isinstance(value, list) else [value]:
                if id(child) not in home.outline.above:
                    continue
                if isinstance(child, exp.Query | exp.Table):
                    self._query(child, scope, home, (), ())
                elif key != "hint":
                    self._nested(child, scope, home)


def _owner(column: Key, sources: Sequence[_Source]) -> _Source | None:
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


def _bound_to(source: _Source, owners: Mapping[Key, _Source | None], condition: Condition) -> Condition:
    """Return the condition with the columns of one source; columns of others become undecided."""
    return bound(condition, lambda key: Key(key.name) if owners[key] is source else None)


def _names_a_table(function: Any) -> bool:
    """Return whether a function takes a table, as in ``f(TABLE(t))``, or represents a table name."""
    return any(
        call.name.upper() in _NAMING and not call.find(exp.Query) for call in function.find_all(exp.Func)
    )


def _is_parenthesised(node: object) -> bool:
    return isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table | exp.Subquery)


def _renamed(node: exp.Expr, pushed: Conjuncts, columns: tuple[str, ...]) -> Conjuncts:
    """Return conditions on a query's result as conditions on its sources."""
    if not pushed or not keeps_filters(node):
        return ()
    return tuple(bound(condition, lambda key: column_behind(node, key.name, columns)) for condition in pushed)


def _is_referred_to(node: Any, name: str) -> bool:
    return any(
        isinstance(table.this, exp.Identifier) and not table.args.get("db") and table.name.lower() == name
        for table in node.find_all(exp.Table)
    )
