"""The XCom values of tasks that route statements."""

from __future__ import annotations

import json

from airflow_hive_federation.clusters.placement import Session
from airflow_hive_federation.clusters.routing.route import Policy, decide
from airflow_hive_federation.operators.cluster_links import route_note
from tests.support.catalogs import CLUSTERS, Catalog


def test_the_route_of_a_statement_that_cannot_be_analysed_has_none_of_its_text() -> None:
    for policy, refused in (
        (Policy.STRICT, "The tables are not known, found 'SECRET'."),
        (Policy.DEFAULT, ""),
    ):
        decision = decide("SELECT *\nFROM noop(on SECRET)", Catalog(), CLUSTERS, Session(), policy=policy)
        assert decision.unanalysable is not None
        note = route_note(decision, refused)
        assert "line 2, column" in json.dumps(note)
        assert "SECRET" not in json.dumps(note)
        assert ("refused" in note) is bool(refused)
    assert "on" in decision.reason
