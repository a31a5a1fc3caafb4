"""Markers name the owner of a target database."""

from __future__ import annotations

import pytest

from airflow_hive_federation.errors import TargetNotOursError
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.markers import Target, TargetState, judge_target


def judge(parameters: dict[str, str] | None, *, adopt: bool = False, empty: bool = False) -> Target:
    return judge_target("db", parameters, policy="p", adopt=adopt, empty=empty)


def test_a_target_that_is_ours_is_found_at_its_event() -> None:
    ours = markers.database_markers("p", "file:/dumps/p/7")
    assert judge(None).state is TargetState.ABSENT
    assert judge(ours).state is TargetState.LOADING
    assert judge({**ours, markers.LAST_ID: "7"}) == Target(state=TargetState.LOADED, last_id=7)


@pytest.mark.parametrize("empty", [True, False])
def test_a_foreign_target_is_refused_unless_it_is_to_be_adopted(empty: bool) -> None:
    with pytest.raises(TargetNotOursError, match="into_existing"):
        judge({}, empty=empty)
    assert judge({}, adopt=True).state is TargetState.ADOPTABLE


def test_another_policys_target_is_never_adopted() -> None:
    with pytest.raises(TargetNotOursError, match="'other'"):
        judge(markers.database_markers("other", "x"), adopt=True)


def test_a_remote_database_is_never_loaded_into() -> None:
    with pytest.raises(TargetNotOursError, match="stands for the remote database far_db"):
        judge({"hive.federation.remote.name": "far_db"}, adopt=True, empty=True)
