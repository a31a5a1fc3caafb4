"""Finds the tables that queries read, each with the conditions on its partition keys. Pure.

A condition of a ``WHERE`` or ``ON`` clause excludes a partition if no row of the partition can reach the
result. Therefore it is not used above a ``LIMIT`` or a window function, nor from the ``ON`` of a join that
keeps the table's other rows, and above an outer join only if it rejects nulls. Conditions on a subquery, a
common table expression or a view are passed down to its tables if the column of its result is a plain column
of one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from airflow_hive_federation.clusters.placement import CatalogFacts, Session
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
from airflow_hive_federation.clusters.statements.sources import (
    Conjuncts,
    Home,
    Read,
    Scope,
    Source,
    Sources,
    common_of,
    hides_right_side,
    owner,
)
from airflow_hive_federation.clusters.statements.statement import Statement, TableName, UnreadableError
from airflow_hive_federation.clusters.statements.trees import (
    is_parenthesised,
    is_referred_to,
    tables_of_common,
)
from airflow_hive_federation.clusters.statements.union_types import UnionTypes

#: The largest number of walks of subqueries, because a text of n common table expressions may refer to 2^n
#: tables.
MAX_WALKS = 5_000

#: The base class of all nodes, under its name in older and newer versions.
_NODE: Any = getattr(exp, "Expr", exp.Expression)


class _From:
    """The sources of a FROM clause, with the conditions that each join imposes on them."""

    def __init__(self) -> None:
        self._conditions: dict[Source, Conjuncts] = {}
        self._visible: list[Source] = []
        #: True if some join adds rows of nulls.
        self.outer = False

    def add(self, sources: Sequence[Source]) -> None:
        self._visible += sources
        for source in sources:
            self._conditions[source] = ()

    def join(self, join: Any, added: Sequence[Source], on: Conjuncts) -> None:
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        hides = hides_right_side(join)
        before, within = list(self._visible), [*self._visible, *added]
        for source in added:
            self._conditions[source] = ()
        concerned: list[Source] = []
        if (not hides and (side == "RIGHT" or not side)) or kind == "SEMI":
            concerned += before
        # The ON of a parenthesised join may concern only some of its parts.
        if (side in {"", "LEFT"} or hides) and len(added) == 1:
            concerned += added
        self._put(concerned, within, on)
        self.outer |= bool(side) and not hides
        # The right side of a semi-join is no longer visible.
        self._visible = before if hides else within

    def _put(self, sources: Sequence[Source], within: Sequence[Source], on: Conjuncts) -> None:
        for condition in on:
            owners = {column: owner(column, within) for column in columns_of(condition)}
            concerned = set(owners.values())
            never = any(source not in concerned for source in sources) and cannot_be_true(condition)
            for source in sources:
                if source in concerned:
                    self._conditions[source] += (_bound_to(source, owners, condition),)
                elif never:
                    self._conditions[source] += (NEVER,)

    def filtered(self, filters: Conjuncts) -> Iterator[tuple[Source, Conjuncts]]:
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
    home = Home(session.database, Conditions(statement.uncertain, statement.text), statement.outline)
    for name in statement.described:
        walk.describe(name, home)
    try:
        walk.branches(statement.queries, home)
    except RecursionError as error:
        raise UnreadableError("it is nested too deeply to be analysed") from error
    return tuple(dict.fromkeys(walk.found))


class _Walk:
    def __init__(self, catalog: CatalogFacts, session: Session) -> None:
        self._sources_of = Sources(catalog, session)
        self._types = UnionTypes(self._sources_of)
        #: The trees of several inserts that have the same common table expressions.
        self._branches: Sequence[Any] = ()
        self._walks = 0
        self._seen: set[int] = set()
        self._plainly: set[tuple[int, TableName | None]] = set()
        self.found: list[Read] = []

    def describe(self, name: TableName, home: Home) -> None:
        read = self._sources_of.read(name, home)
        # A view has no cluster, and its definition is in the metastore, which all clusters share.
        if read.facts is None or not read.facts.is_view:
            self.found.append(replace(read, rows=False))

    def branches(self, trees: Sequence[Any], home: Home) -> None:
        """Walk the trees of a statement. One of several inserts may refer to what others leave out."""
        shared = [tables_of_common(tree) for tree in trees] if len(trees) > 1 else []
        if len({tuple(map(str, tables)) for tables in shared}) == 1:
            self._branches = trees
        for tree in trees:
            self._start(tree, home)
        for copies in zip(*shared, strict=True) if self._branches else ():
            if any(id(table) in self._seen for table in copies):
                self._seen.update(map(id, copies))
        for tree in trees:
            self._check(tree, home)

    def whole(self, tree: object, home: Home, pushed: Conjuncts = (), columns: tuple[str, ...] = ()) -> None:
        """Walk the tree of a text, and check that the walk has reached every table in it."""
        self._start(tree, home, pushed, columns)
        self._check(tree, home)

    def _start(self, tree: object, home: Home, pushed: Conjuncts = (), columns: tuple[str, ...] = ()) -> None:
        if isinstance(tree, exp.Delete | exp.Update | exp.Merge):
            self._changed(tree, home)
        else:
            self._query(tree, {}, home, pushed, columns)

    def _check(self, tree: object, home: Home) -> None:
        for table in home.outline.tables[id(tree)]:
            if id(table) not in self._seen and isinstance(table.this, exp.Identifier):
                raise UnreadableError(f"{table.name} stands where no table was expected")

    def _changed(self, tree: Any, home: Home) -> None:
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
        scope: Scope,
        home: Home,
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

    def _scope(self, node: Any, scope: Scope, home: Home) -> Scope:
        """Return the common table expressions in the scope of a query; walk those that nothing refers to."""
        common = common_of(node, scope)
        within = self._branches if any(node is branch for branch in self._branches) else (node,)
        for name, expression in common.items():
            # Engines analyse a common table expression even if nothing refers to it.
            if not any(is_referred_to(query, name) for query in within):
                self._query(expression.node.this, expression.scope, home, (), ())
        return {**scope, **common} if common else scope

    def _set_operation(
        self,
        node: Any,
        scope: Scope,
        home: Home,
        pushed: Conjuncts,
        columns: tuple[str, ...],
    ) -> None:
        names = columns or output_names(node.left)
        keep = keeps_filters(node) and not node.args.get("by_name")
        pushed = self._types.unchanged(pushed, node, scope, home, columns) if keep else ()
        self._query(node.left, scope, home, pushed, columns)
        # The columns of the other side correspond by position, which stars hide.
        aligned = keep and len(names) == len(output_names(node.right)) > 0
        self._query(node.right, scope, home, pushed if aligned else (), names if aligned else ())
        self._nested(node, scope, home, skip=("this", "expression", "with", "with_"))

    def _select(self, node: Any, scope: Scope, home: Home, pushed: Conjuncts) -> None:
        begin = node.args.get("from_") or node.args.get("from")
        clause = _From()
        joins = list(node.args.get("joins") or ())
        if begin is not None:
            clause.add(list(self._sources(begin.this, scope, home)))
            clause.outer = is_parenthesised(begin.this)
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
            clause.outer |= bool(inner) or is_parenthesised(join.this)
        where = node.args.get("where")
        filters = tuple(conjuncts(home.conditions.condition(where.this))) if where is not None else ()
        for source, conditions in clause.filtered((*filters, *pushed)):
            self._descend(source, conditions)
        self._nested(node, scope, home, skip=("from", "from_", "joins", "with", "with_"))
        for join in joins:
            self._nested(join, scope, home, skip=("this",))

    # -- sources -------------------------------------------------------------------------------------------

    def _sources(self, node: object, scope: Scope, home: Home) -> Iterator[Source]:
        """Return the sources of an entry of a FROM clause, and walk what is nested in it."""
        self._inside(node, scope, home)
        return self._sources_of.of(node, scope, home)

    def _inside(self, node: object, scope: Scope, home: Home) -> None:
        if isinstance(node, exp.Table):
            self._seen.add(id(node))
            self._nested(node, scope, home, skip=("joins",))
        elif isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table | exp.Subquery):
            self._inside(node.this, scope, home)
            for join in node.this.args.get("joins") or ():
                self._inside(join.this, scope, home)
                self._nested(join, scope, home, skip=("this",))
        elif isinstance(node, _NODE) and not isinstance(node, exp.Subquery):
            self._nested(node, scope, home)

    def _descend(self, source: Source, conditions: Conjuncts) -> None:
        if source.read is not None:
            keyed = source.read.facts is not None and source.read.facts.partition_keys
            self.found.append(replace(source.read, conditions=conditions if keyed else ()))
        elif source.query is not None and source.home is not None:
            self._below(source, conditions, source.home)

    def _below(self, source: Source, conditions: Conjuncts, home: Home) -> None:
        many = self._walks > MAX_WALKS // 5
        useful = (
            ()
            if many or source.opaque
            else tuple(condition for condition in conditions if columns_of(condition))
        )
        if not useful:
            # Another walk of the same query would find nothing new.
            if (id(source.query), home.view) in self._plainly:
                return
            self._plainly.add((id(source.query), home.view))
        if source.scope is None:
            self.whole(source.query, home, useful, source.columns)
        else:
            self._query(source.query, source.scope, home, useful, source.columns)

    def _nested(self, node: Any, scope: Scope, home: Home, skip: Sequence[str] = ()) -> None:
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


def _bound_to(source: Source, owners: Mapping[Key, Source | None], condition: Condition) -> Condition:
    """Return the condition with the columns of one source; columns of others become undecided."""
    return bound(condition, lambda key: Key(key.name) if owners[key] is source else None)


def _renamed(node: exp.Expr, pushed: Conjuncts, columns: tuple[str, ...]) -> Conjuncts:
    """Return conditions on a query's result as conditions on its sources."""
    if not pushed or not keeps_filters(node):
        return ()
    return tuple(bound(condition, lambda key: column_behind(node, key.name, columns)) for condition in pushed)
