"""Remotes between two real metastores; Hive's SQL engine joins local and remote tables."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.catalog.factories import Factory, NoConnections
from airflow_hive_federation.catalog.open import Catalogs
from airflow_hive_federation.compaction.tables import compacted_table
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql, HiveSqlError
from airflow_hive_federation.errors import (
    ConfigurationError,
    CyclicRemoteError,
    MetastoreUnreachableError,
    NameTakenError,
    NoSuchObjectError,
    NotARemoteError,
    RemoteError,
    RemoteUnavailableError,
    RemoteUnsupportedError,
)
from airflow_hive_federation.ingest import HiveStreamingConnection, StrictDelimitedInputWriter
from airflow_hive_federation.ingest.errors import InvalidTable
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes import partitions, probes
from airflow_hive_federation.remotes.definitions import SPARKS_MODE, SPARKS_REFUSAL
from airflow_hive_federation.remotes.ends import drop_link
from airflow_hive_federation.remotes.reports import RefreshReport
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.remotes.statement import Kind, Name
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.tables.write.plan import table_layout
from tests.support import catalog_contract
from tests.support.memory_catalog import MemoryCatalog
from tests.support.small_source import connected
from tests.support.text_tables import add_partition, storage, text_table

FAR = "remote_far"
NEAR = "remote_near"
HOOKS = "org.apache.hadoop.hive.ql.hooks"


@pytest.fixture(scope="module")
def far(source: EmbeddedMetastore) -> EmbeddedMetastore:
    """The metastore that remotes lead to: text tables with rows, one of them partitioned, and a view."""
    with connected(source) as client:
        client.create_database(types.Database(name=FAR, description="far away"))
        text_table(source, FAR, "city", rows={"": "1,Berlin\n2,Wien\n"})
        text_table(source, FAR, "visit", rows={"p=a": "1,x\n1,y\n", "p=b": "2,z\n"})
    add_view(source, "seen", f"SELECT `city`.`id` FROM `{FAR}`.`city`")
    return source


@pytest.fixture(scope="module")
def near(target: EmbeddedMetastore) -> EmbeddedMetastore:
    """The local metastore, with a table of its own."""
    with connected(target) as client:
        client.create_database(types.Database(name=NEAR))
    text_table(target, NEAR, "own", rows={"": "1,ours\n2,also\n"})
    return target


@pytest.fixture
def remotes(far: EmbeddedMetastore, near: EmbeddedMetastore) -> Iterator[Remotes]:
    with Remotes(MetastoreSettings(uris=(near.uri,), user="ada"), database=NEAR) as opened:
        yield opened


def add_view(metastore: EmbeddedMetastore, name: str, text: str) -> None:
    with connected(metastore) as client:
        client.create_table(
            types.Table(
                dbName=FAR,
                tableName=name,
                owner="root",
                sd=storage(None),
                partitionKeys=[],
                parameters={},
                tableType="VIRTUAL_VIEW",
                viewOriginalText=text,
                viewExpandedText=text,
            )
        )


def via(metastore: EmbeddedMetastore) -> str:
    return (
        "VIA 'org.apache.hadoop.hive.metastore.ThriftHiveMetastoreClientFactory'"
        f" 'hive.metastore.uris' = '{metastore.uri}'"
    )


def table(metastore: EmbeddedMetastore, database: str, name: str) -> Any:
    with connected(metastore) as client:
        return client.get_table(database, name)


#: The proposal's, word for word; the later two it gives without their heads.
PROPOSED = """
    CREATE REMOTE TABLE local_db.local_tbl
    CONNECTED TO remote_db.remote_tbl
    VIA 'org.apache.hadoop.hive.metastore.ThriftHiveMetastoreClientFactory'
      'hive.metastore.uris' = 'thrift://remote-hms:9083';
    CREATE REMOTE DATABASE local_db_name
    CONNECTED TO remote_db_name
    VIA 'org.apache.hadoop.hive.metastore.ThriftHiveMetastoreClientFactory'
      'hive.metastore.uris' = 'thrift://remote-hms:9083';
    CREATE REMOTE DATABASE same_db_name
      'hive.metastore.uris' = 'thrift://remote-hms:9083';
    USE local_db;
    CREATE REMOTE TABLE same_tbl
      'hive.metastore.uris' = 'thrift://remote-hms:9083';
