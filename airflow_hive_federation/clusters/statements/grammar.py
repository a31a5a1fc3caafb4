"""Analyses one statement, by its first keyword; queries are parsed once per template. Pure."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from airflow_hive_federation.clusters.predicates.values import VARIABLE
from airflow_hive_federation.clusters.statements.commands import COMMANDS
from airflow_hive_federation.clusters.statements.inserts import QUERIES, query_or_insert
from airflow_hive_federation.clusters.statements.queries import outline
from airflow_hive_federation.clusters.statements.statement import (
    Analysis,
    Statement,
    UnreadableError,
    placeholder,
)
from airflow_hive_federation.clusters.statements.templates import Skeleton, is_parameter
from airflow_hive_federation.clusters.statements.tokens import Cursor, has_escape, keyword_of, tokens_of

_SHAPED = frozenset({"SELECT", "FROM", "WITH", "INSERT", "("})
_TABLELESS = frozenset(
    {
        "SET",
        "RESET",
        "ADD",
        "LIST",
        "GRANT",
        "REVOKE",
        "RELOAD",
        "START",
        "COMMIT",
        "ROLLBACK",
        "ABORT",
        "KILL",
    }
    | {"CLEAR", "UNCACHE"}
)
_EXPLAINS = (
    *("EXTENDED", "FORMATTED", "DEPENDENCY", "AUTHORIZATION", "LOCKS", "AST", "ANALYZE", "REOPTIMIZATION"),
    *("CBO COST", "CBO JOINCOST", "CBO", "LOGICAL", "CODEGEN", "COST"),
    *("VECTORIZATION ONLY", "VECTORIZATION", "SUMMARY", "OPERATOR", "EXPRESSION", "DETAIL", "DDL"),
)


@lru_cache(maxsize=1024)
def analyse(text: str) -> Analysis:
    """Analyse one statement; a semicolon may follow it.

    Calls share the trees in their results: do not change them.
    """
    try:
        skeleton = Skeleton(text)
        statement = _of_skeleton(skeleton)
        if statement is not None:
            return _filled(statement, skeleton.holes)
        return _outlined(Cursor(text, _statement_tokens(text)))
    except UnreadableError as error:
        return error.at(text)
    except RecursionError:
        return UnreadableError("it is nested too deeply to be analysed").at(text)


def _statement_tokens(text: str) -> list[Token]:
    tokens = list(tokens_of(text))
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    another = next((item for item in tokens if item.token_type is TokenType.SEMICOLON), None)
    if another is not None:
        raise UnreadableError("there are several statements; give one at a time", another.start)
    for token, following in pairwise(tokens):
        # Engines substitute the value of a variable before they read the statement.
        if token.token_type is TokenType.PARAMETER and following.token_type is TokenType.L_BRACE:
            raise UnreadableError("it has a variable outside of strings", token.start)
    for token in tokens:
        if token.token_type is TokenType.IDENTIFIER and VARIABLE in token.text:
            raise UnreadableError("it has a variable in a name", token.start)
    return tokens


@lru_cache(maxsize=1024)
def _of_skeleton(skeleton: Skeleton) -> Statement | None:
    """Return the analysis without the parameters; ``None`` if the statement must be read as it is."""
    tokens = _statement_tokens(skeleton.text)
    if not tokens or keyword_of(tokens[0]) not in _SHAPED or not skeleton.is_exact():
        return None
    analysis = _of_shape(_Shape(skeleton.text, tokens))
    return analysis if isinstance(analysis, Statement) else None


def _filled(statement: Statement, parameters: tuple[str, ...]) -> Statement:
    made = replace(statement, parameters=parameters)
    if not statement.outputs:
        return made
    outputs = tuple(
        replace(output, partition=tuple((key, value and made.text(value)) for key, value in output.partition))
        for output in made.outputs
    )
    return replace(made, outputs=outputs)


class _Shape:
    """The tokens of a statement without its parameters, equal for all statements of one template."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self.text = text
        self.tokens = tokens
        self._key = tuple(map(self._part, tokens))
        self._hash = hash(self._key)

    def _part(self, token: Token) -> tuple[TokenType, str | None, bool]:
        if is_parameter(self.text, token):
            return token.token_type, None, False
        # Engines read an escape differently, so a string with an escape never equals one without.
        escaped = token.token_type is TokenType.STRING and has_escape(self.text, token)
        return token.token_type, token.text, escaped

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Shape) and self._key == other._key

    def with_placeholders(self) -> list[Token]:
        made, number = [], 0
        for token, (_, text, _) in zip(self.tokens, self._key, strict=True):
            made.append(copy.copy(token))
            if text is None:
                made[-1].text = placeholder(number)
                number += 1
        return made


@lru_cache(maxsize=1024)
def _of_shape(shape: _Shape) -> Analysis:
    return _outlined(Cursor(shape.text, shape.with_placeholders()))


def _outlined(cursor: Cursor) -> Analysis:
    analysis = _statement(cursor)
    return (
        replace(analysis, outline=outline(analysis.queries)) if isinstance(analysis, Statement) else analysis
    )


def _statement(cursor: Cursor) -> Analysis:
    if cursor.end():
        raise cursor.error("expected a statement")
    first = cursor.peek().partition(" ")[0]
    if first == "(" or first in QUERIES or first == "INSERT":
        return query_or_insert(cursor)
    if first in _TABLELESS:
        return Statement(verb=first)
    parse = _explain if first == "EXPLAIN" else COMMANDS.get(first)
    if parse is None:
        raise cursor.error("expected a statement of Hive or Spark")
    return parse(cursor)


def _explain(cursor: Cursor) -> Analysis:
    cursor.accept("EXPLAIN")
    while cursor.accept_any(*_EXPLAINS):
        continue
    return _statement(cursor)
