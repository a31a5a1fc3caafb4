"""The worked examples of Hive's design "Hive across Multiple Data Centers", in its own words."""

from __future__ import annotations

import pytest

from airflow_hive_federation.clusters.placement import Session
from airflow_hive_federation.clusters.routing.route import decide, next_session, route
from airflow_hive_federation.errors import RoutingError, UnknownClusterError
from tests.support.catalogs import CLUSTERS, Catalog, placed


def catalog(t11: tuple[str, ...]) -> Catalog:
    made = Catalog()
    made.add("t11", placed(*t11))
    made.add("t12", placed("C1"))
    made.add("t21", placed("C2"))
    made.add("t31", placed("C3"))
    return made


#: Say T11, T12, T21, T31 are tables belonging to cluster C1, C1, C2 and C3 respectively, and it has no
#: secondary clusters.
FIRST = {
    "The query 'select .. from T11 .. ' will be processed in C1": ("select * from T11", "C1"),
    "The query 'select .. from T11 join T12 .. ' will be processed in C1": (
        "select * from T11 join T12 on T11.a = T12.a",
        "C1",
    ),
    "The query 'select .. from T21 .. ' will be processed in C2": ("select * from T21", "C2"),
    "The query 'select .. from T11 join T21 .. ' will fail": (
        "select * from T11 join T21 on T11.a = T21.a",
        None,
    ),
    "'Insert .. T13 select .. from T11 ..' will be processed in C1 and the T13 will be created in C1": (
        "insert overwrite table T13 select * from T11",
        "C1",
    ),
    "'Insert .. T21 select .. from T11 ..' will fail": ("insert overwrite table T21 select * from T11", None),
}
#: T11's secondary cluster is C2 (and all the data for T11 is also present in C2).
SECOND = {
    "The query 'select .. from T11 .. ' will be processed in C1": ("select * from T11", "C1"),
    "The query 'select .. from T11 join T12 .. ' will be processed in C1": (
        "select * from T11 join T12 on T11.a = T12.a",
        "C1",
    ),
    "The query 'select .. from T21 .. ' will be processed in C2": ("select * from T21", "C2"),
    "The query 'select .. from T11 join T21 .. ' will be processed in C2": (
        "select * from T11 join T21 on T11.a = T21.a",
        "C2",
    ),
    "The query 'select .. from T11 join T31 .. ' will fail": (
        "select * from T11 join T31 on T11.a = T31.a",
        None,
    ),
    "'Insert .. T13 select .. from T11 ..' will be processed in C1 and the T13 will be created in C1": (
        "insert overwrite table T13 select * from T11",
        "C1",
    ),
    "'Insert .. T21 select .. from T11 ..' will be processed in C2, and T21 will remain in C2": (
        "insert overwrite table T21 select * from T11",
        "C2",
    ),
}
EXAMPLES = [
    *((("C1",), sentence, *example) for sentence, example in FIRST.items()),
    *((("C1", "C2"), sentence, *example) for sentence, example in SECOND.items()),
]


@pytest.mark.parametrize(
    ("t11", "sentence", "sql", "expected"),
    EXAMPLES,
    ids=[f"T11 in {'+'.join(e[0])}: {e[1]}" for e in EXAMPLES],
)
def test_examples(t11: tuple[str, ...], sentence: str, sql: str, expected: str | None) -> None:
    if expected is None:
        assert "will fail" in sentence
        with pytest.raises(RoutingError, match="No cluster can run the statement"):
            route(sql, catalog(t11), CLUSTERS)
        return
    assert f"processed in {expected}" in sentence
    decision = route(sql, catalog(t11), CLUSTERS)
    assert decision.cluster == expected
    if "will be created in" in sentence:
        assert decision.outputs[0].new
    if "will remain in" in sentence:
        assert (decision.outputs[0].new, decision.outputs[0].primaries) == (False, (expected,))


def test_a_multi_table_insert_with_tables_of_different_primary_clusters_will_always_fail() -> None:
    sql = "from T12 insert overwrite table T11 select * insert overwrite table T21 select *"
    for t11 in (("C1",), ("C1", "C2", "C3")):
        made = catalog(t11)
        made.add("t12", placed("C1", "C2", "C3"))
        with pytest.raises(RoutingError, match=r"default.t11 is of C1; default.t21 is of C2"):
            route(sql, made, CLUSTERS)


def test_use_cluster() -> None:
    made = catalog(("C1", "C2"))
    plain = Session()
    decision = route("use cluster C2", made, CLUSTERS, plain)
    session = next_session("use cluster C2", plain, CLUSTERS, decision)
    # The system will only try to figure out if the query can be run in the cluster.
    assert route("select * from T11", made, CLUSTERS, session).cluster == "C2"
    with pytest.raises(
        RoutingError, match=r"not in C2, the cluster of the session: default.t12 is not there"
    ):
        route("select * from T11 join T12 on T11.a = T12.a", made, CLUSTERS, session)
    with pytest.raises(RoutingError, match="can only be written in its primary cluster C1"):
        route("insert into table T11 select * from T21", made, CLUSTERS, session)
    # The user can go back to the behavior to use the default cluster.
    session = next_session("USE CLUSTER", session, CLUSTERS, route("USE CLUSTER", made, CLUSTERS, session))
    assert session == plain
    assert route("select * from T11", made, CLUSTERS, session).cluster == "C1"


def test_use_cluster_will_fail_if_the_cluster_is_not_present() -> None:
    with pytest.raises(UnknownClusterError, match="No cluster 'C9' is configured"):
        route("use cluster C9", catalog(("C1",)), CLUSTERS)
    decision = decide("use cluster C9", catalog(("C1",)), CLUSTERS)
    with pytest.raises(UnknownClusterError, match="No cluster 'C9' is configured"):
        next_session("use cluster C9", Session(), CLUSTERS, decision)
    with pytest.raises(UnknownClusterError, match="No cluster 'C9' is configured"):
        route("select 1", catalog(("C1",)), CLUSTERS, Session(cluster="C9"))


def test_a_subset_of_the_partitions_may_be_in_a_secondary_cluster() -> None:
    made = Catalog()
    made.add("t21", placed("C2"))
    made.add_partitioned(
        "t11",
        placed("C1"),
        [("ds", "string")],
        {("1",): placed("C1"), ("2",): placed("C1", "C2"), ("3",): placed("C1", "C2!")},
    )
    join = "select * from T21 join T11 on T11.a = T21.a"
    assert route(f"{join} where ds = '2'", made, CLUSTERS).cluster == "C2"
    with pytest.raises(RoutingError, match=r"default.t11 partition ds=1 is not there \(it is in C1\)"):
        route(join, made, CLUSTERS)
    with pytest.raises(RoutingError, match=r"default.t11 partition ds=3 is stale there"):
        route(f"{join} where ds >= '2'", made, CLUSTERS)
