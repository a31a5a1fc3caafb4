"""Random statements for the model of the routing rules, with the partitions that each of them reads.

A statement is built from the places that it reads, so their partitions are known without reading the text. A
place may be behind several views, common table expressions, subqueries and joins; it reads the partitions
that are left by all filters that may act on it in SQL. MERGE, UPDATE and DELETE read no rows of the table
that they change: they run in its primary cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from tests.support.routing_filters import ALL_HOURS, KINDS, TABLES, Filters, Parts, both, key_text

JOINS = (
    "JOIN",
    "INNER JOIN",
    "LEFT JOIN",
    "RIGHT JOIN",
    "FULL OUTER JOIN",
    "LEFT SEMI JOIN",
    "LEFT ANTI JOIN",
)
#: A temporary table of some sessions; others have temporary tables with names of :data:`TABLES`.
TEMPORARY = "tmp1"
#: The most subqueries, views and common table expressions around one table.
_DEPTH = 5
#: Forms of statements that no router can analyse; the engines' table functions are among them.
_UNANALYSABLE = (
    "SELECT * FROM noop(ON {} PARTITION BY k)",
    "FROM UNIQUEJOIN PRESERVE {} a (a.k), t1 b (b.k) SELECT a.k",
    "SELECT * FROM {} WHERE k = ${{hiveconf:k}}",
    "ANALYZE TABLES IN {} COMPUTE STATISTICS",
)


@dataclass(frozen=True)
class Input:
    """A place that reads a table.

    :param viewed: true if a view reads it, so that no temporary table of the session hides it.
    :param beside: the other table of its set operation, if there is one.
    :param within: the parts that are left by the filters inside the set operation. No other filter acts if
        the other table is a temporary one, whose columns may have other types.
    """

    table: str
    parts: Parts
    viewed: bool
    beside: str | None = None
    within: Parts = None


@dataclass(frozen=True)
class Written:
    """A statement.

    :param keys: the number of partition keys of each table.
    :param inputs: the places that it reads.
    :param outputs: the tables that it writes, with the day, or day and hour, of a static partition.
    :param views: the text and the columns of each view, by name.
    :param kind: the type of the first partition key, of :data:`KINDS`.
    :param analysable: false if its tables are not known for certain.
    """

    keys: dict[str, int]
    kind: str
    inputs: tuple[Input, ...]
    outputs: tuple[tuple[str, str | None], ...]
    sql: str
    views: dict[str, tuple[str, tuple[str, ...]]]
    analysable: bool = True


@dataclass
class Leaf:
    """A table that a place reads.

    :param open: true if a filter on the place acts on the table.
    """

    table: str
    parts: Parts = None
    open: bool = True
    viewed: bool = False
    beside: str | None = None
    within: Parts = None

    def filter(self, parts: Parts) -> None:
        if self.open:
            self.parts = both(self.parts, parts)


@dataclass
class Place:
    """An entry of a FROM clause.

    :param like: the table whose partition keys it shows.
    :param common: true if it names a common table expression of the statement, which no view can.
    """

    text: str
    like: str
    leaves: list[Leaf] = field(default_factory=list)
    alias: str = ""
    common: bool = False

    @property
    def source(self) -> str:
        """The text of an entry of a FROM clause without an alias of its own."""
        return f"{self.text} AS d" if self.text.startswith("(") else self.text


class Statements(Filters):
    """A random statement from one seed."""

    def statement(self) -> Written:
        self._keys = {**{name: self._random.choice([0, 0, 1, 1, 2]) for name in TABLES}, TEMPORARY: 0}
        self._kind = self._random.choice(KINDS)
        self._views: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._common: list[str] = []
        forms = {"query": 75, "created": 8, "values": 4, "changed": 5, "merged": 5, "unanalysable": 3}
        (form,) = self._random.choices([*forms], weights=[*forms.values()])
        #: Only queries have common table expressions.
        self._commons = form in {"query", "created"}
        self._unreferred: list[Leaf] = []
        self._aliases = 0
        match form:
            case "values":
                return self._values()
            case "changed" | "merged":
                return self._changed(merged=form == "merged")
            case "unanalysable":
                text = self._random.choice(_UNANALYSABLE).format(self._random.choice(TABLES))
                return self._written(text, (), (), analysable=False)
        return self._query_statement(created=form == "created")

    def _written(
        self,
        sql: str,
        leaves: Sequence[Leaf],
        outputs: tuple[tuple[str, str | None], ...],
        *,
        analysable: bool = True,
    ) -> Written:
        inputs = tuple(
            Input(leaf.table, leaf.parts, leaf.viewed, leaf.beside, leaf.within) for leaf in leaves
        )
        return Written(self._keys, self._kind, inputs, outputs, sql, self._views, analysable)

    def _query_statement(self, *, created: bool) -> Written:
        count = self._random.choice([0, 1, 1, 2, 2, 3, 4])
        names = self._random.choices([*TABLES, *TABLES, TEMPORARY], k=count)
        places = [place for name in names for place in self._places(name)]
        if self._chance(0.15):
            self._unreferred += self._common_expression(self._place(self._random.choice(TABLES))).leaves
        clause, visible = self._joined(places)
        outputs, create = self._created() if created else (tuple(self._outputs()), "")
        heads = [] if created else self._heads(outputs)
        below, conditions = self._nested() if self._chance(0.3) else ([], [])
        # The condition of one of several inserts leaves the rows of the others.
        if visible and len(heads) < 2 and self._chance(0.3):
            conditions += self._filter(self._random.choice(visible), act=True)
        leaves = [*self._unreferred, *(leaf for place in places for leaf in place.leaves), *below]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return self._written(create + self._sql(clause, heads, where), leaves, outputs)

    def _created(self) -> tuple[tuple[tuple[str, str | None], ...], str]:
        """Return the table that CREATE TABLE … AS writes, and the text before its query."""
        if self._chance(0.2):
            # A temporary table is new, whatever table has its name.
            name = self._random.choice([*TABLES, "new2"])
            return (), f"CREATE TEMPORARY TABLE {name} AS "
        name = self._random.choice([*TABLES, "new1", "new1", "new1"])
        exists = "IF NOT EXISTS " if self._chance(0.5) else ""
        form = self._random.choice(["", "STORED AS ORC ", "USING parquet "])
        return ((name, None),), f"CREATE TABLE {exists}{name} {form}AS "

    def _values(self) -> Written:
        """Return an INSERT of constants, which reads no table."""
        outputs = tuple(self._outputs())[:1] or ((self._random.choice(TABLES), None),)
        rows = ", ".join(f"({number}, 'FROM t1')" for number in range(self._random.randint(1, 3)))
        return self._written(f"{self._head(*outputs[0])} VALUES {rows}", (), outputs)

    def _changed(self, *, merged: bool) -> Written:
        """Return an UPDATE, DELETE or MERGE, whose conditions leave out no partition of other tables."""
        name = self._random.choice([*TABLES, *TABLES, TEMPORARY, "new1"])
        conditions, leaves = self._filter(Place(name, "t1"), act=False), []
        if self._chance(0.5):
            below, tests = self._nested()
            leaves, conditions = below, [*conditions, *tests]
        if merged:
            place = self._entry(self._place(self._random.choice([*TABLES, TEMPORARY])))
            conditions = [f"x.k = {place.alias}.k", *conditions, *self._filter(place, act=False)]
            then = self._random.choice(["UPDATE SET k = 1", "DELETE"])
            added = f" WHEN NOT MATCHED THEN INSERT VALUES ({place.alias}.k)" if self._chance(0.5) else ""
            on = f"ON {' AND '.join(conditions)} WHEN MATCHED THEN {then}{added}"
            sql = f"MERGE INTO {name} AS x USING {place.text} {on}"
            return self._written(sql, [*place.leaves, *leaves], ((name, None),))
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        verb = self._random.choice([f"DELETE FROM {name}", f"UPDATE {name} SET k = 1"])
        return self._written(verb + where, leaves, ((name, None),))

    # -- places --------------------------------------------------------------------------------------------

    def _places(self, name: str) -> Iterator[Place]:
        """Yield one or two entries of a FROM clause that read a table."""
        if self._commons and self._chance(0.2):
            # Each reference to a common table expression has filters of its own.
            common = self._common_expression(self._place(name))
            yield self._entry(deepcopy(common))
            if self._chance(0.5):
                yield self._entry(common)
        else:
            yield self._entry(self._place(name))

    def _place(self, name: str) -> Place:
        """Return a place around a table, behind up to :data:`_DEPTH` queries."""
        place = self._union(name) if self._chance(0.1) else Place(name, name, [Leaf(name)])
        while self._chance(0.5):
            wraps = [self._derived, self._limited, self._ranked, self._grouped]
            if not place.common:
                wraps += [self._view, self._view, self._view_with]
            if self._commons:
                wraps += [self._common_expression]
            place = self._random.choice(wraps)(place)
            if place.text.count("SELECT") >= _DEPTH:
                break
        return place

    def _derived(self, place: Place) -> Place:
        return self._wrapped(place, f"({self._query(place)})")

    def _limited(self, place: Place) -> Place:
        made = self._wrapped(place, f"({self._query(place)} LIMIT 5)")
        return self._closed(made)

    def _ranked(self, place: Place) -> Place:
        columns = ", ".join(self._columns(place.like))
        query = self._query(place, f"{columns}, row_number() OVER (ORDER BY k) AS n")
        return self._closed(self._wrapped(place, f"({query})"))

    @staticmethod
    def _closed(place: Place) -> Place:
        """Let no filter behind the place act on its tables: it acts behind the limit or window."""
        for leaf in place.leaves:
            leaf.open = False
        return place

    def _grouped(self, place: Place) -> Place:
        columns = ", ".join(self._columns(place.like)[1:])
        shown = f"max(k) AS k, {columns}" if columns else "max(k) AS k"
        by = f" GROUP BY {columns}" if columns else ""
        return self._wrapped(place, f"({self._query(place, shown)}{by})")

    def _view(self, place: Place) -> Place:
        return self._as_view(place, "")

    def _view_with(self, place: Place) -> Place:
        """Return a view with a common table expression of its own."""
        inner = self._query(place, ", ".join(self._columns(place.like)))
        return self._as_view(Place("w", place.like, place.leaves), f"WITH w AS ({inner}) ")

    def _as_view(self, place: Place, head: str) -> Place:
        name, columns = f"v{len(self._views) + 1}", self._columns(place.like)
        # A metastore has the text with the names of all columns.
        self._views[name] = head + self._query(place, ", ".join(columns)), columns
        for leaf in place.leaves:
            leaf.viewed = True
        return self._wrapped(place, name)

    def _common_expression(self, place: Place) -> Place:
        # The query makes expressions that it refers to.
        query = self._query(place)
        self._common.append(f"c{len(self._common) + 1} AS ({query})")
        return self._wrapped(place, f"c{len(self._common)}", common=True)

    @staticmethod
    def _wrapped(place: Place, text: str, *, common: bool = False) -> Place:
        return Place(text, place.like, place.leaves, common=common or place.common)

    def _union(self, name: str) -> Place:
        """Return two tables below a set operation; a star hides which column of the second is which."""
        other = self._random.choice(
            [table for table in TABLES if self._keys[table] == self._keys[name]] or [name]
        )
        sides = [Place(name, name, [Leaf(name)]), Place(other, other, [Leaf(other)])]
        operator = self._random.choice(["UNION ALL", "UNION", "UNION DISTINCT", "EXCEPT", "INTERSECT"])
        star = self._chance(0.2)
        columns = "*" if star else ", ".join(self._columns(name))
        left, right = (self._query(side, columns) for side in sides)
        leaves = [leaf for side in sides for leaf in side.leaves]
        leaves[1].open = not star
        for leaf, beside in zip(leaves, (other, name), strict=True):
            leaf.beside, leaf.within = beside, leaf.parts
        return Place(f"({left} {operator} {right})", name, leaves)

    def _nested(self) -> tuple[list[Leaf], list[str]]:
        """Return the table that a subquery of a condition reads, and the condition."""
        place = self._place(self._random.choice(TABLES))
        query = self._query(place, "k")
        test = self._random.choice(
            ["EXISTS ({})", "NOT EXISTS ({})", "1 IN ({})", "1 = (SELECT max(k) FROM ({}) AS m)"]
        )
        return place.leaves, [test.format(query)]

    def _query(self, place: Place, columns: str = "*") -> str:
        """Return a query of a place, with a filter that acts on its tables."""
        parts = self._parts(place.like)
        for leaf in place.leaves:
            leaf.filter(parts)
        condition = self._condition(place.like, parts)
        return f"SELECT {columns} FROM {place.source}" + (f" WHERE {condition}" if condition else "")

    def _columns(self, name: str) -> tuple[str, ...]:
        return ("k", "ds", "hr")[: self._keys[name] + 1]

    def _entry(self, place: Place) -> Place:
        """Give a place an alias, and some places a filter of their own."""
        self._aliases += 1
        if self._chance(0.4):
            place = self._derived(place)
        place.alias = f"a{self._aliases}"
        place.text = f"{place.text} AS {place.alias}"
        return place

    def _filter(self, place: Place, *, act: bool) -> list[str]:
        """Return conditions on a place, and let them act on its tables."""
        parts = self._parts(place.like)
        if act:
            for leaf in place.leaves:
                leaf.filter(parts)
        condition = self._condition(place.like, parts, f"{place.alias}." if place.alias else "")
        return [condition] if condition else []

    # -- joins ---------------------------------------------------------------------------------------------

    def _joined(self, places: Sequence[Place]) -> tuple[str, list[Place]]:
        """Return the FROM clause, and the places that conditions behind it may name."""
        if not places:
            return "(SELECT 1 AS x) AS nothing", []
        text, visible = places[0].text, [places[0]]
        for added in places[1:]:
            join = self._random.choice(JOINS) if self._chance(0.7) else "CROSS JOIN"
            text += f" {join} {added.text}"
            if join != "CROSS JOIN":
                conditions = [f"{visible[-1].alias}.k = {added.alias}.k"]
                for place in (*visible, added):
                    if self._chance(0.4):
                        conditions += self._filter(place, act=_acts(join, place is added))
                self._random.shuffle(conditions)
                text += f" ON {' AND '.join(conditions)}"
            if join not in {"LEFT SEMI JOIN", "LEFT ANTI JOIN"}:
                visible.append(added)
        return text, visible

    # -- outputs -------------------------------------------------------------------------------------------

    def _outputs(self) -> Iterator[tuple[str, str | None]]:
        for _ in range(self._random.choice([0, 0, 1, 1, 2])):
            name = self._random.choice([*TABLES, *TABLES, "new1", TEMPORARY])
            static = self._keys.get(name, 0) and self._chance(0.5)
            hour = (
                f"/{self._random.choice(ALL_HOURS)}"
                if self._keys.get(name) == 2 and self._chance(0.5)
                else ""
            )
            yield name, f"{self._random.randint(0, 5)}{hour}" if static else None

    def _heads(self, outputs: Sequence[tuple[str, str | None]]) -> list[str]:
        heads = [self._head(name, part) for name, part in outputs]
        if self._chance(0.1):
            # A directory is in no cluster.
            local = self._random.choice(["", "LOCAL "])
            heads.insert(self._random.randint(0, len(heads)), f"INSERT OVERWRITE {local}DIRECTORY '/out'")
        return heads

    def _head(self, name: str, part: str | None) -> str:
        verb = self._random.choice(["INSERT INTO TABLE", "INSERT INTO", "INSERT OVERWRITE TABLE"])
        absent = part is not None and verb == "INSERT OVERWRITE TABLE" and self._chance(0.5)
        return f"{verb} {name}{self._partition(name, part)}{' IF NOT EXISTS' if absent else ''}"

    def _partition(self, name: str, part: str | None) -> str:
        keys = self._columns(name)[1:] if name in self._keys else ()
        if part is None:
            # Dynamic, with and without the clause.
            return f" PARTITION ({', '.join(keys)})" if keys and self._chance(0.5) else ""
        day, _, hour = part.partition("/")
        text = key_text(self._kind, day)
        values = [f"ds = {text}" if self._kind == "int" else f"ds = '{text}'"]
        if len(keys) == 2:
            values.append(f"hr = {hour}" if hour else "hr")
        return f" PARTITION ({', '.join(values)})"

    def _sql(self, clause: str, heads: Sequence[str], where: str) -> str:
        common = f"WITH {', '.join(self._common)} " if self._common else ""
        if not heads:
            return f"{common}SELECT * FROM {clause}{where}"
        if len(heads) == 1 and self._chance(0.5):
            return f"{common}{heads[0]} SELECT * FROM {clause}{where}"
        first, *others = heads
        inserts = " ".join([f"{first} SELECT *{where}", *(f"{head} SELECT *" for head in others)])
        return f"{common}FROM {clause} {inserts}"


def _acts(join: str, added: bool) -> bool:
    """Return true if rows that fail a condition of ON cannot reach the result, by the side of the join."""
    if join in {"JOIN", "INNER JOIN", "LEFT SEMI JOIN"}:
        return True
    return added if join in {"LEFT JOIN", "LEFT ANTI JOIN"} else not added and join == "RIGHT JOIN"
