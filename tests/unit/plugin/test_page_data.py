"""The data of the page, behind the rights of a real auth manager of Airflow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow import settings
from airflow.api_fastapi import app as airflow_app
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.models.revoked_token import RevokedToken
from fastapi.testclient import TestClient
from starlette.routing import Route

from airflow_hive_federation.clusters.look import CopyLook, TableLook
from airflow_hive_federation.compaction.queue import QueueLook, WaitingRequest
from airflow_hive_federation.compaction.worker import CompactionReport
from airflow_hive_federation.ingest.runs import IngestReport
from airflow_hive_federation.plugin.app import build_app
from airflow_hive_federation.published.clusters import ClusterPublisher, PublishedRoute
from airflow_hive_federation.published.directory import (
    CYCLES,
    POSITION,
    REPLICATION,
    VERIFIED,
    StateDirectory,
    key_of,
    policy_key,
)
from airflow_hive_federation.published.documents import (
    PolicyName,
    Publisher,
    VerifiedTable,
    VerifiedTables,
)
from airflow_hive_federation.published.policies import PolicyPublisher
from airflow_hive_federation.published.remotes import RemotePublisher
from airflow_hive_federation.published.work import IngestPublisher, publish_compactions
from airflow_hive_federation.remotes.reports import RefreshReport
from airflow_hive_federation.replication.replica.cycle_history import CycleRecord
from airflow_hive_federation.replication.status import Lag, Lags, ReplicationStatus, TableLag

MARKUP = "<img src=x onerror=alert(1)>"
RECORD = CycleRecord(kind="increment", event_id=7, ended_s=1000)


class OneSecretDag(SimpleAuthManager):
    """Viewers may read all DAGs but one."""

    def is_authorized_dag(self, *, details: DagDetails | None = None, **rights: Any) -> bool:
        if details is not None and details.id == "secret" and rights["user"].role == "viewer":
            return False
        return bool(super().is_authorized_dag(details=details, **rights))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateDirectory:
    uri = f"file:{tmp_path / 'state'}"
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", uri)
    return StateDirectory(uri)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "a secret of more than sixty-four bytes" * 2)
    monkeypatch.setattr(airflow_app, "_AuthManagerState", type("State", (), {"instance": OneSecretDag()}))
    # Airflow asks for revoked tokens.
    RevokedToken.__table__.create(settings.engine, checkfirst=True)  # type: ignore[attr-defined]
    with TestClient(build_app()) as client:
        yield client
    settings.engine.dispose()


def as_user(role: str | None) -> dict[str, str]:
    user = SimpleAuthManagerUser(username="u", role=role)
    return {"Authorization": f"Bearer {airflow_app.get_auth_manager().generate_jwt(user)}"}


def publisher(
    place: StateDirectory, name: str, *, dag_id: str = "", command: str = "replicate status"
) -> PolicyPublisher:
    policy = PolicyName(name=name, source_database=name, target_database=f"{name}_copy")
    by = Publisher(dag_id=dag_id, run_id="r", task_id="load") if dag_id else Publisher(command=command)
    return PolicyPublisher(place, policy, by)


def key(name: str) -> str:
    return policy_key(PolicyName(name=name, source_database=name, target_database=f"{name}_copy"))


def behind(events: int) -> Lags:
    lag = Lag(events=events, seconds=float(events))
    return Lags(event_id=7, source_event_id=7 + events, total=lag, tables={})


def test_every_route_is_a_get_and_refuses_strangers(client: TestClient, place: StateDirectory) -> None:
    publisher(place, "shop").cycle([RECORD], behind(0), skipped={})
    routes = [route for route in client.app.routes if isinstance(route, Route)]  # type: ignore[attr-defined]
    publish_compactions(place, "hive", None, [], Publisher())
    assert len(routes) == 10
    for route in routes:
        assert route.methods is not None
        assert route.methods <= {"GET", "HEAD"}
        path = route.path.replace("{key}", key_of("hive") if "compaction" in route.path else key("shop"))
        assert client.get(path).status_code == 401, path
        assert client.get(path, headers={"Authorization": "Bearer nonsense"}).status_code in {401, 403}, path
        assert client.get(path, headers=as_user(None)).status_code == 403, path
        assert client.get(path, headers=as_user("viewer")).status_code == 200, path


def test_policies_of_secret_dags_do_not_exist_for_others(client: TestClient, place: StateDirectory) -> None:
    publisher(place, "open", dag_id="public").cycle([RECORD], behind(0), skipped={})
    publisher(place, "hidden", dag_id="secret").cycle([RECORD], behind(0), skipped={})
    publisher(place, "hidden").lags(behind(3))

    def names(role: str) -> list[str]:
        return [row["name"] for row in client.get("/replication", headers=as_user(role)).json()["rows"]]

    assert names("viewer") == ["open"]
    assert sorted(names("admin")) == ["hidden", "open"]
    for path in (f"/replication/{key('hidden')}", f"/replication/{key('hidden')}/tables"):
        assert client.get(path, headers=as_user("viewer")).status_code == 404
        assert client.get(path, headers=as_user("admin")).status_code == 200


def test_tables_stay_hidden_if_a_document_cannot_be_read(
    client: TestClient, place: StateDirectory, tmp_path: Path
) -> None:
    publisher(place, "hidden", dag_id="secret").cycle([RECORD], behind(3), skipped={"t": "because"})
    tables = f"/replication/{key('hidden')}/tables"

    def seen(role: str) -> tuple[int, int]:
        listed = client.get("/replication", headers=as_user(role)).json()["rows"]
        return len(listed), client.get(tables, headers=as_user(role)).status_code

    assert (seen("viewer"), seen("admin")) == ((0, 404), (1, 200))
    for number, subject in enumerate((POSITION, CYCLES), start=1):
        path = tmp_path / "state" / REPLICATION / f"{key('hidden')}.{subject.name}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}))
        assert (seen("viewer"), seen("admin")) == ((0, 404), (1, 200)), number


def test_a_failover_is_not_repeated_by_the_button_of_cycles(
    client: TestClient, place: StateDirectory
) -> None:
    def again() -> str | None:
        answer = client.get(f"/replication/{key('shop')}", headers=as_user("admin")).json()["cycle_by"]
        return answer and str(answer["dag_id"])

    exchange = publisher(place, "shop", dag_id="failover")
    exchange.failure("MetastoreUnreachableError: x", "start it", seconds=1.0)
    assert again() is None
    publisher(place, "shop", dag_id="replicate").cycle([RECORD], behind(3), skipped={})
    exchange.failure("MetastoreUnreachableError: y", "start it", seconds=1.0)
    assert again() == "replicate"
    exchange.failover(9)
    assert again() is None


def test_the_worst_policy_is_first_and_names_its_remedy(client: TestClient, place: StateDirectory) -> None:
    publisher(place, "near").cycle([RECORD], behind(0), skipped={})
    publisher(place, "far").cycle([RECORD], behind(9), skipped={})
    publisher(place, MARKUP).failure("MetastoreError: away", "Start it.", seconds=1)
    answer = client.get("/replication", headers=as_user("viewer")).json()
    assert [(row["name"], row["health"], row["remedy"]) for row in answer["rows"]] == [
        (MARKUP, "broken", "Start it."),
        ("far", "behind", ""),
        ("near", "in step", ""),
    ]
    # A cycle that succeeds ends the failure.
    later = CycleRecord(kind="increment", event_id=8, ended_s=4_000_000_000)
    publisher(place, MARKUP).cycle([later], behind(0), skipped={})
    answer = client.get("/replication", params={"q": "IMG"}, headers=as_user("viewer")).json()
    assert [(row["name"], row["health"]) for row in answer["rows"]] == [(MARKUP, "in step")]
    assert (answer["total"], answer["published"]) == (1, 3)


def test_nothing_is_published_yet(client: TestClient, place: StateDirectory) -> None:
    answer = client.get("/replication", headers=as_user("viewer"))
    assert answer.headers["cache-control"] == "no-store"
    assert {name: answer.json()[name] for name in ("total", "published", "rows")} == {
        "total": 0,
        "published": 0,
        "rows": [],
    }
    assert client.get("/replication/nonsense", headers=as_user("viewer")).status_code == 404


def test_what_cannot_be_read_hides_nothing_else(
    client: TestClient, place: StateDirectory, tmp_path: Path
) -> None:
    publisher(place, "good").cycle([RECORD], behind(0), skipped={})
    publisher(place, "torn").cycle([RECORD], behind(0), skipped={})
    (path,) = tmp_path.rglob("torn-*.cycles.json")
    path.write_text(json.dumps({"version": 99}), encoding="utf-8")
    rows = client.get("/replication", headers=as_user("viewer")).json()["rows"]
    assert [(row["name"], row["health"]) for row in rows] == [("torn", "unreadable"), ("good", "in step")]
    assert "its version is 99" in rows[0]["reason"]
    assert rows[0]["remedy"].startswith("Install the same version")


def test_an_unusable_directory_is_named_with_a_remedy(
    client: TestClient, place: StateDirectory, tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("no directory", encoding="utf-8")
    answer = client.get("/replication", headers=as_user("viewer"))
    assert answer.status_code == 503
    assert str(tmp_path) in answer.json()["detail"]
    assert answer.json()["remedy"]


def test_remotes_are_listed_with_the_worst_first(
    client: TestClient, place: StateDirectory, tmp_path: Path
) -> None:
    def remote(name: str, dag_id: str = "") -> RemotePublisher:
        by = Publisher(dag_id=dag_id)
        return RemotePublisher(place, metastore="hive", remote=name, kind="database", by=by)

    for name in ("near", "torn"):
        remote(name).refresh(RefreshReport(remote=name), points_to="sales", via="thrift")
    remote(MARKUP).failure("RemoteUnavailableError: away", "Start it.")
    remote("hidden", dag_id="secret").drop()
    remote("gone").drop()
    remote("lossy").refresh(RefreshReport(remote="lossy", skipped={"t": "why"}), points_to="x", via="")
    (path,) = (tmp_path / "state" / "remotes").glob("torn-*")
    path.write_text("{", encoding="utf-8")

    def names(role: str, **parameters: str) -> list[tuple[str, str]]:
        answer = client.get("/remotes", params=parameters, headers=as_user(role)).json()
        return [(row["name"].partition("-")[0], row["health"]) for row in answer["rows"]]

    assert names("viewer") == [
        (MARKUP, "broken"),
        ("torn", "unreadable"),
        ("lossy", "differs"),
        ("near", "in step"),
        ("gone", "dropped"),
    ]
    assert ("hidden", "dropped") in names("admin")
    assert names("viewer", q="sales") == [("near", "in step")]


def test_ingest_and_queues_are_listed(client: TestClient, place: StateDirectory) -> None:
    for table, dag_id in (("d.good", ""), ("d.bad", ""), ("d.hidden", "secret")):
        by = Publisher(dag_id=dag_id)
        publisher = IngestPublisher(place, metastore="hive", table=table, source="files", by=by)
        publisher.run(IngestReport(table=table, records=90, seconds=3.0))
        if table == "d.bad":
            publisher.failure("StreamingError: no", "Do.")
    rows = client.get("/ingest", headers=as_user("viewer")).json()["rows"]
    assert [(row["name"], row["health"], row["records_per_s"]) for row in rows] == [
        ("d.bad", "broken", 30),
        ("d.good", "in step", 30),
    ]
    report = CompactionReport(id=1, table="d.t", partition="p=1", kind="major", state="compacted")
    waiting = WaitingRequest(table="d.w", partition="", kind="minor", state="initiated", since_s=1.0)
    look = QueueLook(states={"initiated": 1}, waiting=[waiting], open_txns=2)
    publish_compactions(place, "hive", look, [report], Publisher())
    publish_compactions(place, "hidden", look, [report], Publisher(dag_id="secret"))
    (row,) = client.get("/compaction", headers=as_user("viewer")).json()["rows"]
    assert (row["name"], row["open_txns"], row["waiting_total"]) == ("hive", 2, 1)
    path = f"/compaction/{key_of('hive')}/requests"
    found = client.get(path, headers=as_user("viewer")).json()
    assert [(row["table"], row["state"]) for row in found["rows"]] == [
        ("d.w", "initiated"),
        ("d.t", "compacted"),
    ]
    hidden = f"/compaction/{key_of('hidden')}/requests"
    assert client.get(hidden, headers=as_user("viewer")).status_code == 404
    assert client.get(hidden, headers=as_user("admin")).status_code == 200


def test_tables_of_clusters_are_listed_with_the_worst_first(
    client: TestClient, place: StateDirectory, tmp_path: Path
) -> None:
    def publisher_of(dag_id: str = "") -> ClusterPublisher:
        return ClusterPublisher(place, metastore="hive", by=Publisher(dag_id=dag_id))

    stale = CopyLook(cluster="C2", objects=3, stale=2, stale_bytes=5, lacks_since_s=7)
    looks = [
        TableLook(table="d.only", primary="C1", assigned=True),
        TableLook(table="d.stale", primary="C1", partitions=4, copies=(stale,)),
        TableLook(table=f"d.{MARKUP}", primary="C1", copies=(CopyLook(cluster="C2", objects=1),)),
        TableLook(table="d.torn", problem="The cluster metadata of d.torn is damaged."),
        TableLook(table="d.failing", primary="C1"),
    ]
    publisher_of().looked([*looks, TableLook(table="e.x")])
    publisher_of().failure("d.failing", "StorageError: no", "Do.")
    publisher_of("secret").looked([TableLook(table="d.hidden", primary="C2")])
    (path,) = (tmp_path / "state" / "clusters").glob("e-*")
    path.write_text("{", encoding="utf-8")

    def answer(role: str = "viewer", **parameters: str) -> dict[str, Any]:
        return dict(client.get("/clusters", params=parameters, headers=as_user(role)).json())

    assert [(row["name"].partition("-")[0], row["health"]) for row in answer()["rows"]] == [
        ("d.failing", "broken"),
        ("d.torn", "unreadable"),
        ("e", "unreadable"),
        ("d.stale", "stale"),
        (f"d.{MARKUP}", "in step"),
        ("d.only", "no copy"),
    ]
    assert "d.hidden" in [row["name"] for row in answer("admin")["rows"]]
    (row,) = answer(q="d.stale")["rows"]
    assert (row["stale"], row["copies"][0]["lacks_since_s"], row["assigned"]) == (2, 7, False)
    assert row["behind_s"] > 1_000_000_000
    assert answer()["clusters"] == [
        {"name": "C1", "tables": 4, "copies": 0, "stale": 0},
        {"name": "C2", "tables": 0, "copies": 2, "stale": 1},
    ]
    assert (answer(q="broken")["rows"][0]["reason"], answer()["published"]) == ("StorageError: no", 6)


def test_the_last_routes_come_first(client: TestClient, place: StateDirectory, tmp_path: Path) -> None:
    for metastore, dag_id in (("hive", ""), ("hidden", "secret"), ("torn", "")):
        publisher = ClusterPublisher(place, metastore=metastore, by=Publisher(dag_id=dag_id))
        publisher.routed(
            [
                PublishedRoute(at_s=1.0, cluster="C1", rule="input", tables=("d.a",), lines=("C1", "Rule")),
                PublishedRoute(at_s=2.0, rule="none", refused=MARKUP, tables=("d.b",)),
            ]
        )
    (path,) = (tmp_path / "state" / "routes").glob("torn-*")
    path.write_text("{", encoding="utf-8")
    torn, *rows = client.get("/clusters/routes", headers=as_user("viewer")).json()["rows"]
    assert "cannot be read" in torn["reason"]
    assert [(row["cluster"], row["refused"], row["reason"]) for row in rows] == [
        ("", True, MARKUP),
        ("C1", False, "Rule"),
    ]
    found = client.get("/clusters/routes", params={"q": "d.a"}, headers=as_user("admin")).json()
    assert (found["total"], found["published"]) == (2, 5)


def test_ten_thousand_tables_of_clusters_come_in_parts(client: TestClient, place: StateDirectory) -> None:
    copies = tuple(CopyLook(cluster=f"C{number}", objects=9, stale=1) for number in range(2, 4))
    ClusterPublisher(place, metastore="hive", by=Publisher(command="cluster status")).looked(
        TableLook(table=f"d.t{number:05}", primary="C1", partitions=9, copies=copies)
        for number in range(10_000)
    )
    parameters = {"q": "t0999", "sort": "-name", "limit": 3}
    found = client.get("/clusters", params=parameters, headers=as_user("viewer")).json()  # type: ignore[arg-type]
    assert (found["total"], found["published"]) == (10, 10_000)
    assert [row["name"] for row in found["rows"]] == ["d.t09999", "d.t09998", "d.t09997"]
    assert found["clusters"][1] == {"name": "C2", "tables": 0, "copies": 10_000, "stale": 10_000}


def test_ten_thousand_tables_come_in_parts(client: TestClient, place: StateDirectory) -> None:
    tables = [
        TableLag(name=f"t{number}", events=number, seconds=1.0, size_bytes=5) for number in range(9_999)
    ]
    status = ReplicationStatus(
        database="shop_copy",
        state="loaded",
        event_id=7,
        source_event_id=9,
        lag=Lag(events=9, seconds=1.0),
        tables=[*tables, TableLag(name=MARKUP, events=20_000, seconds=1.0, size_bytes=5)],
    )
    publisher(place, "shop").status(status)
    path, headers = f"/replication/{key('shop')}/tables", as_user("viewer")

    def found(**parameters: str | int) -> dict[str, Any]:
        answer = client.get(path, params=parameters, headers=headers)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    first = found(sort="-lag_events", limit=2)
    assert first["total"] == 10_000
    assert [row["name"] for row in first["rows"]] == [MARKUP, "t9998"]
    assert [row["name"] for row in found(sort="lag_events", limit=1, offset=9_999)["rows"]] == [MARKUP]
    assert found(q="t999", limit=50)["total"] == 10
    # Rows without a value come last in both orders.
    verified = VerifiedTable(
        name="t5",
        kind="managed",
        source_rows=1,
        target_rows=1,
        files=1,
        size_bytes=1,
        equal=True,
        event_id=7,
        verified_s=1.0,
    )
    policy = PolicyName(name="shop", source_database="shop", target_database="shop_copy")
    place.write(
        REPLICATION,
        key("shop"),
        VERIFIED,
        VerifiedTables(policy=policy, tables=(verified,), published_s=1.0),
    )
    for sort in ("source_rows", "-source_rows"):
        (row,) = found(sort=sort, limit=1)["rows"]
        assert (row["name"], row["source_rows"], row["lag_events"]) == ("t5", 1, 5)
    for parameters in ({"limit": 501}, {"limit": 0}, {"offset": -1}, {"q": "x" * 301}):
        assert client.get(path, params=parameters, headers=headers).status_code == 422  # type: ignore[arg-type]
