"""Real clients through the Thrift front, on Hive 4.2: Spark (Hive 2.3), hmsclient, pyiceberg, Hive SQL."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hmsclient import HMSClient
from hmsclient.genthrift.hive_metastore import ttypes as old
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from thrift.Thrift import TApplicationException

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import MetastoreError
from airflow_hive_federation.gateway.serving import Serving
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.dump.drain import open_transactions
from tests.support.gateway_front import Behind, gateway
from tests.support.gateway_spark import GatewaySpark
from tests.support.older_expressions import answers_expressions
from tests.support.small_source import make_table


@pytest.fixture(scope="module")
def front(source: EmbeddedMetastore) -> Iterator[Serving]:
    with gateway({"upstream": {"uris": [source.uri]}}) as serving:
        yield serving


def hms(serving: Serving) -> HMSClient:
    host, port = serving.fronts[0].uri.removeprefix("thrift://").split(":")
    return HMSClient(host=host, port=int(port))


def test_hmsclient_reads_and_writes(front: Serving, tmp_path: Path) -> None:
    with hms(front) as client:
        client.create_database(old.Database(name="gateway_hms", locationUri=f"{tmp_path.as_uri()}/db"))
        assert "gateway_hms" in client.get_all_databases()
        column = old.FieldSchema(name="id", type="int", comment="")
        serde = old.SerDeInfo(serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe")
        storage = old.StorageDescriptor(
            cols=[column],
            location=f"{tmp_path.as_uri()}/t",
            inputFormat="org.apache.hadoop.mapred.TextInputFormat",
            outputFormat="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
            serdeInfo=serde,
            parameters={},
        )
        table = old.Table(
            dbName="gateway_hms",
            tableName="t",
            owner="me",
            sd=storage,
            partitionKeys=[old.FieldSchema(name="p", type="string", comment="")],
            parameters={"EXTERNAL": "TRUE"},
            tableType="EXTERNAL_TABLE",
        )
        client.create_table(table)
        # Hive 4 has neither of these two.
        definition = client.get_table("gateway_hms", "t")
        assert (definition.tableName, definition.owner, definition.sd.cols[0].name) == ("t", "me", "id")
        assert [table.tableName for table in client.get_table_objects_by_name("gateway_hms", ["t"])] == ["t"]
        part = old.Partition(
            values=["a"], dbName="gateway_hms", tableName="t", sd=definition.sd, parameters={}
        )
        part.sd.location += "/p=a"
        client.add_partitions([part])
        assert client.get_partition_names("gateway_hms", "t", 10) == ["p=a"]
        assert len(client.get_partitions_by_names("gateway_hms", "t", ["p=a"])) == 1
        definition.parameters["changed"] = "yes"
        client.alter_table("gateway_hms", "t", definition)
        assert client.get_table("gateway_hms", "t").parameters["changed"] == "yes"
        with pytest.raises(old.NoSuchObjectException):
            client.get_table("gateway_hms", "nothing")
        calls = {
            "get_indexes": ("gateway_hms", "t", 10),
            "get_index_names": ("gateway_hms", "t", 10),
            "get_index_by_name": ("gateway_hms", "t", "i"),
            "drop_index_by_name": ("gateway_hms", "t", "i", True),
            "add_index": (old.Index(indexName="i"), definition),
            "alter_index": ("gateway_hms", "t", "i", old.Index(indexName="i")),
        }
        for method, args in calls.items():
            with pytest.raises(TApplicationException, match="Hive has had no indexes since version 3"):
                getattr(client, method)(*args)
        client.drop_table("gateway_hms", "t", True)
        client.drop_database("gateway_hms", True, True)
        assert "gateway_hms" not in client.get_all_databases()


def test_pyiceberg_reads_and_writes(front: Serving, tmp_path: Path) -> None:
    catalog = HiveCatalog("gateway", uri=front.fronts[0].uri, warehouse=tmp_path.as_uri())
    catalog.create_namespace("gateway_iceberg", {"location": f"{tmp_path.as_uri()}/db"})
    table = catalog.create_table("gateway_iceberg.t", Schema(NestedField(1, "a", LongType())))
    table.append(pa.table({"a": [1, 2, 3]}))
    catalog.rename_table("gateway_iceberg.t", "gateway_iceberg.u")
    # pyiceberg finds a table by get_table, which Hive 4 lacks.
    assert catalog.load_table("gateway_iceberg.u").scan().to_arrow()["a"].to_pylist() == [1, 2, 3]
    assert catalog.list_tables("gateway_iceberg") == [("gateway_iceberg", "u")]
    catalog.drop_table("gateway_iceberg.u")
    catalog.drop_namespace("gateway_iceberg")


def test_expressions_of_older_clients_are_answered(front: Serving, source: EmbeddedMetastore) -> None:
    answers_expressions(front.fronts[0].uri, source.uri)


def test_hive_sql_writes_acid_tables(front: Serving, source: EmbeddedMetastore, tmp_path: Path) -> None:
    behind = Behind(source, front.fronts[0].uri, tmp_path)
    # The metastore is shared with other tests.
    with MetastoreClient(MetastoreSettings(uris=(source.uri,))) as client:
        before = open_transactions(client.get_open_txns())
    with HiveSql(behind) as sql:
        sql.execute("create database gateway_sql")
        sql.execute(
            "create table gateway_sql.a (id int, n string) partitioned by (p int) "
            "stored as orc tblproperties ('transactional' = 'true')"
        )
        sql.execute("insert into gateway_sql.a partition (p=1) values (1, 'a'), (2, 'b')")
        sql.execute("insert into gateway_sql.a partition (p=2) values (3, 'c')")
        sql.execute("update gateway_sql.a set n = 'x' where id = 2")
        sql.execute("delete from gateway_sql.a where id = 1")
        sql.execute(
            "merge into gateway_sql.a t using (select 3 id, 'm' n union all select 4, 'new') s "
            "on t.id = s.id when matched then update set n = s.n "
            "when not matched then insert values (s.id, s.n, 2)"
        )
        rows = sql.execute("select id, n, p from gateway_sql.a order by id")
        assert rows == [("2", "x", "1"), ("3", "m", "2"), ("4", "new", "2")]
        sql.execute("alter table gateway_sql.a add columns (extra int)")
        sql.execute("create view gateway_sql.v as select id from gateway_sql.a")
        sql.execute("alter table gateway_sql.a drop partition (p=1)")
        assert sql.execute("select count(*) from gateway_sql.v") == [("2",)]
        assert sql.execute("show locks") is not None
        partitions_are_repaired(sql, tmp_path / "loose")
    with MetastoreClient(MetastoreSettings(uris=(source.uri,))) as client:
        assert (client.get_table("gateway_sql", "a").parameters or {})["transactional"] == "true"
        assert client.get_valid_write_ids(["gateway_sql.a"])["gateway_sql.a"].writeIdHighWaterMark >= 5
        assert set(open_transactions(client.get_open_txns())) <= set(before)


def partitions_are_repaired(sql: HiveSql, location: Path) -> None:
    """``MSCK`` configures its connection (``setMetaConf``), and names stale partitions as no query does."""
    sql.execute(
        "create external table gateway_sql.loose (id int) partitioned by (p string, q int) "
        f"stored as textfile location '{location.as_uri()}'"
    )
    for name in ("p=a/q=1", "p=b/q=2", "p=c d/q=3"):
        (location / name).mkdir(parents=True)
    sql.execute("msck repair table gateway_sql.loose")
    shown = [("p=a/q=1",), ("p=b/q=2",), ("p=c d/q=3",)]
    assert sorted(sql.execute("show partitions gateway_sql.loose")) == shown
    shutil.rmtree(location / "p=b")
    (location / "p=e/q=5").mkdir(parents=True)
    sql.execute("msck repair table gateway_sql.loose sync partitions")
    shown = [("p=a/q=1",), ("p=c d/q=3",), ("p=e/q=5",)]
    assert sorted(sql.execute("show partitions gateway_sql.loose")) == shown
    # The metastore's own class still reads the expressions of queries, on the connections of others.
    assert sql.execute("select count(*) from gateway_sql.loose where p = 'a'") == [("0",)]
    sql.execute("alter table gateway_sql.loose drop partition (p = 'a')")
    assert len(sql.execute("show partitions gateway_sql.loose")) == 2


def test_rules_hold_where_hive_takes_names_as_patterns(source: EmbeddedMetastore) -> None:
    """Tables by patterns, all privileges of a user, and counts of events: each would show other databases."""
    place = types.HiveObjectRef
    grants = {
        "gateway_pay": place(objectType=types.HiveObjectType.TABLE, objectName="wages", partValues=[]),
        "gateway_pub": place(objectType=types.HiveObjectType.TABLE, objectName="open", partValues=[]),
    }
    rules = {
        "expose": {"tables": ["*", "!*.tmp_*"]},
        "rule": [{"access": ["read", "write", "admin"], "databases": ["*", "!gateway_pay"]}],
    }
    with (
        MetastoreClient(MetastoreSettings(uris=(source.uri,))) as owner,
        gateway({"upstream": {"uris": [source.uri]}, **rules}) as serving,
        MetastoreClient(MetastoreSettings(uris=(serving.fronts[0].uri,))) as client,
    ):
        for database, granted in grants.items():
            owner.create_database(types.Database(name=database))
            granted.dbName = database
            for table in (granted.objectName or "", "tmp_x"):
                location = f"file:{source.external_warehouse}/{database}/{table}"
                make_table(owner, database, table, location=location)
            privilege = types.HiveObjectPrivilege(
                hiveObject=granted,
                principalName="gateway_bob",
                principalType=types.PrincipalType.USER,
                grantInfo=types.PrivilegeGrantInfo(
                    privilege="SELECT", createTime=1, grantor="a", grantorType=1, grantOption=False
                ),
                authorizer="a",
            )
            owner.call("grant_privileges", types.PrivilegeBag(privileges=[privilege]))

        def tables(asker: MetastoreClient, database: str, pattern: str) -> list[str]:
            request = types.GetTablesRequest(dbName=database, tablesPattern=pattern)
            found = asker.call("get_table_objects_by_name_req", request).tables
            return sorted(f"{table.dbName}.{table.tableName}" for table in found)

        # Hive itself takes the database as a pattern.
        assert "gateway_pay.wages" in tables(owner, "gateway_pa.", "wages")
        for pattern in ("gateway_pa.", "gateway_pub|gateway_pay", "*"):
            with pytest.raises(MetastoreError, match="takes the name of the database"):
                tables(client, pattern, "wages")
        assert tables(owner, "gateway_pub", "*") == ["gateway_pub.open", "gateway_pub.tmp_x"]
        assert tables(client, "gateway_pub", "*") == ["gateway_pub.open"]

        def privileges(asker: MetastoreClient) -> list[str | None]:
            # Without a type, Hive passes over the database.
            named = place(dbName="gateway_pub")
            found = asker.call("list_privileges", "gateway_bob", types.PrincipalType.USER, named)
            return sorted(str(privilege.hiveObject.dbName) for privilege in found)

        assert privileges(owner) == ["gateway_pay", "gateway_pub"]
        assert privileges(client) == ["gateway_pub"]
        everything = place(objectType=types.HiveObjectType.GLOBAL, dbName="gateway_pub")
        privilege = types.HiveObjectPrivilege(hiveObject=everything, principalName="gateway_bob")
        with pytest.raises(MetastoreError, match="a privilege is of no database"):
            client.call("grant_privileges", types.PrivilegeBag(privileges=[privilege]))
        count = types.NotificationEventsCountRequest(fromEventId=0, dbName="*")
        with pytest.raises(MetastoreError, match="counts the events of all databases"):
            client.call("get_notification_events_count", count)
        with pytest.raises(MetastoreError, match="metastore's own catalog only"):
            client.call("get_all_tables", "@spark#gateway_pub")


@pytest.mark.slow
def test_sparks_own_client_reads_and_writes(
    front: Serving, source: EmbeddedMetastore, spark_of_gateways: GatewaySpark, tmp_path: Path
) -> None:
    rows = spark_of_gateways.rows(
        front.fronts[0].uri,
        tmp_path,
        [
            f"create database gateway_spark location '{tmp_path}/db'",
            "create table gateway_spark.plain (id int, n string) stored as orc",
            "insert into gateway_spark.plain values (1, 'a'), (2, 'b')",
            "create table gateway_spark.parts (id int) partitioned by (p string) stored as parquet",
            "insert into gateway_spark.parts partition (p) values (1, 'x'), (2, 'y')",
            "select p, sum(id) from gateway_spark.parts where p > 'x' group by p",
            "alter table gateway_spark.plain add columns (more int)",
            "alter table gateway_spark.plain set tblproperties ('a' = 'b')",
            "analyze table gateway_spark.plain compute statistics for all columns",
            "select id, n, more from gateway_spark.plain order by id",
            "create view gateway_spark.v as select id from gateway_spark.plain",
            "select * from gateway_spark.v where id = 2",
            "alter table gateway_spark.parts drop partition (p='x')",
            "show partitions gateway_spark.parts",
            "alter table gateway_spark.plain rename to gateway_spark.renamed",
            "show tables in gateway_spark",
            "drop table gateway_spark.renamed",
        ],
    )
    assert rows[5] == "[('y', 2)]"
    assert rows[9] == "[(1, 'a', None), (2, 'b', None)]"
    assert rows[11] == "[(2,)]"
    assert rows[13] == "[('p=y',)]"
    assert "renamed" in rows[15]
    with MetastoreClient(MetastoreSettings(uris=(source.uri,))) as client:
        assert sorted(client.list_tables("gateway_spark")) == ["parts", "v"]
    shutil.rmtree(tmp_path / "db", ignore_errors=True)
