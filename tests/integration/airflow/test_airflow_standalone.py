"""The example DAG in a whole Airflow: scheduler, triggerer, workers and API, between two real metastores."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import psutil
import pytest
from playwright.sync_api import expect

from airflow_hive_federation.clusters.look import CopyLook, TableLook
from airflow_hive_federation.demo.data import open_a_transaction
from airflow_hive_federation.demo.local_airflow import DAG_ID, example_dags
from airflow_hive_federation.demo.ui import ENDED, AirflowServer, airflow_server
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.plugin.registration import ROUTE
from airflow_hive_federation.published.clusters import ClusterPublisher, PublishedRoute
from airflow_hive_federation.published.directory import StateDirectory
from airflow_hive_federation.published.documents import PolicyName, Publisher
from airflow_hive_federation.published.policies import PolicyPublisher
from airflow_hive_federation.replication.cycle import load_dump
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain
from airflow_hive_federation.replication.status import Lag, ReplicationStatus, TableLag
from tests.support.airflow_homes import new_airflow
from tests.support.airflow_runs import answer, begin, instances, state
from tests.support.browsing import DOCUMENTED, NARROW, WIDE, chromium, sight
from tests.support.cycling import rows, scheduled
from tests.support.documents import ROOT
from tests.support.incrementing import run_copy
from tests.support.moving_files import content_of, paths_below
from tests.support.ready_executor import EXECUTOR
from tests.support.small_source import connected, make_table

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SECRETS = ("AKIA-open-sesame", "s3cr3t-open-sesame")
MARKUP = "<img src=x onerror=globalThis.executed=1>"
WATCHING = "started_by_events"
DAG_FILES = (
    *(example_dags() / f"{name}.py" for name in (DAG_ID, "failover")),
    *(Path(__file__).parents[1] / "airflow_dags" / f"{name}.py" for name in ("one_bad_database", WATCHING)),
)
EXTRA = {"secret_storage_options": json.dumps({"key": SECRETS[0], "secret": SECRETS[1]}), "uris": None}


@dataclass(frozen=True)
class Finished:
    """A run of the DAG that has ended, and how it went."""

    server: AirflowServer
    home: Path
    run_id: str
    drain_states: list[str]

    def task(self, name: str, suffix: str = "") -> Any:
        path = f"/api/v2/dags/{DAG_ID}/dagRuns/{self.run_id}/taskInstances/replicate.{name}"
        return self.server.request(path + suffix)

    def xcom(self, name: str) -> Any:
        return self.task(name, "/xcomEntries/return_value?deserialize=true")["value"]


@pytest.fixture(scope="module")
def finished(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    airflow_database: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Finished]:
    statements = """
