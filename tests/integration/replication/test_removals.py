"""A source that hides, lacks or converts things empties no replica; an event or the policy lets them go."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import (
    SourceDirectoryMissingError,
    UnexplainedRemovalError,
    VerificationError,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.cycle_plan import plan_cycle
from airflow_hive_federation.replication.dump.change_manager import kept_for_bootstrap
from airflow_hive_federation.replication.repair import repair_replica
from airflow_hive_federation.replication.status import read_status
from tests.support.removals_site import DATABASE, Site, nothing
from tests.support.small_source import commit_files, connected, make_small_source, make_table, storage


@pytest.fixture
def site(source: EmbeddedMetastore, target: EmbeddedMetastore, tmp_path: Path) -> Iterator[Site]:
    make_small_source(source, DATABASE)
    site = Site(source, target, tmp_path)
    yield site
    for metastore in (source, target):
        with connected(metastore) as client:
            client.drop_database(DATABASE, delete_data=True, cascade=True, if_exists=True)
    shutil.rmtree(site.external, ignore_errors=True)


def test_what_a_source_hides_stays_until_an_event_or_the_policy_lets_it_go(site: Site) -> None:
    site.bootstrap()
    site.hidden_tables |= {"acid", "ext", "seen"}
    assert site.refused().tables == ["acid", "ext", "seen"]
    site.hidden_tables -= {"acid", "ext"}
    assert site.refused().tables == ["seen"]
    site.hidden_tables.clear()
    with connected(site.source) as client:
        commit_files(client, DATABASE, "acid")
        client.create_function(
            types.Function(
                functionName="f",
                dbName=DATABASE,
                className="org.apache.hadoop.hive.ql.udf.UDFLength",
                ownerName="root",
                ownerType=types.PrincipalType.USER,
                createTime=0,
                functionType=types.FunctionType.JAVA,
                resourceUris=[],
            )
        )
    site.hidden_partitions.add("one")
    assert site.refused().partitions == {"acid": ["p=one"]}
    site.hidden_partitions.clear()
    assert not site.cycle().idle

    # Allowed by the policy, up to its bound; shown again, it is copied again.
    site.hidden_tables |= {"ext", "seen"}
    with pytest.raises(UnexplainedRemovalError, match="max_unexplained_tables = 2"):
        site.cycle(max_unexplained_tables=1)
    assert site.cycle(max_unexplained_tables=2).dropped == ["ext", "seen"]
    assert site.tables() == ["acid"]
    site.hidden_tables.clear()
    assert site.cycle().dropped == []
    assert site.tables() == ["acid", "ext", "seen"]

    # Events say so.
    with connected(site.source) as client:
        client.drop_partitions(DATABASE, "acid", ["p=one"], delete_data=True)
        client.drop_table(DATABASE, "seen", delete_data=True)
        client.drop_function(DATABASE, "f")
        moved: Any = client.get_table(DATABASE, "ext")
        moved.tableName = "renamed"
        client.alter_table(DATABASE, "ext", moved)
    assert site.cycle().dropped == ["ext", "seen"]
    assert site.replica()[:2] == (["acid", "renamed"], ["p=a%3Ab"])
    with connected(site.target) as client:
        assert list(client.get_functions(DATABASE)) == []
    assert not site.verify().differences
    assert site.cycle().idle


def test_a_directory_that_is_not_mounted(site: Site) -> None:
    aside = site.external.with_name("aside")
    site.external.rename(aside)
    with pytest.raises(SourceDirectoryMissingError) as missing:
        site.bootstrap()
    assert missing.value.directories == {"ext": [f"file:{site.external}"]}
    aside.rename(site.external)
    for name in ("_SUCCESS", ".hive-staging_hive_1/-ext-10000/000000_0", "_tmp.1/000000_0"):
        (site.external / name).parent.mkdir(parents=True, exist_ok=True)
        (site.external / name).touch()
    site.bootstrap()
    assert site.copied() == ["_SUCCESS", "data"]
    site.external.rename(aside)
    error = site.refused()
    assert (error.directories, error.tables) == ({"ext": [f"file:{site.external}"]}, [])
    site.external.mkdir()
    assert "2 of 2 files of ext" in str(site.refused())
    # Something is there again: what it lacks was removed.
    (site.external / "more").touch()
    site.cycle()
    assert site.copied() == ["more"]
    (site.external / "more").unlink()
    site.refused()
    with pytest.raises(UnexplainedRemovalError, match="max_unexplained_percent = 100"):
        site.cycle(max_unexplained_percent=99)
    site.cycle(max_unexplained_percent=100)
    assert site.copied() == []
    assert site.cycle().idle
    shutil.rmtree(aside)


def test_what_a_killed_load_did_to_an_external_table_is_undone_if_the_source_takes_it_back(
    site: Site,
) -> None:
    aside = site.external.with_name("aside")
    (site.external / "gone").write_text("gone\n", encoding="utf-8")
    site.bootstrap()
    shutil.copytree(site.external, aside)  # with the times of the files
    (site.external / "gone").unlink()
    (site.external / "more").write_text("more\n", encoding="utf-8")
    (site.external / "data").write_text("HELLO\n", encoding="utf-8")
    site.kill()
    assert site.copied() == ["data", "more"]
    shutil.rmtree(site.external)
    aside.rename(site.external)
    assert not site.cycle().idle
    assert site.copied() == ["data", "gone"]
    (data,) = site.base.rglob("data")
    assert data.read_text(encoding="utf-8") == "hello\n"
    assert site.cycle().idle


def test_a_table_that_is_not_replicated_any_more_keeps_its_replica(site: Site) -> None:
    site.bootstrap()
    site.alter("ext", storage_handler="org.apache.iceberg.mr.hive.HiveIcebergStorageHandler")
    dumped = site.cycle()
    reason = "it is kept by org.apache.iceberg.mr.hive.HiveIcebergStorageHandler"
    assert (dumped.idle, dumped.skipped, dumped.retained, dumped.dropped) == (
        False,
        {"ext": reason},
        ["ext"],
        [],
    )
    again = site.cycle()
    assert (again.idle, again.skipped, again.retained) == (True, {"ext": reason}, ["ext"])
    with site.sides() as (source_pool, target_pool):
        status, plan = (
            read_status(source_pool, target_pool, site.policy),
            plan_cycle(source_pool, target_pool, site.policy),
        )
    assert (status.skipped, status.retained, plan.skipped) == ({"ext": reason}, ["ext"], {"ext": reason})

    # A difference, which no repair decides.
    report = site.verify()
    assert report.not_compared == {"ext": reason}
    with pytest.raises(VerificationError, match=r"ext: replicated table: .*exclude_tables") as caught:
        report.raise_if_different()
    assert len(caught.value.differences) == 1
    with site.sides() as (source_pool, target_pool):
        repaired = repair_replica(
            source_pool, target_pool, site.policy, run_copy=nothing, run_verify=nothing, tables=()
        )
    assert (repaired.repaired, [difference.table for difference in repaired.report.differences]) == (
        [],
        ["ext"],
    )
    assert site.copied() == ["data"]

    # What it becomes then is copied anew.
    retained = site.table_id("ext")
    (site.external / "later").touch()
    site.alter("ext", storage_handler=None)
    assert site.cycle().skipped == {}
    assert site.table_id("ext") != retained
    assert site.copied() == ["data", "later"]
    assert not site.verify().differences
    site.alter("ext", table_type="ICEBERG")
    site.cycle()
    assert site.cycle(exclude_tables="ext").dropped == ["ext"]
    assert site.tables() == ["acid", "seen"]


def test_plain_managed_tables_stay_managed(site: Site) -> None:
    """They come from older versions, with and without the parameter, or by altering an external table."""
    with connected(site.source) as client:
        for name in ("upgraded", "altered"):
            place = site.source.warehouse / f"{DATABASE}.db" / name
            place.mkdir(parents=True)
            (place / "000000_0").touch()
            table: Any = types.Table(
                dbName=DATABASE,
                tableName=name,
                owner="root",
                sd=storage(f"file:{place}"),
                partitionKeys=[],
                parameters={},
                tableType="MANAGED_TABLE",
            )
            client.create_table(table)
            made: Any = client.get_table(DATABASE, name)
            assert made.tableType == "EXTERNAL_TABLE"
            made.tableType = "MANAGED_TABLE"
            for key in ("EXTERNAL", "TRANSLATED_TO_EXTERNAL", "external.table.purge"):
                del made.parameters[key]
            if name == "altered":
                made.parameters["EXTERNAL"] = "FALSE"
            client.alter_table(DATABASE, name, made)
            assert client.get_table(DATABASE, name).tableType == "MANAGED_TABLE"
    site.bootstrap()
    with connected(site.source) as client:
        made = client.get_table(DATABASE, "upgraded")
        made.tableName = "renamed"
        client.alter_table(DATABASE, "upgraded", made)
    site.cycle()
    with connected(site.target) as client:
        for name in ("altered", "renamed"):
            table = client.get_table(DATABASE, name)
            assert (table.tableType, table.parameters.get("EXTERNAL")) == (
                "MANAGED_TABLE",
                "FALSE" if name == "altered" else None,
            )
            assert (site.target.warehouse / f"{DATABASE}.db" / name / "000000_0").exists()
    assert not site.verify().differences


def test_statistics_keep_the_write_ids_under_which_they_hold(site: Site) -> None:
    """Without column statistics, of an insert-only table with them, and of what is new and empty."""
    flag = {"COLUMN_STATS_ACCURATE": '{"BASIC_STATS":"true"}', "numRows": "0", "numFiles": "0"}

    def flags() -> dict[str, Any]:
        flags_of_sides = {}
        for side in (site.source, site.target):
            with connected(side) as client:
                flags_of_sides[side.name] = {
                    name: (client.get_table(DATABASE, name).parameters or {}).get("COLUMN_STATS_ACCURATE")
                    for name in client.list_tables(DATABASE)
                } | {
                    f"p={partition.values[0]}": (
                        partition.writeId,
                        (partition.parameters or {}).get("COLUMN_STATS_ACCURATE"),
                    )
                    for partition in client.iter_partitions(DATABASE, "acid")
                }
        return flags_of_sides

    with connected(site.source) as client:
        (txn,) = client.open_txns(1)
        write_id = client.allocate_table_write_ids(DATABASE, "acid", [txn])[txn]
        (partition,) = client.iter_partitions(DATABASE, "acid", names=["p=one"])
        partition.parameters = {**(partition.parameters or {}), **flag, "numRows": "7"}
        client.alter_partitions(
            DATABASE,
            "acid",
            [partition],
            environment={"DO_NOT_UPDATE_STATS": "true"},
            valid_write_ids=f"{DATABASE}.acid:{write_id}:{write_id}:{write_id}:",
            write_id=write_id,
        )
        client.commit_txn(txn)
    site.bootstrap()
    by_side = flags()
    assert by_side["source"]["p=one"] == (write_id, flag["COLUMN_STATS_ACCURATE"])
    assert by_side["target"] == by_side["source"]
    with connected(site.source) as client:
        make_table(client, DATABASE, "fresh")
        table: Any = client.get_table(DATABASE, "acid")
        place = storage(f"{table.sd.location}/p=fresh")
        client.add_partitions(
            [
                types.Partition(
                    dbName=DATABASE, tableName="acid", values=["fresh"], sd=place, parameters=dict(flag)
                )
            ],
            environment={"DO_NOT_UPDATE_STATS": "true"},
        )
    site.cycle()
    by_side = flags()
    assert by_side["source"]["p=fresh"][1] == flag["COLUMN_STATS_ACCURATE"]
    assert by_side["target"] == by_side["source"]


def test_a_source_without_a_change_manager_keeps_nothing(site: Site) -> None:
    with connected(site.source) as client:
        assert kept_for_bootstrap(client, DATABASE) == {}
