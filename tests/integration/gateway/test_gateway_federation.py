"""Two real metastores through one gateway: read by Hive's SQL and by our reader, and never mixed up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_hive_federation.catalog.hive import keeps_events
from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.compaction.requests import compact_table
from airflow_hive_federation.compaction.runners import in_threads
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql, HiveSqlError
from airflow_hive_federation.errors import MetastoreError
from airflow_hive_federation.gateway.dispatch import Gateway, Metastore
from airflow_hive_federation.gateway.federation.metastores import Metastores, Remote
from airflow_hive_federation.gateway.federation.owners import RemoteNames
from airflow_hive_federation.gateway.federation.target import Federation
from airflow_hive_federation.gateway.thrift_front import ThriftFront
from airflow_hive_federation.gateway.thrift_settings import ThriftSettings
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.remotes.statement import Kind, Name
from airflow_hive_federation.tables.read.reader import read_table
from tests.support.gateway_front import gateway
from tests.support.small_source import make_table

NAMES = RemoteNames(databases={"far_sales": "fed_sales"}, tables={"fed_ours.rates": "fed_sales.plain"})
ROWS = [(1, "one"), (2, "two and a half"), (4, "four")]


@dataclass(frozen=True)
class Behind:
    """A metastore for Hive's SQL, with the gateway in front of it."""

    uri: str
    jdbc_url: str
    jdbc_password: str
    directory: Path


@contextmanager
def served(source: EmbeddedMetastore, target: EmbeddedMetastore, transactions_of: str) -> Iterator[str]:
    """Serve both metastores as one; yield the URI."""
    primary = Metastore(Upstream("near", MetastoreSettings(uris=(source.uri,))))
    far = Metastore(Upstream("far", MetastoreSettings(uris=(target.uri,))))
    federation = Federation(
        Metastores(primary, {"far": Remote(target=far, names=NAMES)}, transactions_of=transactions_of)
    )
    front = ThriftFront(Gateway(federation), ThriftSettings(port=0)).start()
    try:
        yield front.uri
    finally:
        front.stop(5)
        federation.close()


@pytest.fixture(scope="module")
def filled(
    source: EmbeddedMetastore, target: EmbeddedMetastore, hive_sql_source: HiveSql, hive_sql_target: HiveSql
) -> None:
    """A database on each; the far one has a compacted ACID table, a plain table and a view."""
    hive_sql_source.execute("CREATE DATABASE fed_ours")
    hive_sql_source.execute("CREATE EXTERNAL TABLE fed_ours.names (id int, name string) STORED AS ORC")
    hive_sql_source.execute("INSERT INTO fed_ours.names VALUES (1, 'here')")
    for statement in (
        "CREATE DATABASE fed_sales",
        (
            "CREATE TABLE fed_sales.orders (id int, v string) STORED AS ORC "
            "TBLPROPERTIES ('transactional'='true')"
        ),
        "INSERT INTO fed_sales.orders VALUES (1, 'one'), (2, 'two')",
        "INSERT INTO fed_sales.orders VALUES (3, 'three')",
        "UPDATE fed_sales.orders SET v = 'two and a half' WHERE id = 2",
        "DELETE FROM fed_sales.orders WHERE id = 3",
        "INSERT INTO fed_sales.orders VALUES (4, 'four')",
        "CREATE EXTERNAL TABLE fed_sales.plain (id int, rate int) STORED AS ORC",
        "INSERT INTO fed_sales.plain VALUES (1, 10), (2, 20)",
        "CREATE VIEW fed_sales.rated AS SELECT p.id, p.rate FROM fed_sales.plain p WHERE p.rate > 10",
    ):
        if statement.endswith("VALUES (4, 'four')"):
            # Its directory is named after a transaction that the near metastore does not know.
            settings = MetastoreSettings(uris=(target.uri,))
            (report,) = compact_table(settings, "fed_sales.orders", CompactionKind.MAJOR, in_threads(1))
            assert report.state == "compacted", report
        hive_sql_target.execute(statement)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Yield a stack that is closed at the end of a test."""
    with ExitStack() as stack:
        yield stack


def sql(stack: ExitStack, uri: str, metastore: EmbeddedMetastore, directory: Path) -> HiveSql:
    """Hive's SQL engine that knows the gateway only."""
    return stack.enter_context(HiveSql(Behind(uri, metastore.jdbc_url, metastore.jdbc_password, directory)))


