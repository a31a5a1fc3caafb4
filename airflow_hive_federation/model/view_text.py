"""Replaces the names of a database and its tables in a view's SQL text by their names on the target.

sqlglot parses the text and gives the position of each identifier: only the identifiers that name the database
or a renamed table are replaced, and every other byte stays. A second scan, which uses the tokens but not the
parser's tree, must find the same references. If the two disagree, or the text cannot be parsed, the view is
rejected: it is never rewritten in part.

A renamed table gets its former name as an alias, so that the columns that are qualified with it stay valid
(``FROM `db`.`new` `old```).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from airflow_hive_federation.model.reference_scan import scanned_tables
from airflow_hive_federation.model.view_tree import ViewTree, lower

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*", re.IGNORECASE)
_LITERALS = frozenset({TokenType.STRING, TokenType.NUMBER, TokenType.RAW_STRING})
#: Engines that accept ``database.table.column``; Hive 4.2 rejects it (``TypeCheckProcFactory``).
_QUALIFIES_BY_DATABASE = frozenset({"spark", "trino"})


class UnreadableViewError(ValueError):
    """The error for a view's text that cannot be rewritten; the message has the reason and the remedy."""


@dataclass(frozen=True, kw_only=True)
class Renaming:
    """The names that differ between source and target, in lower case.

    :param tables: names on the target by names on the source, if they differ.
    """

    source_database: str
    target_database: str
    tables: Mapping[str, str] = field(default_factory=dict)

    @property
    def changes_nothing(self) -> bool:
        return self.source_database == self.target_database and not self.tables


@dataclass(frozen=True, kw_only=True)
class SqlContext:
    """The engine that reads a view's text, and the catalog and database of incomplete names.

    :param dialect: ``hive``, ``spark`` or ``trino``.
    :param catalogs: names of the engine's catalog for the metastore, in lower case.
    :param database: the database of names without one; ``None`` if each reader's session defines it.
    :param elsewhere: the catalog of names without one, in lower case, if it is not the metastore's.
    """

    dialect: str
    catalogs: frozenset[str] = frozenset()
    database: str | None = None
    elsewhere: str = ""

    def foreign(self, catalog: str) -> str:
        """Return the catalog of a name (in lower case) if it is not the metastore's, or the empty text."""
        if not catalog:
            return self.elsewhere
        return "" if catalog in self.catalogs else catalog

    @property
    def quote(self) -> str:
        return '"' if self.dialect == "trino" else "`"


def rewritten(sql: str, renaming: Renaming, context: SqlContext) -> str:
    """Return the text with the target's names.

    :raises UnreadableViewError: if the text cannot be parsed, or a name in it is ambiguous.
    """
    if renaming.changes_nothing:
        return sql
    tokens = _tokens(sql, context.dialect)
    if not _may_concern(tokens, renaming):
        return sql
    text = _Text(sql, tokens, renaming, context)
    new_sql = text.rewritten()
    if ViewTree(_parsed(new_sql, context.dialect)).references != text.expected:
        raise UnreadableViewError("its text means other tables once the names in it are replaced")
    return new_sql


@dataclass(frozen=True, kw_only=True)
class NamesRead:
    """The names that a text reads, in lower case.

    :param tables: pairs of database and table in the metastore.
    :param functions: pairs of database and function.
    :param of_session: tables whose database each reader's session defines.
    :param elsewhere: pairs of catalog and table outside of the metastore.
    :param table_functions: the text reads the result of a function as a table.
    """

    tables: frozenset[tuple[str, str]]
    functions: frozenset[tuple[str, str]]
    of_session: frozenset[str]
    elsewhere: frozenset[tuple[str, str]]
    table_functions: bool


