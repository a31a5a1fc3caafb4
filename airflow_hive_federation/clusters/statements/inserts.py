"""Parses queries and inserts. Pure.

sqlglot receives the tokens of a query without the parts that are specific to Hive: the head of an ``INSERT``,
a ``CREATE TABLE`` up to its ``AS``, and the other branches of a multi-insert.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from airflow_hive_federation.clusters.statements.queries import parsed
from airflow_hive_federation.clusters.statements.statement import Output, Statement
from airflow_hive_federation.clusters.statements.tokens import Cursor, keyword_of, uncertain_strings

#: Clauses of a row format, which begin like queries.
_CLAUSES = frozenset({("MAP", "KEYS"), ("WITH", "SERDEPROPERTIES")})
QUERIES = frozenset({"SELECT", "FROM", "WITH", "VALUES", "MAP", "REDUCE", "TABLE"})


def query_or_insert(cursor: Cursor) -> Statement:
    tokens = cursor.tokens
    inserts = [number for number in cursor.top_level() if _begins_insert(tokens, number)]
    if not inserts:
        return with_queries(cursor, "SELECT", (), [tokens[cursor.at :]])
    shared = tokens[cursor.at : inserts[0]]
    outputs: list[Output] = []
    queries = []
    for number, end in zip(inserts, (*inserts[1:], len(tokens)), strict=True):
        branch = Cursor(cursor.text, tokens[:end])
        branch.at = number
        output = _insert_head(branch)
        outputs += [output] if output else []
        own_tokens = tokens[branch.at : end]
        if not own_tokens and len(inserts) > 1:
            raise branch.error("expected SELECT")
        queries.append([*shared, *own_tokens])
    return with_queries(cursor, "INSERT", tuple(outputs), queries)


def _begins_insert(tokens: Sequence[Token], number: int) -> bool:
    """Return whether INSERT is a keyword at this token, because Hive allows it as a table name."""
    following = keyword_of(tokens[number + 1]).partition(" ")[0] if number + 1 < len(tokens) else ""
    return keyword_of(tokens[number]) == "INSERT" and following in {"INTO", "OVERWRITE"}


def _insert_head(cursor: Cursor) -> Output | None:
    """Skip the head of an INSERT up to its query; return ``None`` if it writes to a directory."""
    cursor.accept("INSERT")
    overwrite = cursor.accept("OVERWRITE")
    if not overwrite and not cursor.accept("INTO"):
        raise cursor.error("expected INTO or OVERWRITE")
    if overwrite and (cursor.accept("LOCAL", "DIRECTORY") or cursor.accept("DIRECTORY")):
        cursor.at = next((number for number in cursor.top_level() if begins_query(cursor, number)), -1)
        if cursor.at < 0:
            cursor.at = len(cursor.tokens)
            raise cursor.error("expected a query")
        return None
    cursor.accept("TABLE")
    table = cursor.name()
    _skip_columns(cursor)
    partition = cursor.partition()
    cursor.accept("IF", "NOT", "EXISTS")
    _skip_columns(cursor)
    cursor.accept("BY", "NAME")
    if not begins_query(cursor, cursor.at) and not cursor.accept("DEFAULT", "VALUES"):
        raise cursor.error("expected a query")
    return Output(table=table, partition=partition)


def _skip_columns(cursor: Cursor) -> None:
    if cursor.kind() is TokenType.L_PAREN and not begins_query(cursor, cursor.at):
        cursor.parenthesised()


def begins_query(cursor: Cursor, number: int) -> bool:
    tokens = cursor.tokens
    while number < len(tokens) and tokens[number].token_type is TokenType.L_PAREN:
        number += 1
    if number >= len(tokens) or keyword_of(tokens[number]) not in QUERIES:
        return False
    following = tokens[number + 1] if number + 1 < len(tokens) else None
    # A column may be named map or table; a comma or parenthesis follows it.
    if following is None or following.token_type in {TokenType.COMMA, TokenType.R_PAREN}:
        return False
    return (keyword_of(tokens[number]), keyword_of(following)) not in _CLAUSES


def with_queries(
    cursor: Cursor, verb: str, outputs: tuple[Output, ...], queries: Sequence[Sequence[Token]]
) -> Statement:
    return Statement(
        verb=verb,
        outputs=outputs,
        queries=tuple(parsed(cursor.text, tokens) for tokens in queries if tokens),
        uncertain=uncertain_strings(cursor.text, cursor.tokens),
    )
