"""A remote that is a Hive 2.3 metastore: no events, no id of its own, older calls."""

from __future__ import annotations

import pytest

from airflow_hive_federation.catalog.hive import HiveCatalog
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes.probes import pending
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.remotes.statement import Kind, Name
from tests.catalog_contract import DATABASE, check_reader, tables
from tests.integration.small_source import connected


@pytest.mark.slow
def test_hive_2_as_a_remote(hive_2: str, target: EmbeddedMetastore) -> None:
    root = f"file:{target.external_warehouse}/from_hive_2"
    with MetastoreClient(MetastoreSettings(uris=(hive_2,))) as far:
        far.create_database(types.Database(name=DATABASE))
        for table, partitions in tables(root).values():
            far.create_table(table)
            far.add_partitions(partitions)
        catalog = HiveCatalog(MetastoreSettings(uris=(hive_2,)))
        check_reader(catalog, root)
        assert (catalog.identity(), catalog.last_event_id()) == (None, None)
        catalog.close()
        with Remotes(MetastoreSettings(uris=(target.uri,))) as remotes:
            name = Name(database="from_hive_2")
            there = f"CONNECTED TO {DATABASE} 'hive.metastore.uris' = '{hive_2}'"
            remotes.run(f"CREATE REMOTE DATABASE from_hive_2 {there}")
            parted = Name(database="from_hive_2", table="parted")
            assert not pending(remotes, Kind.TABLE, parted)
            far.drop_partitions(DATABASE, "parted", ["p=a"], delete_data=False)
            assert pending(remotes, Kind.TABLE, parted)
            far.drop_table(DATABASE, "plain", delete_data=False)
            assert pending(remotes, Kind.DATABASE, name)
            report = remotes.refresh(Kind.DATABASE, name)
            assert (report.whole, report.dropped, report.partitions_dropped) == (True, ["plain"], 1)
            assert not remotes.refresh(Kind.DATABASE, name).changed
            assert not pending(remotes, Kind.DATABASE, name)
            with connected(target) as near:
                assert near.list_partition_names("from_hive_2", "parted") == ["p=b c", "p=d%2Fe"]
            remotes.run("DROP REMOTE DATABASE from_hive_2")
