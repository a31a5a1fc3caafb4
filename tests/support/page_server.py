"""Airflow's API server alone, from any environment, with one user and published state for the page."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from airflow_hive_federation.clusters.look import CopyLook, TableLook
from airflow_hive_federation.compaction.queue import QueueLook, WaitingRequest
from airflow_hive_federation.compaction.worker import CompactionReport
from airflow_hive_federation.demo.ui import AirflowServer
from airflow_hive_federation.embedded.jvm import free_port
from airflow_hive_federation.ingest.runs import IngestReport
from airflow_hive_federation.published.clusters import ClusterPublisher, PublishedRoute
from airflow_hive_federation.published.directory import StateDirectory
from airflow_hive_federation.published.documents import PolicyName, Publisher
from airflow_hive_federation.published.policies import PolicyPublisher
from airflow_hive_federation.published.remotes import RemotePublisher
from airflow_hive_federation.published.work import IngestPublisher, publish_compactions
from airflow_hive_federation.remotes.reports import RefreshReport
from airflow_hive_federation.replication.replica.cycle_history import CycleRecord
from airflow_hive_federation.replication.status import Lag, ReplicationStatus, TableLag

#: A name that a page must show as text.
MARKUP = "<img src=x onerror=globalThis.executed=1>"
USER, PASSWORD = "admin", "open-sesame"


@contextmanager
def page_server(python: Path, home: Path, *, prefix: str) -> Iterator[AirflowServer]:
    """Run the API server of an environment on a new database, until the block ends.

    :param python: interpreter of an environment with Airflow and this package.
    :param home: an empty directory for Airflow's home and the published state.
    :param prefix: path of the server's URL, with slashes around it, or ``/``.
    """
    passwords, log_path = home / "passwords.json", home / "airflow.log"
    passwords.write_text(json.dumps({USER: PASSWORD}), encoding="utf-8")
    publish_everything(StateDirectory(f"file:{home / 'state'}"))
    port = free_port()
    url = f"http://127.0.0.1:{port}{prefix.rstrip('/')}"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")},
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__API__BASE_URL": f"{url}/",
        "AIRFLOW__API_AUTH__JWT_SECRET": "a secret of more than sixty-four bytes" * 2,
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "AIRFLOW__DATABASE__LOAD_DEFAULT_CONNECTIONS": "False",
        "AIRFLOW__HIVE_FEDERATION__STATE_URI": f"file:{home / 'state'}",
    }
    airflow = [str(python), "-m", "airflow"]
    serve = ["api-server", "--apps", "core", "--workers", "1", "--host", "127.0.0.1", "--port", str(port)]
    with log_path.open("ab") as log:
        subprocess.run(
            [*airflow, "db", "migrate"], env=environment, cwd=home, stdout=log, stderr=log, check=True
        )
        process = subprocess.Popen(
            [*airflow, *serve], env=environment, cwd=home, stdout=log, stderr=log, start_new_session=True
        )
    server = AirflowServer(url, process, str(log_path))
    try:
        server.wait(lambda: answers(server), "Airflow's API server did not come up.")
        yield server
    finally:
        # It may have children, or have ended by itself.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=60)


def answers(server: AirflowServer) -> bool:
    try:
        server.request("/api/v2/version", token="")
    except OSError:
        return False
    return True


def publish_everything(place: StateDirectory) -> None:
    """Publish something for each tab of the page, with :data:`MARKUP` in it."""
    by = Publisher(command=MARKUP)
    policy = PolicyPublisher(place, PolicyName(name=MARKUP, source_database=MARKUP, target_database="d"), by)
    lags = [TableLag(name=name, events=7, seconds=9.0, size_bytes=5) for name in ("t", MARKUP)]
    policy.status(
        ReplicationStatus(
            database="d",
            state="loaded",
            event_id=7,
            source_event_id=14,
            lag=Lag(events=7, seconds=9.0),
            tables=lags,
            skipped={MARKUP: MARKUP},
        )
    )
    policy.cycle([CycleRecord(kind="increment", event_id=7, ended_s=1000)], None, skipped={MARKUP: MARKUP})
    policy.failure(f"MetastoreError: {MARKUP}", f"Start {MARKUP}.", seconds=1)

    remote = RemotePublisher(place, metastore="hive", remote=MARKUP, kind="database", by=by)
    remote.refresh(RefreshReport(remote=MARKUP, skipped={MARKUP: MARKUP}), points_to=MARKUP, via="thrift")

    clusters = ClusterPublisher(place, metastore="hive", by=by)
    copy = CopyLook(cluster="C2", objects=30, stale=2, stale_bytes=3_000_000, lacks_since_s=1_700_000_000)
    clusters.looked([TableLook(table=f"d.{MARKUP}", primary="C1", partitions=90, copies=(copy,))])
    clusters.routed([PublishedRoute(at_s=1_700_000_000.0, rule="none", refused=f"No cluster has {MARKUP}.")])

    ingest = IngestPublisher(place, metastore="hive", table=f"d.{MARKUP}", source="files", by=by)
    ingest.run(IngestReport(table=f"d.{MARKUP}", records=90, seconds=3.0))
    waiting = WaitingRequest(table=f"d.{MARKUP}", partition="", kind="minor", state="initiated", since_s=1.0)
    report = CompactionReport(id=1, table="d.t", partition="p=1", kind="major", state="compacted")
    look = QueueLook(states={"initiated": 1}, waiting=[waiting], open_txns=2)
    publish_compactions(place, f"hive {MARKUP}", look, [report], by)
