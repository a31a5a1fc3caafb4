"""Remotes that are older metastores: no events, older calls, and Hive 2.3 has no id of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.catalog.hive import HiveCatalog
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes.probes import pending
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.remotes.statement import Kind, Name
from tests.support.catalog_contract import DATABASE, check_reader, tables
from tests.support.small_source import connected
from tests.support.steady_links import check_steady, varied_database


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


@pytest.mark.slow
def test_hive_joins_tables_of_three_versions(
    hive_2: str,
    hive_3: str,
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_target: HiveSql,
    tmp_path: Path,
) -> None:
    """One table by one name in three metastores; a local database has all three of them."""
    name = "of_versions"
    far = {"second": hive_2, "third": hive_3, "fourth": source.uri}
    with Remotes(MetastoreSettings(uris=(target.uri,)), database=name) as remotes, connected(target) as near:
        near.create_database(types.Database(name=name))
        for number, (local, uri) in enumerate(far.items()):
            place = tmp_path / local
            place.mkdir()
            (place / "rows").write_text(f"1,of {local}\n{number + 2},x\n", encoding="utf-8")
            table, _ = tables(tmp_path.as_uri())["plain"]
            table.dbName, table.tableName = name, "same"
            table.sd.location = f"file:{place}"  # type: ignore[union-attr]
            table.sd.cols[1].name = "word"  # type: ignore[union-attr,index]
            with MetastoreClient(MetastoreSettings(uris=(uri,))) as there:
                there.create_database(types.Database(name=name, locationUri=f"file:{tmp_path}/{local}-db"))
                there.create_table(table)
            link = f"CREATE REMOTE TABLE {local} CONNECTED TO {name}.same"
            remotes.run(f"{link} VIA 'thrift' 'hive.metastore.uris' = '{uri}'")
        joined = f"""SELECT a.word, b.word, c.word FROM {name}.second a JOIN {name}.third b ON a.id = b.id
            JOIN {name}.fourth c ON b.id = c.id"""
        assert hive_sql_target.execute(joined) == [("of second", "of third", "of fourth")]
        for local, uri in far.items():
            assert ("word", "string", "") in remotes.run(f"DESCRIBE {local}")[0].rows
            remotes.run(f"REFRESH REMOTE TABLE {local}; DROP REMOTE TABLE {local}")
            with MetastoreClient(MetastoreSettings(uris=(uri,))) as there:
                there.drop_table(name, "same", delete_data=False)
                there.drop_database(name, delete_data=False)
        near.drop_database(name, delete_data=False)


@pytest.mark.slow
@pytest.mark.parametrize("versions", ["4.2 in 3.1", "3.1 in 4.2"])
def test_a_whole_refresh_without_changes_writes_nothing(
    hive_3: str, source: EmbeddedMetastore, target: EmbeddedMetastore, tmp_path: Path, versions: str
) -> None:
    there, here = (source.uri, hive_3) if versions == "4.2 in 3.1" else (hive_3, target.uri)
    name = f"steady_{versions}".translate(str.maketrans(" .", "__"))
    local = MetastoreSettings(uris=(here,))
    with MetastoreClient(MetastoreSettings(uris=(there,))) as far, Remotes(local) as remotes:
        varied_database(far, name, tmp_path)
        link = f"{name}_link"
        via = f"VIA 'thrift' 'hive.metastore.uris' = '{there}'"
        remotes.run(f"CREATE REMOTE DATABASE {link} CONNECTED TO {name} {via}")
        with MetastoreClient(local) as near:
            assert near.list_tables(link) == ["acid", "parted", "plain", "seen"]
        check_steady(remotes, local, link)
        remotes.run(f"DROP REMOTE DATABASE {link}")
        far.drop_database(name, delete_data=False, cascade=True)
