"""Each directory of a target has one owner, and no two tables share or nest them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_hive_federation.errors import (
    ConfigurationError,
    HiddenLocationError,
    LocationConflictError,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.metadata.directories import (
    Claim,
    check_claims,
    check_external,
    check_partitions,
    check_target,
    external_claims,
    is_claimed,
    managed_claims,
    sharing,
)
from airflow_hive_federation.replication.metadata.external_tables import ExternalEntry
from airflow_hive_federation.replication.metadata.locations import external_location, relative_to
from airflow_hive_federation.replication.metadata.table_locations import TableLocations
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.layout import TargetLayout
from airflow_hive_federation.storage.filesystem import canonical, is_below, join

BASE = "hdfs://target/base"
MANAGED = "hdfs://target/warehouse/shop.db"


def policy(**fields: object) -> ReplicationPolicy:
    values = {
        "name": "shop",
        "source_database": "shop",
        "dump_root": "hdfs://target/dumps",
        "external_base": BASE,
        **fields,
    }
    return ReplicationPolicy(**values)  # type: ignore[arg-type]


def entries(*locations: str) -> list[ExternalEntry]:
    """External tables a, b, … at locations; a name with ``=`` before the location makes a partition."""
    listed = []
    for number, location in enumerate(locations):
        partition, _, uri = location.rpartition("|")
        listed.append(ExternalEntry(table=chr(ord("a") + number), partition=partition, location=uri))
    return listed


@pytest.mark.parametrize(
    ("locations", "fields"),
    [
        # One path in two stores.
        (["s3a://a/events", "s3a://b/events"], {}),
        (["s3a://a/events", "s3a://b/other"], {}),
        (["s3a://a/events", "file:/events"], {}),
        # Below the prefix and outside of it.
        (["s3a://a/lake/events", "s3a://a/events"], {"external_prefix": "s3a://a/lake"}),
        (["s3a://a/lake/events", "s3a://a/events/inner"], {"external_prefix": "s3a://a/lake"}),
        # A table around the prefix.
        (["s3a://a/lake"], {"external_prefix": "s3a://a/lake/inner"}),
        # A table at a store's root.
        (["s3a://a", "s3a://a2/x"], {}),
        # A partition from another store.
        (["s3a://a/events", "p=1|s3a://b/events/p=1"], {}),
        (["s3a://a/lake/t", "p=1|s3a://a/t/p=1"], {"external_prefix": "s3a://a/lake"}),
        # The policy's own directories.
        (["s3a://a/x"], {"dump_root": f"{BASE}/x"}),
        (["s3a://a/dumps"], {"dump_root": f"{BASE}/dumps"}),
        (["s3a://a/dumps/shop/t"], {"dump_root": f"{BASE}/dumps"}),
        (["s3a://a/jars"], {"functions_root": f"{BASE}/jars"}),
        # Two stores whose names become one.
        (["s3a://nn_1/x", "hdfs://nn:1/x"], {"external_authority": True}),
    ],
)
def test_tables_that_would_share_a_directory_are_refused_by_name(
    locations: list[str], fields: dict[str, object]
) -> None:
    listed = entries(*locations)
    with pytest.raises(LocationConflictError) as refused:
        check_external(policy(**fields), listed)
    for entry in listed:
        assert f"table {entry.table}" in str(refused.value)
        assert canonical(entry.location) in str(refused.value)
    assert refused.value.remedy


@pytest.mark.parametrize(
    ("locations", "fields"),
    [
        (["s3a://a/events", "s3a://a/other"], {}),
        # Sources nest alike.
        (["s3a://a/events", "s3://a/events/", "s3a://a/events/inner"], {}),
        (["s3a://a/", "s3a://a/x"], {}),
        (["s3a://a/lake", "s3a://a/lake/t"], {"external_prefix": "s3a://a/lake"}),
        (["s3a://a/events", "s3a://a/events2"], {}),
        (["s3a://a/events", "s3a://b/events", "file:/events"], {"external_authority": True}),
        (["s3a://a/", "s3a://b/x"], {"external_authority": True}),
        (["s3a://a/events", "p=1|s3a://b/events/p=1"], {"external_authority": True}),
        # The dumps lie beside.
        (["s3a://a/x"], {"dump_root": BASE}),
    ],
)
def test_tables_that_lie_as_on_the_source_are_not(locations: list[str], fields: dict[str, object]) -> None:
    check_external(policy(**fields), entries(*locations))


def test_two_stores_are_refused_with_the_field_that_allows_them() -> None:
    with pytest.raises(LocationConflictError, match=r"Set the policy's external_authority") as refused:
        check_external(policy(), entries("s3a://a/events", "s3a://b/events"))
    assert refused.value.tables == ["a", "b"]
    assert set(refused.value.paths) == {f"{BASE}/events"}


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("s3a://a/x/y", f"{BASE}/a/x/y"),
        ("hdfs://nn:8020/x", f"{BASE}/nn_8020/x"),
        ("file:///x", f"{BASE}/file/x"),
        ("s3a://a", f"{BASE}/a"),
    ],
)
def test_the_store_in_the_path(location: str, expected: str) -> None:
    assert canonical(external_location(location, BASE, table="t", authority=True)) == expected


def test_one_store_lies_as_hive_has_it() -> None:
    (claim,) = external_claims(policy(external_base="/ext_base1"), entries("hdfs://n/ext_loc/ext_tab1"))
    assert claim.target == "/ext_base1/ext_loc/ext_tab1"


@pytest.mark.parametrize(
    ("location", "base"),
    [
        # The base is the directory of the managed tables, or lies in it.
        ("s3a://a/x", MANAGED),
        ("s3a://a/x", f"{MANAGED}/ext"),
        # The table is, contains or lies in a managed table, or is or contains the database.
        ("s3a://a/warehouse/shop.db/orders", "hdfs://target/"),
        ("s3a://a/warehouse/shop.db/orders/x", "hdfs://target/"),
        ("s3a://a/warehouse/shop.db", "hdfs://target/"),
        ("s3a://a/warehouse", "hdfs://target/"),
        ("s3a://a/shop.db/orders", "hdfs://target/warehouse"),
    ],
)
def test_managed_tables_share_with_none(location: str, base: str) -> None:
    with pytest.raises(LocationConflictError):
        check_target(policy(external_base=base), MANAGED, entries(location), ["orders"])


@pytest.mark.parametrize("location", ["s3a://a/warehouse/shop.db", "s3a://a/warehouse"])
def test_no_external_table_is_or_contains_the_database_itself(location: str) -> None:
    with pytest.raises(LocationConflictError, match="target database shop"):
        check_target(policy(external_base="hdfs://target/"), MANAGED, entries(location), [])


def test_an_external_table_goes_back_beside_the_managed_ones() -> None:
    """In a warehouse of both kinds, a failover takes external tables back below the database's directory."""
    claims = check_target(
        policy(external_base="hdfs://target/"), MANAGED, entries("s3a://a/warehouse/shop.db/x"), ["orders"]
    )
    assert {claim.target for claim in claims} >= {f"{MANAGED}/x", f"{MANAGED}/orders"}


