"""Decisions and facts that are kept between statements: each change of a real metastore shows at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.clusters.altering import alter_partition_metadata, alter_table_metadata
from airflow_hive_federation.clusters.metadata import ClusterMetadata, Secondary, source_mark, write_metadata
from airflow_hive_federation.clusters.placement import Session
from airflow_hive_federation.clusters.registry import ClusterRegistry, read_registry
from airflow_hive_federation.clusters.running import LiveRouter
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.storage.listing import list_files

DATABASE = "kept_routes"
JOIN = "SELECT * FROM logs JOIN own ON logs.k = own.k"


class Counting(MetastoreClient):
    """A client that notes the methods that are called."""

    def __init__(self, settings: MetastoreSettings) -> None:
        super().__init__(settings)
        self.called: list[str] = []

    def call(self, method: str, *args: Any) -> Any:
        self.called.append(method)
        return super().call(method, *args)


@pytest.fixture
def registry(tmp_path: Path) -> ClusterRegistry:
    properties = {name: {"fileSystem": f"{tmp_path}/{name}", "jobTracker": name} for name in ("C1", "C2")}
    return read_registry(
        {"hive.cluster.properties": properties, "hive.default.cluster.name": "C1"}, origin="the test"
    )


@pytest.fixture
def places(tmp_path: Path, client: MetastoreClient) -> Iterator[Path]:
    """A table of C1 with two partitions that have copies in C2, one of C2, and a view of both."""
    client.create_database(types.Database(name=DATABASE, locationUri=f"file:{tmp_path}/db"))
    for name, primary, keys in (("logs", "C1", ["ds"]), ("own", "C2", []), ("other", "C1", [])):
        create(client, tmp_path, name, primary, keys)
    for ds in ("1", "2"):
        add_partition(client, tmp_path, ds)
    copied(client, tmp_path)
    create_view(client, JOIN)
    yield tmp_path
    client.drop_database(DATABASE, delete_data=False, cascade=True)


def create(client: MetastoreClient, place: Path, name: str, primary: str, keys: list[str]) -> None:
    (place / "C1" / name).mkdir(parents=True)
    (place / "C1" / name / "f").write_text("1")
    client.create_table(
        types.Table(
            dbName=DATABASE,
            tableName=name,
            tableType="EXTERNAL_TABLE",
            sd=storage(place / "C1" / name),
            partitionKeys=[types.FieldSchema(name=key, type="string") for key in keys],
            parameters=write_metadata({"EXTERNAL": "TRUE"}, ClusterMetadata(primary=primary)),
        )
    )


def create_view(client: MetastoreClient, text: str, *, alter: bool = False) -> None:
    full = text.replace("logs JOIN", f"{DATABASE}.logs JOIN").replace("JOIN own", f"JOIN {DATABASE}.own")
    view = types.Table(
        dbName=DATABASE,
        tableName="both",
        tableType="VIRTUAL_VIEW",
        sd=storage(None),
        partitionKeys=[],
        parameters={},
        viewOriginalText=text,
        viewExpandedText=full,
    )
    if alter:
        client.alter_table(DATABASE, "both", view)
    else:
        client.create_table(view)


def storage(location: Path | None) -> types.StorageDescriptor:
    return types.StorageDescriptor(
        cols=[types.FieldSchema(name="k", type="int")],
        location=None if location is None else f"file:{location}",
        inputFormat="org.apache.hadoop.mapred.TextInputFormat",
        outputFormat="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        serdeInfo=types.SerDeInfo(
            serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe", parameters={}
        ),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )


def add_partition(client: MetastoreClient, place: Path, ds: str) -> None:
    directory = place / "C1" / "logs" / f"ds={ds}"
    directory.mkdir()
    (directory / "f").write_text(ds)
    client.add_partitions(
        [
            types.Partition(
                dbName=DATABASE, tableName="logs", values=[ds], sd=storage(directory), parameters={}
            )
        ]
    )


def copied(client: MetastoreClient, place: Path) -> None:
    """Note copies of all partitions in C2, made now."""
    changes: dict[str, Callable[[ClusterMetadata], ClusterMetadata]] = {}
    for partition in client.get_partitions(DATABASE, "logs"):
        ds = (partition.values or [""])[0]
        copy = place / "C2" / f"ds={ds}"
        copy.mkdir(parents=True, exist_ok=True)
        files = list_files(str(partition.sd and partition.sd.location))
        for file in Path(str(local_path(str(partition.sd and partition.sd.location)))).iterdir():
            (copy / file.name).write_bytes(file.read_bytes())
        made = Secondary(location=f"file:{copy}", source=source_mark(partition, files))
        changes[f"ds={ds}"] = lambda now, made=made: now.with_secondary("C2", made)  # type: ignore[misc]
    alter_partition_metadata(client, client.get_table(DATABASE, "logs"), changes)


@pytest.fixture
def asked(source: EmbeddedMetastore) -> Iterator[Counting]:
    with Counting(MetastoreSettings(uris=(source.uri,))) as counting:
        yield counting


def test_each_change_gives_a_new_decision(
    client: MetastoreClient, asked: Counting, registry: ClusterRegistry, places: Path
) -> None:
    router = LiveRouter(client=asked, registry=registry)
    session = Session(database=DATABASE)

    def cluster(sql: str = JOIN) -> str | None:
        kept = router.decide(sql, session).cluster
        fresh = LiveRouter(client=client, registry=registry).decide(sql, session).cluster
        assert kept == fresh, sql
        return kept

    assert [cluster(), cluster("SELECT * FROM both"), cluster()] == ["C2", "C2", "C2"]
    asked.called.clear()
    assert router.decide(JOIN, session).cluster == "C2"
    assert asked.called == ["get_current_notificationEventId"]

    # A partition that is in the primary only is added, and dropped.
    add_partition(client, places, "3")
    assert [cluster(), cluster("SELECT * FROM both")] == [None, None]
    assert cluster(f"{JOIN} WHERE ds = '2'") == "C2"
    client.drop_partitions(DATABASE, "logs", ["ds=3"], delete_data=False)
    assert cluster() == "C2"

    # The primary is written: by Hive, which makes an event of it, and by Spark, which does not.
    (first, *_) = client.get_partitions(DATABASE, "logs")
    first.parameters = {**(first.parameters or {}), "transient_lastDdlTime": "17"}
    client.alter_partitions(DATABASE, "logs", [first])
    assert cluster() is None
    copied(client, places)
    assert cluster() == "C2"
    (places / "C1" / "logs" / "ds=1" / "more").write_text("1")
    assert [cluster(), cluster("SELECT * FROM both")] == [None, None]
    (places / "C1" / "logs" / "ds=1" / "more").unlink()
    assert cluster() == "C2"

    # A view is defined anew; a table becomes another cluster's; one table takes the name of another.
    create_view(
        client,
        "SELECT own.k FROM other JOIN own ON other.k = own.k".replace("other", f"{DATABASE}.other"),
        alter=True,
    )
    assert cluster("SELECT * FROM both") is None
    create_view(client, f"SELECT k FROM {DATABASE}.other", alter=True)
    assert cluster("SELECT * FROM both") == "C1"
    assert cluster("SELECT * FROM own") == "C2"
    described = client.get_table(DATABASE, "own")
    alter_table_metadata(client, described, lambda _: ClusterMetadata(primary="C1"))
    assert cluster("SELECT * FROM own") == "C1"
    assert cluster("SELECT * FROM moved") is None
    renamed = client.get_table(DATABASE, "own")
    renamed.tableName = "moved"
    client.alter_table(DATABASE, "own", renamed)
    assert [cluster("SELECT * FROM moved"), cluster("SELECT * FROM own")] == ["C1", None]
    assert router._router.hits > 0


def test_a_metastore_that_shows_no_events(
    source: EmbeddedMetastore, client: MetastoreClient, registry: ClusterRegistry, places: Path
) -> None:
    class Eventless(Counting):
        def call(self, method: str, *args: Any) -> Any:
            return "" if method == "get_config_value" else super().call(method, *args)

    with Eventless(MetastoreSettings(uris=(source.uri,))) as asked:
        router = LiveRouter(client=asked, registry=registry)
        session = Session(database=DATABASE)
        for expected in ("C2", None):
            assert router.decide(JOIN, session).cluster == expected
            add_partition(client, places, expected or "4")
        assert "get_current_notificationEventId" not in asked.called
