"""Parses statements that are no queries, such as ``CREATE``, ``ALTER``, ``LOAD`` and ``SHOW``. Pure."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp
from sqlglot.tokens import TokenType  # type: ignore[attr-defined]

from airflow_hive_federation.clusters.statements.inserts import begins_query, query_or_insert, with_queries
from airflow_hive_federation.clusters.statements.statement import (
    Analysis,
    Output,
    Statement,
    TableName,
    UseCluster,
    UseDatabase,
)
from airflow_hive_federation.clusters.statements.tokens import Cursor, keyword_of, table_name

_TABLELESS_OBJECTS = (
    *("FUNCTION", "TEMPORARY FUNCTION", "MACRO", "TEMPORARY MACRO", "ROLE", "RESOURCE PLAN", "POOL"),
    *("MAPPING", "TRIGGER", "CATALOG", "NAMESPACE", "DATACONNECTOR", "REMOTE DATABASE"),
)
_TABLES = ("TABLE", "VIEW", "MATERIALIZED VIEW")
_MODIFIERS = ("OR REPLACE", "GLOBAL", "LOCAL", "TEMPORARY", "TEMP", "EXTERNAL", "TRANSACTIONAL", "MANAGED")


def _create(cursor: Cursor) -> Statement:
    cursor.accept("CREATE")
    if cursor.accept_any("DATABASE", "SCHEMA", *_TABLELESS_OBJECTS):
        return Statement(verb="CREATE")
    modifiers = set()
    while modifier := cursor.accept_any(*_MODIFIERS):
        modifiers.add(modifier)
    if cursor.accept_any(*_TABLELESS_OBJECTS):
        return Statement(verb="CREATE")
    if cursor.accept("INDEX"):
        return _index(cursor, "CREATE")
    kind = cursor.accept_any(*_TABLES, "SCHEDULED QUERY")
    if kind not in _TABLES:
        raise cursor.error("expected TABLE or VIEW")
    cursor.accept("IF", "NOT", "EXISTS")
    output = Output(table=cursor.name(), temporary=bool(modifiers & {"TEMPORARY", "TEMP"}))
    if kind == "TABLE" and cursor.accept("LIKE"):
        # CREATE TABLE t LIKE FILE PARQUET '…' reads a schema from a file, and so does LIKE PARQUET '…' in
        # other engines.
        of_file = cursor.kind(1) is TokenType.STRING or (
            cursor.peek() == "FILE" and cursor.kind(2) is TokenType.STRING and cursor.peek(1) != "LOCATION"
        )
        described = () if of_file else (cursor.name(),)
        return Statement(verb="CREATE TABLE", outputs=(output,), described=described)
    return _created_by_query(cursor, kind, output)


def _created_by_query(cursor: Cursor, kind: str, output: Output) -> Statement:
    verb = f"CREATE {kind}"
    start = _query_of_create(cursor)
    if start is None:
        if kind != "TABLE":
            raise cursor.error("expected AS and a query")
        return Statement(verb=verb, outputs=(output,))
    made = with_queries(cursor, verb, (output,), [cursor.tokens[start:]])
    if kind != "VIEW":
        return made
    return Statement(verb=verb, outputs=(output,), described=_names_in(made))


def _query_of_create(cursor: Cursor) -> int | None:
    for number in cursor.top_level():
        keyword = keyword_of(cursor.tokens[number])
        if keyword == "AS" and begins_query(cursor, number + 1):
            return number + 1
        if keyword == "SELECT":
            return number
    return None


def _names_in(made: Statement) -> tuple[TableName, ...]:
    """Return the tables that a view's query names; creating the view reads none of them."""
    names = set()
    for tree in made.queries:
        common = {expression.alias.lower() for expression in tree.find_all(exp.CTE)}
        for table in tree.find_all(exp.Table):
            if isinstance(table.this, exp.Identifier):
                name = table_name([part.name for part in table.parts], 0)
                if name.database is not None or name.name not in common:
                    names.add(name)
    return tuple(sorted(names, key=str))


# -- other statements ----------------------------------------------------------------------------------------


def _use(cursor: Cursor) -> UseCluster | UseDatabase:
    cursor.accept("USE")
    if cursor.accept("CLUSTER"):
        statement: UseCluster | UseDatabase = UseCluster(None if cursor.end() else _identifier(cursor))
    else:
        cursor.accept_any("DATABASE", "SCHEMA", "NAMESPACE")
        statement = UseDatabase(_identifier(cursor).lower())
    if not cursor.end():
        raise cursor.error("expected the end of the statement")
    return statement


def _identifier(cursor: Cursor) -> str:
    # The name of a cluster keeps its configured case.
    token = cursor.tokens[cursor.at] if not cursor.end() else None
    if token is None or token.token_type is TokenType.NUMBER:
        raise cursor.error("expected a name")
    if token.token_type is TokenType.STRING:
        cursor.at += 1
    else:
        cursor.name()
    return str(token.text)


