from __future__ import annotations

import json

import pytest

from airflow_hive_federation.errors import VerificationError
from airflow_hive_federation.replication.dump.repair_plan import repair_plan_of
from airflow_hive_federation.replication.format.manifest import RepairPlan
from airflow_hive_federation.replication.replica.differences import OWNER, RETAINED, WRITE_IDS, Difference
from airflow_hive_federation.replication.verify.report import VerificationReport


def difference(table: str, kind: str, where: str = "") -> Difference:
    return Difference(table=table, what=kind, where=where, expected="1", found="2")


def test_what_is_altered_and_what_is_made_anew() -> None:
    differences = [
        difference("a", "storage.cols"),
        difference("b", "partition", "d=1"),
        difference("c", "file", "file:/t/c/delta_1_1/bucket_0"),
        difference("c", "rows"),
        difference("d", "rows"),
        difference("e", WRITE_IDS),
        difference("f", "partitionKeys"),
        difference("g", OWNER),
    ]
    plan = repair_plan_of(differences)
    assert plan.tables == set("abcdefg")
    assert plan.replaced == set("defg")
    assert plan.files == {"file:/t/c/delta_1_1/bucket_0"}


def test_what_differs_once_more_is_made_anew() -> None:
    assert repair_plan_of([difference("a", "storage.cols")], again={"a"}).replaced == {"a"}


def test_nothing_to_mend() -> None:
    assert not repair_plan_of([])
    assert not RepairPlan.from_json({})


def test_retained_objects_of_a_target_are_left_to_a_person() -> None:
    retained = difference("a", RETAINED)
    assert not repair_plan_of([retained])
    assert repair_plan_of([retained, difference("b", "rows")]).tables == {"b"}
    report = VerificationReport(database="d", event_id=1, tables=[], differences=[retained])
    with pytest.raises(VerificationError) as caught:
        report.raise_if_different()
    assert "exclude_tables" in caught.value.remedy
    assert "repair" not in caught.value.remedy


def test_it_goes_through_the_manifest() -> None:
    plan = repair_plan_of([difference("a", "file", "s3://b/x"), difference("d", "rows")])
    assert RepairPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_what_differs_of_the_database_itself_needs_a_cycle_and_no_table() -> None:
    plan = repair_plan_of([difference("", "parameters.team"), difference("", "function", "f")])
    assert plan
    assert (plan.tables, plan.replaced, plan.files, plan.database) == (set(), set(), set(), True)
    assert RepairPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
