"""Finds the tables that a query reads by its tokens alone, as a check of the parser's tree.

It follows clauses, not grammar: a name is a table after ``FROM`` and ``JOIN``, and after a comma in these
clauses. ``FROM`` in ``EXTRACT(YEAR FROM x)`` and in ``IS DISTINCT FROM`` introduces no table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

#: Tokens that end a list of tables: a comma after them separates other things.
_ENDS_FROM = frozenset(
    {
        TokenType.WHERE,
        TokenType.GROUP_BY,
        TokenType.HAVING,
        TokenType.ORDER_BY,
        TokenType.CLUSTER_BY,
        TokenType.DISTRIBUTE_BY,
        TokenType.SORT_BY,
        TokenType.LIMIT,
        TokenType.WINDOW,
        TokenType.QUALIFY,
        TokenType.UNION,
        TokenType.EXCEPT,
        TokenType.INTERSECT,
        TokenType.SELECT,
        TokenType.LATERAL,
        TokenType.VALUES,
    }
)
_NOT_A_NAME = frozenset(
    {
        TokenType.SELECT,
        TokenType.WITH,
        TokenType.VALUES,
        TokenType.LATERAL,
        TokenType.UNNEST,
        TokenType.STRING,
    }
)


class _Frame:
    """The state of the scan between two parentheses."""

    def __init__(self, *, expects_table: bool) -> None:
        self.selects = False
        self.in_from = expects_table
        self.expects_table = expects_table


def scanned_tables(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """Yield the names of the tables that a query reads, each as the tokens of its parts."""
    frames = [_Frame(expects_table=False)]
    number = 0
    while number < len(tokens):
        frame, token = frames[-1], tokens[number]
        expected, frame.expects_table = frame.expects_table, False
        if token.token_type is TokenType.L_PAREN:
            frames.append(_Frame(expects_table=expected))
        elif token.token_type is TokenType.R_PAREN:
            if len(frames) > 1:
                frames.pop()
        elif expected and token.token_type not in _NOT_A_NAME:
            parts = _qualified(tokens, number)
            number += 2 * len(parts) - 2
            if not _is_followed_by(tokens, number, TokenType.L_PAREN):
                yield parts
        else:
            _advance(frame, tokens, number)
        number += 1


def _advance(frame: _Frame, tokens: Sequence[Token], number: int) -> None:
    """Update the state by a token that is neither a parenthesis nor part of a table's name."""
    kind = tokens[number].token_type
    if kind is TokenType.SELECT:
        frame.selects = True
    if kind in _ENDS_FROM:
        frame.in_from = False
    elif kind is TokenType.FROM and frame.selects:
        before = tokens[number - 1].token_type if number else None
        if before is not TokenType.DISTINCT:
            frame.in_from = frame.expects_table = True
    elif kind in {TokenType.JOIN, TokenType.STRAIGHT_JOIN}:
        frame.in_from = frame.expects_table = True
    elif kind is TokenType.COMMA and frame.in_from:
        frame.expects_table = True


def _qualified(tokens: Sequence[Token], number: int) -> list[Token]:
    parts = [tokens[number]]
    while _is_followed_by(tokens, number, TokenType.DOT) and number + 2 < len(tokens):
        number += 2
        parts.append(tokens[number])
    return parts


def _is_followed_by(tokens: Sequence[Token], number: int, kind: TokenType) -> bool:
    return number + 1 < len(tokens) and tokens[number + 1].token_type is kind