CREATE DATABASE hangar;
CREATE TABLE hangar.planes (id int, tail string) PARTITIONED BY (`month` int) STORED AS ORC
TBLPROPERTIES ('transactional'='true');
INSERT INTO hangar.planes VALUES (1, 'N1', 1), (2, 'N2', 1), (3, 'N3', 2);
DELETE FROM hangar.planes WHERE id = 2"""
    for statement in statements.split(";"):
        hive_sql_source.execute(statement)
    home = tmp_path_factory.mktemp("standalone")
    with connected(source) as client:
        open_txn = open_a_transaction(client, database="hangar", table="planes")
    airflow = new_airflow(home, airflow_database)
    (dags := home / "dags").mkdir()
    for dag_file in DAG_FILES:
        shutil.copy(dag_file, dags)
    airflow.environment["AIRFLOW__CORE__DAGS_FOLDER"] = str(dags)
    airflow.environment.update({"AIRFLOW__CORE__EXECUTOR": EXECUTOR, "PYTHONPATH": str(ROOT)})
    # No file changes meanwhile, and each look at one is a process.
    airflow.environment["AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL"] = "3600"
    with airflow_server(airflow) as server:
        for conn_id, metastore in (("hive_source", source), ("hive_target", target)):
            fields = {"conn_type": "hive_federation", "host": "127.0.0.1", "port": metastore.port}
            server.connect(conn_id, {**fields, "extra": json.dumps(EXTRA)})
        server.set_variable("hive_federation_dump_root", f"file:{home / 'dumps'}")
        run_id = server.trigger(
            {
                "database": "hangar",
                "target_database": "hangar_copy",
                "open_txn_timeout": "10m",
            }
        )
        states: list[str] = []

        def drain_is(*wanted: str) -> bool:
            states.append(server.state(f"{run_id}/taskInstances/replicate.drain"))
            return states[-1] in wanted

        server.wait(lambda: drain_is("deferred", *ENDED), "drain did not begin")
        with connected(source) as client:
            client.commit_txn(open_txn)
        server.wait(lambda: drain_is(*ENDED), "drain did not end")
        server.wait(lambda: server.state(run_id) in ENDED, "the run did not end")
        yield Finished(server, home, run_id, states)
        started = psutil.Process(server._process.pid).children(recursive=True)
    assert len(started) > 3
    # They end by themselves after a signal; on a busy machine not at once.
    assert not psutil.wait_procs(started, timeout=60)[1]


def test_the_run_succeeds(finished: Finished) -> None:
    states = {name: finished.task(name)["state"] for name in ("decide", "drain", "dump", "load", "verify")}
    assert states == dict.fromkeys(states, "success")
    assert finished.task("increment")["state"] == "skipped"


def test_the_drain_task_deferred_and_resumed(finished: Finished) -> None:
    assert "deferred" in finished.drain_states
    assert finished.xcom("drain")["aborted"] == []
    assert len(finished.xcom("drain")["transactions"]) == 1


def test_the_xcoms_have_the_results(finished: Finished) -> None:
    dump, load, verify = (finished.xcom(name) for name in ("dump", "load", "verify"))
    assert (dump["tables"], dump["partitions"]) == (1, 2)
    assert (load["database"], load["event_id"]) == ("hangar_copy", dump["event_id"])
    (table,) = verify["tables"]
    assert (table["name"], table["source_rows"], table["target_rows"]) == ("planes", 2, 2)
    assert table["digest_equal"] is True
    assert verify["differences"] == []


def test_the_target_holds_the_rows(finished: Finished, hive_sql_target: HiveSql) -> None:
    rows = hive_sql_target.execute("SELECT id, tail, `month` FROM hangar_copy.planes")
    assert sorted(tuple(map(str, row)) for row in rows) == [("1", "N1", "1"), ("3", "N3", "2")]


def test_rendered_templates_are_the_policy(finished: Finished) -> None:
    rendered = finished.task("load")["rendered_fields"]
    assert rendered["policy"]["source_database"] == "hangar"
    assert rendered["policy"]["dump_root"] == f"file:{finished.home / 'dumps'}"
    assert rendered["policy"]["external_base"] == "/var/lib/hive-federation/external"


def test_secrets_are_nowhere(finished: Finished) -> None:
    """Neither in Airflow's home (logs, database with XComs and rendered templates) nor in the dump."""
    looked_at = 0
    for path in paths_below(finished.home):
        # Airflow runs: the journal of its database comes and goes.
        if (content := content_of(path)) is not None:
            looked_at += 1
            assert not any(secret.encode() in content for secret in SECRETS), path
    assert looked_at > 20
    assert not any(secret in json.dumps(finished.server.request("/api/v2/connections")) for secret in SECRETS)


def test_the_test_button(finished: Finished, source: EmbeddedMetastore) -> None:
    def press(**fields: Any) -> tuple[bool, str]:
        body = {"connection_id": "fresh", "conn_type": "hive_federation", **fields}
        answer = finished.server.request("/api/v2/connections/test", body=body)
        return answer["status"], answer["message"]

    works, text = press(host="127.0.0.1", port=source.port)
    assert works
    assert text.startswith("Hive metastore 4.")
    works, text = press(host="127.0.0.1", port=1)
    assert not works
    assert "127.0.0.1:1" in text
    works, text = press(host="127.0.0.1", port=source.port, extra='{"catalogue": "x"}')
    assert not works
    assert "catalogue" in text
    # Another protocol on that port: Airflow's own HTTP.
    works, text = press(host="127.0.0.1", port=int(finished.server.url.rpartition(":")[2]))
    assert not works