def names_read(sql: str, context: SqlContext) -> NamesRead:
    """Return the names that a text reads.

    :raises UnreadableViewError: if the text cannot be parsed, or parser and token scan disagree.
    """
    tokens = _tokens(sql, context.dialect)
    tree = ViewTree(_parsed(sql, context.dialect))
    at = {token.start: token for token in tokens}
    parsed = {_start(table.parts[0]) for table in tree.tables if isinstance(table.this, exp.Identifier)}
    for start in parsed ^ {parts[0].start for parts in scanned_tables(tokens)}:
        raise _disagreement(sql, at[start])
    tables, functions, of_session, elsewhere = set(), set(), set(), set()
    for table in tree.tables:
        catalog, database, name = (lower(table.args.get(part)) for part in ("catalog", "db", "this"))
        if not isinstance(table.this, exp.Identifier):
            if database:
                functions.add((database, table.this.name.lower()))
        elif not database and tree.is_common(table):
            continue
        elif foreign := context.foreign(catalog):
            elsewhere.add((foreign, name))
        elif database or context.database:
            tables.add((database or str(context.database), name))
        else:
            of_session.add(name)
    for dot in tree.dots:
        owner = dot.this.expression if isinstance(dot.this, exp.Dot) else dot.this
        if isinstance(dot.expression, exp.Func) and isinstance(owner, exp.Identifier):
            functions.add((lower(owner), dot.expression.name.lower()))
    return NamesRead(
        tables=frozenset(tables),
        functions=frozenset(functions),
        of_session=frozenset(of_session),
        elsewhere=frozenset(elsewhere),
        table_functions=any(not isinstance(table.this, exp.Identifier) for table in tree.tables),
    )


def normal_form(sql: str, dialect: str) -> str:
    """Return the text's tokens with names in lower case and unquoted; the text itself if it has no tokens."""
    try:
        tokens = _tokens(sql, dialect)
    except UnreadableViewError:
        return sql
    return " ".join(
        repr(token.text) if token.token_type in _LITERALS else token.text.lower() for token in tokens
    )


@dataclass(frozen=True)
class _Edit:
    """A replacement of the text's characters from ``start`` up to, and without, ``end``."""

    start: int
    end: int
    text: str


