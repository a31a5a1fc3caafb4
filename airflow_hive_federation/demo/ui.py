"""Runs the demo's DAG in Airflow's UI (``hive-federation demo --ui``)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any, NoReturn

from airflow_hive_federation.cli.story import Story
from airflow_hive_federation.demo.local_airflow import DAG_ID, DagRun, DemoAirflow
from airflow_hive_federation.embedded.jvm import free_port
from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.waiting import PollPolicy, wait_until

#: Seconds for the start, and for the whole DAG run, on a machine that is busy with ten other jobs.
_TIMEOUT_S = 600.0
_STOP_TIMEOUT_S = 10.0
_CREATE_TIMEOUT_S = 60.0
#: Seconds between the drain task's deferral and the commit of the open transaction: time to look at the UI.
_LEFT_OPEN_S = 20.0
#: The id of the demo's run.
_RUN_ID = "demo"
#: Final states of a run or a task.
ENDED = frozenset({"success", "failed"})


def serve(airflow: DemoAirflow, run: DagRun, commit: Callable[[], None], story: Story) -> int:
    """Start Airflow's UI, run the DAG in it, and wait until the user interrupts.

    :param commit: commits the transaction that the DAG has to wait for.
    :raises HiveFederationError: Airflow does not start, or ends by itself.
    """
    story.stage("Starting Airflow with scheduler, triggerer and UI (about half a minute)")
    with airflow_server(airflow) as server:
        try:
            for conn_id, fields in run.connections.items():
                server.connect(conn_id, fields)
            for name, value in run.variables.items():
                server.set_variable(name, value)
            _show(server, server.trigger(run.conf), commit, story)
            server.wait(lambda: False, "", timeout_s=None)
        except KeyboardInterrupt:
            # The terminal may be closed.
            with suppress(OSError):
                story.stage("Ending Airflow and the metastores")
    return 0


@contextmanager
def airflow_server(airflow: DemoAirflow) -> Iterator[AirflowServer]:
    """Run a whole Airflow (``airflow standalone``) on a loopback port without a login, until the block ends.

    :raises HiveFederationError: Airflow does not start.
    """
    # Airflow cannot choose a port and report it.
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    settings = {
        **airflow.environment,
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        # No login is needed, because the server listens on loopback only and ends with the demo.
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
    }
    with airflow.log_path.open("ab") as log:
        process = subprocess.Popen(
            airflow.command("standalone"),
            env=settings,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # The process gets its own group, because the end of the parent alone would leave scheduler and
            # API server.
            start_new_session=True,
        )
    server = AirflowServer(url, process, str(airflow.log_path))
    try:
        server.wait(server.is_healthy, "Airflow did not come up.")
        yield server
    finally:
        _end(process)


def _show(server: AirflowServer, run_id: str, commit: Callable[[], None], story: Story) -> None:
    story.stage(f"The DAG is running: {server.url}/dags/{DAG_ID}/runs/{run_id}")
    drain = f"{run_id}/taskInstances/replicate.drain"
    server.wait(lambda: server.state(drain) in {"deferred", *ENDED}, "The drain task did not begin.")
    if server.state(drain) == "deferred":
        story.detail(
            f"drain is deferred: it waits for the open transaction, committed in {_LEFT_OPEN_S:.0f} s"
        )
        time.sleep(_LEFT_OPEN_S)
    commit()
    story.detail("transaction committed; dump, load and verify follow")
    server.wait(lambda: server.state(run_id) in ENDED, "The DAG run did not end.")
    story.stage(f"The DAG run has ended: {server.state(run_id)}")
    story.detail("rows and digests of both sides are the XCom of the task verify")
    story.detail(f"the two connections, with their test buttons: {server.url}/connections")
    story.detail("Ctrl-C ends everything")


class AirflowServer:
    """A running Airflow and its REST API.

    :param url: the URL of its UI and API.
    :param process: the process of ``airflow standalone``.
    :param log_path: the path of its log, for error messages.
    """

    def __init__(self, url: str, process: subprocess.Popen[bytes], log_path: str) -> None:
        self.url = url
        self._process = process
        self._log_path = log_path

    def wait(
        self, probe: Callable[[], bool], otherwise: str, *, timeout_s: float | None = _TIMEOUT_S
    ) -> None:
        """Wait until the probe returns true.

        :param otherwise: the error message if it does not.
        :param timeout_s: the timeout in seconds; ``None`` waits for ever.
        :raises HiveFederationError: Airflow has ended, or the time is over.
        """
        ended = False

        def asked() -> bool:
            nonlocal ended
            ended = self._process.poll() is not None
            return ended or probe()

        policy = PollPolicy(first_s=0.5, longest_s=1.0, timeout_s=timeout_s)
        if not wait_until(asked, policy) or ended:
            text = f"Airflow ended unexpectedly. {otherwise}".strip() if ended else otherwise
            raise HiveFederationError(text, remedy=f"Read {self._log_path}.", log_path=self._log_path)

    def is_healthy(self) -> bool:
        """Return whether scheduler, triggerer and database work, and the DAG is known."""
        try:
            health = self.request("/api/v2/monitor/health", token="")
            self.request(f"/api/v2/dags/{DAG_ID}")
        except (OSError, ValueError):
            return False
        parts = ("scheduler", "triggerer", "metadatabase")
        return all(health.get(part, {}).get("status") == "healthy" for part in parts)

    def connect(self, conn_id: str, fields: Mapping[str, object]) -> None:
        """Define a connection in Airflow's database, because the UI does not show those of the environment.

        :raises HiveFederationError: Airflow refuses the connection.
        """
        self._create("/api/v2/connections", {"connection_id": conn_id, **fields})

    def set_variable(self, name: str, value: str) -> None:
        """Set a variable in Airflow's database.

        :raises HiveFederationError: Airflow refuses the variable.
        """
        self._create("/api/v2/variables", {"key": name, "value": value})

    def trigger(self, conf: Mapping[str, object]) -> str:
        """Unpause the DAG, trigger it and return the id of its run.

        :raises HiveFederationError: Airflow refuses the request.
        """
        # The other example DAGs stay paused, because the demo lacks the objects that their schedules would
        # serve.
        self.insist(f"/api/v2/dags/{DAG_ID}", {"is_paused": False}, "PATCH")
        body = {"dag_run_id": _RUN_ID, "logical_date": None, "conf": dict(conf)}
        self._create(f"/api/v2/dags/{DAG_ID}/dagRuns", body)
        return _RUN_ID

    def state(self, path: str) -> str:
        """Return the state of a run, or of a task instance below it; empty if it does not exist yet."""
        try:
            return str(self.request(f"/api/v2/dags/{DAG_ID}/dagRuns/{path}").get("state") or "")
        except OSError:
            return ""

    def _create(self, path: str, body: Mapping[str, object]) -> None:
        """POST an object that has an id of its own."""
        self.insist(path, body, "POST")

    def insist(self, path: str, body: Mapping[str, object] | None, method: str) -> None:
        """Repeat a request while Airflow stumbles over its SQLite database or is too busy to answer.

        :raises HiveFederationError: Airflow refuses the request, or is too busy for a minute.
        """
        refusal = ""

        def done() -> bool:
            nonlocal refusal
            try:
                self.request(path, body=body, method=method)
            except urllib.error.HTTPError as error:
                refusal = f"{error} {error.read().decode(errors='replace')[:300]}"
                if error.code >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    return False
                # An earlier request created the object, and got an error or no answer.
                return error.code == HTTPStatus.CONFLICT or self._refuse(path, refusal)
            except OSError as error:
                refusal = str(error)
                return False
            return True

        if not wait_until(done, PollPolicy(first_s=1.0, timeout_s=_CREATE_TIMEOUT_S)):
            self._refuse(path, refusal)

    def _refuse(self, path: str, text: str) -> NoReturn:
        raise HiveFederationError(f"Airflow refuses {path}: {text}", remedy=f"Read {self._log_path}.")

    def request(
        self, path: str, *, token: str | None = None, body: object = None, method: str | None = None
    ) -> Any:
        """Send a request to the API and return its answer.

        :param method: the HTTP method; by default GET, or POST with a body.
        :param token: the token of a user; by default a new one.
        :raises OSError: the API does not answer, or answers with an error.
        """
        if token is None:
            token = str(self.request("/auth/token", token="")["access_token"])
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return json.load(answer)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End Airflow with all the processes that it has started; kill those that do not end.

    Its running tasks are in process groups of their own, and would outlive the others if they were not
    listed.
    """
    import psutil

    started: list[Any] = []
    with suppress(psutil.NoSuchProcess):
        started = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    try:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        psutil.wait_procs(started, timeout=_STOP_TIMEOUT_S)
    finally:
        # This also runs if the user interrupts again.
        for child in started:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        process.wait()