"""


def test_the_proposals_statements_run(
    remotes: Remotes, far: EmbeddedMetastore, near: EmbeddedMetastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {
        "remote_db": "remote_tbl",
        "remote_db_name": "one",
        "same_db_name": "two",
        "local_db": "same_tbl",
    }
    resolve = socket.getaddrinfo

    def resolved(host: Any, port: Any, *rest: Any, **named: Any) -> Any:
        here = (host, port) == ("remote-hms", 9083)
        return resolve(*(("127.0.0.1", far.port) if here else (host, port)), *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    with connected(far) as client:
        for database, name in there.items():
            client.create_database(types.Database(name=database))
            text_table(far, database, name, rows={"": "1,x\n"})
    with connected(near) as client:
        client.create_database(types.Database(name="local_db"))
    remotes.run(PROPOSED)
    with connected(near) as client:
        linked = {name: client.list_tables(name) for name in ("local_db", "local_db_name", "same_db_name")}
    assert linked == {
        "local_db": ["local_tbl", "same_tbl"],
        "local_db_name": ["one"],
        "same_db_name": ["two"],
    }
    for database, name in (("local_db", "local_tbl"), ("local_db", "same_tbl"), ("local_db_name", "one")):
        assert ("  hive.metastore.uris", "thrift://remote-hms:9083", "") in remotes.run(
            f"DESCRIBE EXTENDED {database}.{name}"
        )[0].rows
    remotes.run("DROP REMOTE DATABASE local_db_name; DROP REMOTE DATABASE same_db_name")
    remotes.run("DROP REMOTE TABLE local_db.local_tbl; DROP REMOTE TABLE local_db.same_tbl")
    with connected(near) as client:
        client.drop_database("local_db", delete_data=False)
    with connected(far) as client:
        for database in there:
            client.drop_database(database, delete_data=False, cascade=True)


@pytest.mark.slow
def test_hive_joins_a_local_and_a_remote_table(
    remotes: Remotes,
    far: EmbeddedMetastore,
    near: EmbeddedMetastore,
    hive_sql_target: HiveSql,
    tmp_path: Path,
) -> None:
    (answer,) = remotes.run(f"CREATE REMOTE TABLE town CONNECTED TO {FAR}.city {via(far)}")
    assert answer.rows == ((f"Remote table {NEAR}.town created.",),)
    remotes.run(f"CREATE REMOTE TABLE {NEAR}.visit CONNECTED TO {FAR}.visit {via(far)}")
    joined = f"""SELECT t.name, o.name, v.p, count(*) FROM {NEAR}.town t JOIN {NEAR}.own o ON t.id = o.id
        JOIN {NEAR}.visit v ON v.id = t.id GROUP BY t.name, o.name, v.p"""
    assert sorted(hive_sql_target.execute(joined)) == [
        ("Berlin", "ours", "a", "2"),
        ("Wien", "also", "b", "1"),
    ]
    with pytest.raises(HiveSqlError, match="immutable"):
        hive_sql_target.execute(f"INSERT INTO {NEAR}.town VALUES (3, 'Graz')")
    (tmp_path / "more").write_text("3,Graz\n", encoding="utf-8")
    for statement in (
        f"LOAD DATA LOCAL INPATH '{tmp_path}/more' INTO TABLE {NEAR}.town",
        f"LOAD DATA LOCAL INPATH '{tmp_path}/more' OVERWRITE INTO TABLE {NEAR}.town",
        f"LOAD DATA LOCAL INPATH '{tmp_path}/more' INTO TABLE {NEAR}.visit PARTITION (p='a')",
        f"INSERT OVERWRITE TABLE {NEAR}.town SELECT 3, 'Graz'",
        f"INSERT OVERWRITE TABLE {NEAR}.town SELECT * FROM {NEAR}.town WHERE false",
        f"INSERT OVERWRITE TABLE {NEAR}.visit PARTITION (p='a') SELECT 3, 'x'",
        f"TRUNCATE TABLE {NEAR}.town",
    ):
        with pytest.raises(HiveSqlError):
            hive_sql_target.execute(statement)
    assert len(hive_sql_target.execute(f"SELECT * FROM {NEAR}.town")) == 2
    assert len(hive_sql_target.execute(f"SELECT * FROM {NEAR}.visit")) == 3
    with MetastoreClient(MetastoreSettings(uris=(near.uri,))) as client:
        for refuse in (
            table_layout,
            lambda described: compacted_table(client, described.dbName, described.tableName, None),
        ):
            with pytest.raises(ConfigurationError, match=rf"stands for the remote table {FAR}\.city"):
                refuse(client.get_table(NEAR, "town"))
    with pytest.raises(InvalidTable, match=rf"stands for the remote table {FAR}\.city"):
        stream_into(near, "town")
    # A remote database is marked once more, for a Hive that heeds it.
    remotes.run(f"CREATE REMOTE DATABASE mirrored CONNECTED TO {FAR} {via(far)}")
    hive_sql_target.set("hive.exec.pre.hooks", f"{HOOKS}.EnforceReadOnlyDatabaseHook")
    with pytest.raises(HiveSqlError, match=r"(?i)read.?only"):
        hive_sql_target.execute("INSERT OVERWRITE TABLE mirrored.city SELECT 3, 'Graz'")
    hive_sql_target.set("hive.exec.pre.hooks", "")
    remotes.run("DROP REMOTE DATABASE mirrored")
    # Hive drops a link, not what it leads to; nor do we.
    hive_sql_target.execute(f"DROP TABLE {NEAR}.town")
    remotes.run(f"DROP REMOTE TABLE {NEAR}.visit")
    for name in ("city/data", "visit/p=a/data", "visit/p=b/data"):
        assert (far.external_warehouse / FAR / name).exists()
    assert table(far, FAR, "city").parameters["colour"] == "red"


def stream_into(metastore: EmbeddedMetastore, name: str) -> None:
    builder = HiveStreamingConnection.new_builder().with_database(NEAR).with_table(name)
    writer = StrictDelimitedInputWriter(field_delimiter=",")
    builder.with_record_writer(writer).with_conf(MetastoreSettings(uris=(metastore.uri,))).connect()


def test_a_link_has_what_the_remote_has(
    remotes: Remotes, far: EmbeddedMetastore, near: EmbeddedMetastore
) -> None:
    remotes.run(f"CREATE REMOTE TABLE whole CONNECTED TO {FAR}.visit {via(far)}")
    made, there = table(near, NEAR, "whole"), table(far, FAR, "visit")
    assert made.tableType == "EXTERNAL_TABLE"
    assert str(made.sd.location).startswith(f"file:{near.external_warehouse}/")
    assert made.sd.serdeInfo.parameters == {**there.sd.serdeInfo.parameters, SPARKS_MODE: SPARKS_REFUSAL}
    assert made.parameters["external.table.purge"] == "false"
    assert made.parameters["colour"] == "red"
    assert made.owner == "ada"
    with connected(near) as client:
        places = {partition.sd.location for partition in client.iter_partitions(NEAR, "whole")}
    with connected(far) as client:
        assert places == {partition.sd.location for partition in client.iter_partitions(FAR, "visit")}
    # The same statement again changes nothing with IF NOT EXISTS, and fails without.
    remotes.run(f"CREATE REMOTE TABLE IF NOT EXISTS whole CONNECTED TO {FAR}.visit {via(far)}")
    with pytest.raises(
        NameTakenError, match=r"Remote table remote_near\.whole exists\. Remedy: Write IF NOT"
    ):
        remotes.run(f"CREATE REMOTE TABLE whole CONNECTED TO {FAR}.visit {via(far)}")
    remotes.run("DROP REMOTE TABLE whole; DROP REMOTE TABLE IF EXISTS whole")


def statistics_of(database: str, name: str, partition: str, distinct: int) -> types.ColumnStatistics:
    data = types.LongColumnStatsData(lowValue=1, highValue=9, numNulls=0, numDVs=distinct)
    return types.ColumnStatistics(
        statsDesc=types.ColumnStatisticsDesc(
            isTblLevel=False, dbName=database, tableName=name, partName=partition
        ),
        statsObj=[
            types.ColumnStatisticsObj(
                colName="id", colType="int", statsData=types.ColumnStatisticsData(longStats=data)
            )
        ],
        engine="hive",
    )


def test_a_refresh_applies_what_changed(
    remotes: Remotes, far: EmbeddedMetastore, near: EmbeddedMetastore
) -> None:
    text_table(far, FAR, "growing", rows={"p=a": "1,x\n", "p=b": "2,y\n"})
    remotes.run(f"CREATE REMOTE TABLE growing CONNECTED TO {FAR}.growing {via(far)}")
    name = Name(table="growing")
    assert not remotes.refresh(Kind.TABLE, name).changed
    add_partition(far, FAR, "growing", "p=c")
    with connected(far) as client:
        client.drop_partitions(FAR, "growing", ["p=a"], delete_data=False)
        (moved,) = client.iter_partitions(FAR, "growing", names=["p=b"])
        moved.sd.location += "_moved"  # type: ignore[union-attr,operator]
        client.alter_partitions(FAR, "growing", [moved])
    report = remotes.refresh(Kind.TABLE, name)
    assert not report.whole
    assert (report.partitions_added, report.partitions_altered, report.partitions_dropped) == (1, 1, 1)
    with connected(near) as client:
        here = {
            partition.values[0]: partition.sd.location
            for partition in client.iter_partitions(NEAR, "growing")
        }  # type: ignore[union-attr,index]
    assert sorted(here) == ["b", "c"]
    assert here["b"].endswith("_moved")  # type: ignore[union-attr]
    with connected(far) as client:
        (moved,) = client.iter_partitions(FAR, "growing", names=["p=b"])
        buckets = {"numBuckets": 4, "bucketCols": ["id"], "sortCols": [types.Order(col="name", order=1)]}
        for fact, value in buckets.items():
            setattr(moved.sd, fact, value)
        client.alter_partitions(FAR, "growing", [moved])
    assert remotes.refresh(Kind.TABLE, name).partitions_altered == 1
    with connected(near) as client:
        (sorted_rows,) = client.iter_partitions(NEAR, "growing", names=["p=b"])
    assert {fact: getattr(sorted_rows.sd, fact) for fact in buckets} == buckets
    assert not remotes.refresh(Kind.TABLE, name, whole=True).changed
    for distinct in (5, 7):
        with connected(far) as client:
            client.set_column_statistics([statistics_of(FAR, "growing", "p=b", distinct)])
        report = remotes.refresh(Kind.TABLE, name)
        assert (report.whole, report.partitions_altered) == (False, 1)
        with connected(near) as client:
            copied = client.get_partitions_column_statistics(NEAR, "growing", ["p=b", "p=c"])
        assert [column.statsData.longStats.numDVs for column in copied["p=b"]] == [distinct]  # type: ignore[union-attr]
        assert not remotes.refresh(Kind.TABLE, name, whole=True).changed
    with connected(far) as client:
        (renamed,) = client.iter_partitions(FAR, "growing", names=["p=c"])
        renamed.values = ["d"]
        client.call("rename_partition", FAR, "growing", ["c"], renamed)
    report = remotes.refresh(Kind.TABLE, name)
    assert not report.whole
    assert (report.partitions_added, report.partitions_dropped) == (1, 1)
    with connected(near) as client:
        assert client.list_partition_names(NEAR, "growing") == ["p=b", "p=d"]
    # A column more, and then a type that no metastore lets a table change to.
    for columns in (("id int", "name string", "more string"), ("id boolean", "name int")):
        with connected(far) as client:
            there: Any = client.get_table(FAR, "growing")
            there.sd.cols = [
                types.FieldSchema(name=column.split()[0], type=column.split()[1]) for column in columns
            ]
            drop_link(client, Name(database=FAR, table="growing"))
            client.create_table(there)
        report = remotes.refresh(Kind.TABLE, name)
        assert report.altered == ["growing"]
        assert [f"{column.name} {column.type}" for column in table(near, NEAR, "growing").sd.cols] == list(
            columns
        )
    # All partitions went with the tables.
    with connected(near) as client:
        assert client.list_partition_names(NEAR, "growing") == []
    remotes.run("DROP REMOTE TABLE growing")
    with connected(far) as client:
        client.drop_table(FAR, "growing", delete_data=False)


class Switched(NoConnections):
    """A connection whose host another metastore takes over."""

    def __init__(self, metastore: EmbeddedMetastore) -> None:
        self.metastore_of_today = metastore

    def metastore(self, connection_id: str) -> MetastoreSettings:
        assert connection_id == "site"
        return MetastoreSettings(uris=(self.metastore_of_today.uri,))


def test_an_address_that_leads_to_another_metastore(far: EmbeddedMetastore, near: EmbeddedMetastore) -> None:
    database, links = "remote_site", "remote_links"
    for metastore in (far, near):
        with connected(metastore) as client:
            client.create_database(types.Database(name=database))
        text_table(metastore, database, "t", rows={"p=a": "1,x\n"})
    site, local = Switched(far), MetastoreSettings(uris=(near.uri,))

    def places() -> list[str]:
        with connected(near) as client:
            return [str(part.sd and part.sd.location) for part in client.iter_partitions(links, "t")]

    with Remotes(local, connections=site) as remotes:
        remotes.run(
            f"CREATE REMOTE DATABASE {links} CONNECTED TO {database} VIA 'thrift' "
            "'hive.federation.connection' = 'site'"
        )
    before = places()
    site.metastore_of_today = near
    with Remotes(local, connections=site) as remotes:
        name = Name(database=links)
        assert probes.pending(remotes, Kind.DATABASE, name)
        report = remotes.refresh(Kind.DATABASE, name)
        assert (report.whole, report.partitions_altered) == (True, 1)
        assert places() != before
        link = remotes.link(Kind.DATABASE, name)
        with connected(near) as client:
            assert link.path == (client.call("get_metastore_db_uuid"),)
        assert not remotes.refresh(Kind.DATABASE, name).whole
        remotes.run(f"DROP REMOTE DATABASE {links}")


def test_a_remote_database_carries_all_tables(
    remotes: Remotes, far: EmbeddedMetastore, near: EmbeddedMetastore
) -> None:
    add_view(far, "abroad", "SELECT `n`.`id` FROM `elsewhere`.`n`")
    text_table(far, FAR, "kept", rows={"": ""})
    with connected(far) as client:
        kept: Any = client.get_table(FAR, "kept")
        kept.parameters = {**kept.parameters, "storage_handler": "x.JdbcStorageHandler"}
        client.alter_table(FAR, "kept", kept)
    (answer,) = remotes.run(f"CREATE REMOTE DATABASE mirror CONNECTED TO {FAR} {via(far)}")
    assert "3 tables" in answer.rows[0][0]
    assert "abroad (it reads elsewhere.n, which is of another database)" in answer.rows[0][0]
    assert "kept (remote_far.kept cannot be linked: it is kept by x.JdbcStorageHandler" in answer.rows[0][0]
    described = remotes.describe(Kind.DATABASE, Name(database="mirror"))
    assert described.rows[-3:] == (
        ("# Left Out", "", ""),
        ("abroad", "", "it reads elsewhere.n, which is of another database"),
        ("kept", "", "it is kept by x.JdbcStorageHandler, not in files"),
    )
    with connected(far) as client:
        for name in ("abroad", "kept"):
            client.drop_table(FAR, name, delete_data=False)
    text_table(far, FAR, "late", rows={"": "7,late\n"})
    report = remotes.refresh(Kind.DATABASE, Name(database="mirror"))
    assert (report.whole, report.created) == (False, ["late"])
    with connected(far) as client:
        renamed: Any = client.get_table(FAR, "late")
        renamed.tableName = "later"
        client.alter_table(FAR, "late", renamed)
    report = remotes.refresh(Kind.TABLE, Name(database="mirror", table="late"))
    assert (report.created, report.dropped) == (["later"], ["late"])
    # Somebody's own table in it stays out of it, and keeps the database from being dropped.
    text_table(near, "mirror", "ours", rows={"": "1,ours\n"})
    text_table(far, FAR, "ours", rows={"": "1,theirs\n"})
    report = remotes.refresh(Kind.DATABASE, Name(database="mirror"))
    assert report.skipped == {"ours": "the local name belongs to another table"}
    with pytest.raises(Exception, match="holds tables that are not remotes: ours"):
        remotes.run("DROP REMOTE DATABASE mirror")
    with connected(near) as client:
        client.drop_table("mirror", "ours", delete_data=False)
    with connected(far) as client:
        client.drop_table(FAR, "ours", delete_data=False)
        client.drop_table(FAR, "later", delete_data=False)
    shown = remotes.run("SHOW REMOTES IN mirror")[0].rows
    assert [row[1] for row in shown] == [
        "mirror",
        "mirror.city",
        "mirror.later",
        "mirror.seen",
        "mirror.visit",
    ]
    report = remotes.refresh(Kind.DATABASE, Name(database="mirror"), whole=True)
    assert (report.whole, report.dropped, report.created, report.altered) == (True, ["later"], [], [])
    remotes.run("DROP REMOTE DATABASE mirror")
    with connected(near) as client:
        assert "mirror" not in client.list_databases()
    assert (far.external_warehouse / FAR / "city" / "data").exists()


def test_describe_and_show(remotes: Remotes, far: EmbeddedMetastore, near: EmbeddedMetastore) -> None:
    remotes.run(f"CREATE REMOTE TABLE shown CONNECTED TO {FAR}.visit {via(far)}")
    described = remotes.run("DESCRIBE FORMATTED shown")[0].rows
    assert described[:4] == (
        ("id", "int", ""),
        ("name", "string", ""),
        ("# Partition Information", "", ""),
        ("p", "string", ""),
    )
    assert ("  hive.metastore.uris", far.uri, "") in described
    assert not any(row[0] == "Remote Is Down:" for row in described)
    created = remotes.run("SHOW CREATE REMOTE TABLE shown")[0].rows[0][0]
    remotes.run("DROP REMOTE TABLE shown")
    remotes.run(created)
    # The remote goes away: the link still describes it, and its state shows that.
    with connected(near) as client:
        link: Any = client.get_table(NEAR, "shown")
        gone = link.parameters["hive.federation.remote.properties"].replace(str(far.port), "1")
        link.parameters["hive.federation.remote.properties"] = gone
        client.alter_table(NEAR, "shown", link)
    described = remotes.run("DESCRIBE shown")[0].rows
    assert described[0] == ("id", "int", "")
    assert any(row[0] == "Remote Is Down:" and "127.0.0.1:1" in row[1] for row in described)
    with pytest.raises(RemoteUnavailableError, match=f"Remote {NEAR}.shown does not answer"):
        remotes.run("REFRESH REMOTE TABLE shown")
    remotes.run(f"ALTER REMOTE TABLE shown SET 'hive.metastore.uris' = '{far.uri}'")
    assert not remotes.refresh(Kind.TABLE, Name(table="shown")).changed
    remotes.run("DROP REMOTE TABLE shown")


def test_what_is_refused(remotes: Remotes, far: EmbeddedMetastore, near: EmbeddedMetastore) -> None:
    for statement, error in (
        (f"CREATE REMOTE TABLE own CONNECTED TO {FAR}.city {via(far)}", NameTakenError),
        (f"CREATE REMOTE TABLE IF NOT EXISTS own CONNECTED TO {FAR}.city {via(far)}", NameTakenError),
        (f"CREATE REMOTE DATABASE {NEAR} CONNECTED TO {FAR} {via(far)}", NameTakenError),
        (f"CREATE REMOTE TABLE v CONNECTED TO {FAR}.seen {via(far)}", RemoteUnsupportedError),
        (f"CREATE REMOTE TABLE n CONNECTED TO {FAR}.nothing {via(far)}", NoSuchObjectError),
        (f"CREATE REMOTE DATABASE n CONNECTED TO nothing {via(far)}", NoSuchObjectError),
        (f"CREATE REMOTE TABLE nowhere.n CONNECTED TO {FAR}.city {via(far)}", NoSuchObjectError),
        ("CREATE REMOTE TABLE n VIA 'thrifft'", ConfigurationError),
        ("CREATE REMOTE TABLE n", ConfigurationError),
        ("CREATE REMOTE TABLE n 'hive.metastore.uri' = 'thrift://h:1'", ConfigurationError),
        ("DROP REMOTE TABLE own", NotARemoteError),
        ("DROP REMOTE TABLE IF EXISTS own", NotARemoteError),
        ("REFRESH REMOTE DATABASE nothing", NotARemoteError),
        ("DESCRIBE own", NotARemoteError),
    ):
        with pytest.raises(error):
            remotes.run(statement)
    with pytest.raises(NoSuchObjectError, match=rf"The remote of {NEAR}\.n has no table {FAR}\.nothing"):
        remotes.run(f"CREATE REMOTE TABLE n CONNECTED TO {FAR}.nothing {via(far)}")
    with connected(near) as client:
        assert client.list_tables(NEAR) == ["own"]


def test_a_remote_that_leads_back_is_refused(
    remotes: Remotes, far: EmbeddedMetastore, near: EmbeddedMetastore
) -> None:
    with Remotes(MetastoreSettings(uris=(far.uri,)), database=FAR) as there:
        there.run(f"CREATE REMOTE TABLE back CONNECTED TO {NEAR}.own {via(near)}")
        try:
            with pytest.raises(CyclicRemoteError, match="leads back"):
                remotes.run(f"CREATE REMOTE TABLE circle CONNECTED TO {FAR}.back {via(far)}")
        finally:
            there.run("DROP REMOTE TABLE back")
    place = local_path(table(near, NEAR, "own").sd.location)
    assert place is not None
    assert (Path(place) / "data").exists()


def test_partitions_in_several_batches(
    remotes: Remotes, far: EmbeddedMetastore, near: EmbeddedMetastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "PARTITIONS_PER_BATCH", 120)
    place = f"file:{far.external_warehouse}/many"

    def many(numbers: range) -> list[types.Partition]:
        return [
            types.Partition(
                dbName=FAR, tableName="many", values=[f"{number:04}"], sd=storage(f"{place}/{number}")
            )
            for number in numbers
        ]

    text_table(far, FAR, "many", rows={"p=first": ""})
    with connected(far) as client:
        client.add_partitions(many(range(200)))
    remotes.run(f"CREATE REMOTE TABLE many CONNECTED TO {FAR}.many {via(far)}")
    name = Name(table="many")
    assert len(remotes.local_partition_names(Name(database=NEAR, table="many"))) == 201
    with connected(far) as client:
        client.drop_partitions(FAR, "many", ["p=0000", "p=first"], delete_data=False)
        client.add_partitions(many(range(200, 300)))
        (moved,) = client.iter_partitions(FAR, "many", names=["p=0199"])
        moved.sd.location = f"{place}/moved"  # type: ignore[union-attr]
        client.alter_partitions(FAR, "many", [moved])
    with connected(near) as client:
        client.drop_partitions(NEAR, "many", ["p=0100"], delete_data=False)
    # Everything is compared, which finds what was done to the link, too.
    report = remotes.refresh(Kind.TABLE, name, whole=True)
    assert (report.partitions_added, report.partitions_altered, report.partitions_dropped) == (101, 1, 2)
    assert not remotes.refresh(Kind.TABLE, name, whole=True).changed
    with connected(far) as client:
        client.drop_partitions(
            FAR, "many", [f"p={number:04}" for number in range(100, 280)], delete_data=False
        )
    report = remotes.refresh(Kind.TABLE, name)
    assert (report.whole, report.partitions_dropped) == (False, 180)
    with connected(far) as there, connected(near) as here:
        assert here.list_partition_names(NEAR, "many") == there.list_partition_names(FAR, "many")
    remotes.run("DROP REMOTE TABLE many")


class Failing(MemoryCatalog):
    """A catalog that goes away after so many questions about tables."""

    answers = 0

    def get_tables(self, database: str, names: Sequence[str]) -> list[types.Table]:
        return [self.get_table(database, name) for name in names]

    def get_partitions(
        self, database: str, table: str, names: Sequence[str] | None = None
    ) -> list[types.Partition]:
        if self.answers == 0:
            raise MetastoreUnreachableError("Gone.")
        self.answers -= 1
        return super().get_partitions(database, table, names)


def test_a_remote_that_vanishes_half_way(near: EmbeddedMetastore) -> None:
    """Every interruption leaves something that the next try goes on with."""
    failing = Failing("elsewhere")
    failing.put_database(types.Database(name="d"))
    root = f"file:{near.external_warehouse}/vanishing"
    for number in range(4):
        table, partitions = catalog_contract.tables(root)["parted"]
        table.dbName, table.tableName = "d", f"t{number}"
        failing.put_table(table, partitions)
    factory = Factory(name="failing", class_names=(), properties={}, open=lambda _: failing)
    settings = MetastoreSettings(uris=(near.uri,))
    statement = "CREATE REMOTE DATABASE vanishing CONNECTED TO d VIA 'failing'"
    for answers in (0, 1, 2):
        failing.answers = answers
        with Remotes(settings, catalogs=Catalogs(factories=(factory,))) as remotes:
            with pytest.raises(RemoteUnavailableError, match="Remote vanishing does not answer: Gone"):
                remotes.run(statement)
            (row, *_) = remotes.run("SHOW REMOTES IN vanishing")[0].rows
            assert "not complete" in row[4]
    failing.answers = 1000
    with Remotes(settings, catalogs=Catalogs(factories=(factory,))) as remotes:
        remotes.run(statement)
        with connected(near) as client:
            assert sorted(client.list_tables("vanishing")) == ["t0", "t1", "t2", "t3"]
            for number in range(4):
                assert len(client.list_partition_names("vanishing", f"t{number}")) == 3
        # Events lost, and a catalog without any change: everything is compared, nothing is written.
        failing.put_table(*catalog_contract_table(root))
        failing.forget_events()
        report = remotes.refresh(Kind.DATABASE, Name(database="vanishing"))
        assert (report.whole, report.created) == (True, ["parted"])
        report = remotes.refresh(Kind.DATABASE, Name(database="vanishing"), whole=True)
        assert not report.changed
        # A refresh that made the link anew and was killed before its partitions came: the names show it.
        with connected(near) as client:
            client.drop_partitions("vanishing", "t1", ["p=a"], delete_data=False)
        (changed,) = failing.get_tables("d", ["t1"])
        changed.parameters = {**(changed.parameters or {}), "note": "changed"}
        failing.put_table(changed, failing.get_partitions("d", "t1"))
        report = remotes.refresh(Kind.DATABASE, Name(database="vanishing"))
        assert (report.altered, report.partitions_added) == (["t1"], 1)
        remotes.run("DROP REMOTE DATABASE vanishing")


class Counted(MemoryCatalog):
    """A catalog that returns statistics by calls of their own, as Glue does."""

    def table_statistics(self, table: types.Table) -> list[types.ColumnStatisticsObj]:
        column = table.sd.cols[0]  # type: ignore[union-attr,index]
        data = types.ColumnStatisticsData(longStats=types.LongColumnStatsData(numNulls=1, numDVs=7))
        return [types.ColumnStatisticsObj(colName=column.name, colType=column.type, statsData=data)]


def test_what_the_local_metastore_does_not_take_is_left_out(near: EmbeddedMetastore) -> None:
    strange = Counted()
    strange.put_database(types.Database(name="d"))
    root = f"file:{near.external_warehouse}/strange"
    for name, column_type in (("fine", "int"), ("straße", "int"), ("worse", "nonsense")):
        table, _ = catalog_contract.tables(root)["plain"]
        table.dbName, table.tableName = "d", name
        table.sd.cols = [types.FieldSchema(name="größe", type=column_type)]  # type: ignore[union-attr]
        strange.put_table(table)
    factory = Factory(name="strange", class_names=(), properties={}, open=lambda _: strange)
    settings = MetastoreSettings(uris=(near.uri,))
    with Remotes(settings, catalogs=Catalogs(factories=(factory,))) as remotes:
        (answer,) = remotes.run("CREATE REMOTE DATABASE strange CONNECTED TO d VIA 'strange'")
        assert "with 1 table. Left out: straße (" in answer.rows[0][0]
        assert "; worse (" in answer.rows[0][0]
        assert "nonsense" in answer.rows[0][0]
        with connected(near) as client:
            (statistics,) = client.get_table_column_statistics("strange", "fine").tableStats or []
        assert statistics.colName == "größe"
        assert statistics.statsData.longStats.numDVs == 7  # type: ignore[union-attr]
        remotes.run("DROP REMOTE DATABASE strange")


def test_garbage_has_the_remotes_name(remotes: Remotes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)

        thread = threading.Thread(target=answer)
        thread.start()
        uri = f"thrift://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(RemoteError, match=rf"Remote {NEAR}\.junk: .*is not a Hive metastore"):
            remotes.run(f"CREATE REMOTE TABLE junk CONNECTED TO a.b 'hive.metastore.uris' = '{uri}'")
        thread.join()


def test_a_mute_remote_ends_by_its_own_deadline(remotes: Remotes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        properties = (
            f"'hive.metastore.uris' = 'thrift://127.0.0.1:{listener.getsockname()[1]}'"
            " 'hive.metastore.client.socket.timeout' = '100ms'"
        )
        with pytest.raises(RemoteUnavailableError, match=rf"Remote {NEAR}\.mute does not answer"):
            remotes.run(f"CREATE REMOTE TABLE mute CONNECTED TO a.b {properties}")


def catalog_contract_table(root: str) -> tuple[types.Table, list[types.Partition]]:
    table, partitions = catalog_contract.tables(root)["parted"]
    table.dbName = "d"
    return table, partitions


def test_several_remotes_fail_by_their_own_names(
    remotes: Remotes, far: EmbeddedMetastore, near: EmbeddedMetastore
) -> None:
    remotes.run(f"CREATE REMOTE TABLE there CONNECTED TO {FAR}.city {via(far)}")
    dead = "'hive.metastore.uris' = 'thrift://127.0.0.1:1'"
    for _ in range(3):
        with pytest.raises(RemoteUnavailableError, match=rf"Remote {NEAR}\.dead does not answer"):
            remotes.run(f"CREATE REMOTE TABLE dead CONNECTED TO x.y {dead}")
    with pytest.raises(RemoteUnavailableError, match=rf"Remote {NEAR}\.dead did not answer 3 times in a row"):
        remotes.run(f"CREATE REMOTE TABLE dead CONNECTED TO x.y {dead}")
    assert not remotes.refresh(Kind.TABLE, Name(table="there")).changed
    remotes.run("DROP REMOTE TABLE there")
    with connected(near) as client:
        assert "dead" not in client.list_tables(NEAR)


def test_views_of_a_remote_database(
    remotes: Remotes, far: EmbeddedMetastore, near: EmbeddedMetastore, hive_sql_target: HiveSql
) -> None:
    add_view(far, "onview", f"SELECT `seen`.`id` FROM `{FAR}`.`seen` WHERE `seen`.`id` > 1")
    remotes.run(f"CREATE REMOTE DATABASE viewed CONNECTED TO {FAR} {via(far)}")
    assert sorted(hive_sql_target.execute("SELECT * FROM viewed.seen")) == [("1",), ("2",)]
    assert hive_sql_target.execute("SELECT * FROM viewed.onview") == [("2",)]
    assert "viewed" in str(table(near, "viewed", "onview").viewExpandedText)
    report = remotes.refresh(Kind.DATABASE, Name(database="viewed"), whole=True)
    assert not report.changed

    def change(text: str) -> RefreshReport:
        with connected(far) as client:
            there: Any = client.get_table(FAR, "onview")
            there.viewExpandedText = there.viewOriginalText = text
            client.alter_table(FAR, "onview", there)
        return remotes.refresh(Kind.DATABASE, Name(database="viewed"))

    assert change(f"SELECT `seen`.`id` FROM `{FAR}`.`seen` WHERE `seen`.`id` = 1").altered == ["onview"]
    assert hive_sql_target.execute("SELECT * FROM viewed.onview") == [("1",)]
    # What it was before would show other rows than the remote.
    report = change("SELECT `n`.`id` FROM `elsewhere`.`n`")
    assert (report.dropped, report.skipped) == (
        ["onview"],
        {"onview": "it reads elsewhere.n, which is of another database"},
    )
    assert change(f"SELECT `city`.`id` FROM `{FAR}`.`city`").created == ["onview"]
    remotes.run("DROP REMOTE DATABASE viewed")
    with connected(far) as client:
        client.drop_table(FAR, "onview", delete_data=False)
