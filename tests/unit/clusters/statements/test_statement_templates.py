"""Statements of one template are read once; none of them is taken for what it is not."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from airflow_hive_federation.clusters.statements import grammar, templates
from airflow_hive_federation.clusters.statements.grammar import analyse
from airflow_hive_federation.clusters.statements.statement import Statement, Unanalysable
from airflow_hive_federation.clusters.statements.templates import template

EXAMPLES = int(os.environ.get("HIVE_FEDERATION_EXAMPLES", "1000"))
PIECES = (
    *(
        "'{}'",
        '"{}"',
        "{}",
        "'it''s {}'",
        '"{}""{}"',
        "'{}\"{}'",
        "'{}-01'",
        "'\\{}'",
        "'a{}'",
        "x'{}'",
        "`{}`",
        "'",
        '"',
        "`",
        "\\",
    ),
    *("-- '{}'\n", "/* '{}' */", "--", "\n", "/*", "*/", "\0", ";", " = ", " AND a = ", " FROM t ", ", "),
    *("SELECT '{}' ", " WHERE ds = '{}' ", "INSERT INTO t PARTITION (ds = '{}') ", "(", ")"),
)


def forget() -> None:
    for kept in (
        analyse,
        grammar._of_skeleton,
        grammar._of_shape,
        templates._plain,
    ):
        kept.cache_clear()


def content(text: str) -> Any:
    """Return the content of an analysis, with the strings in their places."""
    statement = analyse(text)
    if not isinstance(statement, Statement):
        return statement
    trees = []
    for tree in statement.queries:
        sql = tree.sql("hive", comments=False)
        for number, value in reversed(list(enumerate(statement.parameters))):
            sql = sql.replace(f"\0{number}", value)
        trees.append(sql)
    uncertain = sorted(statement.text(expression) for expression in statement.uncertain)
    return statement.verb, statement.outputs, statement.described, statement.names, uncertain, trees


@pytest.mark.parametrize("batch", range(4))
def test_what_was_read_before_changes_no_analysis(batch: int) -> None:
    read = 0
    for seed in range(batch * EXAMPLES, (batch + 1) * EXAMPLES):
        source = random.Random(seed)
        start = source.choice(["SELECT ", "INSERT INTO t SELECT ", "SELECT * FROM t WHERE ds = '{}' "])
        pieces = start + "".join(source.choices(PIECES, k=source.randint(0, 6)))
        texts = [pieces.format(*(source.randint(1, 99) for _ in range(pieces.count("{}")))) for _ in range(3)]
        forget()
        together = [content(text) for text in texts]
        for text, known in zip(texts, together, strict=True):
            forget()
            assert content(text) == known, (seed, texts)
            read += isinstance(known, tuple)
    assert read > EXAMPLES // 10


def test_statements_of_one_template_share_their_trees() -> None:
    first, other = (analyse(f"SELECT a FROM shared WHERE ds = '2026-01-0{day}'") for day in (1, 2))
    assert isinstance(first, Statement)
    assert isinstance(other, Statement)
    assert first.queries is other.queries
    assert (first.parameters, other.parameters) == (("2026-01-01",), ("2026-01-02",))


def test_strings_side_by_side_are_no_template_of_one_with_a_doubled_quotation_mark() -> None:
    forget()
    two, one = (content(f"SELECT a FROM t WHERE p = {text}") for text in ("'2''3'", '"2""3"'))
    assert two[-2:] != one[-2:]
    assert one[-2] == ['2"3']


def test_a_zero_byte_is_no_parameter() -> None:
    assert isinstance(analyse("SELECT a FROM zero WHERE ds = '5'"), Statement)
    assert isinstance(analyse("SELECT a FROM zero WHERE ds = \0"), Unanalysable)


def test_templates_know_no_layout() -> None:
    first = template("SELECT a FROM t WHERE ds = '5'")
    assert template("select A  from T where DS = -- why\n'5';") == first
    assert template("SELECT a FROM t WHERE ds = '6'") != first
    assert template("SELECT a FROM t WHERE ds = 'x'") != template("SELECT a FROM t WHERE ds = 'X'")
    assert template("SELECT a FROM t WHERE ds = 5") != first
    assert template("SELECT 'no end") == "SELECT 'no end"
