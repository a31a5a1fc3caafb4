"""The ratchet that holds the number of refused queries of a corpus, per kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.hiveql_corpus import kind_of, refusals, statements_of_corpus

CORPUS = """-- SELECT FROM nothing
SELECT * FROM a;
!ls;
SELECT * FROM a;
SET x = 'a query that is none (';
INSERT INTO `x/y` SELECT 1;
INSERT INTO `v/w` SELECT 1;
WITH q1 AS (SELECT * FROM q2), q2 AS (SELECT * FROM b) SELECT * FROM q1;
"""


def test_refused_queries_are_counted_by_kind(tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "a.q").write_text(CORPUS)
    (tmp_path / "b.sql").write_text("SELECT 1")
    (tmp_path / "c.txt").write_text("SELECT FROM")
    (tmp_path / "d.sql").write_text("SELECT 'without an end")
    made = refusals(statements_of_corpus(str(tmp_path)))
    path, order = "… is a path, or a name of several parts in one", "… stands where no table was expected"
    assert (made.queries, made.kinds) == (5, {path: 2, order: 1})
    assert made.over({path: 4_000, order: 2_000}) == {}
    assert made.over({path: 4_000}) == {order: f"1 of 5 queries: {made.examples[order]}"}
    # One kind does not make up for another.
    assert list(made.over({path: 3_999, order: 10_000})) == [path]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("Expecting ), at 'sort'", "Expecting ), at …"),
        ('expected a query, found "it\'s"', "expected a query, found …"),
        ("expected a query, found 'a\\'b'", "expected a query, found …"),
        ("d.q2 stands where no table was expected", "… stands where no table was expected"),
    ],
)
def test_a_kind_has_no_text_of_its_statement(reason: str, kind: str) -> None:
    assert kind_of(reason) == kind