@pytest.mark.parametrize("hidden", ["hdfs://target/.x/base", "hdfs://target/_x/base", "hdfs://target/_base"])
def test_hidden_targets_are_refused(hidden: str) -> None:
    with pytest.raises(HiddenLocationError, match="external_base"):
        check_external(policy(external_base=hidden), entries("s3a://a/x"))
    with pytest.raises(HiddenLocationError, match="target database shop"):
        check_target(policy(), hidden, [], [])
    # A source's own hidden directories are its own business: Hive reads them the same on both sides.
    check_external(policy(), entries("s3a://a/.x/t"))


def test_external_tables_need_a_base() -> None:
    with pytest.raises(ConfigurationError, match="external_base"):
        check_target(policy(external_base=None), MANAGED, entries("s3a://a/x"), [])


def test_a_partition_that_moves_takes_no_other_ones_place() -> None:
    def places(**locations: str) -> TableLocations:
        table = types.Table(
            sd=types.StorageDescriptor(location="file:/w/t"),
            partitionKeys=[types.FieldSchema(name="p", type="string")],
        )
        return TableLocations(
            table,
            (
                types.Partition(values=[value], sd=types.StorageDescriptor(location=location))
                for value, location in locations.items()
            ),
        )

    with pytest.raises(LocationConflictError, match="partition p=a of table t") as refused:
        check_partitions("t", places(a="file:/elsewhere", b="file:/w/t/p=a"))
    assert "partition p=b of table t" in str(refused.value)
    with pytest.raises(LocationConflictError):
        check_partitions("t", places(a="file:/elsewhere", b="file:/w/t/p=a/inner"))
    check_partitions("t", places(a="file:/elsewhere", b="file:/w/t/p=b", c="file:/w/t/p=b/inner"))
    # Two partitions over one directory read the same rows on both sides.
    check_partitions("t", places(a="file:/w/t/x", b="file:/w/t/x"))


def test_tables_of_one_directory_know_each_other() -> None:
    claims = external_claims(
        policy(), entries("s3a://a/x", "s3a://a/x/y", "s3a://a/z", "s3a://a/x/v", "s3a://a/zz")
    )
    assert sharing(claims) == dict.fromkeys("abd", frozenset("abd"))
    assert is_claimed(claims, f"{BASE}/x/y/deeper")
    assert is_claimed(claims, BASE)
    assert not is_claimed(claims, f"{BASE}/zzz")


