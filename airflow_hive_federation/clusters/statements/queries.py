"""Parses queries into trees with sqlglot, extended by Hive's additional syntax. Pure."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlglot import exp
from sqlglot.dialects.hive import Hive
from sqlglot.errors import ErrorLevel, ParseError
from sqlglot.parser import Parser
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from airflow_hive_federation.clusters.statements.statement import Outline, TableName, UnreadableError
from airflow_hive_federation.clusters.statements.tokens import keyword_of, table_name

#: The representation of a token or of its absence, which ends some of sqlglot's errors.
_TOKEN = re.compile(r",? but got (<Token|None).*", re.DOTALL)
#: The tokens that may follow the columns of a SELECT whose FROM clause stands before it.
_AFTER_COLUMNS = frozenset(
    {
        *(TokenType.LATERAL, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ORDER_BY),
        *(TokenType.CLUSTER_BY, TokenType.DISTRIBUTE_BY, TokenType.SORT_BY, TokenType.LIMIT),
    }
)
#: The words that may follow the columns of a script.
_AFTER_SCRIPT = frozenset({"FROM", "ROW", "ROW FORMAT", "RECORDREADER", "INSERT"})
_SET_OPERATORS = frozenset({TokenType.UNION, TokenType.INTERSECT, TokenType.EXCEPT})
_STATEMENTS = (exp.Query, exp.Values, exp.Delete, exp.Update, exp.Merge)


class _Parser(Hive.Parser):  # type: ignore[misc, valid-type]
    def validate_expression(self, expression: object, args: object = None) -> object:
        """Accept any number of function arguments, because trees of queries are only searched for tables."""
        if isinstance(expression, exp.Func):
            return expression
        return super().validate_expression(expression, args)

    def _parse_types(self, *args: bool, **options: bool) -> object:
        """Keep the lengths of CHAR and VARCHAR, which sqlglot leaves out in casts: Hive cuts values there."""
        return Parser._parse_types(self, *args, **options)  # noqa: SLF001


def parsed(text: str, tokens: Sequence[Token]) -> Any:
    """Return the tree of a query, or of a statement that sqlglot reads as a whole.

    :raises UnreadableError: the query cannot be parsed, or not for certain.
    """
    try:
        return _parsed(text, list(tokens))
    except UnreadableError as error:
        scripts = _without_scripts(tokens)
        for rewritten in (scripts, select_first(tokens if scripts is None else scripts)):
            if rewritten is not None:
                with suppress(UnreadableError):
                    return _parsed(text, rewritten)
        raise error from None


def outline(trees: Sequence[Any]) -> Outline:
    """Find the tables in the trees of a statement."""
    tables: dict[int, tuple[Any, ...]] = {}
    names: dict[TableName, None] = {}
    above: set[int] = set()
    for tree in trees:
        tables[id(tree)] = tuple(tree.find_all(exp.Table))
        for node in tree.find_all(exp.Query, exp.Table):
            parent = node
            while parent is not None and id(parent) not in above:
                above.add(id(parent))
                parent = parent.parent
        for table in tables[id(tree)]:
            if isinstance(table.this, exp.Identifier):
                # The walk of the tree raises this error again, with the table that it concerns.
                with suppress(UnreadableError):
                    names[table_name([part.name for part in table.parts], 0)] = None
    return Outline(tables=tables, above=frozenset(above), names=tuple(names))


def _parsed(text: str, tokens: list[Token]) -> Any:
    begin = tokens[0].start if tokens else 0
    try:
        parsed_trees = _Parser(dialect=Hive(), error_level=ErrorLevel.IMMEDIATE).parse(tokens, text)
    except ParseError as error:
        raise UnreadableError(_reason(error), _position(text, error, begin)) from error
    # On some malformed input, sqlglot's parser fails with an arbitrary exception.
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise UnreadableError(f"sqlglot cannot parse it ({type(error).__name__})", begin) from error
    trees = [tree for tree in parsed_trees if tree is not None]
    if len(trees) != 1 or not isinstance(_bare(trees[0]), _STATEMENTS):
        raise UnreadableError("expected one query", begin)
    # Spark would read FROM as a column here, and the next token as its alias.
    if any(not select.expressions for select in trees[0].find_all(exp.Select)):
        raise UnreadableError("expected columns after SELECT", begin)
    if trees[0].find(exp.Into):
        raise UnreadableError("expected INSERT INTO before SELECT", begin)
    # IDENTIFIER('s').t: the database is known at run time.
    if any(
        not isinstance(part, exp.Identifier) for t in trees[0].find_all(exp.Table) for part in t.parts[:-1]
    ):
        raise UnreadableError("a table has no plain name", begin)
    if trees[0].find(exp.Command):
        raise UnreadableError("it contains a command that sqlglot does not parse", begin)
    return trees[0]


def _bare(tree: object) -> object:
    while isinstance(tree, exp.Paren):
        tree = tree.this
    return tree


def _reason(error: ParseError) -> str:
    first = error.errors[0] if error.errors else {}
    highlight = first.get("highlight")
    reason = _TOKEN.sub("", str(first.get("description") or "sqlglot cannot parse it")).rstrip(".")
    return f"{reason}, at {highlight!r}" if highlight else reason


def _position(text: str, error: ParseError, begin: int) -> int:
    first = error.errors[0] if error.errors else {}
    line, column = first.get("line"), first.get("col")
    if not isinstance(line, int) or not isinstance(column, int):
        return begin
    lines = text.split("\n")
    # sqlglot reports the end of a token.
    end = sum(len(line_before) + 1 for line_before in lines[: line - 1]) + column
    return max(0, min(end, len(text)) - len(str(first.get("highlight") or "")))


def _without_scripts(tokens: Sequence[Token]) -> list[Token] | None:
    """Rewrite Hive's forms of ``TRANSFORM`` as sqlglot knows them; return ``None`` if there are none.

    ``MAP a, b USING 'x'`` and ``REDUCE a, b USING 'x'`` are ``SELECT TRANSFORM(a, b) USING 'x'``.
    """
    made: list[Token] = []
    listed = _with_listed_columns(tokens)
    changed, tokens = len(listed) > len(tokens), listed
    waiting: list[int] = []
    depth = 0
    for number, token in enumerate(tokens):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        text = keyword_of(token)
        if text in {"MAP", "REDUCE"} and _begins_script(tokens, number):
            made += [_as(token, "SELECT", TokenType.SELECT), _as(token, "TRANSFORM", TokenType.VAR)]
            made.append(_as(token, "(", TokenType.L_PAREN))
            waiting.append(depth)
            changed = True
        elif text == "USING" and waiting and waiting[-1] == depth:
            waiting.pop()
            made += [_as(token, ")", TokenType.R_PAREN), token]
        else:
            made.append(token)
    return made if changed and not waiting else None


def _with_listed_columns(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens with parentheses around the columns of each script, as in ``AS (a STRING, b INT)``.

    Hive needs none; sqlglot reads types only within them.
    """
    made: list[Token] = []
    ends: list[int] = []
    depth = 0
    for number, token in enumerate(tokens):
        if ends and ends[-1] == depth and _ends_columns(token):
            ends.pop()
            made.append(_as(token, ")", TokenType.R_PAREN))
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        made.append(token)
        follows = tokens[number + 1] if number + 1 < len(tokens) else None
        head = [keyword_of(before) for before in tokens[max(0, number - 2) : number + 1]]
        if head == ["USING", "", "AS"] and follows and follows.token_type is not TokenType.L_PAREN:
            ends.append(depth)
            made.append(_as(token, "(", TokenType.L_PAREN))
    return made + [_as(tokens[-1], ")", TokenType.R_PAREN) for _ in ends]


