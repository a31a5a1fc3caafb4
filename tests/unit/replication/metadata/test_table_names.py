"""Tables may bear other names on the target."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model import events as ev
from airflow_hive_federation.replication.format.dumped_policy import DumpedPolicy
from airflow_hive_federation.replication.metadata.table_names import (
    is_left_from_before,
    named_event,
    named_source,
    reason_to_skip,
)
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.policy_changes import policy_changes

POLICY = ReplicationPolicy(
    name="p", source_database="shop", dump_root="file:/d", table_names={"Orders": "bestellungen", "x": "y"}
)


def table(name: str, text: str = "") -> Any:
    return types.Table(dbName="shop", tableName=name, parameters={}, viewExpandedText=text)


def test_names_there_and_back() -> None:
    assert [POLICY.target_table(name) for name in ("ORDERS", "x", "other")] == ["bestellungen", "y", "other"]
    assert [POLICY.source_table(name) for name in ("bestellungen", "other")] == ["orders", "other"]
    only = replace(POLICY, include_tables="orders|o.*")
    assert [only.replicates(name) for name in ("bestellungen", "other", "y")] == [True, True, False]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"a": "c", "b": "C"}, "'c' twice"),
        ({"a": "b.c"}, "'b.c', which is no name"),
        ({"a": ""}, "'', which is no name"),
    ],
)
def test_names_that_cannot_be(names: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        replace(POLICY, table_names=names)


def test_the_way_back() -> None:
    back = POLICY.reversed()
    assert back.table_names == {"bestellungen": "orders", "y": "x"}
    assert replace(back.reversed(), into_existing=False) == POLICY
    # Patterns are of the names on the source, which are others then.
    with pytest.raises(ConfigurationError, match="no way back"):
        replace(POLICY, include_tables="orders").reversed()


def test_a_view_that_stayed_out_before_a_failover_is_left() -> None:
    back = replace(POLICY, target_database="copy").reversed()
    assert is_left_from_before(back, view("SELECT `id` FROM `orders`"))
    assert not is_left_from_before(back, view("SELECT `id` FROM `shop`.`orders`"))
    # On a target that never was a source it belongs to a user.
    there = replace(POLICY, target_database="copy")
    assert not is_left_from_before(there, view("SELECT `id` FROM `bestellungen`"))


def test_events_of_the_database_speak_of_the_targets_tables() -> None:
    event = ev.TableAltered(
        event_id=1,
        event_type="ALTER_TABLE",
        database="shop",
        table="orders",
        old_database="elsewhere",
        old_table="x",
    )
    renamed = named_event(POLICY, event)
    assert renamed == replace(event, table="bestellungen")
    moved = replace(event, database="elsewhere", old_database="shop")
    assert named_event(POLICY, moved) == replace(moved, old_table="y")
    ended = ev.TxnEnded(event_id=2, event_type="COMMIT_TXN", txn_id=1, committed=True)
    assert named_event(POLICY, ended) is ended


def test_views_of_such_tables_stay_out_where_they_cannot_be_rewritten() -> None:
    assert reason_to_skip(POLICY, view("select 1 from `SHOP`.`orders` `o`")) is None
    assert "without a database" in (reason_to_skip(POLICY, view("select 1 from `orders` `o`")) or "")
    assert "cannot be parsed" in (reason_to_skip(POLICY, view("select (1 from `shop`.`orders`")) or "")


def view(text: str) -> Any:
    definition = table("v", text)
    definition.tableType = "VIRTUAL_VIEW"
    return definition


def test_two_tables_with_one_name_are_refused() -> None:
    @contextmanager
    def client() -> Any:
        yield SimpleNamespace(list_tables=lambda _: ["orders", "bestellungen", "x"])

    pool: Any = SimpleNamespace(client=client)
    with (
        named_source(pool, POLICY).client() as named,
        pytest.raises(ConfigurationError, match="bestellungen, orders"),
    ):
        named.list_tables("shop")
    assert named_source(pool, replace(POLICY, table_names={})) is pool


def test_files_are_kept_by_the_names_on_the_source() -> None:
    asked: list[Any] = []

    @contextmanager
    def client() -> Any:
        yield SimpleNamespace(
            waits_for_locks=lambda name: asked.append(name) or True,
            keep_history=lambda *how, locked: asked.append((*how, locked)),
        )

    pool: Any = SimpleNamespace(client=client)
    with named_source(pool, POLICY).client() as named:
        assert named.waits_for_locks("shop.bestellungen")
        named.keep_history(7, ["shop.bestellungen", "shop.other"])
    assert asked == ["shop.orders", (7, ["shop.orders", "shop.other"], frozenset())]


def test_what_does_not_translate_names_is_not_asked() -> None:
    @contextmanager
    def client() -> Any:
        yield MetastoreClient(MetastoreSettings(uris=("thrift://h:1",)))

    pool: Any = SimpleNamespace(client=client)
    with named_source(pool, POLICY).client() as named:
        for method in ("find_partitions", "list_partition_names", "get_table_column_statistics"):
            with pytest.raises(NotImplementedError, match=method):
                getattr(named, method)
        for method in ("get_open_txns", "iter_notification_events"):
            assert callable(getattr(named, method))


@pytest.mark.parametrize(
    ("before", "now", "renamed"),
    [
        ({}, {"a": "b"}, {"a", "b"}),
        ({"a": "b"}, {"a": "b"}, set()),
        ({"a": "b", "b": "a"}, {}, {"a", "b"}),
        ({"a": "b"}, {"a": "c"}, {"b", "c"}),
    ],
)
def test_names_that_stand_for_other_tables_now(
    before: dict[str, str], now: dict[str, str], renamed: set[str]
) -> None:
    was = DumpedPolicy.of(replace(POLICY, table_names=before))
    assert policy_changes(was, replace(POLICY, table_names=now)).renamed == renamed
