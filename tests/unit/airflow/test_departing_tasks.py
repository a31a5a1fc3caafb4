"""A task leaves its worker while its Spark job works on a cluster, and takes the result when it returns."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.errors import (
    FileVanishedError,
    HiveFederationError,
    SparkJobError,
    StorageCredentialsExpiredError,
)
from airflow_hive_federation.hooks import probes
from airflow_hive_federation.hooks.compat import AirflowException, AirflowFailException, TaskDeferred
from airflow_hive_federation.hooks.pipeline_submit import PipelineSubmitHook
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.pool import MetastorePool
from airflow_hive_federation.operators.replication_base import SparkReplicationOperator
from airflow_hive_federation.operators.replication_group import GroupBootstrapOperator
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.spark.failures import error_report, of_attempt, result_report
from airflow_hive_federation.spark.runs import JobRun, RunClaim, RunFiles, run_key
from airflow_hive_federation.storage.publishing import write_atomically
from airflow_hive_federation.transactions.lease import LeaseKeeper
from airflow_hive_federation.triggers.waiting import ProbeTrigger
from tests.support.metastore_peers import Peer, Thrift

Define = Callable[..., str]
POLICY = {"name": "shop", "source_database": "shop", "dump_root": "/dumps"}
APPLICATION = "application_1_7"

#: A spark-submit of YARN: it notes its call and ends at once; the cluster has the application.
_SUBMIT = """#!{python}
import sys
from pathlib import Path
with Path({calls!r}).open("a") as calls:
    calls.write(" ".join(sys.argv) + "\\n")
print("Submitted application {application}", flush=True)
"""


@dataclass(frozen=True)
class Copied:
    copied: int


class CopyingOperator(SparkReplicationOperator):
    """A task with one job, whose report is in its folder."""

    def __init__(self, *, report: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.report = report
        self.kept: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext

    def perform(self, context: Any) -> Copied:
        with self.leaving():
            spark = self.spark(ReplicationPolicy(**POLICY))
            with self.kept():
                return Copied(**spark.submit("copy-files", ["--plan", "p"], report_uri=self.report))


class Cluster:
    """A cluster that takes applications; the test plays its drivers."""

    def __init__(self, folder: Path) -> None:
        self.files = RunFiles((folder / "_report.json").as_uri())
        self._calls = folder / "calls"
        submit = folder / "spark-submit"
        submit.write_text(
            _SUBMIT.format(python=sys.executable, calls=str(self._calls), application=APPLICATION)
        )
        submit.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines() if self._calls.is_file() else []

    def task(self, **settings: Any) -> CopyingOperator:
        """The task in a new process: before its job, or after it."""
        ends = {"policy": POLICY, "source_conn_id": "near", "target_conn_id": "far"}
        settings = {"deferrable": True, "spark_conn_id": "yarn", **settings}
        return CopyingOperator(task_id="copy", report=self.files.report, **ends, **settings)

    def driver(self) -> RunClaim:
        """The driver of the present submission, which has begun."""
        run = self.files.run()
        assert run is not None
        claim = RunClaim(self.files, run.attempt, beat_s=0.01)
        claim.take()
        return claim

    def end(self, claim: RunClaim, text: str | None) -> None:
        claim.end()
        if text is not None:
            write_atomically(self.files.report, [of_attempt(text, claim.attempt).encode()])
        claim.release()


@pytest.fixture
def cluster(tmp_path: Path, connection: Define, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    yarn = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_YARN", json.dumps(yarn))
    monkeypatch.setenv("AIRFLOW_CONN_LOCAL", json.dumps({"conn_type": "spark", "host": "local"}))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for conn_id in ("near", "far"):
        connection(conn_id, extra={"uris": f"thrift://{conn_id}:1"})
    return Cluster(tmp_path)


def left(task: CopyingOperator) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as caught:
        task.execute({})  # type: ignore[arg-type]
    return caught.value


def stored(deferred: TaskDeferred) -> tuple[ProbeTrigger, dict[str, Any]]:
    """The trigger, and what the task finds again, after their way through Airflow's database."""
    from airflow.serialization.serialized_objects import BaseSerialization

    trigger: Any = deferred.trigger
    _, arguments = trigger.serialize()
    values = json.dumps(BaseSerialization.serialize([arguments, deferred.kwargs]))
    arguments, kwargs = BaseSerialization.deserialize(json.loads(values))
    return ProbeTrigger(**arguments), kwargs


def event_of(trigger: ProbeTrigger) -> dict[str, Any]:
    async def first() -> dict[str, Any]:
        return dict((await anext(trigger.run())).payload)

    return asyncio.run(first())