names = st.sampled_from(["a", "b", "c", "lake", "p=1", "shop.db", "warehouse", "orders"])
paths = st.lists(names, max_size=4).map("/".join)
stores = st.sampled_from(["s3a://a", "s3a://b", "s3://a", "hdfs://a:1", "file:"])
locations = st.builds(lambda store, path: f"{store}/{path}", stores, paths)


@given(
    locations=st.lists(locations, min_size=1, max_size=6),
    prefix=st.none() | locations,
    authority=st.booleans(),
    base=st.builds(lambda path: f"hdfs://target/{path}", paths),
    managed=st.builds(lambda path: f"hdfs://target/{path}", paths),
    tables=st.lists(names.filter(str.isalpha), max_size=3, unique=True),
)
@example(
    locations=["s3a://a/a", "s3a://a/lake/a"],
    prefix="s3a://a/lake",
    authority=False,
    base="hdfs://target/b",
    managed="hdfs://target/warehouse",
    tables=[],
)
def test_what_is_let_through_shares_nothing(
    locations: list[str], prefix: str | None, authority: bool, base: str, managed: str, tables: list[str]
) -> None:
    """Every target lies below its root; no two tables share or nest directories but as their sources do."""
    made = policy(external_base=base, external_prefix=prefix, external_authority=authority)
    try:
        claims = check_target(made, managed, entries(*locations), tables)
    except LocationConflictError:
        return
    external = [claim for claim in claims if claim.source]
    assert all(is_below(claim.target, base) for claim in external)
    assert not any(is_below(managed, claim.target) for claim in external)
    for claim in claims:
        if claim.table and not claim.source:
            assert is_below(claim.target, managed)
    for first, other in pairs(claims):
        if first.table and is_below(other.target, first.target):
            assert first.source, (first, other)
            assert relative_to(other.source, first.source) == relative_to(other.target, first.target)


@given(
    external=st.booleans(),
    root=locations,
    elsewhere=st.none() | locations,
    path=st.lists(names, min_size=1, max_size=3).map("/".join),
    prefix=st.none() | locations,
    authority=st.booleans(),
    acid=st.booleans(),
)
def test_every_file_of_a_plan_lies_below_its_directory(
    external: bool,
    root: str,
    elsewhere: str | None,
    path: str,
    prefix: str | None,
    authority: bool,
    acid: bool,
) -> None:
    """The directories that take after the source's end there, too."""
    made = policy(external_prefix=prefix, external_authority=authority)
    layout = TargetLayout(policy=made, managed=MANAGED)
    kind = TableKind.EXTERNAL if external else TableKind.MANAGED
    table = types.Table(tableName="t", sd=types.StorageDescriptor(location=root))
    document = TableDocument(table=table, kind=kind)
    path, target_path = (f"base_0000005_v0000007/{path}", f"base_0000005/{path}") if acid else (path, path)
    file = VisibleFile(
        directory=elsewhere or join(root, "p=1"),
        partition="p=1",
        path=path,
        target_path=target_path,
        size_bytes=1,
        modified_ns=0,
    )
    listed = [ExternalEntry(table="t", location=root)]
    if elsewhere is not None and relative_to(elsewhere, root) is None:
        listed.append(ExternalEntry(table="t", partition="p=1", location=elsewhere))
    claims = external_claims(made, listed) if external else managed_claims(MANAGED, ["t"])
    try:
        check_external(made, listed if external else [])
    except LocationConflictError:
        return
    item = layout.item(document, file)
    homes = [claim for claim in claims if is_below(item.target, claim.target)]
    assert homes
    assert is_below(item.target, BASE if external else MANAGED)
    home = "/".join(item.target.split("/")[: -item.target_levels])
    there = "/".join(item.source.split("/")[: -item.source_levels])
    assert is_below(canonical(home), canonical(layout.directory(document, file.directory, "p=1"))) or any(
        canonical(home) == canonical(claim.target) for claim in homes
    )
    assert canonical(there) in {canonical(root), canonical(file.directory)}


@given(st.lists(locations, max_size=6))
def test_every_pair_is_compared_though_neighbours_are(locations: list[str]) -> None:
    """Comparing each directory with the closest one around it finds what comparing all pairs finds."""
    made = policy(external_prefix="s3a://a/lake", external_authority=False)
    claims = external_claims(made, entries(*locations))
    all_pairs = any(
        is_below(other.target, first.target)
        and relative_to(other.source, first.source) != relative_to(other.target, first.target)
        for first, other in pairs(claims)
    )
    assert refuses(claims) is all_pairs


def pairs(claims: Iterable[Claim]) -> list[tuple[Claim, Claim]]:
    both = list(combinations(claims, 2))
    return both + [(other, first) for first, other in both]


def refuses(claims: Iterable[Claim]) -> bool:
    try:
        check_claims(claims)
    except LocationConflictError:
        return True
    return False