def _alter(cursor: Cursor) -> Statement:
    cursor.accept("ALTER")
    if cursor.accept_any("DATABASE", "SCHEMA", *_TABLELESS_OBJECTS):
        return Statement(verb="ALTER")
    if cursor.accept("INDEX"):
        return _index(cursor, "ALTER")
    kind = cursor.accept_any(*_TABLES)
    if not kind:
        raise cursor.error("expected TABLE or VIEW")
    table = cursor.name()
    partition = () if cursor.accept("PARTITION", "COLUMN") else cursor.partition()
    outputs = [Output(table=table, partition=partition)]
    verb = f"ALTER {kind}"
    if cursor.accept("RENAME", "TO") and cursor.peek() != "PARTITION":
        new = cursor.name()
        outputs.append(Output(table=TableName(new.database or table.database, new.name)))
    elif kind == "VIEW" and cursor.accept("AS"):
        made = with_queries(cursor, verb, (), [cursor.tokens[cursor.at :]])
        return Statement(verb=verb, outputs=tuple(outputs), described=_names_in(made))
    elif cursor.accept("EXCHANGE"):
        moved = cursor.partition()
        if not cursor.accept("WITH", "TABLE"):
            raise cursor.error("expected WITH TABLE")
        # The other table gives the partition away, so both tables change.
        outputs = [Output(table=changed, partition=moved) for changed in (table, cursor.name())]
    return Statement(verb=verb, outputs=tuple(outputs))


def _drop(cursor: Cursor) -> Statement:
    cursor.accept("DROP")
    if cursor.accept_any(*_TABLELESS_OBJECTS):
        return Statement(verb="DROP")
    if cursor.accept("INDEX"):
        return _index(cursor, "DROP")
    if cursor.accept_any("DATABASE", "SCHEMA"):
        if any(keyword_of(token) == "CASCADE" for token in cursor.tokens):
            raise cursor.error("a database is dropped with its tables, which may be in several clusters")
        return Statement(verb="DROP DATABASE")
    kind = cursor.accept_any(*_TABLES)
    if not kind:
        raise cursor.error("expected TABLE, VIEW or DATABASE")
    cursor.accept("IF", "EXISTS")
    return Statement(verb=f"DROP {kind}", outputs=(Output(table=cursor.name()),))


def _index(cursor: Cursor, verb: str) -> Statement:
    """Parse an index statement of Hive 1 and 2: the index is a separate table beside its base table."""
    while not cursor.end() and cursor.peek() != "ON":
        cursor.at += 1
    if not cursor.accept("ON"):
        raise cursor.error("expected ON and the table of the index")
    cursor.accept("TABLE")
    return Statement(verb=f"{verb} INDEX", outputs=(Output(table=cursor.name()),))


def _writes(*heads: str) -> Callable[[Cursor], Statement]:
    """Return a parser of ``head table [PARTITION (…)] …``, a statement that changes the table."""

    def parse(cursor: Cursor) -> Statement:
        verb = cursor.accept_any(*heads)
        if not verb:
            raise cursor.error(f"expected {' or '.join(heads)}")
        table = cursor.name()
        return Statement(verb=verb, outputs=(Output(table=table, partition=cursor.partition()),))

    return parse


def _describes(*heads: str) -> Callable[[Cursor], Statement]:
    """Return a parser of ``head table …``, a statement that only reads the table's definition."""

    def parse(cursor: Cursor) -> Statement:
        verb = cursor.accept_any(*heads)
        if not verb:
            raise cursor.error(f"expected {' or '.join(heads)}")
        return Statement(verb=verb, described=(cursor.name(),))

    return parse


def _load(cursor: Cursor) -> Statement:
    into_at = next((n for n in cursor.top_level() if keyword_of(cursor.tokens[n]) == "INTO"), None)
    if into_at is None:
        raise cursor.error("expected LOAD DATA … INTO TABLE")
    cursor.at = into_at
    return Statement(verb="LOAD DATA", outputs=_writes("INTO TABLE")(cursor).outputs)


def _export(cursor: Cursor) -> Statement:
    # The rows are copied, so this counts as a query of the whole table.
    if not cursor.accept("EXPORT", "TABLE"):
        raise cursor.error("expected EXPORT TABLE")
    table = cursor.name()
    parts = [part for part in (table.database, table.name) if part is not None]
    tree = exp.select("*").from_(
        exp.Table(**dict(zip(("this", "db"), map(_quoted, parts[::-1]), strict=False)))
    )
    return Statement(verb="EXPORT", queries=(tree,))


def _quoted(name: str) -> exp.Identifier:
    return exp.Identifier(this=name, quoted=True)


def _import(cursor: Cursor) -> Statement:
    cursor.accept("IMPORT")
    cursor.accept("EXTERNAL")
    if not cursor.accept("TABLE"):
        raise cursor.error("expected TABLE: the name of the table is in the files that are imported")
    table = cursor.name()
    return Statement(verb="IMPORT", outputs=(Output(table=table, partition=cursor.partition()),))


