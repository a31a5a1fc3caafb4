"""The ratchet that holds the number of refused queries of a corpus, per kind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.hiveql_corpus import kind_of, refusals, statements_of_corpus

DIRECTORY = os.environ.get("HIVE_FEDERATION_HIVEQL_CORPUS")
#: The most refused queries of each kind, per 10,000 queries: as many as when this was written; fewer are
#: welcome. Of the queries of TPC-DS, none is refused.
REFUSED = {
    "Invalid expression / Unexpected token, at …": 24,
    "Expecting ), at …": 44,
    "expected a statement of Hive or Spark, found …": 17,
    "… is a path, or a name of several parts in one": 14,
    "it has a variable outside of strings": 6,
    "Expected table name, at …": 5,
    "Expecting FOR, at …": 4,
    "… stands where no table was expected": 4,
    "a table has no plain name": 4,
    "expected the name of a table, found …": 3,
    "Expected TYPE after CAST, at …": 2,
    "Required keyword: … missing for <class …>, at …": 2,
    "values does not support CTE, at …": 1,
    "it is nested too deeply to be analysed": 1,
}
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


if DIRECTORY is not None:

    @pytest.mark.slow
    @pytest.mark.timeout(3600)
    def test_no_kind_of_a_corpus_has_more_refused_queries_than_before() -> None:
        made = refusals(statements_of_corpus(str(DIRECTORY)))
        print(f"{made.queries:,} queries, {made.kinds.total():,} refused: {made.kinds.most_common()}")
        assert made.over(REFUSED) == {}