def returned(task: CopyingOperator, deferred: TaskDeferred) -> Any:
    """The result of the task that the trigger resumes in a new process."""
    trigger, kwargs = stored(deferred)
    values = {**kwargs, "event": event_of(trigger)}
    return task.resume_execution(deferred.method_name, values, {})  # type: ignore[arg-type]


def test_task_takes_the_result_when_it_returns(cluster: Cluster) -> None:
    deferred = left(cluster.task())
    run = cluster.files.run()
    assert run is not None
    assert run.application == APPLICATION
    (call,) = cluster.calls
    assert "--conf spark.yarn.submit.waitAppCompletion=false" in call
    # Without an execution_timeout, the task waits without an end.
    assert (deferred.timeout, stored(deferred)[0].deadline_s) == (None, None)
    claim = cluster.driver()
    threading.Timer(0.3, lambda: cluster.end(claim, result_report({"copied": 3}))).start()
    assert returned(cluster.task(), deferred) == {"copied": 3}
    assert len(cluster.calls) == 1
    assert cluster.files.run() is None
    assert cluster.files.claim(claim.attempt) is None


@pytest.mark.parametrize(
    ("event", "left_out"),
    [
        ({}, ""),
        ({"ready": True, "state": {"event": "forgotten"}, "value": 1}, ""),
        (None, "probe"),
        (None, "awaited"),
    ],
)
def test_a_task_that_another_version_left_or_resumes_finds_its_job(
    event: dict[str, Any] | None, left_out: str, cluster: Cluster
) -> None:
    deferred = left(cluster.task())
    trigger, kwargs = stored(deferred)
    claim = cluster.driver()
    cluster.end(claim, result_report({"copied": 3}))
    values = {name: value for name, value in kwargs["left"].items() if name != left_out}
    given = {"left": values, "event": event_of(trigger) if event is None else event}
    resumed = cluster.task().resume_execution(deferred.method_name, given, {})  # type: ignore[arg-type]
    assert resumed == {"copied": 3}
    assert len(cluster.calls) == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FileVanishedError("f is gone", path="f"), "FileVanishedError: f is gone"),
        (SparkJobError("no"), "SparkJobError: no"),
        (None, "SparkJobError: The Spark job reported no result"),
    ],
)
def test_task_fails_with_the_error_of_its_job(
    cluster: Cluster, error: HiveFederationError | None, expected: str
) -> None:
    deferred = left(cluster.task())
    cluster.end(cluster.driver(), None if error is None else error_report(error))
    with pytest.raises(AirflowException, match=f"^{expected}") as caught:
        returned(cluster.task(), deferred)
    assert isinstance(caught.value, AirflowFailException) is not (error is not None and error.retryable)
    # The next try begins anew.
    assert len(cluster.calls) == 1
    left(cluster.task())
    assert len(cluster.calls) == 2


def test_task_leaves_for_the_job_of_an_earlier_try(cluster: Cluster) -> None:
    cluster.files.write_run(JobRun(attempt="earlier", key=run_key("copy-files", ["--plan", "p"])))
    claim = cluster.driver()
    deferred = left(cluster.task())
    cluster.end(claim, result_report({"copied": 4}))
    assert returned(cluster.task(), deferred) == {"copied": 4}
    assert cluster.calls == []


def test_failed_job_of_an_earlier_try_is_submitted_again(cluster: Cluster) -> None:
    cluster.files.write_run(JobRun(attempt="earlier", key=run_key("copy-files", ["--plan", "p"])))
    claim = cluster.driver()
    deferred = left(cluster.task())
    cluster.end(claim, error_report(SparkJobError("no")))
    with pytest.raises(TaskDeferred) as caught:
        returned(cluster.task(), deferred)
    cluster.end(cluster.driver(), result_report({"copied": 5}))
    assert returned(cluster.task(), caught.value) == {"copied": 5}
    assert len(cluster.calls) == 1


def test_user_who_ends_the_task_ends_the_job(cluster: Cluster) -> None:
    trigger, _ = stored(left(cluster.task()))
    claim = cluster.driver()
    cancelled = threading.Event()
    claim.cancel_by(cancelled.set)

    async def lost() -> None:
        """A triggerer that is shut down cancels the trigger, and another one goes on."""
        waiting = asyncio.ensure_future(anext(trigger.run()))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    try:
        asyncio.run(lost())
        claim.check()
        asyncio.run(trigger.on_kill())
        assert cancelled.wait(60)
    finally:
        claim.end()


def test_timeout_of_the_task_ends_the_job(cluster: Cluster) -> None:
    deferred = left(cluster.task(execution_timeout=timedelta(seconds=0.1)))
    claim = cluster.driver()
    claim.end()
    with pytest.raises(AirflowException, match=r"execution_timeout of 0:00:00\.1"):
        returned(cluster.task(execution_timeout=timedelta(seconds=0.1)), deferred)
    with pytest.raises(SparkJobError, match="was killed"):
        claim.check()


