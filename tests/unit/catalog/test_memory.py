"""The catalog in memory keeps the contract of all catalogs."""

from __future__ import annotations

from airflow_hive_federation.catalog.memory import MemoryCatalog
from airflow_hive_federation.catalog.roles import EventSource, MetastoreOwner, Reader
from airflow_hive_federation.metastore.idl import types
from tests.support.catalog_contract import DATABASE, check_reader, tables


def test_the_contract() -> None:
    catalog = MemoryCatalog("me")
    catalog.put_database(types.Database(name=DATABASE))
    for table, partitions in tables("file:/far").values():
        catalog.put_table(table, partitions)
    assert isinstance(catalog, Reader)
    check_reader(catalog, "file:/far")
    assert isinstance(catalog, EventSource)
    assert not isinstance(catalog, MetastoreOwner)


def test_its_events() -> None:
    catalog = MemoryCatalog()
    catalog.put_database(types.Database(name=DATABASE))
    for table, partitions in tables("file:/far").values():
        catalog.put_table(table, partitions)
    catalog.drop_table(DATABASE, "plain")
    assert [event.eventType for event in catalog.events(1, 4)] == [
        "CREATE_TABLE",
        "CREATE_TABLE",
        "DROP_TABLE",
    ]
    assert catalog.has_events_after(2)
    catalog.forget_events()
    assert not catalog.has_events_after(2)
    assert catalog.has_events_after(4)
    assert catalog.last_event_id() == 4