def test_a_stored_connection_keeps_its_secrets_in_the_test(finished: Finished) -> None:
    """The form sends *** back for what is hidden."""
    stored = finished.server.request("/api/v2/connections/hive_source")
    assert json.loads(stored["extra"])["secret_storage_options"] == "***"
    body = {name: stored[name] for name in ("connection_id", "conn_type", "host", "port", "extra")}
    assert finished.server.request("/api/v2/connections/test", body=body)["status"] is True


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def test_the_page_shows_what_the_run_has_published(finished: Finished, browser: Browser) -> None:
    """In both colours and sizes: no complaint in the console, and no serious problem of accessibility."""
    publish_many_tables(finished.home / "airflow" / "hive_federation_state")
    links = finished.task("load", "/links")["extra_links"]
    # A local master and a directory of this machine have no web pages.
    assert (links["Spark application"], links["Dump"]) == (None, None)
    for scheme, size in (("light", WIDE), ("dark", NARROW)):
        with sight(browser, f"{finished.server.url}/plugin/{ROUTE}", scheme=scheme, size=size) as seen:
            page = seen.page
            expect(page.get_by_role("heading", name="Replication")).to_be_visible(timeout=60_000)
            assert seen.serious_problems(".hf") == []
            seen.take_picture("policies")
            page.get_by_role("link", name=MARKUP).click()
            rows = page.get_by_role("region", name="Tables: rows").get_by_role("row")
            expect(rows).to_have_count(51)
            expect(rows.nth(1)).to_contain_text(MARKUP)
            page.get_by_role("searchbox", name="Filter tables").fill("T_0999")
            expect(rows).to_have_count(11)
            seen.take_picture("tables")
            assert seen.serious_problems(".hf") == []
            # The task's own link leads to its policy.
            page.goto(links["Hive federation"])
            cycle = page.get_by_role("region", name="Last cycles: rows").get_by_role("row").nth(1)
            expect(cycle).to_contain_text("bootstrap")
            expect(page.get_by_text("hangar → hangar_copy")).to_be_visible()
            expect(page.get_by_text("in step", exact=True)).to_be_visible()
            expect(page.get_by_text("equal,").first).to_be_visible()
            expect(page.get_by_text(finished.xcom("dump")["dump"])).to_be_visible()
            assert seen.serious_problems(".hf") == []
            seen.take_picture("policy")
            page.get_by_role("link", name="Clusters").click()
            rows = page.get_by_role("region", name="Tables by cluster: rows").get_by_role("row")
            expect(rows).to_have_count(51)
            expect(rows.nth(1)).to_contain_text(MARKUP)
            expect(rows.nth(1)).to_contain_text("30 of 90 partitions, 2 stale")
            seen.take_picture("clusters")
            page.get_by_text("All reasons").first.click()
            expect(page.get_by_text("Tried C2: stale there")).to_be_visible()
            seen.take_picture("routes")
            assert seen.serious_problems(".hf") == []
            page.get_by_role("searchbox", name="Filter tables of clusters").fill("t_0999")
            expect(rows).to_have_count(11)
            assert page.evaluate("globalThis.executed") is None
            assert seen.complaints == []