def _describe(cursor: Cursor) -> Statement:
    verb = cursor.accept_any("DESCRIBE", "DESC")
    if cursor.accept_any("DATABASE", "SCHEMA", "FUNCTION", "NAMESPACE"):
        return Statement(verb=verb)
    if cursor.accept_any("QUERY") or (begins_query(cursor, cursor.at) and cursor.peek() != "TABLE"):
        return query_or_insert(cursor)
    cursor.accept_any("EXTENDED", "FORMATTED")
    if cursor.peek() == "TABLE" and cursor.kind(1) not in {None, TokenType.DOT}:
        cursor.accept("TABLE")
    cursor.accept_any("EXTENDED", "FORMATTED")
    parts = [cursor.name()]
    # DESCRIBE t.column is the syntax of Hive 1; all engines accept DESCRIBE t column.
    return Statement(verb=verb, described=tuple(parts))


def _show(cursor: Cursor) -> Statement:
    cursor.accept("SHOW")
    if cursor.accept_any("CREATE TABLE", "CREATE VIEW", "PARTITIONS", "TBLPROPERTIES", "EXTENDED PARTITIONS"):
        return Statement(verb="SHOW", described=(cursor.name(),))
    if cursor.accept("COLUMNS") and cursor.accept_any("FROM", "IN"):
        table = cursor.name()
        if cursor.accept_any("FROM", "IN"):
            database = _identifier(cursor).lower()
            if table.database not in {None, database}:
                raise cursor.error(f"expected no other database than {table.database} before this")
            table = TableName(database, table.name)
        return Statement(verb="SHOW", described=(table,))
    return Statement(verb="SHOW")


def _analyze(cursor: Cursor) -> Statement:
    if cursor.accept("ANALYZE", "TABLES"):
        raise cursor.error("it concerns all tables of a database, which may be in several clusters")
    return _writes("ANALYZE TABLE")(cursor)


def _dml(cursor: Cursor) -> Statement:
    """Parse DELETE, UPDATE and MERGE, which sqlglot reads as a whole."""
    verb = cursor.peek()
    if verb == "DELETE" and cursor.peek(1).partition(" ")[0] in {"JAR", "FILE", "FILES", "ARCHIVE"}:
        return Statement(verb="DELETE")
    made = with_queries(cursor, verb, (), [cursor.tokens[cursor.at :]])
    (tree,) = made.queries
    target = tree.this
    if not isinstance(target, exp.Table) or not isinstance(target.this, exp.Identifier):
        raise cursor.error("expected the table that is changed, in the statement")
    table = table_name([part.name for part in target.parts], cursor.tokens[cursor.at].start)
    return Statement(
        verb=verb, outputs=(Output(table=table),), queries=made.queries, uncertain=made.uncertain
    )


def _comment(cursor: Cursor) -> Statement:
    if cursor.accept("COMMENT", "ON", "TABLE"):
        return Statement(verb="COMMENT", outputs=(Output(table=cursor.name()),))
    return Statement(verb="COMMENT")


def _cache(cursor: Cursor) -> Statement:
    cursor.accept("CACHE")
    cursor.accept("LAZY")
    if not cursor.accept("TABLE"):
        raise cursor.error("expected TABLE")
    name = cursor.name()
    for number in cursor.top_level():
        if begins_query(cursor, number):
            output = Output(table=name, temporary=True)
            return with_queries(cursor, "CACHE TABLE", (output,), [cursor.tokens[number:]])
    return Statement(verb="CACHE TABLE", described=(name,))


def _lock(cursor: Cursor) -> Statement:
    if cursor.accept_any("LOCK DATABASE", "UNLOCK DATABASE", "LOCK SCHEMA", "UNLOCK SCHEMA"):
        return Statement(verb="LOCK")
    return _describes("LOCK TABLE", "UNLOCK TABLE")(cursor)


#: The parsers of statements, by their first keyword.
COMMANDS: dict[str, Callable[[Cursor], Analysis]] = {
    "USE": _use,
    "CREATE": _create,
    "ALTER": _alter,
    "DROP": _drop,
    "TRUNCATE": _writes("TRUNCATE TABLE", "TRUNCATE"),
    "LOAD": _load,
    "ANALYZE": _analyze,
    "MSCK": _writes(
        *("MSCK REPAIR TABLE", "MSCK TABLE", "MSCK REPAIR", "MSCK"),
    ),
    "REPAIR": _writes("REPAIR TABLE"),
    "REFRESH": _describes("REFRESH TABLE", "REFRESH"),
    "CACHE": _cache,
    "COMMENT": _comment,
    "EXPORT": _export,
    "IMPORT": _import,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "SHOW": _show,
    "LOCK": _lock,
    "UNLOCK": _lock,
    "DELETE": _dml,
    "UPDATE": _dml,
    "MERGE": _dml,
}