class _Text:
    """The parsed text of one view."""

    def __init__(self, sql: str, tokens: Sequence[Token], renaming: Renaming, context: SqlContext) -> None:
        self._sql = sql
        self._tokens = tokens
        self._at = {token.start: number for number, token in enumerate(tokens)}
        self._renaming = renaming
        self._context = context
        self._tree = ViewTree(_parsed(sql, context.dialect))
        self._edits: dict[int, _Edit] = {}
        self._judged: set[int] = set()
        #: Names of tables and aliases that may qualify columns, and the unaliased tables of our database.
        self._aliases: set[str] = set()
        self._unaliased: set[str] = set()
        #: References of the rewritten text, in the order of the tree.
        self.expected: list[tuple[str, ...]] = []

    def rewritten(self) -> str:
        self._aliases = {lower(alias.this) for alias in self._tree.aliases if alias.this}
        for table in self._tree.tables:
            self._table(table)
        for column in self._tree.columns:
            self._column(column)
        for dot in self._tree.dots:
            self._function(dot)
        self._cross_check()
        pieces, at = [], 0
        for edit in sorted(self._edits.values(), key=lambda change: (change.start, change.end)):
            pieces += [self._sql[at : edit.start], edit.text]
            at = edit.end
        return "".join([*pieces, self._sql[at:]])

    # -- references to tables --------------------------------------------------------------------------

    def _table(self, table: exp.Table) -> None:
        name, database, catalog = (table.args.get(part) for part in ("this", "db", "catalog"))
        self._judged.update(_starts(name, database, catalog))
        parts = [lower(identifier) for identifier in (catalog, database, name)]
        if not isinstance(name, exp.Identifier):
            # A table function, or a name with more parts than a table has.
            if database is not None and self._is_ours(catalog, database):
                self._replace(database, self._renaming.target_database)
            return
        if not table.alias:
            self._aliases.add(parts[2])
        ours = self._means_ours(table, name, database, catalog)
        if ours:
            if not table.alias:
                self._unaliased.add(parts[2])
            if database is not None:
                self._replace(database, self._renaming.target_database)
                parts[1] = self._renaming.target_database
            new = self._renaming.tables.get(parts[2])
            if new is not None:
                self._replace(name, new)
                self._keep_alias(table, name, new)
                parts[2] = new
        self.expected.append(tuple(parts))

    def _means_ours(
        self,
        table: exp.Table,
        name: exp.Identifier,
        database: exp.Expr | None,
        catalog: exp.Expr | None,
    ) -> bool:
        """Return whether a reference means a table of the source database."""
        if database is not None:
            return self._is_ours(catalog, database)
        if self._context.database is not None:
            return self._context.database == self._renaming.source_database and not self._tree.is_common(
                table
            )
        if lower(name) in self._renaming.tables and not self._tree.is_common(table):
            raise UnreadableViewError(
                f"its text names {name.name} without a database, and a table of that name has another on "
                "the target; create the view anew with the database in its text"
            )
        return False

    def _is_ours(self, catalog: exp.Expr | None, database: exp.Expr) -> bool:
        ours = self._renaming.source_database
        foreign = self._context.foreign(lower(catalog))
        if not foreign:
            return lower(database) == ours
        if ours in {foreign, lower(database)}:
            raise UnreadableViewError(
                f"its text names {foreign}.{database.name}, and whether that is in the same metastore "
                "is not known; create the view anew with names of two parts"
            )
        return False

    def _keep_alias(self, table: exp.Table, name: exp.Identifier, new: str) -> None:
        """Add the former name of a table as its alias, or remove such an alias where it is not needed."""
        last = self._number_of(name)
        alias = self._tokens[last + 1] if last + 1 < len(self._tokens) else None
        quote = self._context.quote
        if not table.alias:
            at = self._end_of_table(table, last)
            self._edits[at] = _Edit(at, at, f" {quote}{name.name.replace(quote, 2 * quote)}{quote}")
            return
        start = self._tokens[last].end + 1
        if alias is not None and self._sql[start : alias.end + 1].lower() == f" {quote}{new}{quote}":
            self._edits[start] = _Edit(start, alias.end + 1, "")

    def _end_of_table(self, table: exp.Table, last: int) -> int:
        """Return the position of a table's alias: after its name, in Hive and Spark after its sample."""
        following = self._tokens[last + 1 : last + 3]
        sampled = bool(following) and following[0].token_type is TokenType.TABLE_SAMPLE
        unusual = {"version", "when", "hints", "partition", "changes", "only"} & {
            key for key, value in table.args.items() if value
        }
        if unusual or (following and following[0].token_type is TokenType.L_PAREN):
            raise UnreadableViewError(
                f"its text reads {table.name} in a form that leaves no place for an alias, and the table has "
                "another name on the target; give it an alias in the view"
            )
        if sampled and self._context.dialect != "trino":
            last = self._closing(last + 2)
        return self._tokens[last].end + 1

    def _closing(self, opening: int) -> int:
        depth = 0
        for number in range(opening, len(self._tokens)):
            kind = self._tokens[number].token_type
            depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
            if depth == 0 and kind is TokenType.R_PAREN:
                return number
        raise UnreadableViewError("its text has a TABLESAMPLE without an end")

    # -- columns and functions -------------------------------------------------------------------------

    def _column(self, column: exp.Column) -> None:
        parts = [part for part in column.parts if isinstance(part, exp.Identifier | exp.Star)]
        self._judged.update(_starts(*parts))
        if self._context.dialect not in _QUALIFIES_BY_DATABASE or len(parts) < 3:
            return
        with_catalog = len(parts) > 3 and lower(parts[0]) in self._context.catalogs
        database, table = parts[1:3] if with_catalog else parts[:2]
        if lower(database) != self._renaming.source_database or lower(table) not in self._unaliased:
            return  # the first part is a column, and the others are its fields
        if not with_catalog and lower(database) in self._aliases:
            raise UnreadableViewError(
                f"in its text, {column.sql()} may begin with the database or with a table of the same name; "
                "give that table an alias in the view"
            )
        if lower(table) in self._renaming.tables:
            raise UnreadableViewError(
                f"its text names the column {column.sql()} by the database and a table that has another "
                "name on the target; give the table an alias in the view"
            )
        self._replace(database, self._renaming.target_database)

    def _function(self, dot: exp.Dot) -> None:
        if not isinstance(dot.expression, exp.Func):
            return
        owner = dot.this
        parts = [owner.this, owner.expression] if isinstance(owner, exp.Dot) else [owner]
        if not all(isinstance(part, exp.Identifier) for part in parts):
            return
        self._judged.update(_starts(*parts))
        catalog = parts[0] if len(parts) > 1 else None
        if self._is_ours(catalog, parts[-1]):
            self._replace(parts[-1], self._renaming.target_database)

    # -- edits -----------------------------------------------------------------------------------------

    def _replace(self, identifier: exp.Expr, new: str) -> None:
        """Replace an identifier by another name, with quotes if it had them or the new name needs them."""
        if lower(identifier) == new:
            return
        token = self._tokens[self._number_of(identifier)]
        start, end = token.start, token.end + 1
        quote = self._context.quote
        quoted = self._sql[start] == quote or not _is_plain(new, self._context.dialect)
        self._edits[start] = _Edit(start, end, f"{quote}{new}{quote}" if quoted else new)

    def _number_of(self, identifier: exp.Expr) -> int:
        """Return the number of an identifier's token.

        :raises UnreadableViewError: if another token, or none, is at its position.
        """
        start = _start(identifier)
        number = self._at.get(start)
        if number is None or self._tokens[number].text.lower() != lower(identifier):
            raise UnreadableViewError(f"the place of {identifier.name} in its text is not certain")
        return number

    # -- the check by tokens ---------------------------------------------------------------------------

    def _cross_check(self) -> None:
        """Compare the parser's references with those of the token scan.

        :raises UnreadableViewError: if only one of the two has a reference.
        """
        ours, renamed = self._renaming.source_database, self._renaming.tables
        for number, token in enumerate(self._tokens[:-1]):
            qualifies = self._tokens[number + 1].token_type is TokenType.DOT
            known = token.start in self._judged
            if qualifies and not known and _is_name(token) and token.text.lower() == ours:
                raise _disagreement(self._sql, token)
        parsed = {
            _start(table.parts[0]): [lower(part) for part in table.parts]
            for table in self._tree.tables
            if isinstance(table.this, exp.Identifier)
        }
        scanned = {
            parts[0].start: [piece.text.lower() for piece in parts] for parts in scanned_tables(self._tokens)
        }
        for start in parsed.keys() ^ scanned.keys():
            names = parsed.get(start) or scanned[start]
            if ours in names[:-1] or names[-1] in renamed:
                raise _disagreement(self._sql, self._tokens[self._at[start]])


