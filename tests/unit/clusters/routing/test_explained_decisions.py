"""Decisions explained: in words, as JSON, with the copies that would help."""

from __future__ import annotations

import json
import pickle

from airflow_hive_federation.clusters.placement import Clusters, Session
from airflow_hive_federation.clusters.routing.explain import as_json, cheapest_copies, in_words
from airflow_hive_federation.clusters.routing.route import decide
from tests.support.catalogs import CLUSTERS, Catalog, placed


def test_explain_in_words_and_json(catalog: Catalog) -> None:
    decision = decide("SELECT * FROM b JOIN logs ON b.k = logs.k WHERE ds >= '2026-03-03'", catalog, CLUSTERS)
    assert decision.reason == (
        "No cluster can run the statement: not in C2, the primary cluster of an input: "
        "default.logs partition ds=2026-03-03 is not there (it is in C1); "
        "not in C1, the primary cluster of an input: default.b is not there (it is in C2)."
    )
    assert in_words(decision).splitlines() == [
        "Cluster: none",
        f"Rule: input. {decision.reason}",
        "Reads default.b: in C2 (1.0 kB)",
        "Reads default.logs: 5 of 7 partitions; primary cluster C1",
        "  partition ds=2026-03-03: in C1 (1.0 MB)",
        "  partitions ds=2026-03-04, ds=2026-03-05, ds=2026-03-06 and 1 more: in C1, C2 (4.2 MB)",
        "Tried C2: default.logs partition ds=2026-03-03 is not there (it is in C1)",
        "Tried C1: default.b is not there (it is in C2)",
        "It could run in C1 after these copies, the cheapest (1.0 kB):",
        "  default.b from C2 to C1 (1.0 kB)",
    ]
    document = json.loads(json.dumps(as_json(decision)))
    assert document["cluster"] is None
    assert document["cheapest_copies"]["copies"] == [
        {"table": "default.b", "from": "C2", "to": "C1", "partitions": None, "examples": [], "bytes": 1000}
    ]
    assert pickle.loads(pickle.dumps(decision)) == decision


def test_explain_of_what_runs(catalog: Catalog) -> None:
    decision = decide("INSERT INTO fresh SELECT a.x FROM a", catalog, CLUSTERS)
    assert in_words(decision).splitlines() == [
        "Cluster: C1",
        "Rule: input. C1 is the primary cluster of default.a, and has all other inputs.",
        "Writes default.fresh: new, created in the cluster that runs the statement",
        "Reads default.a: in C1, C2 (10 bytes)",
        "Tried C1: it has all that the statement needs",
    ]
    assert cheapest_copies(decision) is None


def test_explain_of_what_reads_no_rows(catalog: Catalog) -> None:
    assert in_words(decide("DESCRIBE split", catalog, CLUSTERS)).splitlines()[2:] == [
        "Reads default.split: its definition only; primary cluster C1",
        "Tried C1: it has all that the statement needs",
    ]
    catalog.add_view("v", "SELECT * FROM b")
    assert in_words(decide("DROP VIEW v", catalog, CLUSTERS)).splitlines()[2:] == [
        "Writes default.v: a view, which is in no cluster",
        "Tried C1: it has all that the statement needs",
    ]


def test_explain_of_what_is_not_known(catalog: Catalog) -> None:
    catalog.add_partitioned("vague", placed("C1"), [("ds", "string")], {("1",): placed("C1")}, size=None)
    assert "  partition ds=1: in C1 (size unknown)" in in_words(
        decide("SELECT * FROM vague", catalog, CLUSTERS)
    )
    clusters = Clusters(names=("C1", "C2"), default="C1", use_default=False)
    lines = in_words(decide("INSERT INTO plain SELECT * FROM missing", catalog, clusters)).splitlines()
    assert lines[2:] == [
        "Writes default.plain: it has no cluster metadata, and hive.use.default.cluster is off",
        "Reads default.missing: the metastore has no such table",
    ]


def test_a_decision_names_a_bounded_number_of_partitions(catalog: Catalog) -> None:
    for count, named in ((100, 100), (101, 0)):
        days = {(f"{number:03}",): placed("C1") for number in range(count)}
        catalog.add_partitioned("many", placed("C1"), [("ds", "string")], days)
        (group,) = decide("SELECT * FROM many", catalog, CLUSTERS).inputs[0].groups
        assert (group.partitions, len(group.values)) == (count, named)


def test_a_statement_that_runs_needs_no_copies(catalog: Catalog) -> None:
    decision = decide("SELECT * FROM a, b", catalog, CLUSTERS)
    assert [attempt.cluster for attempt in decision.attempts] == ["C1", "C2"]
    assert cheapest_copies(decision) is None


def test_copies_help_neither_outputs_nor_temporary_tables(catalog: Catalog) -> None:
    session = Session(cluster="C2")
    assert cheapest_copies(decide("INSERT INTO a SELECT * FROM c", catalog, CLUSTERS, session)) is None
    session = Session(cluster="C3", temporary={"tmp": "C2"})
    assert cheapest_copies(decide("SELECT * FROM tmp", catalog, CLUSTERS, session)) is None


def test_no_copies_help_against_two_outputs(catalog: Catalog) -> None:
    decision = decide("FROM a INSERT INTO b SELECT * INSERT INTO c SELECT *", catalog, CLUSTERS)
    assert decision.cluster is None
    assert cheapest_copies(decision) is None
