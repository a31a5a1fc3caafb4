"""Decisions that a router keeps: until a table changes, and per template of a statement."""

from __future__ import annotations

import pytest

from airflow_hive_federation.clusters.placement import Session
from airflow_hive_federation.clusters.routing.cache import Router
from airflow_hive_federation.clusters.routing.decision import Rule
from airflow_hive_federation.clusters.routing.route import decide
from airflow_hive_federation.errors import RoutingError
from tests.support.catalogs import CLUSTERS, Catalog, placed


def test_decisions_are_kept_until_a_table_changes(catalog: Catalog) -> None:
    router = Router(CLUSTERS)
    first = router.route("SELECT * FROM a JOIN b", catalog)
    assert router.route("select *  from A join B -- again", catalog) is first
    assert router.hits == 1
    catalog.touch("b", "2")
    assert router.route("SELECT * FROM a JOIN b", catalog) is not first
    assert router.route("SELECT * FROM a JOIN b", catalog, Session(cluster="C2")) is not first
    assert router.hits == 1
    catalog.touch("b", "")
    for _ in range(2):
        assert router.route("SELECT * FROM b", catalog).cluster == "C2"
    assert router.hits == 1


def test_a_kept_refusal_is_an_error_each_time(catalog: Catalog) -> None:
    router = Router(CLUSTERS)
    for hits in (0, 1):
        with pytest.raises(RoutingError, match="No cluster can run the statement"):
            router.route("SELECT * FROM b, c", catalog)
        assert router.hits == hits


def test_a_table_that_appears_changes_a_kept_decision(catalog: Catalog) -> None:
    router = Router(CLUSTERS)
    assert router.route("INSERT INTO new SELECT * FROM a", catalog).outputs[0].new
    catalog.add("new", placed("C2"))
    assert router.route("INSERT INTO new SELECT * FROM a", catalog).cluster == "C2"


def test_strings_are_part_of_the_template(catalog: Catalog) -> None:
    router = Router(CLUSTERS)
    sql = "SELECT * FROM b JOIN logs ON b.k = logs.k WHERE ds = '2026-03-0{}'"
    assert router.decide(sql.format(5), catalog).cluster == "C2"
    assert router.decide(sql.format(1), catalog).cluster is None


@pytest.mark.parametrize("first", [r"2026-03-05", r"2026\-03-05"])
def test_a_string_with_an_escape_is_never_the_same_as_one_without(catalog: Catalog, first: str) -> None:
    router = Router(CLUSTERS)
    # The kind of comma is that of no other test: templates are shared by the whole process.
    sql = f"SELECT b.k ,logs.k ,'{len(first)}' FROM b JOIN logs ON b.k = logs.k WHERE ds = '{{}}'"
    both = {"2026-03-05": "C2", r"2026\-03-05": None}
    for day in (first, *both):
        assert router.decide(sql.format(day), catalog).cluster == both[day]


def test_the_name_of_a_cluster_is_part_of_the_template(catalog: Catalog) -> None:
    router = Router(CLUSTERS)
    assert router.decide("USE CLUSTER C2", catalog).cluster == "C2"
    assert router.decide("USE CLUSTER c2", catalog).rule is Rule.UNKNOWN_CLUSTER


def test_a_refusal_names_the_place_in_the_statement_at_hand(catalog: Catalog) -> None:
    router = Router(CLUSTERS)
    for text in ("CREATE NOTHING x", "-- why\n\n  create   nothing x"):
        decision = router.decide(text, catalog)
        assert decision == decide(text, catalog, CLUSTERS)
        assert decision.unanalysable is not None


def test_the_number_of_kept_decisions_is_bounded(catalog: Catalog) -> None:
    router = Router(CLUSTERS, size=2)
    for number in (1, 2, 3, 1):
        router.decide(f"SELECT {number} FROM a", catalog)
    assert router.hits == 0
