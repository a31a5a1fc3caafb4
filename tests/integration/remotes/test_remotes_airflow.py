"""Operators, sensors, the trigger and the command line of remotes, against real metastores."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.cli.main import main
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.hooks.compat import AirflowFailException, AirflowSensorTimeout, TaskDeferred
from airflow_hive_federation.hooks.remotes import remotes_of
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.operators.lineage import REFRESHED
from airflow_hive_federation.operators.remote import (
    CreateRemoteDatabaseOperator,
    CreateRemoteTableOperator,
    DescribeRemoteOperator,
    DropRemoteOperator,
    RefreshRemoteOperator,
    RemoteSqlOperator,
)
from airflow_hive_federation.published.directory import StateDirectory, key_of
from airflow_hive_federation.published.remotes import REMOTE, REMOTES, RemoteState
from airflow_hive_federation.sensors.remote import RemotePartitionSensor, RemoteTableChangedSensor
from airflow_hive_federation.triggers.remote import RemoteChangesTrigger
from airflow_hive_federation.triggers.waiting import ProbeTrigger
from tests.support.small_source import connected
from tests.support.text_tables import add_partition, storage, text_table

FAR = "remote_air_far"
NEAR = "remote_air_near"
LOCAL = {"metastore_conn_id": "near", "database": NEAR}
PROPERTIES = {"hive.federation.connection": "far"}


@pytest.fixture(scope="module")
def metastores(source: EmbeddedMetastore, target: EmbeddedMetastore) -> dict[str, EmbeddedMetastore]:
    with connected(source) as client:
        client.create_database(types.Database(name=FAR))
    with connected(target) as client:
        client.create_database(types.Database(name=NEAR))
    text_table(source, FAR, "visit", rows={"p=a": "1,x\n"})
    return {"far": source, "near": target}


@pytest.fixture(autouse=True)
def connections(metastores: dict[str, EmbeddedMetastore], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, metastore in metastores.items():
        fields = {"conn_type": "hive_federation", "host": "127.0.0.1", "port": metastore.port, "login": "ann"}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(fields))


@pytest.fixture
def visit() -> Iterator[str]:
    """A remote table, by a connection."""
    made = CreateRemoteTableOperator(
        task_id="make", remote="visit", connected_to=f"{FAR}.visit", properties=PROPERTIES, **LOCAL
    ).execute({})
    assert made["created"] == ["visit"]
    yield "visit"
    assert DropRemoteOperator(task_id="drop", remote="visit", **LOCAL).execute({})["existed"]
    assert not DropRemoteOperator(task_id="again", remote="visit", **LOCAL).execute({})["existed"]


def test_a_remote_database_by_operators(
    metastores: dict[str, EmbeddedMetastore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", str(tmp_path))

    def published() -> RemoteState:
        place = StateDirectory(str(tmp_path))
        found = place.read(REMOTES, key_of("air_mirror", "near", "database"), REMOTE)
        assert found is not None
        return found

    make = CreateRemoteDatabaseOperator(
        task_id="make", remote="air_mirror", connected_to=FAR, properties=PROPERTIES, **LOCAL
    )
    assert make.execute({})["created"] == ["visit"]
    assert make.execute({})["created"] == []  # as after a retry
    text_table(metastores["far"], FAR, "new", rows={"": "1,x\n"})
    add_partition(metastores["far"], FAR, "visit", "p=mirrored")
    refresh = RefreshRemoteOperator(task_id="refresh", remote="air_mirror", **LOCAL)
    added: list[tuple[str, object]] = []
    events = {REFRESHED: SimpleNamespace(add=lambda asset, extra: added.append((asset.uri, extra["remote"])))}
    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="refresh", map_index=-1, try_number=1)
    context: Any = {"outlet_events": events, "ti": ti}
    report = refresh.execute(context)
    assert (report["created"], report["with_partitions"]) == (["new"], ["visit"])
    assert (published().points_to, published().via, published().event_id) == (
        FAR,
        "thrift",
        report["event_id"],
    )
    assert (published().created, published().partitions) == (1, 1)
    root = f"hive://127.0.0.1:{metastores['near'].port}/air_mirror"
    assert added == [(f"{root}/new", "air_mirror"), (f"{root}/visit", "air_mirror")]
    read = refresh.get_openlineage_facets_on_complete(None).inputs
    assert [(table.namespace, table.name) for table in read] == [
        (f"hive://127.0.0.1:{metastores['far'].port}", f"{FAR}.{name}") for name in ("new", "visit")
    ]
    # The task failed after its refresh, and finds nothing left to do.
    ti.try_number = 2
    assert refresh.execute(context)["named"] == ["new", "visit"]
    assert added[2:] == added[:2]
    with connected(metastores["far"]) as client:
        client.drop_table(FAR, "new", delete_data=False)
    fail = RefreshRemoteOperator(task_id="fail", remote="air_mirror", on_dropped="fail", **LOCAL)
    with pytest.raises(AirflowFailException, match="RemoteDroppedError"):
        fail.execute({})
    assert published().error.startswith("RemoteDroppedError: ")
    keep = RefreshRemoteOperator(task_id="keep", remote="air_mirror", on_dropped="keep", whole=True, **LOCAL)
    assert keep.execute({})["gone"] == ["new"]
    assert (published().error, published().gone) == ("", 1)
    described = DescribeRemoteOperator(task_id="d", remote="air_mirror", kind="database", **LOCAL).execute({})
    assert ["Connected To:", FAR, ""] in described["rows"]
    assert json.loads(json.dumps(described)) == described
    DropRemoteOperator(task_id="drop", remote="air_mirror", kind="database", **LOCAL).execute({})
    assert published().is_dropped


def test_what_is_left_out_is_named(
    metastores: dict[str, EmbeddedMetastore], capfd: pytest.CaptureFixture[str]
) -> None:
    """In the log and the XCom of operators, and on the command line; the rest of the database is linked."""
    name = "air_left_out_far"
    with connected(metastores["far"]) as client:
        client.create_database(types.Database(name=name))
        text_table(metastores["far"], name, "plain", rows={"": "1,x\n"})
        kept: Any = types.Table(
            dbName=name,
            tableName="by_jdbc",
            owner="root",
            sd=storage(None),
            partitionKeys=[],
            parameters={
                "EXTERNAL": "TRUE",
                "storage_handler": "org.apache.hive.storage.jdbc.JdbcStorageHandler",
            },
            tableType="EXTERNAL_TABLE",
        )
        client.create_table(kept)
        for view, text in {
            "elsewhere": f"SELECT `visit`.`id` FROM `{FAR}`.`visit`",
            "damaged": "SELECT ((",
            "of_jdbc": f"SELECT `by_jdbc`.`id` FROM `{name}`.`by_jdbc`",
        }.items():
            made = types.Table(
                dbName=name,
                tableName=view,
                owner="root",
                sd=storage(None),
                partitionKeys=[],
                parameters={},
                tableType="VIRTUAL_VIEW",
                viewOriginalText=text,
                viewExpandedText=text,
            )
            client.create_table(made)
    reasons = {
        "by_jdbc": "JdbcStorageHandler",
        "damaged": "cannot be parsed",
        "elsewhere": f"{FAR}.visit, which is of another database",
        "of_jdbc": "by_jdbc, which is not linked",
    }
    make = CreateRemoteDatabaseOperator(
        task_id="make", remote="air_left_out", connected_to=name, properties=PROPERTIES, **LOCAL
    )
    refresh = RefreshRemoteOperator(task_id="refresh", remote="air_left_out", whole=True, **LOCAL)
    for operator in (make, refresh):
        capfd.readouterr()
        report = operator.execute({})
        logged = "".join(capfd.readouterr())
        assert report["skipped"].keys() == reasons.keys()
        for table, why in reasons.items():
            assert why in report["skipped"][table]
            assert f"{table} is left out: {report['skipped'][table]}" in logged
    capfd.readouterr()
    assert main(["remote", "refresh", "air_left_out", "--whole", "--metastore", "near"]) == 0
    stderr = capfd.readouterr().err
    for table, why in reasons.items():
        assert any(line.startswith(f"{table}: left out: ") and why in line for line in stderr.splitlines())
    DropRemoteOperator(task_id="drop", remote="air_left_out", kind="database", **LOCAL).execute({})
    with connected(metastores["far"]) as client:
        client.drop_database(name, delete_data=False, cascade=True)


def test_statements_by_an_operator(visit: str) -> None:
    answers = RemoteSqlOperator(
        task_id="sql", sql=f"SHOW REMOTES IN {NEAR}; DESCRIBE {visit}", **LOCAL
    ).execute({})["answers"]
    assert answers[0]["rows"][0][:3] == ["table", f"{NEAR}.visit", f"{FAR}.visit"]
    assert ["  hive.federation.connection", "far", ""] in answers[1]["rows"]
    with pytest.raises(AirflowFailException, match="Line 1, column 8"):
        RemoteSqlOperator(task_id="bad", sql="CREATE TABLE x", **LOCAL).execute({})
    with pytest.raises(AirflowFailException, match="no Airflow connection 'nobody'"):
        CreateRemoteTableOperator(
            task_id="bad", remote="x", properties={"hive.federation.connection": "nobody"}, **LOCAL
        ).execute({})


def test_a_partition_is_waited_for(visit: str, metastores: dict[str, EmbeddedMetastore]) -> None:
    here = RemotePartitionSensor(task_id="here", remote=visit, partition="p=a", **LOCAL)
    here.execute({})
    RemotePartitionSensor(task_id="some", remote=visit, where="p >= 'a' AND p < 'b'", **LOCAL).execute({})
    none = RemotePartitionSensor(task_id="none", remote=visit, where="p = 'nothing'", **LOCAL)
    assert not none.poke({})
    sensor = RemotePartitionSensor(task_id="wait", remote=visit, partition="p=later", timeout=60, **LOCAL)
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute({})
    trigger = deferred.value.trigger
    assert isinstance(trigger, ProbeTrigger)
    _, fields = trigger.serialize()
    add_partition(metastores["far"], FAR, "visit", "p=later")
    (event,) = asyncio.run(events_of(ProbeTrigger(**fields)))
    assert event["ready"]
    sensor.execute_complete({}, event)


def test_a_change_is_waited_for_once(visit: str, metastores: dict[str, EmbeddedMetastore]) -> None:
    sensor = RemoteTableChangedSensor(task_id="wait", remote=visit, **LOCAL)
    assert not sensor.poke({})
    # What happens to other tables is no change.
    text_table(metastores["far"], FAR, "other", rows={"": "1,x\n"})
    assert not sensor.poke({})
    add_partition(metastores["far"], FAR, "visit", "p=changed")
    assert sensor.poke({})
    RefreshRemoteOperator(task_id="refresh", remote=visit, kind="table", **LOCAL).execute({})
    assert not sensor.poke({})
    late = RemoteTableChangedSensor(task_id="late", remote=visit, poke_interval=0.01, timeout=0.05, **LOCAL)
    with pytest.raises(TaskDeferred) as deferred:
        late.execute({})
    _, fields = deferred.value.trigger.serialize()
    (event,) = asyncio.run(events_of(ProbeTrigger(**fields)))
    with pytest.raises(AirflowSensorTimeout, match="has not changed"):
        late.execute_complete({}, event)
    wrong = ProbeTrigger(**{**fields, "probe": {**fields["probe"], "remote": "nothing"}})
    (event,) = asyncio.run(events_of(wrong))
    with pytest.raises(AirflowFailException, match="NotARemoteError"):
        late.execute_complete({}, event)
    with connected(metastores["far"]) as client:
        client.drop_table(FAR, "other", delete_data=False)


def test_a_watcher_gets_each_change_once(visit: str, metastores: dict[str, EmbeddedMetastore]) -> None:
    path, fields = RemoteChangesTrigger(remote=visit, kind="table", poll_s=0.05, **LOCAL).serialize()
    assert path.endswith(".RemoteChangesTrigger")

    async def watch() -> list[dict[str, object]]:
        payloads = []
        events = RemoteChangesTrigger(**fields).run()
        for number in range(2):
            waiting = asyncio.ensure_future(anext(events))  # type: ignore[arg-type]
            # Nobody has refreshed the link, and no event comes twice.
            done, _ = await asyncio.wait([waiting], timeout=1)
            assert not done
            await asyncio.to_thread(add_partition, metastores["far"], FAR, "visit", f"p=watched{number}")
            payloads.append((await asyncio.wait_for(waiting, 60)).payload)
        await events.aclose()  # type: ignore[attr-defined]
        return payloads

    first, second = asyncio.run(watch())
    assert first["remote"] == visit
    assert first["event_id"] < second["event_id"]  # type: ignore[operator]


async def events_of(trigger: ProbeTrigger) -> list[dict[str, Any]]:
    return [event.payload async for event in trigger.run()]


def test_the_command_line(
    visit: str, metastores: dict[str, EmbeddedMetastore], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["remote", "list", NEAR, "--metastore", "near"]) == 0
    assert re.search(rf"│ {NEAR}\.visit +│ {FAR}\.visit +│ thrift", capsys.readouterr().out)
    assert main(["remote", "describe", f"{NEAR}.{visit}", "--metastore", "near", "--json"]) == 0
    assert ["id", "int", ""] in json.loads(capsys.readouterr().out)["rows"]
    assert main(["remote", "refresh", f"{NEAR}.{visit}", "--metastore", "near"]) == 0
    assert "tables: 0 created" in capsys.readouterr().out
    near, far = metastores["near"].uri, metastores["far"].uri
    script = (
        f"CREATE REMOTE TABLE v CONNECTED TO {FAR}.visit 'hive.metastore.uris' = '{far}'; DROP REMOTE TABLE v"
    )
    assert main(["sql", script, "--metastore", near, "--database", NEAR, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2
    assert main(["sql", "CREATE REMOTE", "--metastore", near]) == 1
    assert "Line 1, column 14: expected TABLE or DATABASE" in capsys.readouterr().err


def test_the_user_is_passed_on(visit: str, metastores: dict[str, EmbeddedMetastore]) -> None:
    with remotes_of("near", database=NEAR) as remotes:
        assert remotes._user == "ann"
    with connected(metastores["near"]) as client:
        assert client.get_table(NEAR, visit).owner == "ann"
