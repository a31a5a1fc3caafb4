"""Splits statements into tokens, and moves a cursor over them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from copy import copy
from functools import lru_cache
from typing import ClassVar

from sqlglot.dialects.hive import Hive
from sqlglot.errors import TokenError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from airflow_hive_federation.clusters.predicates.values import VARIABLE, WEEK_YEAR
from airflow_hive_federation.clusters.statements.statement import TableName, UnreadableError

#: The largest depth of parentheses, because a parser recurses at each; Hive's own fails far earlier.
MAX_DEPTH = 200
MAX_CHARACTERS = 2_000_000
_POSITION = re.compile(r"\d+:(\d+)")
_WITH_WEEK_YEAR = re.compile(r"[-/. _yMd]*Y[-/. _yYMd]*")
_WORD = re.compile(r"\w+")
_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET})
_CATALOGS = frozenset({"spark_catalog", "hive"})


class _Tokenizer(Hive.Tokenizer):
    # The base class would read the rest of a statement after these tokens as one string.
    COMMANDS: ClassVar[set[TokenType]] = set()
    # Binary literals of Spark, which Hive does not have.
    HEX_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("X'", "'"), ("x'", "'")]


@lru_cache(maxsize=64)
def tokens_of(text: str) -> tuple[Token, ...]:
    """Return the tokens of a text.

    :raises UnreadableError: a quotation does not end, or the text exceeds a limit.
    """
    if len(text) > MAX_CHARACTERS:
        raise UnreadableError(f"it has more than {MAX_CHARACTERS:,} characters")
    if "\0" in text:
        raise UnreadableError("it contains a zero byte", text.index("\0"))
    try:
        tokens = _with_whole_names(text, _Tokenizer(dialect=Hive).tokenize(text))
    except TokenError as error:
        position = _POSITION.search(str(error.__cause__ or error))
        raise UnreadableError(
            "a quotation, comment or number does not end", int(position[1]) if position else 0
        ) from error
    depth = 0
    for token in tokens:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth > MAX_DEPTH:
            raise UnreadableError(f"parentheses are nested deeper than {MAX_DEPTH}", token.start)
    return tokens


def _with_whole_names(text: str, tokens: Sequence[Token]) -> tuple[Token, ...]:
    """Make one token of ``"a""b"``, of which Hive's tokenizer makes two.

    Where an engine reads ``"…"`` as a name, this is one name that contains a quotation mark. Two tokens would
    be the table ``a`` with an alias. As a constant, engines read it differently (:func:`uncertain_strings`).
    """
    if '""' not in text:
        return tuple(tokens)
    made: list[Token] = []
    for token in tokens:
        before = made[-1] if made else None
        if (
            before is not None
            and before.token_type is token.token_type is TokenType.STRING
            and before.end + 1 == token.start
            and text[before.end] == text[token.start] == '"'
        ):
            joined = copy(before)
            joined.text, joined.end = f'{before.text}"{token.text}', token.end
            made[-1] = joined
        else:
            made.append(token)
    return tuple(made)


def split_script(text: str) -> tuple[str, ...]:
    """Return the statements of a script, without the semicolons between them.

    :raises UnreadableError: as :func:`tokens_of`.
    """
    return tuple(statement for _, statement in placed_statements(text))


def placed_statements(text: str) -> tuple[tuple[int, str], ...]:
    """Return the statements of a script as :func:`split_script` does, each behind its offset in the script.

    :raises UnreadableError: as :func:`tokens_of`.
    """
    statements, begin = [], 0
    tokens = tokens_of(text)
    ends = [token.start for token in tokens if token.token_type is TokenType.SEMICOLON]
    for end in (*ends, len(text)):
        if any(begin <= token.start < end for token in tokens):
            part = text[begin:end]
            statements.append((begin + len(part) - len(part.lstrip()), part.strip()))
        begin = end + 1
    return tuple(statements)


def uncertain_strings(text: str, tokens: Sequence[Token]) -> frozenset[str]:
    """Return the texts of strings that engines may read differently.

    These have an escape or a doubled quotation mark, or stand side by side. :data:`WEEK_YEAR` is among them
    if a string may be a date format with the year of weeks, which the parsed format does not show.
    """
    texts = set()
    before: Token | None = None
    for token in tokens:
        if token.token_type is TokenType.STRING:
            if has_escape(text, token):
                texts.add(token.text)
            if _WITH_WEEK_YEAR.fullmatch(token.text):
                texts.add(WEEK_YEAR)
            if before is not None and before.token_type is TokenType.STRING:
                texts.update((before.text, token.text))
        before = token
    return frozenset(texts)


def has_escape(text: str, token: Token) -> bool:
    """Return whether a string has an escape or a doubled quotation mark, which its token does not show."""
    return "\\" in text[token.start : token.end + 1] or _has_doubled_quote(text, token)


def _has_doubled_quote(text: str, token: Token) -> bool:
    return text[token.start] == '"' and '""' in text[token.start + 1 : token.end]


class Cursor:
    """A position among the tokens of one statement."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self.text = text
        self.tokens = tokens
        self.at = 0

    def end(self) -> bool:
        return self.at >= len(self.tokens)

    def peek(self, ahead: int = 0) -> str:
        """Return the upper-case keyword at a position; empty for a quoted name, a string, and the end."""
        number = self.at + ahead
        return keyword_of(self.tokens[number]) if 0 <= number < len(self.tokens) else ""

    def kind(self, ahead: int = 0) -> TokenType | None:
        number = self.at + ahead
        return self.tokens[number].token_type if number < len(self.tokens) else None

    def accept(self, *words: str) -> bool:
        """Skip a sequence of keywords if it is at the cursor; return whether it was.

        Some of sqlglot's keywords consist of several words, so the sequence is compared as text.
        """
        remaining, number = " ".join(words), self.at
        while remaining and number < len(self.tokens):
            keyword = keyword_of(self.tokens[number])
            if not keyword or not (remaining == keyword or remaining.startswith(keyword + " ")):
                return False
            remaining = remaining[len(keyword) :].lstrip()
            number += 1
        if remaining:
            return False
        self.at = number
        return True

    def accept_any(self, *words: str) -> str:
        return next((phrase for phrase in words if self.accept(*phrase.split())), "")

    def skip(self, kind: TokenType) -> bool:
        matches = self.kind() is kind
        self.at += matches
        return matches

    def error(self, reason: str) -> UnreadableError:
        start = len(self.text.rstrip()) if self.end() else self.tokens[self.at].start
        near = self.text[start : start + 30] or "the end"
        return UnreadableError(f"{reason}, found {near!r}", start)

    def name(self) -> TableName:
        """Skip the name of a table, and return it.

        :raises UnreadableError: the next token is no name, or the name belongs to another catalog.
        """
        if self.peek() == "IDENTIFIER" and self.kind(1) is TokenType.L_PAREN:
            raise self.error("expected the name of a table, and not of a parameter")
        parts = [self._part()]
        while self.skip(TokenType.DOT):
            parts.append(self._part())
        return table_name(parts, self.tokens[self.at - 1].start)

    def _part(self) -> str:
        if self.end() or not is_name(self.tokens[self.at]):
            raise self.error("expected the name of a table")
        self.at += 1
        return str(self.tokens[self.at - 1].text)

    def partition(self) -> tuple[tuple[str, str | None], ...]:
        """Skip ``PARTITION (…)`` if it is at the cursor; return its keys and values."""
        if not self.accept("PARTITION"):
            return ()
        inside = self.parenthesised()
        keys_and_values: list[tuple[str, str | None]] = []
        for part in split_at(inside, TokenType.COMMA):
            if not part or not is_name(part[0]):
                raise self.error("expected keys of a partition before this")
            keys_and_values.append((part[0].text.lower(), _constant(self.text, part[1:])))
        return tuple(keys_and_values)

    def parenthesised(self) -> Sequence[Token]:
        """Skip a pair of parentheses, and return the tokens inside.

        :raises UnreadableError: the next token is no parenthesis, or the parentheses do not close.
        """
        begin = self.at
        if not self.skip(TokenType.L_PAREN):
            raise self.error("expected (")
        depth = 1
        while depth and not self.end():
            kind = self.kind()
            depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
            self.at += 1
        if depth:
            raise self.error("expected )")
        return self.tokens[begin + 1 : self.at - 1]

    def top_level(self) -> Iterator[int]:
        """Yield the numbers of the tokens from the cursor on outside parentheses, including opening ones."""
        depth = 0
        for number in range(self.at, len(self.tokens)):
            kind = self.tokens[number].token_type
            depth -= kind in _CLOSING
            if depth == 0:
                yield number
            depth += kind in _OPENING