def _ends_columns(token: Token) -> bool:
    kind = token.token_type
    return kind in {*_AFTER_COLUMNS, *_SET_OPERATORS, TokenType.R_PAREN} or keyword_of(token) in _AFTER_SCRIPT


def select_first(tokens: Sequence[Token]) -> list[Token] | None:
    """Move each FROM clause that stands before its SELECT behind the columns; return ``None`` without one.

    Before version 30.7, sqlglot does not parse ``FROM (SELECT …) a JOIN b ON … SELECT …``.
    """
    made = list(tokens)
    moves = _moves(tokens)
    for begin, select, end in moves:
        # A move permutes the tokens of its own range, so the ranges of the queries around it stay the same.
        made[begin:end] = [*made[select:end], *made[begin:select]]
    return made if moves else None


def _moves(tokens: Sequence[Token]) -> list[tuple[int, int, int]]:
    """Return the first token of each FROM clause before a SELECT, the SELECT, and the end of its columns."""
    moves: list[tuple[int, int, int]] = []
    levels = [_Level()]
    for number, token in enumerate(tokens):
        kind = token.token_type
        if kind is TokenType.L_PAREN:
            levels.append(_Level())
        elif kind is TokenType.R_PAREN and len(levels) > 1:
            moves += levels.pop().ended(number)
        elif kind in _SET_OPERATORS:
            moves += levels[-1].ended(number)
            levels[-1] = _Level()
        elif kind in _AFTER_COLUMNS:
            moves += levels[-1].ended(number)
        else:
            levels[-1].note(kind, number)
    return [*moves, *(move for level in reversed(levels) for move in level.ended(len(tokens)))]


@dataclass
class _Level:
    """The first FROM and the first SELECT of a query within one level of parentheses."""

    begin: int | None = None
    select: int | None = None
    moved: bool = False

    def note(self, kind: TokenType, number: int) -> None:
        if kind is TokenType.FROM and self.select is None and self.begin is None:
            self.begin = number
        elif kind is TokenType.SELECT and self.select is None:
            self.select = number

    def ended(self, end: int) -> list[tuple[int, int, int]]:
        """Return the move, once, if the columns of a SELECT behind its FROM clause end here."""
        if self.moved or self.begin is None or self.select is None:
            return []
        self.moved = True
        return [(self.begin, self.select, end)]


def _begins_script(tokens: Sequence[Token], number: int) -> bool:
    """Return whether MAP or REDUCE is a clause here, with its own USING before its parentheses end."""
    depth = 0
    for token in tokens[number + 1 :]:
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth < 0 or token.token_type in {TokenType.FROM, TokenType.SELECT, TokenType.SEMICOLON}:
            return False
        if depth == 0 and keyword_of(token) == "USING":
            return True
    return False


def _as(token: Token, text: str, kind: TokenType) -> Token:
    made = copy.copy(token)
    made.text = text
    made.token_type = kind
    return made