@pytest.mark.slow
def test_hive_and_our_reader_read_both_metastores(
    stack: ExitStack,
    tmp_path: Path,
    filled: None,
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    spark: SparkSession,
) -> None:
    uri = stack.enter_context(served(source, target, "near"))
    hive = sql(stack, uri, source, tmp_path)
    assert ("far_sales",) in hive.execute("SHOW DATABASES")
    joined = hive.execute("SELECT n.name, r.rate FROM fed_ours.names n JOIN fed_ours.rates r ON n.id = r.id")
    assert joined == [("here", "10")]
    assert hive.execute("SELECT id, rate FROM far_sales.rated") == [("2", "20")]
    # New at its owner, and seen at once.
    with MetastoreClient(MetastoreSettings(uris=(target.uri,))) as owner:
        made = owner.get_table("fed_sales", "plain")
        made.tableName = "newer"
        owner.create_table(made)
    assert ("newer",) in hive.execute("SHOW TABLES IN far_sales")
    # An ACID table of another metastore than the transaction's: no rows would be worse.
    # Hive names the call that failed, and keeps the reason in its log; our client raises it.
    with pytest.raises(HiveSqlError, match=r"txnWriteIdList for tables \[far_sales\.orders\]"):
        hive.execute("SELECT id, v FROM far_sales.orders")
    with pytest.raises(HiveSqlError):
        hive.execute("INSERT INTO far_sales.orders VALUES (9, 'never')")
    client = stack.enter_context(MetastoreClient(MetastoreSettings(uris=(uri,))))
    with pytest.raises(MetastoreError, match="belongs to far"):
        read_table(spark, client, "far_sales.orders")


@pytest.mark.slow
def test_acid_tables_are_read_by_their_own_metastores_transactions(
    stack: ExitStack,
    tmp_path: Path,
    filled: None,
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    spark: SparkSession,
) -> None:
    uri = stack.enter_context(served(source, target, "far"))
    client = stack.enter_context(MetastoreClient(MetastoreSettings(uris=(uri,))))
    orders = read_table(spark, client, "far_sales.orders").orderBy("id").collect()
    assert [tuple(row) for row in orders] == ROWS
    hive = sql(stack, uri, target, tmp_path)
    rows = hive.execute("SELECT id, v FROM far_sales.orders ORDER BY id")
    assert rows == [(str(number), text) for number, text in ROWS]
    joined = hive.execute("SELECT n.name, o.v FROM fed_ours.names n JOIN far_sales.orders o ON n.id = o.id")
    assert joined == [("here", "one")]
    # Remotes are for reading.
    with pytest.raises(HiveSqlError, match="allocate write Id"):
        hive.execute("INSERT INTO far_sales.orders VALUES (9, 'never')")
    with MetastoreClient(MetastoreSettings(uris=(target.uri,))) as owner:
        again = read_table(spark, owner, "fed_sales.orders").orderBy("id").collect()
    assert [tuple(row) for row in again] == ROWS


