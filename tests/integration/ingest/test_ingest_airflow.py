"""Ingest in real Airflow: rows of a database by its hook, objects of a store, and the example DAG."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from airflow_hive_federation.demo.local_airflow import DemoAirflow
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.ingest import HiveStreamingConnection, StrictDelimitedInputWriter
from airflow_hive_federation.ingest.errors import InvalidSource, SerializationError, SourceError
from airflow_hive_federation.ingest.partitions import Partitions
from airflow_hive_federation.ingest.queries import QueryRequest, ingest_query
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.published.directory import StateDirectory
from airflow_hive_federation.published.work import INGEST, INGESTED
from airflow_hive_federation.storage.filesystem import local_path, open_filesystem
from airflow_hive_federation.storage.publishing import write_atomically
from tests.support.airflow_homes import new_airflow
from tests.support.line_servers import line_server
from tests.support.small_source import connected, make_table

pytestmark = pytest.mark.slow

DATABASE = "ingested"
DAG_FILE = Path(__file__).parents[1] / "airflow_dags" / "ingesting.py"
QUERY_COMPLETE = ("ingesting.query", "COMPLETE")
SHOP_ORDERS = ("sqlite://shop", "main.orders")


@pytest.fixture(scope="module")
def sql(hive_sql_source: HiveSql, source: EmbeddedMetastore) -> HiveSql:
    hive_sql_source.execute(f"CREATE DATABASE {DATABASE}")
    with connected(source) as client:
        for name in ("orders", "files", "lines", "refused"):
            make_table(client, DATABASE, name)
    return hive_sql_source


@pytest.fixture
def store() -> Iterator[dict[str, Any]]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = {"endpoint_url": f"http://{host}:{port}", "region_name": "eu-central-1"}
    yield {"key": "a-key", "secret": "a-secret", "client_kwargs": client}
    server.stop()


@pytest.fixture(scope="module")
def airflow(airflow_database: Path, tmp_path_factory: pytest.TempPathFactory) -> DemoAirflow:
    return new_airflow(tmp_path_factory.mktemp("airflow"), airflow_database)


def contents(sql: HiveSql, name: str) -> list[tuple[str | None, ...]]:
    return sorted(tuple(row) for row in sql.execute(f"SELECT a, b FROM {DATABASE}.{name}"))


def orders(path: Path, *rows: tuple[Any, ...]) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER, item TEXT)")
        database.executemany("INSERT INTO orders VALUES (?, ?)", rows)
    database.close()


def test_a_query_and_objects_by_the_operator(
    sql: HiveSql, source: EmbeddedMetastore, airflow: DemoAirflow, store: dict[str, Any], tmp_path: Path
) -> None:
    open_filesystem("s3://ingested", store)[0].mkdir("ingested")
    shown = {"client_kwargs": store["client_kwargs"], "key": store["key"]}
    airflow.environment["AIRFLOW_CONN_METASTORE"] = json.dumps(
        {
            "conn_type": "hive_federation",
            "host": "127.0.0.1",
            "port": source.port,
            "extra": {
                "storage_options": json.dumps(shown),
                "secret_storage_options": json.dumps({"secret": store["secret"]}),
            },
        }
    )
    airflow.environment["AIRFLOW_CONN_SHOP"] = json.dumps(
        {"conn_type": "sqlite", "host": str(tmp_path / "shop.db")}
    )

    lineage = tmp_path / "lineage.jsonl"
    environment = {
        **airflow.environment,
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAG_FILE.parent),
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
            {"type": "file", "log_file_path": str(lineage), "append": True}
        ),
    }
    with line_server([sys.executable, str(DAG_FILE)], tmp_path, environment=environment) as dag:
        orders(tmp_path / "shop.db", (1, "été"), (3, "c"), (2, "100 %"))
        write_atomically("s3://ingested/orders/2026-01.csv", [b"11,k\n12,l\n"], store)
        first = dag.ask("run")
        assert (first["query"]["records"], first["query"]["transactions"]) == (3, 2)
        assert (first["objects"]["records"], first["objects"]["files"]) == (2, 1)
        orders(tmp_path / "shop.db", (5, "e"), (4, None))
        write_atomically("s3://ingested/orders/2026-02.csv", [b"13,m\nx,n\n"], store)
        second = dag.ask("run")
    assert (second["query"]["records"], second["objects"]["records"]) == (2, 1)
    assert second["objects"]["dead_letters"] == 1
    place = StateDirectory(f"{airflow.environment['AIRFLOW_HOME']}/hive_federation_state")
    published = {
        state.source: state
        for key in place.keys(INGEST)
        if (state := place.read(INGEST, key, INGESTED)) is not None and state.table.endswith(".orders")
    }
    assert {source: state.records for source, state in published.items()} == {"shop": 2, "files": 1}
    assert published["files"].dead_letters == 1
    assert published["files"].by.task_id == "objects"
    filesystem, letters = open_filesystem("s3://ingested/letters.jsonl", store)
    assert "2026-02.csv, line 2: " in json.loads(filesystem.cat_file(letters))["reason"]
    answer = dict(sql.execute(f"SELECT a, b FROM {DATABASE}.orders"))
    assert answer == {
        "1": "été",
        "2": "100 %",
        "3": "c",
        "4": None,
        "5": "e",
        "11": "k",
        "12": "l",
        "13": "m",
    }
    assert sql.execute(f"SELECT count(*) FROM {DATABASE}.orders") == [("8",)]
    events = [json.loads(line) for line in lineage.read_text(encoding="utf-8").splitlines()]
    done = [event for event in events if (event["job"]["name"], event["eventType"]) == QUERY_COMPLETE]
    for event, records in zip(done, (3, 2), strict=True):
        assert [(read["namespace"], read["name"]) for read in event["inputs"]] == [SHOP_ORDERS]
        (written,) = event["outputs"]
        assert written["name"] == f"{DATABASE}.orders"
        assert written["outputFacets"]["outputStatistics"]["rowCount"] == records
        assert {
            column: [(read["namespace"], read["name"], read["field"]) for read in fields["inputFields"]]
            for column, fields in written["facets"]["columnLineage"]["fields"].items()
        } == {"a": [(*SHOP_ORDERS, "id")], "b": [(*SHOP_ORDERS, "item")]}


def test_the_example_dag(
    sql: HiveSql, source: EmbeddedMetastore, airflow: DemoAirflow, tmp_path: Path
) -> None:
    arrived = tmp_path / "arrived"
    arrived.mkdir()
    airflow.environment["AIRFLOW_CONN_HIVE_FEDERATION_DEFAULT"] = json.dumps(
        {"conn_type": "hive_federation", "host": "127.0.0.1", "port": source.port}
    )
    variables = {"INGEST_ROOT": f"file:{tmp_path}", "DEAD_LETTERS": str(tmp_path / "letters")}
    for name, value in variables.items():
        airflow.environment[f"AIRFLOW_VAR_HIVE_FEDERATION_{name}"] = value
    conf = {"table": f"{DATABASE}.files", "inputs": "arrived"}
    for name, text in (("1.csv", "1,a\nx,y\n"), ("2.csv", "2,b\n")):
        (arrived / name).write_text(text)
    done = subprocess.run(
        airflow.command("dags", "test", "ingest_files", "--conf", json.dumps(conf)),
        env=airflow.environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert contents(sql, "files") == [("1", "a"), ("2", "b")]
    (letters,) = (tmp_path / "letters").iterdir()
    assert "1.csv, line 2" in json.loads(letters.read_text())["reason"]


def test_a_query_goes_on_where_it_stopped(sql: HiveSql, source: EmbeddedMetastore, tmp_path: Path) -> None:
    settings = MetastoreSettings(uris=(source.uri,))
    request = QueryRequest(
        table=f"{DATABASE}.lines", sql="SELECT id a, item b FROM orders", order_by=["a"], commit_records=2
    )

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "shop.db")

    orders(tmp_path / "shop.db", (1, "a"), (2, "b"), (3, "c"), (4, b"\xff"), (5, "e"))
    with pytest.raises(SerializationError, match=r"Record 2 of the transaction, column b.*\"a\": 4"):
        ingest_query(settings, request, connect)
    assert contents(sql, "lines") == [("1", "a"), ("2", "b")]
    letters = tmp_path / "letters.jsonl"
    patient = QueryRequest(**{**vars(request), "dead_letters": str(letters)})
    report = ingest_query(settings, patient, connect)
    assert (report.records, report.dead_letters) == (2, 1)
    assert json.loads(letters.read_text())["column"] == "b"
    assert ingest_query(settings, patient, connect).transactions == 0
    orders(tmp_path / "shop.db", (6, "f"), (None, "g"))
    with pytest.raises(InvalidSource, match="null in a"):
        ingest_query(settings, patient, connect)
    assert contents(sql, "lines") == [("1", "a"), ("2", "b"), ("3", "c"), ("5", "e")]


def test_a_query_that_the_database_refuses(sql: HiveSql, source: EmbeddedMetastore, tmp_path: Path) -> None:
    settings = MetastoreSettings(uris=(source.uri,))
    request = QueryRequest(table=f"{DATABASE}.refused", sql="nothing_there", order_by=["a"])
    with pytest.raises(SourceError, match="no such table: nothing_there") as caught:
        ingest_query(settings, request, lambda: sqlite3.connect(tmp_path / "empty.db"))
    assert caught.value.retryable


def test_transactions_of_a_batch_share_no_files_in_an_object_store(
    sql: HiveSql,
    source: EmbeddedMetastore,
    store: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The metastore here has no driver of S3: the table's location is there, and Hive reads a copy."""
    filesystem, _ = open_filesystem("s3://batches", store)
    filesystem.mkdir("batches")
    with connected(source) as client:
        make_table(client, DATABASE, "batches")
        described: Any = client.get_table(DATABASE, "batches")

    monkeypatch.setattr(Partitions, "location", lambda *_: "s3://batches/t")
    connection = (
        HiveStreamingConnection.new_builder()
        .with_database(DATABASE)
        .with_table("batches")
        .with_transaction_batch_size(4)
        .with_storage_options(store)
        .with_record_writer(StrictDelimitedInputWriter(field_delimiter=","))
        .with_conf(MetastoreSettings(uris=(source.uri,)))
        .connect()
    )
    with connection:
        for number, ending in enumerate(("commit", "abort", "commit")):
            connection.begin_transaction()
            connection.write(f"{number},x")
            connection.flush()
            connection.write(f"{number},y")
            getattr(connection, f"{ending}_transaction")()
    deltas = sorted(path.rsplit("/", 2)[1] for path in filesystem.find("batches/t") if path.endswith("00000"))
    assert deltas == ["delta_0000001_0000001", "delta_0000003_0000003"]
    filesystem.get("batches/t/", local_path(described.sd.location), recursive=True)
    assert contents(sql, "batches") == [("0", "x"), ("0", "y"), ("2", "x"), ("2", "y")]