def _disagreement(sql: str, token: Token) -> UnreadableViewError:
    near = sql[token.start : token.start + 40]
    return UnreadableViewError(
        f"its text cannot be read for certain at character {token.start + 1} ({near!r}); "
        "write the view in a simpler form"
    )


def _tokens(sql: str, dialect: str) -> list[Token]:
    try:
        return list(Dialect.get_or_raise(dialect).tokenize(sql))
    except SqlglotError as error:
        raise UnreadableViewError(_unparsed(dialect, error)) from error


def _parsed(sql: str, dialect: str) -> exp.Expr:
    try:
        statements = Dialect.get_or_raise(dialect).parse(sql)
    except (SqlglotError, RecursionError) as error:
        raise UnreadableViewError(_unparsed(dialect, error)) from error
    (tree,) = statements if len(statements) == 1 else (None,)
    if not isinstance(tree, exp.Query) or tree.find(exp.Command):
        raise UnreadableViewError("its text is not one query")
    return tree


def _unparsed(dialect: str, error: Exception) -> str:
    reason = next(iter(str(error).splitlines()), "") or type(error).__name__
    return f"its text cannot be parsed as {dialect} SQL ({reason}); write the view in a simpler form"


def _may_concern(tokens: Sequence[Token], renaming: Renaming) -> bool:
    """Return whether any name in the text may have to change."""
    names = set(renaming.tables)
    if renaming.source_database != renaming.target_database:
        names.add(renaming.source_database)
    return any(_is_name(token) and token.text.lower() in names for token in tokens)


def _is_name(token: Token) -> bool:
    return token.token_type not in _LITERALS


def _is_plain(name: str, dialect: str) -> bool:
    if not _PLAIN.fullmatch(name):
        return False
    (token,) = _tokens(name, dialect)
    return token.token_type is TokenType.VAR


def _start(identifier: exp.Expr) -> int:
    """Return the position of an identifier in the text.

    :raises UnreadableViewError: if the identifier is not in the text, but was added by the parser.
    """
    if "start" not in identifier.meta:
        raise UnreadableViewError(f"its text implies {identifier.name}, and does not name it")
    return int(identifier.meta["start"])


def _starts(*identifiers: exp.Expr | str | None) -> Iterator[int]:
    for identifier in identifiers:
        if isinstance(identifier, str):
            # The parser keeps the empty part of ``a..b`` as a text.
            raise UnreadableViewError("one of its names has an empty part")
        if identifier is not None and "start" in identifier.meta:
            yield identifier.meta["start"]