def table_name(parts: Sequence[str], start: int) -> TableName:
    """Return the name of a table in the metastore.

    :raises UnreadableError: the name belongs to another catalog, names a file, or has a part that is no name.
    """
    parts = [part.lower() for part in parts]
    if len(parts) == 3 and parts[0] in _CATALOGS:
        parts = parts[1:]
    if len(parts) > 2:
        raise UnreadableError(f"{'.'.join(parts)} is of another catalog, or no table's name", start)
    # Hive strips blanks at the ends of a name, other engines keep them.
    if any("." in part or "/" in part or not part or part != part.strip() for part in parts):
        raise UnreadableError(f"{parts[-1]!r} is a path, or a name of several parts in one", start)
    return TableName(parts[0] if len(parts) == 2 else None, parts[-1])


def split_at(tokens: Sequence[Token], kind: TokenType) -> list[Sequence[Token]]:
    """Return the token sequences between the tokens of a kind that stand outside parentheses."""
    sequences, begin, depth = [], 0, 0
    for number, token in enumerate(tokens):
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth == 0 and token.token_type is kind:
            sequences.append(tokens[begin:number])
            begin = number + 1
    return [*sequences, tokens[begin:]]


def keyword_of(token: Token) -> str:
    if token.token_type in {TokenType.STRING, TokenType.IDENTIFIER, TokenType.NUMBER}:
        return ""
    return " ".join(token.text.upper().split())


def is_name(token: Token) -> bool:
    if token.token_type is TokenType.IDENTIFIER:
        return True
    return token.token_type not in {TokenType.STRING, TokenType.NUMBER} and bool(_WORD.fullmatch(token.text))


def _constant(text: str, tokens: Sequence[Token]) -> str | None:
    """Return the text of ``= constant``; ``None`` for any other tokens, and for text that engines change.

    Engines replace a variable by its value, and read escapes differently.
    """
    is_pair = len(tokens) == 2 and tokens[0].token_type is TokenType.EQ
    if is_pair and tokens[1].token_type in {TokenType.STRING, TokenType.NUMBER}:
        value = str(tokens[1].text)
        return None if has_escape(text, tokens[1]) or VARIABLE in value else value
    return None
