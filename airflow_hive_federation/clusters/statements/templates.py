"""Removes days and numbers from statements, so that those that differ only in these are read once. Pure."""

from __future__ import annotations

import re
from collections.abc import Hashable
from functools import lru_cache

from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from airflow_hive_federation.clusters.statements.statement import UnreadableError
from airflow_hive_federation.clusters.statements.tokens import has_escape, keyword_of, tokens_of

PARAMETER = re.compile(r"[0-9][0-9:. -]*")
#: A string beside another one in double quotes is a part of it (``"1""2"``).
_HOLE = re.compile(rf"'({PARAMETER.pattern})'|(?<!\")\"({PARAMETER.pattern})\"(?!\")")
_QUOTED = frozenset({TokenType.STRING, TokenType.IDENTIFIER})


class Skeleton:
    """A text without strings of days or numbers; equal to other texts that differ only in these.

    :ivar holes: the texts of these strings.
    """

    __slots__ = ("_skeleton", "holes", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.holes = tuple(quoted or single_quoted for quoted, single_quoted in _HOLE.findall(text))
        # A text that contains zero bytes itself has fewer holes.
        self._skeleton = (_HOLE.sub("\0", text) if self.holes else text, len(self.holes))

    def __hash__(self) -> int:
        return hash(self._skeleton)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Skeleton) and self._skeleton == other._skeleton

    def is_exact(self) -> bool:
        """Return whether the holes are exactly the parameters among the text's tokens.

        The strings in the holes contain no quotes or escapes, so all texts of the same skeleton then have the
        same tokens.

        :raises UnreadableError: the text has no tokens.
        """
        holes_at = [(hole.start(), hole.end() - 1) for hole in _HOLE.finditer(self.text)]
        tokens = [token for token in tokens_of(self.text) if is_parameter(self.text, token)]
        return holes_at == [(token.start, token.end) for token in tokens]


def is_parameter(text: str, token: Token) -> bool:
    """Return whether a token is a string of a day or a number, without escapes."""
    return (
        token.token_type is TokenType.STRING
        and bool(PARAMETER.fullmatch(token.text))
        and not has_escape(text, token)
    )


def template(text: str) -> Hashable:
    """Return the statement without its layout, comments and case; the text itself if it has no tokens."""
    skeleton = Skeleton(text)
    try:
        plain = _plain(skeleton)
    except UnreadableError:
        return text
    return text if plain is None else (plain, skeleton.holes)


@lru_cache(maxsize=1024)
def _plain(skeleton: Skeleton) -> Hashable | None:
    text = skeleton.text
    tokens = list(tokens_of(text))
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    # Names of clusters keep their configured case.
    if not skeleton.is_exact() or (tokens and keyword_of(tokens[0]) == "USE"):
        return None
    return tuple(_plain_token(text, token) for token in tokens)


def _plain_token(text: str, token: Token) -> Hashable:
    if is_parameter(text, token):
        return None
    if token.token_type in _QUOTED:
        return token.token_type, token.text, has_escape(text, token)
    return token.token_type, token.text.lower()