def test_the_page_triggers_a_run(finished: Finished, browser: Browser) -> None:
    """The run begins with the values of the last one. The DAG is paused, so that no task of it runs here."""
    server, link = finished.server, finished.task("load", "/links")["extra_links"]["Hive federation"]
    server.insist(f"/api/v2/dags/{DAG_ID}", {"is_paused": True}, "PATCH")
    with sight(browser, link, scheme="light", size=WIDE) as seen:
        page = seen.page
        page.get_by_role("button", name="Run a cycle").click()
        page.get_by_role("button", name="Trigger").click()
        expect(page.get_by_text("Triggered:")).to_be_visible()
        run_id = page.get_by_text("Triggered:").get_by_role("link").inner_text()
        assert seen.complaints == []
    runs = f"/api/v2/dags/{DAG_ID}/dagRuns"
    run = server.request(f"{runs}/{run_id}")
    assert (run["state"], run["conf"]) == ("queued", server.request(f"{runs}/{finished.run_id}")["conf"])
    server.insist(f"{runs}/{run_id}", {"state": "failed"}, "PATCH")
    server.insist(f"/api/v2/dags/{DAG_ID}", {"is_paused": False}, "PATCH")


def test_the_page_survives_a_server_that_is_away(finished: Finished, browser: Browser) -> None:
    """An expired session and a silent server are readable states, and the last answer stays."""
    away = {"detail": "The store is away.", "remedy": "Mount it."}
    with sight(browser, f"{finished.server.url}/plugin/{ROUTE}", scheme="light", size=WIDE) as seen:
        page = seen.page
        rows = page.get_by_role("region", name="Policies: rows").get_by_role("row")
        expect(rows).not_to_have_count(0)
        answers: list[tuple[Callable[[Route], None], str]] = [
            (lambda route: route.fulfill(status=401, json={"detail": "Old"}), "Your session has expired."),
            (lambda route: route.fulfill(status=503, json=away), "Mount it."),
            (lambda route: route.abort(), "Airflow does not answer."),
        ]
        for answer, words in answers:
            page.route(f"**/{ROUTE}/replication?**", answer)
            page.get_by_role("button", name="Update now").click()
            expect(page.get_by_text(words)).to_be_visible()
            expect(rows).not_to_have_count(0)
            page.unroute_all()
        page.get_by_role("button", name="Update now").click()
        expect(page.get_by_text("Airflow does not answer.")).not_to_be_visible()


def test_an_event_of_the_source_starts_a_dag(finished: Finished, source: EmbeddedMetastore) -> None:
    """The triggerer runs the watcher of an asset, which fires for the event of a table of the database."""
    server, dag = finished.server, f"/api/v2/dags/{WATCHING}"
    server.insist(dag, {"is_paused": False}, "PATCH")
    # Airflow begins to watch the assets of a DAG when it reads the file of one that is not paused.
    server.insist(f"/api/v2/parseDagFile/{server.request(dag)['file_token']}", None, "PUT")
    assert server.request(f"{dag}/dagRuns")["dag_runs"] == []
    with connected(source) as client:
        make_table(client, "hangar", "gliders")
        event_id = client.get_current_notification_event_id()
    ended = f"{dag}/dagRuns?state=success"
    server.wait(lambda: bool(server.request(ended)["dag_runs"]), "nothing started", timeout_s=300)
    server.insist(dag, {"is_paused": True}, "PATCH")
    (run,) = server.request(f"{dag}/dagRuns")["dag_runs"]
    assert run["run_type"] == "asset_triggered"
    (event,) = server.request(f"{dag}/dagRuns/{run['dag_run_id']}/upstreamAssetEvents")["asset_events"]
    assert event["name"] == "hangar"
    assert event["extra"]["payload"] == {
        "policy": "hive_target.hangar_copy",
        "database": "hangar",
        "event_id": event_id,
    }
    with connected(source) as client:
        client.drop_table("hangar", "gliders", delete_data=True)


