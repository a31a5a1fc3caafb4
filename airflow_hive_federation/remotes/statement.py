"""Parses the statements of remotes into frozen objects, without any I/O.

::

    CREATE REMOTE TABLE [IF NOT EXISTS] [db.]tbl [CONNECTED TO [rdb.]rtbl] [VIA 'factory'] ['key' = 'value' …]
    CREATE REMOTE DATABASE [IF NOT EXISTS] db [CONNECTED TO rdb] [VIA 'factory'] ['key' = 'value' …]
    ALTER REMOTE TABLE | DATABASE name SET 'key' = 'value' …
    DROP REMOTE TABLE | DATABASE [IF EXISTS] name
    REFRESH REMOTE TABLE | DATABASE name
    SHOW REMOTES [IN db]
    SHOW CREATE REMOTE TABLE | DATABASE name
    DESCRIBE [REMOTE] [EXTENDED | FORMATTED] [TABLE] [db.]tbl
    DESCRIBE [REMOTE] DATABASE [EXTENDED | FORMATTED] db
    USE db

Keywords ignore case, and names may stand in backticks. A script may have comments, and separates statements
by semicolons. Commas may separate properties. The tokenizer is that of sqlglot's Hive dialect; sqlglot's
parser is not used, because it does not know these statements.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from sqlglot.dialects.hive import Hive
from sqlglot.errors import TokenError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from airflow_hive_federation.errors import StatementError


class Kind(StrEnum):
    """The kind of object that a remote stands for."""

    TABLE = "table"
    DATABASE = "database"


@dataclass(frozen=True, kw_only=True)
class Name:
    """A name in a statement, in lower case as the metastore stores it.

    :param database: name of the database; ``None`` for a table named without one.
    :param table: name of the table; ``None`` for a database.
    """

    database: str | None = None
    table: str | None = None

    def __str__(self) -> str:
        return ".".join(quoted(part) for part in (self.database, self.table) if part is not None)


@dataclass(frozen=True, kw_only=True)
class CreateRemote:
    """The statement ``CREATE REMOTE``; omitted parts are ``None``."""

    kind: Kind
    name: Name
    if_not_exists: bool = False
    connected_to: Name | None = None
    via: str | None = None
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AlterRemote:
    """The statement ``ALTER REMOTE … SET``."""

    kind: Kind
    name: Name
    properties: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class DropRemote:
    """The statement ``DROP REMOTE``."""

    kind: Kind
    name: Name
    if_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class RefreshRemote:
    """The statement ``REFRESH REMOTE``."""

    kind: Kind
    name: Name


@dataclass(frozen=True, kw_only=True)
class ShowRemotes:
    """The statement ``SHOW REMOTES``; ``database`` is ``None`` for all databases."""

    database: str | None = None


@dataclass(frozen=True, kw_only=True)
class ShowCreateRemote:
    """The statement ``SHOW CREATE REMOTE``."""

    kind: Kind
    name: Name


@dataclass(frozen=True, kw_only=True)
class DescribeRemote:
    """The statement ``DESCRIBE``; EXTENDED and FORMATTED both set ``extended``."""

    kind: Kind
    name: Name
    extended: bool = False


@dataclass(frozen=True, kw_only=True)
class Use:
    """The statement ``USE``, which sets the database of later statements that name none."""

    database: str


Statement = (
    CreateRemote
    | AlterRemote
    | DropRemote
    | RefreshRemote
    | ShowRemotes
    | ShowCreateRemote
    | DescribeRemote
    | Use
)


def parse_script(text: str) -> list[Statement]:
    """Parse the statements of a script; a script without statements returns an empty list.

    :raises StatementError: at the first token that the grammar does not allow. ``line`` and ``column`` count
        from 1; ``expected`` lists the tokens that the grammar allows.
    """
    parser = _Parser(text, _tokens(text))
    statements: list[Statement] = []
    while not parser.at_end():
        if parser.skip(TokenType.SEMICOLON):
            continue
        statements.append(parser.statement())
        parser.end_of_statement()
    return statements


def parse_name(kind: Kind, text: str) -> Name:
    """Parse the name of a table (``[database.]table``) or database in the syntax of statements.

    :raises StatementError: if the text is not such a name.
    """
    parser = _Parser(text, _tokens(text))
    name = parser.name(kind)
    parser.end_of_statement()
    return name


def quoted(name: str) -> str:
    """Write a name for a statement, in backticks if it needs them."""
    if _PLAIN.fullmatch(name) and name.upper() not in _KEYWORDS:
        return name
    return "`" + name.replace("`", "``") + "`"


def literal(value: str) -> str:
    """Write a value as a string literal of a statement."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