def test_application_that_waits_for_room(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is over if YARN has it no more; nobody waits for ever for one of which nobody knows."""
    answers = [True, False]
    monkeypatch.setattr(PipelineSubmitHook, "has", lambda *_: answers.pop(0))
    deferred = left(cluster.task())
    with pytest.raises(AirflowException, match="reported no result"):
        returned(cluster.task(), deferred)
    assert answers == []


def test_killed_task_submits_nothing(cluster: Cluster) -> None:
    task = cluster.task()
    task.on_kill()
    with pytest.raises(AirflowException, match="The Spark job was killed"):
        task.execute({})  # type: ignore[arg-type]
    assert cluster.calls == []


@pytest.mark.parametrize("default", [None, "True"])
@pytest.mark.parametrize("conn_id", ["yarn", "local"])
def test_tasks_that_say_nothing_leave_by_airflows_default(
    cluster: Cluster, conn_id: str, default: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if default:
        monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", default)
    for deferrable in (None, False):
        task = cluster.task(spark_conn_id=conn_id, deferrable=deferrable)
        leaves = conn_id == "yarn" and bool(default) and deferrable is None
        assert task.spark(ReplicationPolicy(**POLICY))._departs is leaves


def test_driver_in_the_worker_is_refused(cluster: Cluster) -> None:
    task = cluster.task(spark_conn_id="local")
    with pytest.raises(AirflowFailException, match=r"local has deploy mode client.* Set deploy-mode"):
        task.execute({})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="deferrable"):
        GroupBootstrapOperator(task_id="t", deferrable=True)


# -- what a task holds while its job works ---------------------------------------------------------------


class Source:
    """A metastore that notes the transactions that it is to keep, and to end."""

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.ended: list[int] = []

    def __call__(self, method: str, args: Any) -> Any:
        if method == "heartbeat_txn_range":
            self.kept.append(args.txns.min)
            return types.HeartbeatTxnRangeResponse(aborted=set(), nosuch=set())
        assert method == "commit_txn"
        self.ended.append(args.rqst.txnid)
        return None


@pytest.fixture
def source() -> Iterator[tuple[Source, Peer]]:
    noting = Source()
    peer = Peer(Thrift(noting))
    yield noting, peer
    peer.close()


def test_triggerer_keeps_the_leases_of_the_task(
    cluster: Cluster, source: tuple[Source, Peer], connection: Define
) -> None:
    """The cleaner of the source would otherwise remove the files that the job reads."""
    noting, peer = source
    connection("near", extra={"uris": peer.uri})
    task = cluster.task()
    hook = task.ends()[0]

    @contextlib.contextmanager
    def keeping() -> Iterator[None]:
        with MetastorePool(hook.settings, 1) as pool, LeaseKeeper(pool, 9):
            yield

    task.kept = keeping
    deferred = left(task)
    in_the_task = len(noting.kept)
    assert in_the_task
    trigger, kwargs = stored(deferred)
    assert [tuple(lease) for lease in trigger.probe["leases"]] == [("near", 9)]
    cluster.end(cluster.driver(), result_report({"copied": 1}))
    kwargs["left"]["borrowed"] = [["near", 9]]
    event = event_of(trigger)
    assert noting.kept[in_the_task:] == [9]
    assert noting.ended == []
    resumed = cluster.task().resume_execution("execute_complete", {**kwargs, "event": event}, {})  # type: ignore[arg-type]
    assert resumed == {"copied": 1}
    assert noting.ended == [9]


def test_a_probe_renews_the_credentials_of_the_store(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a role last for an hour, and jobs for many."""
    deferred = left(cluster.task())
    claim = cluster.driver()
    made: list[int] = []

    def options_of(*_: object) -> dict[str, int]:
        made.append(len(made) + 1)
        return {"number": made[-1]}

    read = RunFiles._content

    def content(files: RunFiles, suffix: str) -> bytes | None:
        if files.options == {"number": expired[0]}:
            raise StorageCredentialsExpiredError("The token has expired.")
        return read(replace(files, options=None), suffix)

    expired = [0]
    monkeypatch.setattr(probes, "common_storage_options", options_of)
    monkeypatch.setattr(RunFiles, "_content", content)
    trigger, _ = stored(deferred)
    probe = probes.probe_of(trigger.kind, trigger.probe)
    for _ in range(3):
        assert not probe().ready
        expired[0] = made[-1]
    assert made == [1, 2, 3]
    cluster.end(claim, None)
    expired[0] = made[-1]
    assert probe().ready