def publish_many_tables(directory: Path) -> None:
    tables = [
        TableLag(name=f"t_{number:05}", events=number, seconds=1.0, size_bytes=5) for number in range(10_000)
    ]
    status = ReplicationStatus(
        database="d",
        state="loaded",
        event_id=7,
        source_event_id=9,
        lag=Lag(events=9, seconds=1.0),
        tables=[*tables, TableLag(name=MARKUP, events=10**6, seconds=1.0, size_bytes=5)],
        skipped={MARKUP: MARKUP},
    )
    policy = PolicyName(name=MARKUP, source_database=MARKUP, target_database="d")
    place, by = StateDirectory(f"file:{directory}"), Publisher(command=MARKUP)
    PolicyPublisher(place, policy, by).status(status)
    copy = CopyLook(cluster="C2", objects=30, stale=2, stale_bytes=3_000_000, lacks_since_s=1_700_000_000)
    looks = [TableLook(table=f"d.t_{number:05}", primary="C1", assigned=True) for number in range(10_000)]
    looks += [
        TableLook(table=f"d.{MARKUP}", primary="C1", partitions=90, copies=(copy,)),
        TableLook(table="d.copied", primary="C1", copies=(CopyLook(cluster="C2", objects=1),)),
    ]
    clusters = ClusterPublisher(place, metastore="hive_source", by=by)
    clusters.looked(looks)
    lines = ("Cluster: C1", f"Rule: input. {MARKUP}", "Tried C2: stale there", "Tried C1: it has all")
    clusters.routed(
        [
            PublishedRoute(at_s=1_700_000_000.0, rule="none", refused=f"No cluster has {MARKUP}."),
            PublishedRoute(
                at_s=1_750_000_000.0, cluster="C1", rule="input", tables=(f"d.{MARKUP}",), lines=lines
            ),
        ]
    )


