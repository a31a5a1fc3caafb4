"""From local names to owners and back, without a metastore."""

from __future__ import annotations

import pytest

from airflow_hive_federation.errors import ConfigurationError, GatewayError
from airflow_hive_federation.gateway.federation.owners import (
    Link,
    Naming,
    OwnedName,
    Owners,
    RemoteNames,
)
from airflow_hive_federation.gateway.federation.transactions import LockIds, locked
from airflow_hive_federation.metastore.idl import types

OWNERS = Owners(
    "main",
    {
        "far": RemoteNames(databases={"Far_Sales": "Sales"}, tables={"ours.rates": "finance.fx_rates"}),
        "old": RemoteNames(prefix="old_", databases={"archive": "archive"}),
    },
)


@pytest.mark.parametrize(
    ("database", "table", "place"),
    [
        ("far_sales", None, OwnedName("far", "sales")),
        ("far_sales", "orders", OwnedName("far", "sales", "orders")),
        ("ours", "rates", OwnedName("far", "finance", "fx_rates")),
        ("ours", "other", OwnedName("main", "ours", "other")),
        ("ours", None, OwnedName("main", "ours")),
        ("sales", "orders", OwnedName("main", "sales", "orders")),
        ("old_hr", "people", OwnedName("old", "hr", "people")),
        ("old_", None, OwnedName("main", "old_")),
        ("archive", "t", OwnedName("old", "archive", "t")),
    ],
    ids=str,
)
def test_a_name_has_one_owner(database: str, table: str | None, place: OwnedName) -> None:
    assert OWNERS.place(database, table) == place


def test_recorded_links_come_after_the_files_names() -> None:
    links = [
        Link(local=("linked", None), place=OwnedName("far", "hr")),
        Link(local=("ours", "one"), place=OwnedName("old", "d", "t")),
        Link(local=("far_sales", None), place=OwnedName("old", "wrong")),
    ]
    assert OWNERS.place("linked", "people", links) == OwnedName("far", "hr", "people")
    assert OWNERS.place("ours", "one", links) == OwnedName("old", "d", "t")
    assert OWNERS.place("far_sales", None, links) == OwnedName("far", "sales")


def test_answers_bear_the_names_that_were_asked() -> None:
    used = [(("ours", "rates"), OwnedName("far", "finance", "fx_rates"))]
    naming = Naming(OWNERS, "far", used)
    assert naming.local("finance", "fx_rates") == ("ours", "rates")
    assert naming.local("finance", None) == ("ours", None)
    assert naming.local("sales", "orders") == ("far_sales", "orders")
    # Not to be taken for a database of the primary metastore.
    assert naming.local("secret", "t") == ("far::secret", "t")
    assert naming.database("finance") is None
    assert Naming(OWNERS, "old", ()).local("hr", "people") == ("old_hr", "people")
    assert Naming(OWNERS, "main", ()).local("sales", "t") == ("sales", "t")


def test_two_local_names_of_a_database_are_answered_as_asked() -> None:
    owners = Owners("main", {"far": RemoteNames(databases={"a": "d", "b": "d"})})
    assert Naming(owners, "far", [(("b", "t"), OwnedName("far", "d", "t"))]).local("d", "t") == ("b", "t")
    assert owners.local_names("far", ["d", "e"]) == {"d": ["a", "b"]}


@pytest.mark.parametrize(
    "remotes",
    [
        {"far": RemoteNames(databases={"a": "x"}), "old": RemoteNames(databases={"A": "y"})},
        {"far": RemoteNames(databases={"a": "x"}, tables={"a.t": "y.t"})},
        {"far": RemoteNames(databases={"a.b": "x"})},
        {"far": RemoteNames(tables={"a": "x.y"})},
    ],
    ids=["taken", "table in a remote database", "no database", "no table"],
)
def test_names_that_cannot_be(remotes: dict[str, RemoteNames]) -> None:
    with pytest.raises(ConfigurationError):
        Owners("main", remotes)


def test_lock_ids_name_their_owner() -> None:
    ids = LockIds(["main", "far"], "main")
    assert ids.mark("main", 7) == 7
    marked = ids.mark("far", 7)
    assert 7 < marked < 1 << 63
    assert ids.read(marked) == ("far", 7)
    assert ids.read(7) == ("main", 7)
    with pytest.raises(GatewayError, match="No metastore of this gateway has granted"):
        LockIds(["main"], "main").read(marked)


def component(
    kind: types.LockType, operation: types.DataOperationType, **more: object
) -> types.LockComponent:
    values: dict[str, object] = {"dbname": "far_sales", "tablename": "t", **more}
    return types.LockComponent(type=kind, operationType=operation, level=2, **values)


READ = component(types.LockType.SHARED_READ, types.DataOperationType.SELECT)
OWN = component(types.LockType.EXCL_WRITE, types.DataOperationType.UPDATE, dbname="ours")
FAR, HERE = OwnedName("far", "sales", "t"), OwnedName("main", "ours", "t")


def test_a_transaction_locks_what_its_metastore_owns() -> None:
    request = types.LockRequest(component=[READ, OWN], txnid=5)
    assert locked(request, [FAR, HERE], "main") == ("main", [(OWN, HERE)])
    with pytest.raises(GatewayError, match=r"ours\.t belongs to main"):
        locked(request, [FAR, HERE], "far")


@pytest.mark.parametrize(
    "component",
    [
        component(types.LockType.SHARED_READ, types.DataOperationType.INSERT),
        component(types.LockType.SHARED_WRITE, types.DataOperationType.UPDATE),
        component(types.LockType.EXCLUSIVE, types.DataOperationType.NO_TXN),
        component(types.LockType.SHARED_READ, types.DataOperationType.SELECT, isDynamicPartitionWrite=True),
        component(types.LockType.SHARED_READ, types.DataOperationType.SELECT, isTransactional=True),
    ],
    ids=["insert", "update", "ddl", "dynamic partitions", "an ACID table"],
)
def test_a_transaction_over_two_owners_is_refused(component: types.LockComponent) -> None:
    request = types.LockRequest(component=[component, OWN], txnid=5)
    with pytest.raises(GatewayError) as refusal:
        locked(request, [FAR, HERE], "main")
    assert "far_sales.t belongs to far" in str(refusal.value)
    assert "transactions_of" in refusal.value.remedy


def test_a_lock_without_a_transaction_is_its_owners() -> None:
    assert locked(types.LockRequest(component=[READ]), [FAR], "main") == ("far", [(READ, FAR)])
    with pytest.raises(GatewayError, match="cannot be of several metastores"):
        locked(types.LockRequest(component=[READ, OWN]), [FAR, HERE], "main")
