"""Copies in secondary clusters, made by the copy job, of tables that real Hive writes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.cli.main import main
from airflow_hive_federation.clusters.altering import partitions_by_name
from airflow_hive_federation.clusters.catalog import MetastoreFacts
from airflow_hive_federation.clusters.copies.copying import copy_to_cluster, drop_copies
from airflow_hive_federation.clusters.metadata import Secondary, read_metadata
from airflow_hive_federation.clusters.notes import notes_of, remove_noted, take_note
from airflow_hive_federation.clusters.registry import ClusterRegistry, read_registry
from airflow_hive_federation.clusters.sweeping import sweep_cluster
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import CopyRefusedError, CopySourceChangedError, UnknownClusterError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.operators.cluster_sweep import SweepCopiesOperator
from airflow_hive_federation.operators.clusters import (
    AssignClusterOperator,
    ChangePrimaryOperator,
    CopyToClusterOperator,
)
from airflow_hive_federation.published.clusters import CLUSTERS, PLACED
from airflow_hive_federation.published.directory import StateDirectory, key_of
from airflow_hive_federation.spark.copy_files import copy_plan
from airflow_hive_federation.spark.workers import SparkWorkers
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.storage.plan_files import read_plan

DATABASE = "copied"
RunCopy = Callable[[str, str], None]


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("roots")
    properties = {
        name: {"fileSystem": f"{root}/{name}", "jobTracker": f"spark_{name.lower()}"} for name in ("C1", "C2")
    }
    return {"hive.cluster.properties": properties, "hive.default.cluster.name": "C1"}


@pytest.fixture(scope="module")
def registry(document: dict[str, Any]) -> ClusterRegistry:
    return read_registry(document, origin="the test")


@pytest.fixture(scope="module")
def run_copy(spark: Any) -> RunCopy:
    def run(plan: str, outcomes: str) -> None:
        copy_plan(SparkWorkers(spark), plan, outcomes)

    return run


@pytest.fixture(scope="module", autouse=True)
def tables(hive_sql_source: HiveSql) -> None:
    for statement in (
        f"CREATE DATABASE {DATABASE}",
        f"CREATE EXTERNAL TABLE {DATABASE}.plain (id INT)",
        f"INSERT INTO {DATABASE}.plain VALUES (1), (2)",
        f"CREATE EXTERNAL TABLE {DATABASE}.parted (id INT) PARTITIONED BY (p STRING) STORED AS ORC",
        f"INSERT INTO {DATABASE}.parted VALUES (1, 'a'), (2, 'b:c'), (3, 'd')",
        f"CREATE VIEW {DATABASE}.seen AS SELECT id FROM {DATABASE}.plain",
    ):
        hive_sql_source.execute(statement)


def copy_in_c2(client: MetastoreClient, table: str, partition: str = "") -> Secondary | None:
    described = client.get_table(DATABASE, table)
    parameters = described.parameters
    if partition:
        parameters = partitions_by_name(client, described)[partition].parameters
    return read_metadata(parameters, table).secondaries.get("C2")


def files(uri: str) -> dict[str, bytes]:
    root = Path(str(local_path(uri)))
    paths = (path for path in root.rglob("*") if path.is_file() and not path.name.endswith(".crc"))
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def location(client: MetastoreClient, table: str) -> str:
    return str(client.get_table(DATABASE, table).sd.location)  # type: ignore[union-attr]


def never(plan: str, outcomes: str) -> None:
    raise AssertionError(list(read_plan(plan)))


def is_stale(client: MetastoreClient, registry: ClusterRegistry) -> bool:
    table = MetastoreFacts(client, registry).table(DATABASE, "plain")
    assert table is not None
    assert table.placement is not None
    return table.placement.stale == ("C2",)


def test_a_table_is_copied_kept_current_and_dropped(
    client: MetastoreClient, registry: ClusterRegistry, run_copy: RunCopy, hive_sql_source: HiveSql
) -> None:
    name = f"{DATABASE}.plain"
    report = copy_to_cluster(client, registry, name, "c2", run_copy)
    assert (report.copied, report.current, report.files) == ([name], [], 1)
    first = copy_in_c2(client, "plain")
    assert first is not None
    assert registry.cluster_at(first.location) == registry.cluster("C2")
    assert files(first.location) == files(location(client, "plain"))
    assert copy_to_cluster(client, registry, name, "C2", never).current == [name]
    # The description changes, the files do not: nothing is copied, and the copy is of the primary again.
    table = client.get_table(DATABASE, "plain")
    table.parameters = {**(table.parameters or {}), "transient_lastDdlTime": "1"}
    client.alter_table(DATABASE, "plain", table)
    assert is_stale(client, registry)
    assert copy_to_cluster(client, registry, name, "C2", never).current == [name]
    assert not is_stale(client, registry)
    places = [first.location]
    for value in (3, 4):
        hive_sql_source.execute(f"INSERT INTO {name} VALUES ({value})")
        assert is_stale(client, registry)
        report = copy_to_cluster(client, registry, name, "C2", run_copy)
        copy = copy_in_c2(client, "plain")
        assert copy is not None
        assert copy.former == places[-1]
        assert files(copy.location) == files(location(client, "plain"))
        # Readers of the copy before this one go on.
        assert files(places[-1])
        places.append(copy.location)
    # So do those of the one before it, until a sweep a day later.
    assert (report.removed, report.left) == ([], [places[0]])
    assert all(map(files, places))
    dropped = drop_copies(client, registry, name, "C2")
    assert (dropped.removed, sorted(dropped.left)) == ([], sorted(places[1:]))
    assert copy_in_c2(client, "plain") is None
    assert set(places) <= set(sweep_cluster(client, registry, "C2", table=name).left)
    assert all(map(files, places))
    swept = sweep_cluster(client, registry, "C2", table=name, former_older_than_s=-60.0)
    assert sorted(swept.removed) == sorted(places)
    assert not any(map(files, places))
    assert len(files(location(client, "plain"))) == 3
    assert drop_copies(client, registry, name, "C2").copied == []


def test_the_copy_of_an_empty_table_is_dropped_without_a_warning(
    client: MetastoreClient,
    registry: ClusterRegistry,
    hive_sql_source: HiveSql,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hive_sql_source.execute(f"CREATE EXTERNAL TABLE {DATABASE}.bare (id INT)")
    copy_to_cluster(client, registry, f"{DATABASE}.bare", "C2", never)
    copy = copy_in_c2(client, "bare")
    assert copy is not None
    assert drop_copies(client, registry, f"{DATABASE}.bare", "C2").left == [copy.location]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    hive_sql_source.execute(f"DROP TABLE {DATABASE}.bare")


def test_copies_of_a_dropped_table_are_swept_by_its_event(
    client: MetastoreClient, registry: ClusterRegistry, run_copy: RunCopy, hive_sql_source: HiveSql
) -> None:
    """The event does not name the locations of partitions of an external table, whose files Hive keeps."""
    places, kept = {}, {}
    for name, keys, values in (
        ("gone", "", "(1)"),
        ("parts", "PARTITIONED BY (p STRING)", "(1, 'a'), (2, 'b')"),
    ):
        hive_sql_source.execute(f"CREATE EXTERNAL TABLE {DATABASE}.{name} (id INT) {keys}")
        hive_sql_source.execute(f"INSERT INTO {DATABASE}.{name} VALUES {values}")
        copy_to_cluster(client, registry, f"{DATABASE}.{name}", "C2", run_copy)
        described = client.get_table(DATABASE, name)
        for part in partitions_by_name(client, described) if keys else ("",):
            copy = copy_in_c2(client, name, part)
            assert copy is not None
            places[f"{name}/{part}"] = copy.location
        kept[name] = location(client, name)
        hive_sql_source.execute(f"DROP TABLE {DATABASE}.{name}")
    for name in kept:
        swept = sweep_cluster(client, registry, "C2", table=f"{DATABASE}.{name}")
        assert (swept.removed, set(swept.left.values())) == (
            [],
            {"statements that were planned earlier may still read it"},
        )
    # The owner has removed one partition's files since: its copy is the only one left.
    (only,) = Path(str(local_path(kept["parts"])), "p=b").glob("0*")
    only.unlink()
    removed: list[str] = []
    left: dict[str, str] = {}
    for name in kept:
        table = f"{DATABASE}.{name}"
        swept = sweep_cluster(client, registry, "C2", table=table, former_older_than_s=-60.0)
        removed += swept.removed
        left |= swept.left
    stays = places.pop("parts/p=b")
    assert sorted(removed) == sorted(places.values())
    assert list(left) == [stays]
    assert left[stays].startswith(
        f"{DATABASE}.parts was dropped, and the files in {kept['parts']}/p=b, of which"
    )
    assert (files(places["parts/p=a"]), len(files(stays)), len(files(kept["parts"]))) == ({}, 1, 1)
    # The remedy of the reason; other tests sweep this cluster, too.
    cluster = registry.cluster("C2")
    (note,) = (note for note in notes_of(cluster) if note.directory == stays)
    assert remove_noted(cluster, note)


def test_a_table_that_is_back_under_another_name_keeps_its_copy(
    client: MetastoreClient, registry: ClusterRegistry, run_copy: RunCopy
) -> None:
    """A sweep has seen the event of its drop; then a backup brought the table back, and a user renamed it."""
    name, cluster = f"{DATABASE}.back", registry.cluster("C2")
    table = client.get_table(DATABASE, "plain")
    table.tableName, table.parameters = "back", {"EXTERNAL": "TRUE"}
    client.create_table(table)
    copy_to_cluster(client, registry, name, "C2", run_copy)
    copy = copy_in_c2(client, "back")
    assert copy is not None
    (note,) = (note for note in notes_of(cluster) if note.table == name)
    take_note(cluster, replace(note, taken_s=10.0, dropped_s=20.0))
    renamed = client.get_table(DATABASE, "back")
    renamed.tableName = "back_again"
    client.alter_table(DATABASE, "back", renamed)
    swept = sweep_cluster(client, registry, "C2", table=name)
    reason = f"{name} was dropped, and is back as {name}_again, which may use it; drop or copy that one again"
    assert (swept.removed, swept.left) == ([], {copy.location: reason})
    # The remedy.
    assert drop_copies(client, registry, f"{name}_again", "C2", at_once=True).removed == [copy.location]
    client.drop_table(DATABASE, "back_again", delete_data=False)


def test_partitions_are_copied_by_name_and_by_condition(
    client: MetastoreClient, registry: ClusterRegistry, run_copy: RunCopy
) -> None:
    name = f"{DATABASE}.parted"
    report = copy_to_cluster(client, registry, name, "C2", run_copy, partitions=["p=b%3Ac"])
    assert report.copied == ["p=b%3Ac"]
    report = copy_to_cluster(client, registry, name, "C2", run_copy, where="p < 'c'")
    assert (report.copied, report.current) == (["p=a"], ["p=b%3Ac"])
    assert copy_in_c2(client, "parted", "p=d") is None
    parts = partitions_by_name(client, client.get_table(DATABASE, "parted"))
    for partition in ("p=a", "p=b%3Ac"):
        copy = copy_in_c2(client, "parted", partition)
        assert copy is not None
        assert files(copy.location) == files(str(parts[partition].sd.location))  # type: ignore[union-attr]
    with pytest.raises(CopyRefusedError, match="has no partition p=z"):
        copy_to_cluster(client, registry, name, "C2", never, partitions=["p=z"])
    assert drop_copies(client, registry, name, "C2", where="p = 'a'").copied == ["p=a"]
    assert copy_in_c2(client, "parted", "p=b%3Ac") is not None


def test_a_primary_that_changes_meanwhile_is_not_published(
    client: MetastoreClient, registry: ClusterRegistry, run_copy: RunCopy
) -> None:
    name = f"{DATABASE}.parted"
    drop_copies(client, registry, name, "C2")
    parts = partitions_by_name(client, client.get_table(DATABASE, "parted"))
    place = Path(str(local_path(str(parts["p=d"].sd.location))))  # type: ignore[union-attr]

    def copy_and_write(plan: str, outcomes: str) -> None:
        run_copy(plan, outcomes)
        (place / "000009_0").write_bytes(next(place.glob("0*")).read_bytes())

    with pytest.raises(CopySourceChangedError, match="p=d") as caught:
        copy_to_cluster(client, registry, name, "C2", copy_and_write)
    assert caught.value.partition == "p=d"
    assert copy_in_c2(client, "parted", "p=d") is None
    assert copy_in_c2(client, "parted", "p=a") is not None
    assert copy_to_cluster(client, registry, name, "C2", run_copy).copied == ["p=d"]


@pytest.mark.parametrize(("table", "partition"), [("plain", ""), ("parted", "p=a")])
def test_a_write_beside_the_publication_withdraws_the_copy(
    source: EmbeddedMetastore,
    client: MetastoreClient,
    registry: ClusterRegistry,
    run_copy: RunCopy,
    table: str,
    partition: str,
) -> None:
    drop_copies(client, registry, f"{DATABASE}.{table}", "C2")
    described = client.get_table(DATABASE, table)
    described_copy = partitions_by_name(client, described)[partition] if partition else described
    place = Path(str(local_path(str(described_copy.sd.location))))  # type: ignore[union-attr]

    class Raced(MetastoreClient):
        """A client beside which another writer writes just before it alters."""

        def alter_table(self, *args: Any, **kwargs: Any) -> None:
            self._write()
            super().alter_table(*args, **kwargs)

        def alter_partitions(self, *args: Any, **kwargs: Any) -> None:
            self._write()
            super().alter_partitions(*args, **kwargs)

        def _write(self) -> None:
            (place / "000008_0").write_bytes(next(place.glob("0*")).read_bytes())

    with Raced(client.settings) as raced, pytest.raises(CopySourceChangedError):
        copy_to_cluster(raced, registry, f"{DATABASE}.{table}", "C2", run_copy)
    assert copy_in_c2(client, table, partition) is None
    (place / "000008_0").unlink()


def test_a_copy_that_was_interrupted_is_taken_up(
    client: MetastoreClient, registry: ClusterRegistry, run_copy: RunCopy
) -> None:
    plans: list[str] = []

    def interrupted(plan: str, outcomes: str) -> None:
        plans.append(plan)
        run_copy(plan, outcomes)
        raise KeyboardInterrupt

    def again(plan: str, outcomes: str) -> None:
        assert plan == plans[0]
        run_copy(plan, outcomes)
        assert json.loads(files(outcomes)["_summary.json"])["copied"] == 0

    with pytest.raises(KeyboardInterrupt):
        copy_to_cluster(client, registry, f"{DATABASE}.plain", "C2", interrupted)
    assert copy_in_c2(client, "plain") is None
    name = f"{DATABASE}.plain"
    assert copy_to_cluster(client, registry, name, "C2", again).copied
    assert not files(plans[0].rpartition("/")[0])
    # So is one that was dropped, whose directory waits for a sweep.
    copy = copy_in_c2(client, "plain")
    assert copy is not None
    assert copy.location in drop_copies(client, registry, name, "C2").left
    assert copy_to_cluster(client, registry, name, "C2", again).copied
    assert copy_in_c2(client, "plain") == copy
    swept = sweep_cluster(client, registry, "C2", table=name, former_older_than_s=-60.0)
    assert copy.location not in {*swept.removed, *swept.left}


def test_a_damaged_copy_is_made_anew_elsewhere(
    client: MetastoreClient, registry: ClusterRegistry, run_copy: RunCopy
) -> None:
    copy_to_cluster(client, registry, f"{DATABASE}.plain", "C2", run_copy)
    damaged = copy_in_c2(client, "plain")
    assert damaged is not None
    next(Path(str(local_path(damaged.location))).glob("0*")).unlink()
    copy_to_cluster(client, registry, f"{DATABASE}.plain", "C2", run_copy)
    mended = copy_in_c2(client, "plain")
    assert mended is not None
    assert mended.location != damaged.location
    assert files(mended.location) == files(location(client, "plain"))


@pytest.mark.parametrize(
    ("table", "cluster", "why"),
    [
        ("seen", "C2", "it is a view"),
        ("plain", "C1", "C1 is its primary cluster"),
    ],
)
def test_what_cannot_be_copied_is_refused(
    client: MetastoreClient, registry: ClusterRegistry, table: str, cluster: str, why: str
) -> None:
    with pytest.raises(CopyRefusedError, match=why):
        copy_to_cluster(client, registry, f"{DATABASE}.{table}", cluster, never)


def test_names_are_checked(client: MetastoreClient, registry: ClusterRegistry) -> None:
    with pytest.raises(UnknownClusterError):
        copy_to_cluster(client, registry, f"{DATABASE}.plain", "C9", never)
    with pytest.raises(CopyRefusedError, match="no name of a table"):
        copy_to_cluster(client, registry, "plain", "C2", never)
    with pytest.raises(CopyRefusedError, match="no partitions"):
        copy_to_cluster(client, registry, f"{DATABASE}.plain", "C2", never, where="p = 1")


def test_operators_and_commands(
    source: EmbeddedMetastore,
    client: MetastoreClient,
    document: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    host, port = source.uri.removeprefix("thrift://").split(":")
    connection = {"conn_type": "hive_federation", "host": host, "port": int(port)}
    monkeypatch.setenv("AIRFLOW_CONN_HERE", json.dumps(connection))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_C2", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    monkeypatch.setenv("AIRFLOW_VAR_HIVE_FEDERATION_CLUSTERS", json.dumps(document))
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", f"file:{tmp_path / 'state'}")

    def published(metastore: str) -> dict[str, tuple[str, list[tuple[str, int]]]]:
        """The primary and the copies of each table, with the number of stale ones."""
        place = StateDirectory(f"file:{tmp_path / 'state'}")
        found = place.read(CLUSTERS, key_of(DATABASE, metastore), PLACED)
        return {
            table.name: (table.primary, [(copy.cluster, copy.stale) for copy in table.copies])
            for table in (found.tables if found else ())
        }

    context: Any = {}
    assign = AssignClusterOperator(task_id="assign", metastore_conn_id="here", databases=[DATABASE])
    assert assign.execute(context)["cluster"] == "C1"
    drop_copies(client, read_registry(document, origin="x"), f"{DATABASE}.plain", "C2")
    where: dict[str, Any] = {
        "metastore_conn_id": "here",
        "table": f"{DATABASE}.plain",
        "cluster": "C2",
    }
    assert CopyToClusterOperator(task_id="copy", **where).execute(context)["copied"] == [f"{DATABASE}.plain"]
    assert published("here")[f"{DATABASE}.plain"] == ("C1", [("C2", 0)])
    dropped = CopyToClusterOperator(task_id="drop", drop=True, at_once=True, **where).execute(context)
    assert (len(dropped["removed"]), dropped["left"]) == (1, [])
    path = tmp_path / "clusters.json"
    path.write_text(json.dumps(document))
    common = ["--metastore", source.uri, "--clusters", str(path)]
    assert main(["cluster", "assign", "--database", DATABASE, *common]) == 0
    assert "0 tables assigned to C1; 2 unchanged" in capsys.readouterr().out
    assert main(["cluster", "copy", f"{DATABASE}.plain", "C2", "--json", *common]) == 0
    assert f'"{DATABASE}.plain"' in capsys.readouterr().out
    assert published(source.uri)[f"{DATABASE}.plain"] == ("C1", [("C2", 0)])
    assert main(["cluster", "status", "--database", DATABASE, *common]) == 0
    assert f"{DATABASE}.parted" in capsys.readouterr().out
    assert published(source.uri).keys() == {f"{DATABASE}.plain", f"{DATABASE}.parted"}
    assert main(["cluster", "drop-copy", f"{DATABASE}.plain", "C2", *common]) == 0
    captured = capsys.readouterr()
    assert "1 copy dropped in C2, 0 directories removed" in captured.out
    assert "1 directory in cluster C2 stays for statements that were planned before" in captured.err
    assert main(["cluster", "drop-copy", f"{DATABASE}.plain", "C2", "--at-once", *common]) == 0
    assert capsys.readouterr().err == ""
    assert main(["cluster", "move-copy", f"{DATABASE}.plain", "C2", "C1", *common]) == 0
    assert "0 copies moved from C2 to C1" in capsys.readouterr().out
    assert main(["cluster", "set-primary", f"{DATABASE}.plain", "C1", "--drop-former", *common]) == 0
    assert "primary C1 (0 locations changed, 0 directories removed)" in capsys.readouterr().out
    assert main(["cluster", "set-primary", f"{DATABASE}.plain", "C2", *common]) == 1
    assert "PrimaryRefusedError" in capsys.readouterr().err
    assert main(["cluster", "sweep", "C2", "--former-days", "0", "--json", *common]) == 0
    assert '"left": {}' in capsys.readouterr().out
    sweep = SweepCopiesOperator(task_id="sweep", metastore_conn_id="here", cluster="C2", former_days="0")
    assert sweep.execute(context)["cluster"] == "C2"
    move = CopyToClusterOperator(task_id="move", move_from="C2", **{**where, "cluster": "C1"})
    assert move.execute(context)["moved"] == []
    change = ChangePrimaryOperator(
        task_id="primary", metastore_conn_id="here", table=f"{DATABASE}.plain", cluster="C1"
    )
    assert change.execute(context)["moved"] == []
    assert main(["cluster", "copy", f"{DATABASE}.seen", "C2", *common]) == 1
    assert "CopyRefusedError" in capsys.readouterr().err
