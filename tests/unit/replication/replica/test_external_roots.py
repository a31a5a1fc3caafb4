"""External directories of a target have one owner, across its policies."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hive_federation.errors import LocationConflictError
from airflow_hive_federation.model.side_parameters import without_side_parameters
from airflow_hive_federation.replication.metadata.directories import Claim
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.external_roots import (
    ExternalRoots,
    OtherDatabase,
    check_roots,
    outermost,
    read_roots,
    with_roots,
)
from airflow_hive_federation.storage.filesystem import is_below

POLICY = ReplicationPolicy(name="a", source_database="a", dump_root="file:/dumps", external_base="file:/base")
OTHER = OtherDatabase(
    name="b_db", owner="b", roots=("file:/base/y",), managed="file:/warehouse/b.db", dumps="file:/dumps/b"
)


def claim(target: str) -> Claim:
    return Claim(owner="table t", table="t", target=target, source="hdfs://one/y")


@pytest.mark.parametrize(
    ("target", "whose"),
    [
        ("file:/base/y", "the external tables of database b_db of policy 'b'"),
        ("file:/base//y/", "the external tables of database b_db of policy 'b'"),
        ("file:/base/y/inner", "the external tables of database b_db of policy 'b'"),
        ("file:/base", "the external tables of database b_db of policy 'b'"),
        ("file:/warehouse/b.db/t", "the managed tables of database b_db of policy 'b'"),
        ("file:/warehouse", "the managed tables of database b_db of policy 'b'"),
        ("file:/dumps/b/1-2-3/load", "the dumps of policy 'b'"),
    ],
)
def test_a_directory_of_another_policy_is_refused_and_both_are_named(target: str, whose: str) -> None:
    with pytest.raises(LocationConflictError) as refused:
        check_roots(POLICY, [claim(target)], "file:/warehouse/a.db", [OTHER])
    message = str(refused.value)
    assert f"table t of policy 'a' (source: hdfs://one/y) and {whose}" in message
    assert refused.value.facts["policy"] == "a"
    assert refused.value.facts["other"] == "b"
    assert refused.value.facts["paths"][0] == target


def test_what_a_failover_let_go_keeps_its_directories() -> None:
    let_go = replace(OTHER, owner="", dumps="")
    with pytest.raises(LocationConflictError, match="the external tables of database b_db would"):
        check_roots(POLICY, [claim("file:/base/y")], "", [let_go])


@pytest.mark.parametrize("managed", ["file:/base/y/a.db", "file:/base", "file:/base/y"])
def test_managed_tables_of_a_new_target_do_not_lie_in_external_ones(managed: str) -> None:
    with pytest.raises(LocationConflictError, match="the managed tables of database a of policy 'a'"):
        check_roots(POLICY, [], managed, [OTHER])


def test_dumps_do_not_lie_in_external_tables_of_others() -> None:
    inside = replace(OTHER, roots=("file:/dumps/a",))
    with pytest.raises(LocationConflictError, match="the dumps of policy 'a'"):
        check_roots(POLICY, [], "", [inside])


def test_neighbours_are_let_be() -> None:
    """Policies share dump roots and warehouses; what holds no external table is emptied by nobody."""
    beside = [claim("file:/base/x"), claim("file:/base/y2"), claim("file:/base/x/inner")]
    nested_sides = replace(OTHER, managed="file:/warehouse/a.db/b.db", dumps="file:/dumps/a/b")
    check_roots(POLICY, beside, "file:/warehouse/a.db", [OTHER, nested_sides, OtherDatabase(name="c")])


def test_a_record_is_read_back_however_long_it_is() -> None:
    uris = tuple(sorted(f"s3://bucket/ext/größe {number:05}" for number in range(1000)))
    before = {"a": "b", markers.POLICY: "p", f"{markers.EXTERNAL_ROOTS}99": "old"}
    parameters = with_roots(before, ExternalRoots(uris=uris, checked=True))
    assert max(map(len, parameters.values())) <= 4000
    assert len([key for key in parameters if key.startswith(markers.EXTERNAL_ROOTS)]) > 10
    assert read_roots("db", parameters) == ExternalRoots(uris=uris, checked=True)
    few = with_roots(parameters, ExternalRoots(uris=("file:/x",)))
    assert read_roots("db", few) == ExternalRoots(uris=("file:/x",), checked=False)
    assert with_roots(few, ExternalRoots()) == {"a": "b", markers.POLICY: "p"}
    assert read_roots("db", None) == ExternalRoots()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"checked": true}', '{"roots": 7, "checked": true}'])
def test_a_record_that_cannot_be_read_stops_with_its_database(text: str) -> None:
    with pytest.raises(LocationConflictError, match="target database db are not known") as refused:
        read_roots("db", {f"{markers.EXTERNAL_ROOTS}0": text})
    assert "Remove these parameters" in str(refused.value)


def test_a_record_stays_on_its_side() -> None:
    recorded = with_roots({"kept": "x"}, ExternalRoots(uris=("file:/x",)))
    assert without_side_parameters(recorded) == {"kept": "x"}


def test_a_record_covers_what_lies_in_it() -> None:
    roots = ExternalRoots(uris=("file:/base/x",), checked=True)
    assert roots.covers([])
    assert roots.covers(["file:/base/x", "file:/base/x/p=1"])
    assert not roots.covers(["file:/base/x", "file:/base/x2"])
    assert roots.joined(["file:/base", "file:/other"]) == ExternalRoots(uris=("file:/base", "file:/other"))


paths = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(lambda names: "file:/" + "/".join(names))


@given(st.lists(paths, max_size=4), st.lists(paths, max_size=4))
def test_no_two_owners_share_or_nest_directories(ours: list[str], theirs: list[str]) -> None:
    other = OtherDatabase(name="other", owner="other", roots=outermost(theirs))
    collide = any(is_below(root, two) or is_below(two, root) for root in ours for two in theirs)
    try:
        check_roots(replace(POLICY, dump_root="file:/z"), map(claim, ours), "", [other])
    except LocationConflictError:
        assert collide
    else:
        assert not collide


@given(st.lists(paths, max_size=6))
def test_the_outermost_directories_contain_all_and_none_another(uris: list[str]) -> None:
    roots = outermost(uris)
    assert all(any(is_below(uri, root) for root in roots) for uri in uris)
    assert not any(is_below(first, two) for first in roots for two in roots if first != two)
    assert {*roots} <= {*uris}