_WORD = re.compile(r"\w+")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: These words are keywords at places where a name may stand or follow.
_KEYWORDS = frozenset(
    {"CONNECTED", "DATABASE", "EXISTS", "EXTENDED", "FORMATTED", "IF", "IN", "NOT", "REMOTE", "REMOTES"}
    | {"SET", "TABLE", "TO", "USE", "VIA"}
)
_POSITION = re.compile(r"\d+:(\d+)")


class _Tokenizer(Hive.Tokenizer):
    # SHOW would swallow the rest of its statement as one string.
    COMMANDS: ClassVar[set[TokenType]] = set()


def _tokens(text: str) -> list[Token]:
    try:
        return list(_Tokenizer(dialect=Hive).tokenize(text))
    except TokenError as error:
        # The message is "Missing ' from 2:17", with the line of the end and the offset of the beginning.
        match = _POSITION.search(str(error.__cause__ or error))
        line, column = _position(text, int(match[1]) if match else 0)
        raise StatementError(
            f"Line {line}, column {column}: a quotation, comment or number that does not end.",
            remedy="Close it.",
            line=line,
            column=column,
            expected=("the end of the quotation",),
        ) from error


def _position(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


class _Parser:
    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._at = 0

    # -- statements ----------------------------------------------------------------------------------------

    def statement(self) -> Statement:
        verbs: dict[str, Callable[[], Statement]] = {
            "CREATE": self._create,
            "ALTER": self._alter,
            "DROP": self._drop,
            "REFRESH": self._refresh,
            "SHOW": self._show,
            "DESCRIBE": self._describe,
            "DESC": self._describe,
            "USE": self._use,
        }
        for verb, parse in verbs.items():
            if self._accept(verb):
                return parse()
        raise self._error(*(verb for verb in verbs if verb != "DESC"))

    def _create(self) -> CreateRemote:
        self._expect("REMOTE")
        kind = self._kind()
        if_not_exists = self._accept("IF")
        if if_not_exists:
            self._expect("NOT")
            self._expect("EXISTS")
        name = self.name(kind)
        connected_to = None
        if self._accept("CONNECTED"):
            self._expect("TO")
            connected_to = self.name(kind)
        via = self._string("the factory in quotes") if self._accept("VIA") else None
        may_follow = [] if via else ["VIA"] if connected_to else ["CONNECTED TO", "VIA"]
        properties = self._properties(*may_follow)
        return CreateRemote(
            kind=kind,
            name=name,
            if_not_exists=if_not_exists,
            connected_to=connected_to,
            via=via,
            properties=properties,
        )

    def _alter(self) -> AlterRemote:
        self._expect("REMOTE")
        kind = self._kind()
        name = self.name(kind)
        self._expect("SET")
        if not self._is(TokenType.STRING):
            raise self._error("a property in quotes")
        return AlterRemote(kind=kind, name=name, properties=self._properties())

    def _drop(self) -> DropRemote:
        self._expect("REMOTE")
        kind = self._kind()
        if_exists = self._accept("IF")
        if if_exists:
            self._expect("EXISTS")
        return DropRemote(kind=kind, name=self.name(kind), if_exists=if_exists)

    def _refresh(self) -> RefreshRemote:
        self._expect("REMOTE")
        kind = self._kind()
        return RefreshRemote(kind=kind, name=self.name(kind))

    def _show(self) -> ShowRemotes | ShowCreateRemote:
        if self._accept("REMOTES"):
            return ShowRemotes(database=self._part("a database") if self._accept("IN") else None)
        if self._accept("CREATE"):
            self._expect("REMOTE")
            kind = self._kind()
            return ShowCreateRemote(kind=kind, name=self.name(kind))
        raise self._error("REMOTES", "CREATE REMOTE")

    def _describe(self) -> DescribeRemote:
        self._accept("REMOTE")
        extended = self._accept("EXTENDED") or self._accept("FORMATTED")
        kind = Kind.TABLE
        # A table may have the name `table` or `database`: either word alone is a name.
        if self._followed_by_name() and not self._accept("TABLE") and self._accept("DATABASE"):
            kind = Kind.DATABASE
            extended = self._accept("EXTENDED") or self._accept("FORMATTED") or extended
        return DescribeRemote(kind=kind, name=self.name(kind), extended=extended)

    def _use(self) -> Use:
        return Use(database=self._part("a database"))

    # -- parts ---------------------------------------------------------------------------------------------

    def _kind(self) -> Kind:
        for kind in Kind:
            if self._accept(kind.value.upper()):
                return kind
        raise self._error("TABLE", "DATABASE")

    def name(self, kind: Kind) -> Name:
        first = self._part(f"a {kind} name")
        if kind is Kind.DATABASE:
            return Name(database=first)
        if self.skip(TokenType.DOT):
            return Name(database=first, table=self._part("a table name"))
        return Name(table=first)

    def _part(self, expected: str) -> str:
        token = self._peek()
        if token is None or not _is_name(token):
            raise self._error(expected)
        if "." in token.text:
            raise self._error(f"{expected} without a dot")
        self._at += 1
        return token.text.lower()

    def _properties(self, *may_follow: str) -> dict[str, str]:
        properties: dict[str, str] = {}
        while self._is(TokenType.STRING):
            token = self._tokens[self._at]
            if token.text in properties:
                raise self._error(f"another property than {token.text!r}, which was given before")
            self._at += 1
            if not self.skip(TokenType.EQ):
                raise self._error("=")
            properties[token.text] = self._string("the property's value in quotes")
            if self.skip(TokenType.COMMA) and not self._is(TokenType.STRING):
                raise self._error("a property in quotes")
        if not self._at_boundary():
            raise self._error(
                *([] if properties else may_follow), "a property in quotes", "the end of the statement"
            )
        return properties

    def _string(self, expected: str) -> str:
        if not self._is(TokenType.STRING):
            raise self._error(expected)
        self._at += 1
        return self._tokens[self._at - 1].text

    # -- tokens --------------------------------------------------------------------------------------------

    def at_end(self) -> bool:
        return self._at >= len(self._tokens)

    def skip(self, kind: TokenType) -> bool:
        matches = self._is(kind)
        self._at += matches
        return matches

    def end_of_statement(self) -> None:
        if not self._at_boundary():
            raise self._error("the end of the statement")

    def _at_boundary(self) -> bool:
        return self.at_end() or self._is(TokenType.SEMICOLON)

    def _peek(self, ahead: int = 0) -> Token | None:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else None

    def _is(self, kind: TokenType) -> bool:
        token = self._peek()
        return token is not None and token.token_type == kind

    def _accept(self, keyword: str) -> bool:
        token = self._peek()
        matches = token is not None and _is_word(token) and token.text.upper() == keyword
        self._at += matches
        return matches

    def _expect(self, keyword: str) -> None:
        if not self._accept(keyword):
            raise self._error(keyword)

    def _followed_by_name(self) -> bool:
        token = self._peek(1)
        return token is not None and _is_name(token)

    def _error(self, *expected: str) -> StatementError:
        token = self._peek()
        start = len(self._text.rstrip()) if token is None else token.start
        line, column = _position(self._text, start)
        token_text = "the end" if token is None else repr(self._text[token.start : token.end + 1])
        return StatementError(
            f"Line {line}, column {column}: expected {' or '.join(expected)}, found {token_text}.",
            remedy="See docs/remotes.md for the statements.",
            line=line,
            column=column,
            expected=tuple(expected),
        )


def _is_word(token: Token) -> bool:
    return token.token_type not in {TokenType.STRING, TokenType.IDENTIFIER} and bool(
        _WORD.fullmatch(token.text)
    )


def _is_name(token: Token) -> bool:
    if token.token_type is TokenType.IDENTIFIER:
        return bool(token.text.strip())
    return token.token_type is not TokenType.NUMBER and _is_word(token)