def test_bad_databases_hold_up_no_good_one(
    finished: Finished,
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
    browser: Browser,
    tmp_path: Path,
) -> None:
    """Each bad one fails in its own task, by name; the good ones behind them publish."""
    server = finished.server
    for name in ("dead", "bad", "grown", "new"):
        hive_sql_source.execute(f"CREATE DATABASE pen_{name}")
        hive_sql_source.execute(
            f"CREATE TABLE pen_{name}.ink (id int) STORED AS ORC TBLPROPERTIES ('transactional'='true')"
        )
        hive_sql_source.execute(f"INSERT INTO pen_{name}.ink VALUES (1), (2)")
        if name != "new":
            bootstrap(source, target, tmp_path, f"pen_{name}")
    (broken,) = (target.warehouse / "pen_bad_copy.db" / "ink").rglob("bucket_0*")
    content = bytearray(broken.read_bytes())
    content[len(content) // 2] ^= 1
    broken.write_bytes(content)
    hive_sql_source.execute("INSERT INTO pen_grown.ink VALUES (3)")
    server.connect("hive_dead", {"conn_type": "hive_federation", "host": "127.0.0.1", "port": 1})

    policies: list[dict[str, Any]] = [
        {"name": f"pen_{name}", "source_database": f"pen_{name}", "target_database": f"pen_{name}_copy"}
        for name in ("gone", "dead", "bad", "wrong", "grown", "new")
    ]
    policies[3]["colour"] = "red"
    conf = {"policies": policies, "dump_root": f"file:{tmp_path / 'dumps'}"}
    run = begin(server, "one_bad_database", conf, run_id="bad")
    server.wait(lambda: state(server, run) in ENDED, "the run did not end", timeout_s=400)

    states = instances(server, run)
    shown = json.dumps(states, indent=1)
    assert {task: states[task]["pen_grown"] for task in ("increment", "load", "verify")} == {
        "increment": "success",
        "load": "success",
        "verify": "success",
    }, shown
    assert {task: states[task]["pen_new"] for task in ("drain", "dump", "load", "verify")} == dict.fromkeys(
        ("drain", "dump", "load", "verify"), "success"
    ), shown
    failed = {(task, name) for task, by in states.items() for name, state in by.items() if state == "failed"}
    assert failed == {
        ("drain", "pen_gone"),
        ("increment", "pen_dead"),
        ("verify", "pen_bad"),
        ("decide", "pen_wrong"),
    }, shown
    assert state(server, run) == "failed"
    assert rows(hive_sql_target, "SELECT id FROM pen_grown_copy.ink") == [("1",), ("2",), ("3",)]
    assert rows(hive_sql_target, "SELECT id FROM pen_new_copy.ink") == [("1",), ("2",)]
    for task, index, text in (
        ("drain", 0, "pen_gone"),
        ("increment", 1, "127.0.0.1:1"),
        ("verify", 2, "pen_bad_copy"),
        ("decide", 3, "colour"),
    ):
        log = server.request(f"{run}/taskInstances/replicate.{task}/logs/1?map_index={index}")
        assert text in json.dumps(log), (task, index)
    shown_policies = {
        row["name"]: row for row in server.request(f"/{ROUTE}/replication?q=pen_&limit=100")["rows"]
    }
    assert {name: row["health"] for name, row in shown_policies.items()} == {
        "pen_gone": "broken",
        "pen_dead": "broken",
        "pen_wrong": "broken",
        "pen_bad": "differs",
        "pen_grown": "in step",
        "pen_new": "in step",
    }
    assert "127.0.0.1:1" in shown_policies["pen_dead"]["reason"]
    assert shown_policies["pen_dead"]["remedy"]
    take_picture_for_documents(server, browser)


def take_picture_for_documents(server: AirflowServer, browser: Browser) -> None:
    with sight(browser, f"{server.url}/plugin/{ROUTE}", scheme="light", size=DOCUMENTED) as seen:
        seen.page.get_by_role("searchbox", name="Filter policies").fill("pen_")
        expect(seen.page.get_by_role("region", name="Policies: rows").get_by_role("row")).to_have_count(7)
        seen.take_picture_for_documents("policies")
        seen.page.get_by_role("link", name="pen_bad").click()
        expect(seen.page.get_by_role("heading", name="Differences")).to_be_visible()


def test_failover_when_a_person_agrees_and_the_way_back(
    finished: Finished,
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
) -> None:
    """The example DAG of a failover, answered as Airflow's UI does it. (The last test: it writes.)"""
    server = finished.server
    conf = {"database": "hangar", "target_database": "hangar_copy"}
    hive_sql_source.execute("INSERT INTO hangar.planes VALUES (4, 'N4', 3)")

    refused = begin(server, "failover", conf, run_id="refused")
    answer(server, refused, "Reject")
    assert {name: state(server, f"{refused}/taskInstances/{name}") for name in ("switch", "roll_back")} == {
        "switch": "skipped",
        "roll_back": "success",
    }
    with connected(source) as client:
        assert "readonly" not in (client.get_database("hangar").parameters or {})

    agreed = begin(server, "failover", conf, run_id="agreed")
    answer(server, agreed, "Approve")
    assert state(server, agreed) == "success"
    path = f"{agreed}/taskInstances/switch/xcomEntries/return_value?deserialize=true"
    result = server.request(path)["value"]
    assert result["converged"] is True
    assert "hangar_copy of the former target may be written" in result["summary"]

    hive_sql_target.execute("INSERT INTO hangar_copy.planes VALUES (5, 'N5', 3)")
    back = begin(
        server,
        DAG_ID,
        {
            "database": "hangar_copy",
            "target_database": "hangar",
            "source_conn_id": "hive_target",
            "target_conn_id": "hive_source",
            "policy": result["policy"]["name"],
            "external_prefix": result["policy"]["external_prefix"],
        },
        run_id="back",
    )
    server.wait(lambda: state(server, back) in ENDED, "the way back did not end")
    assert state(server, back) == "success"
    assert state(server, f"{back}/taskInstances/replicate.increment") == "success"
    assert state(server, f"{back}/taskInstances/replicate.drain") == "skipped"
    found = hive_sql_source.execute("SELECT id FROM hangar.planes")
    assert sorted(found) == [("1",), ("3",), ("4",), ("5",)]


def bootstrap(source: EmbeddedMetastore, target: EmbeddedMetastore, root: Path, database: str) -> None:
    """Replicate a database to ``<database>_copy`` without Airflow and Spark."""
    with scheduled(source, target, cast("SparkSession", None), root, database) as cycle:
        with cycle.source.client() as client:
            start = begin_drain(client, database)
        dumped = dump_bootstrap(cycle.source, cycle.policy, start)
        load_dump(cycle.source, cycle.target, cycle.policy, dumped.dump, run_copy=run_copy)
