"""Parses queries into trees with sqlglot, extended by Hive's additional syntax. Pure."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from sqlglot import exp
from sqlglot.dialects.hive import Hive
from sqlglot.errors import ErrorLevel, ParseError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from airflow_hive_federation.clusters.statements.statement import Outline, TableName, UnreadableError
from airflow_hive_federation.clusters.statements.tokens import keyword_of, table_name

_STATEMENTS = (exp.Query, exp.Values, exp.Delete, exp.Update, exp.Merge)


class _Parser(Hive.Parser):  # type: ignore[misc, valid-type]
    def validate_expression(self, expression: Any, args: Any = None) -> Any:
        """Accept any number of function arguments, because trees of queries are only searched for tables."""
        if isinstance(expression, exp.Func):
            return expression
        return super().validate_expression(expression, args)


def parsed(text: str, tokens: Sequence[Token]) -> Any:
    """Return the tree of a query, or of a statement that sqlglot reads as a whole.

    :raises UnreadableError: the query cannot be parsed, or not for certain.
    """
    try:
        return _parsed(text, list(tokens))
    except UnreadableError as error:
        rewritten = _without_scripts(tokens)
        if rewritten is None:
            raise
        try:
            return _parsed(text, rewritten)
        except UnreadableError:
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
    except RecursionError as error:
        raise UnreadableError("it is nested too deeply to be parsed", begin) from error
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
    if trees[0].find(exp.Command):
        raise UnreadableError("it contains a command that sqlglot does not parse", begin)
    return trees[0]


def _bare(tree: Any) -> Any:
    while isinstance(tree, exp.Paren):
        tree = tree.this
    return tree


def _reason(error: ParseError) -> str:
    first = error.errors[0] if error.errors else {}
    highlight = first.get("highlight")
    reason = str(first.get("description") or "sqlglot cannot parse it").rstrip(".")
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
    ``TRANSFORM(*)`` names no tables, so its star may be any constant.
    """
    made: list[Token] = []
    changed = False
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
        elif token.token_type is TokenType.STAR and _is_transformed(tokens, number):
            made.append(_as(token, "1", TokenType.NUMBER))
            changed = True
        else:
            made.append(token)
    return made if changed and not waiting else None


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


def _is_transformed(tokens: Sequence[Token], number: int) -> bool:
    around = [
        keyword_of(tokens[at]) if 0 <= at < len(tokens) else "" for at in (number - 2, number - 1, number + 1)
    ]
    return around == ["TRANSFORM", "(", ")"]


def _as(token: Token, text: str, kind: TokenType) -> Token:
    made = copy.copy(token)
    made.text = text
    made.token_type = kind
    return made