def test_recorded_remotes_are_asked_where_they_lead(
    source: EmbeddedMetastore, target: EmbeddedMetastore
) -> None:
    """As the primary metastore has recorded them, and without a refresh."""
    with (
        MetastoreClient(MetastoreSettings(uris=(source.uri,))) as near,
        MetastoreClient(MetastoreSettings(uris=(target.uri,))) as far,
        Remotes(near.settings) as remotes,
    ):
        far.create_database(types.Database(name="fed_links"))
        make_table(far, "fed_links", "first", location=f"file:{target.external_warehouse}/fed_links/first")
        near.create_database(types.Database(name="fed_near"))
        where = f"'hive.metastore.uris' = '{target.uri}'"
        remotes.run(f"CREATE REMOTE DATABASE fed_linked CONNECTED TO fed_links {where}")
        remotes.run(f"CREATE REMOTE TABLE fed_near.one CONNECTED TO fed_links.first {where}")
        make_table(far, "fed_links", "second", location=f"file:{target.external_warehouse}/fed_links/second")
        changed = far.get_table("fed_links", "first")
        changed.parameters = {**(changed.parameters or {}), "newer": "yes"}
        far.alter_table("fed_links", "first", changed)
        config = {
            "upstream": {"uris": [source.uri]},
            "federated": [{"name": "far", "uris": [target.uri], "names": {"fed_far": "fed_links"}}],
        }
        # Without following, they are what was linked.
        with (
            gateway(config) as serving,
            MetastoreClient(MetastoreSettings(uris=(serving.fronts[0].uri,))) as client,
        ):
            assert client.list_tables("fed_linked") == ["first"]
            assert "newer" not in (client.get_table("fed_near", "one").parameters or {})
            changes_are_seen_behind_the_gateway(remotes, far, target, serving.fronts[0].uri)
            assert (keeps_events(near), keeps_events(client)) == (True, False)
        with (
            gateway({**config, "federation": {"follow_links": True}}) as serving,
            MetastoreClient(MetastoreSettings(uris=(serving.fronts[0].uri,))) as client,
        ):
            assert client.list_tables("fed_linked") == ["first", "second"]
            second = client.get_table("fed_linked", "second")
            assert (second.dbName, second.tableName) == ("fed_linked", "second")
            by_pattern = types.GetTablesRequest(dbName="fed_near", tablesPattern="o*")
            (found,) = client.call("get_table_objects_by_name_req", by_pattern).tables
            newer = client.get_table("fed_near", "one")
            for table in (found, newer):
                assert (table.dbName, table.tableName) == ("fed_near", "one")
                assert (table.parameters or {})["newer"] == "yes"
            with pytest.raises(MetastoreError, match="metastore far can only be read"):
                client.alter_table("fed_near", "one", newer)
        remotes.run("DROP REMOTE DATABASE fed_linked; DROP REMOTE TABLE fed_near.one")


def changes_are_seen_behind_the_gateway(
    remotes: Remotes, far: MetastoreClient, target: EmbeddedMetastore, uri: str
) -> None:
    """A remote of a federated database: the primary metastore has no event of its changes."""
    mirror = Name(database="fed_mirror")
    where = f"'hive.metastore.uris' = '{uri}'"
    remotes.run(f"CREATE REMOTE DATABASE fed_mirror CONNECTED TO fed_far VIA 'thrift' {where}")
    make_table(far, "fed_links", "third", location=f"file:{target.external_warehouse}/fed_links/third")
    report = remotes.refresh(Kind.DATABASE, mirror)
    assert "third" in str(report), report
    far.drop_table("fed_links", "third", delete_data=False)
    report = remotes.refresh(Kind.DATABASE, mirror)
    assert "third" in str(report.dropped), report
    remotes.run("DROP REMOTE DATABASE fed_mirror")


def test_a_link_to_anywhere_else_is_left_as_it_is(
    source: EmbeddedMetastore, target: EmbeddedMetastore
) -> None:
    """Whoever may alter a table writes its properties: they must lead the gateway nowhere."""
    with (
        MetastoreClient(MetastoreSettings(uris=(source.uri,))) as near,
        MetastoreClient(MetastoreSettings(uris=(target.uri,))) as far,
        Remotes(near.settings) as remotes,
    ):
        far.create_database(types.Database(name="fed_other"))
        make_table(far, "fed_other", "first", location=f"file:{target.external_warehouse}/fed_other/first")
        where = f"'hive.metastore.uris' = '{target.uri}'"
        remotes.run(f"CREATE REMOTE DATABASE fed_elsewhere CONNECTED TO fed_other {where}")
        make_table(far, "fed_other", "second", location=f"file:{target.external_warehouse}/fed_other/second")
        config = {
            "upstream": {"uris": [source.uri]},
            "federated": [{"name": "far", "uris": ["thrift://127.0.0.1:1"], "names": {"fed_far": "x"}}],
            "federation": {"follow_links": True},
        }
        with (
            gateway(config) as serving,
            MetastoreClient(MetastoreSettings(uris=(serving.fronts[0].uri,))) as client,
        ):
            assert client.list_tables("fed_elsewhere") == ["first"]
        remotes.run("DROP REMOTE DATABASE fed_elsewhere")
