"""The cut: what is still open when the dump is taken stays out, and statistics never speak of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.compaction.requests import compact_table
from airflow_hive_federation.compaction.runners import in_threads
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain
from airflow_hive_federation.tables.write.statements import append
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support.replicating import replication
from tests.support.small_source import connected, make_table, storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_commit_above_an_open_write_id_waits_for_the_increments(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    for statement in (
        "CREATE DATABASE cut",
        "CREATE TABLE cut.t (id int) STORED AS ORC TBLPROPERTIES ('transactional'='true')",
        "INSERT INTO cut.t VALUES (1), (2)",
    ):
        hive_sql_source.execute(statement)
    with replication(source, target, spark, tmp_path, source_database="cut", name="cut") as site:
        with site.source.client() as client:
            start = begin_drain(client, "cut")
            # Begun after the bootstrap began: not waited for, not aborted, not copied.
            (late,) = client.open_txns(1)
            client.allocate_table_write_ids("cut", "t", [late])
        hive_sql_source.execute("INSERT INTO cut.t VALUES (3)")
        hive_sql_source.execute("ANALYZE TABLE cut.t COMPUTE STATISTICS FOR COLUMNS")
        dump = dump_bootstrap(site.source, site.policy, start)
        site.load(dump.dump)
        with site.source.client() as client:
            client.commit_txn(late)
        report = site.verify(dump.dump)
    assert report.differences == []
    for from_statistics in ("true", "false"):
        hive_sql_target.set("hive.compute.query.using.stats", from_statistics)
        assert hive_sql_target.execute("SELECT count(*) FROM cut.t") == [("2",)]
    with connected(target) as client:
        write_ids: Any = client.get_valid_write_ids(["cut.t"])["cut.t"]
    assert (write_ids.writeIdHighWaterMark, write_ids.invalidWriteIds) == (1, [])


def test_a_read_transaction_is_held_from_the_dump_to_the_end_of_the_load(
    source: EmbeddedMetastore, target: EmbeddedMetastore, spark: SparkSession, tmp_path: Path
) -> None:
    """It holds back the source's cleaner until the files are copied."""
    with connected(source) as client:
        client.create_database(types.Database(name="leased"))
        make_table(client, "leased", "t")
    with replication(source, target, spark, tmp_path, source_database="leased") as site:
        dump = site.dump()
        with site.source.client() as client:
            opened = client.get_open_txns()
            assert dump.lease in (opened.open_txns or ())
        site.load(dump.dump)
        with site.source.client() as client:
            opened = client.get_open_txns()
            assert dump.lease not in (opened.open_txns or ())


def test_the_sources_cleaner_leaves_what_is_to_be_copied(
    hives_default_cleaner: EmbeddedMetastore, target: EmbeddedMetastore, spark: SparkSession, tmp_path: Path
) -> None:
    source = hives_default_cleaner
    settings = MetastoreSettings(uris=(source.uri,))
    kept, cleaned = (source.warehouse / f"{database}.db" / "t" for database in ("compacted_late", "nobodys"))
    with connected(source) as client:
        for database in ("compacted_late", "nobodys"):
            client.create_database(types.Database(name=database))
            make_table(client, database, "t")
            for number in (1, 2):
                append(spark, client, f"{database}.t", spark.sql(f"SELECT {number} a, 'x' b"))
    with replication(source, target, spark, tmp_path, source_database="compacted_late") as site:
        dump = site.dump()
        for database in ("compacted_late", "nobodys"):
            (report,) = compact_table(settings, f"{database}.t", CompactionKind.MAJOR, in_threads(1))
            assert report.state == "compacted"
        # The cleaner has come by: it has removed what nobody copies.
        patient = PollPolicy(longest_s=0.5, timeout_s=120)
        assert wait_until(lambda: not list(cleaned.glob("delta_*")), patient)
        assert len(list(kept.glob("delta_*"))) == 2
        site.load(dump.dump)
        assert wait_until(lambda: not list(kept.glob("delta_*")), patient)
    copied = target.warehouse / "compacted_late.db" / "t"
    assert len(list(copied.glob("delta_*"))) == 2


def test_tables_that_refer_to_each_other_are_loaded(
    source: EmbeddedMetastore, target: EmbeddedMetastore, spark: SparkSession, tmp_path: Path
) -> None:
    with connected(source) as client:
        client.create_database(types.Database(name="cyclic"))
        for name in ("a", "b"):
            make_table(client, "cyclic", name)
            key = types.SQLPrimaryKey(
                table_db="cyclic",
                table_name=name,
                column_name="a",
                key_seq=1,
                pk_name=f"pk_{name}",
                enable_cstr=False,
                validate_cstr=False,
                rely_cstr=False,
                catName="hive",
            )
            client.call("add_primary_key", types.AddPrimaryKeyRequest(primaryKeyCols=[key]))
        for child, parent in (("a", "b"), ("b", "a")):
            foreign = types.SQLForeignKey(
                pktable_db="cyclic",
                pktable_name=parent,
                pkcolumn_name="a",
                fktable_db="cyclic",
                fktable_name=child,
                fkcolumn_name="a",
                key_seq=1,
                update_rule=0,
                delete_rule=0,
                fk_name=f"fk_{child}",
                pk_name=f"pk_{parent}",
                enable_cstr=False,
                validate_cstr=False,
                rely_cstr=False,
                catName="hive",
            )
            client.call("add_foreign_key", types.AddForeignKeyRequest(foreignKeyCols=[foreign]))
    with replication(source, target, spark, tmp_path, source_database="cyclic") as site:
        site.load(site.dump().dump)
    with connected(target) as client:
        for child, parent in (("a", "b"), ("b", "a")):
            (foreign,) = client.get_table_constraints("cyclic", child).foreignKeys  # type: ignore[misc]
            assert (foreign.pktable_name, foreign.fk_name) == (parent, f"fk_{child}")


def test_plain_managed_tables_keep_their_kind(
    own_metastores: Any, spark: SparkSession, tmp_path: Path
) -> None:
    """Metastores that do not make every managed table transactional, as in Hive 3 and before."""
    plain = {"metastore.metadata.transformer.class": " "}
    old, new = (own_metastores(name, settings=plain) for name in ("plain-source", "plain-target"))
    with connected(old) as client:
        client.create_database(types.Database(name="plain"))
        place = storage(None)
        client.create_table(
            types.Table(
                dbName="plain",
                tableName="t",
                owner="root",
                sd=place,
                partitionKeys=[],
                parameters={},
                tableType="MANAGED_TABLE",
            )
        )
        table: Any = client.get_table("plain", "t")
        assert table.tableType == "MANAGED_TABLE"
        location = Path(table.sd.location.removeprefix("file:"))
        location.mkdir(parents=True, exist_ok=True)
        (location / "000000_0").write_bytes(b"")
    with replication(old, new, spark, tmp_path, source_database="plain") as site:
        dump = site.dump().dump
        site.load(dump)
        assert site.verify(dump).differences == []
    with connected(new) as client:
        made: Any = client.get_table("plain", "t")
    assert made.tableType == "MANAGED_TABLE"
    assert (Path(made.sd.location.removeprefix("file:")) / "000000_0").exists()
