"""The Spark hook refuses bad settings before it starts Spark, and names a job that it killed."""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks import spark_submit
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_hive_federation.errors import (
    ConfigurationError,
    SparkEnvironmentError,
    SparkJobError,
    SparkRunTakenError,
    StorageFullError,
)
from airflow_hive_federation.hooks import job_runners, job_runs, spark
from airflow_hive_federation.hooks.departures import JobDeparture
from airflow_hive_federation.hooks.page_links import SparkLink
from airflow_hive_federation.hooks.pipeline_submit import PipelineSubmitHook
from airflow_hive_federation.model.files import CopyItem, CopyOutcome
from airflow_hive_federation.operators.compaction import CompactTableOperator
from airflow_hive_federation.progress.events import Event, NothingChanged
from airflow_hive_federation.progress.job_events import ApplicationStarted
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.runtime import installed_spark
from airflow_hive_federation.runtime.installed_spark import InstalledSpark
from airflow_hive_federation.spark.failures import error_report, of_attempt, result_report
from airflow_hive_federation.spark.runs import JobRun, RunClaim, RunFiles, run_key
from airflow_hive_federation.storage.hadoop_access import HadoopAccess
from airflow_hive_federation.storage.plan_files import write_plan, write_records
from airflow_hive_federation.storage.publishing import write_atomically
from airflow_hive_federation.transactions import lease
from tests.support.dumps import manifest


def test_two_versions_of_pyspark_in_one_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = InstalledSpark(pyspark="4.2.0", client="4.1.2", provider="6.1.0")
    monkeypatch.setattr(installed_spark, "installed_spark", lambda: mixed)
    with pytest.raises(SparkEnvironmentError, match=r"pyspark 4\.2\.0 and pyspark-client 4\.1\.2 "):
        spark.spark_environment({}, {}, {}, local=True)
    # A Spark of the cluster's own has no pyspark-client beside it.
    made = spark.spark_environment({"SPARK_HOME": "/opt/spark"}, {}, {}, local=True)
    assert made["SPARK_HOME"] == "/opt/spark"


def test_spark_gets_no_secrets_of_airflow() -> None:
    environ = {
        "AIRFLOW_CONN_SOURCE": "{}",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "x",
        "AIRFLOW_VAR_KEY": "x",
        "JAVA_HOME": "/j",
        "AIRFLOW_CTX_TASK_ID": "t",
    }
    made = spark.spark_environment(environ, {"AIRFLOW_VAR_ASKED_FOR": "y"}, {"key": "k"}, local=False)
    assert {name for name in made if name.startswith("AIRFLOW")} == {
        "AIRFLOW_CTX_TASK_ID",
        "AIRFLOW_VAR_ASKED_FOR",
    }


def test_java_finds_what_kerberos_library_finds() -> None:
    environ = {
        "KRB5_CONFIG": "/etc/realm a.conf:/other",
        "KRB5CCNAME": "FILE:/t",
        "SPARK_SUBMIT_OPTS": "-Dx=y",
    }
    assert spark.java_kerberos(environ, HadoopAccess.of({"config_dir": "/conf"})) == {
        "KRB5CCNAME": "/t",
        "HADOOP_CONF_DIR": "/conf",
        "SPARK_SUBMIT_OPTS": '-Dx=y "-Djava.security.krb5.conf=/etc/realm a.conf"',
    }
    own = {
        "SPARK_SUBMIT_OPTS": "-Djava.security.krb5.conf=/mine",
        "HADOOP_CONF_DIR": "/h",
        "KRB5_CONFIG": "/r",
    }
    assert spark.java_kerberos(own, HadoopAccess.of({"config_dir": "/conf"})) == {}
    cached = HadoopAccess.of({"kerberos_cache": "/mine"})
    assert spark.java_kerberos({"KRB5CCNAME": "KCM:"}, cached) == {"KRB5CCNAME": "/mine"}


@pytest.mark.parametrize("master", ["yarn", "k8s://https://api", "local[*]", "spark://far:7077"])
def test_login_of_clusters_that_obtain_tokens(master: str) -> None:
    login = {"kerberos_principal": "alice@R", "kerberos_keytab": "/k"}
    access = HadoopAccess.of({"hdfs://a:1/x": login, "hdfs://b": login})
    expected = {
        "spark.kerberos.principal": "alice@R",
        "spark.kerberos.keytab": "/k",
        "spark.kerberos.access.hadoopFileSystems": "hdfs://a:1,hdfs://b",
    }
    obtains = master.startswith(("yarn", "k8s"))
    assert spark.kerberos_properties(master, access) == (expected if obtains else {})
    for other in ({}, {"kerberos_keytab": "/k"}, {"hdfs://a": login, "hdfs://b": {"kerberos_cache": "/c"}}):
        assert spark.kerberos_properties(master, HadoopAccess.of(other)) == {}


#: A spark-submit whose driver has reported the lost connection, and that ends only when it is killed.
_SUBMIT = """#!{python}
import time
from pathlib import Path
from airflow_hive_federation.errors import SparkJobError
from airflow_hive_federation.spark.failures import error_report
Path({report!r}).write_text(error_report(SparkJobError("[Errno 111] Connection refused")))
time.sleep(600)
"""


def test_killed_job_reports_its_lost_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python driver outlives its killed JVM for a moment, and its report blames the lost connection."""
    report = tmp_path / "_report.json"
    submit = tmp_path / "spark-submit"
    submit.write_text(_SUBMIT.format(python=sys.executable, report=str(report)))
    submit.chmod(0o755)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_FAR", json.dumps({"conn_type": "spark", "host": "spark://far"}))
    hook = spark.SparkPipelineHook("spark_far", env={"PATH": str(tmp_path)})
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(hook.submit, "copy-files", [], report_uri=report.as_uri())
        try:
            while not (report.is_file() and report.stat().st_size) and not job.done():
                time.sleep(0.01)
        finally:
            hook.on_kill()
        with pytest.raises(SparkJobError, match=r"^The Spark job was killed\."):
            job.result()


#: A spark-submit that notes its call, and reports what the hook asks for.
_NOTING_SUBMIT = """#!{python}
import sys
from pathlib import Path
from airflow_hive_federation.spark.failures import of_attempt, result_report
report, attempt = (sys.argv[sys.argv.index(name) + 1] for name in ("--report", "--attempt"))
with Path({calls!r}).open("a") as calls:
    calls.write(attempt + "\\n")
Path(report.removeprefix("file://")).write_text(of_attempt(result_report({{"copied": 2}}), attempt))
"""


class Worker:
    """A worker with a spark-submit, its calls, and the files of a run."""

    def __init__(self, folder: Path) -> None:
        self.files = RunFiles((folder / "_report.json").as_uri())
        self.hook = spark.SparkPipelineHook("spark_far", env={"PATH": str(folder)})
        self._calls = folder / "calls"
        submit = folder / "spark-submit"
        submit.write_text(_NOTING_SUBMIT.format(python=sys.executable, calls=str(self._calls)))
        submit.chmod(0o755)

    def submit(self) -> dict[str, Any]:
        return self.hook.submit("copy-files", ["--plan", "p"], report_uri=self.files.report)

    @property
    def calls(self) -> int:
        return len(self._calls.read_text().splitlines()) if self._calls.is_file() else 0

    def leave(self, text: str | None, *, key: str = "") -> RunClaim:
        """Leave the running job of a killed worker, with its report if it has one."""
        run = JobRun(attempt="earlier", key=key or run_key("copy-files", ["--plan", "p"]))
        self.files.write_run(run)
        claim = RunClaim(self.files, "earlier", beat_s=0.01)
        claim.take()
        if text is not None:
            write_atomically(self.files.report, [of_attempt(text, "earlier").encode()])
        return claim

    def while_waiting(self, claim: RunClaim, then: Callable[[], None]) -> dict[str, Any]:
        """Submit, do something once the hook waits for the job at work, and return the result."""
        with ThreadPoolExecutor(1) as pool:
            job = pool.submit(self.submit)
            try:
                deadline = time.monotonic() + 120
                while self.hook._followed is None and not job.done():
                    assert time.monotonic() < deadline, "the hook does not wait"
                    time.sleep(0.01)
                then()
            finally:
                claim.end()
                claim.release()
            return job.result()


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worker:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_FAR", json.dumps({"conn_type": "spark", "host": "spark://far"}))
    return Worker(tmp_path)


def test_retry_takes_the_result_of_the_application_at_work(worker: Worker) -> None:
    claim = worker.leave(result_report({"copied": 1}))
    assert worker.while_waiting(claim, lambda: None) == {"copied": 1}
    assert worker.calls == 0
    # A result is taken once.
    assert worker.files.run() is None
    assert worker.submit() == {"copied": 2}
    assert worker.calls == 1


@pytest.mark.parametrize("other", ["failed", "another plan", "no report"])
def test_retry_waits_and_starts_its_own_application(worker: Worker, other: str) -> None:
    text = error_report(SparkJobError("no")) if other == "failed" else result_report({"copied": 1})
    claim = worker.leave(None if other == "no report" else text, key="x" if other == "another plan" else "")
    calls: list[int] = []
    assert worker.while_waiting(claim, lambda: calls.append(worker.calls)) == {"copied": 2}
    assert (calls, worker.calls) == ([0], 1)


def test_kill_of_a_retry_ends_the_application_of_the_earlier_try(worker: Worker) -> None:
    claim = worker.leave(None)
    stopped = threading.Event()
    claim.cancel_by(stopped.set)

    def kill() -> None:
        worker.hook.on_kill()
        assert stopped.wait(60)

    with pytest.raises(SparkJobError, match=r"^The Spark job was killed\."):
        worker.while_waiting(claim, kill)
    assert worker.calls == 0


def test_retry_gives_up_a_submission_without_a_claim(worker: Worker) -> None:
    """The worker was killed between its record and the start of the job, which then finds its run taken."""
    worker.files.write_run(JobRun(attempt="earlier", key=run_key("copy-files", ["--plan", "p"])))
    assert worker.submit() == {"copied": 2}
    with pytest.raises(SparkRunTakenError):
        RunClaim(worker.files, "earlier").take()


def test_retry_waits_for_a_submission_that_waits_for_room(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry waits until the application has left the cluster, or the task is killed."""
    key = run_key("copy-files", ["--plan", "p"])
    answers = [True, False]
    asked: list[str] = []

    def has(_: Any, application: str) -> bool:
        asked.append(application)
        return answers.pop(0)

    monkeypatch.setattr(PipelineSubmitHook, "has", has)
    worker.files.write_run(JobRun(attempt="earlier", key=key, application="application_1_1"))
    assert worker.submit() == {"copied": 2}
    assert asked == ["application_1_1"] * 2

    def killed_meanwhile(_: Any, application: str) -> bool:
        worker.hook.on_kill()
        return True

    monkeypatch.setattr(PipelineSubmitHook, "has", killed_meanwhile)
    worker.files.write_run(JobRun(attempt="earlier", key=key, application="application_1_1"))
    with pytest.raises(SparkJobError, match="was killed"):
        worker.submit()
    run = worker.files.run()
    assert run is not None
    assert run.stopped


#: A spark-submit that shows lines of YARN or of the driver, and reports a result.
_SHOWING_SUBMIT = """#!{python}
import sys
from pathlib import Path
from airflow_hive_federation.spark.failures import of_attempt, result_report
report, attempt = (sys.argv[sys.argv.index(name) + 1] for name in ("--report", "--attempt"))
print({shown!r})
Path(report.removeprefix("file://")).write_text(of_attempt(result_report({{}}), attempt))
"""
_OF_YARN = "INFO Client:\n\t tracking URL: http://rm:8088/proxy/application_1_7/\n\t user: ann"
_OF_DRIVER = f"begun HIVE_FEDERATION_EVENT {json.dumps(ApplicationStarted(application='app-1 7').to_json())}"


@pytest.mark.parametrize(
    ("shown", "template", "address"),
    [
        (_OF_YARN, "", "http://rm:8088/proxy/application_1_7/"),
        (_OF_DRIVER, "", ""),
        (
            _OF_DRIVER,
            "http://master:8080/app/?appId={application}",
            "http://master:8080/app/?appId=app-1%207",
        ),
        ("nothing", "http://master:8080/app/?appId={application}", ""),
        ("tracking URL: N/A", "", ""),
    ],
)
def test_a_task_links_to_its_application(
    shown: str, template: str, address: str, tmp_path: Path, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__SPARK_APPLICATION_URL", template)
    program = tmp_path / "spark-submit"
    program.write_text(_SHOWING_SUBMIT.format(python=sys.executable, shown=shown))
    task = CompactTableOperator(task_id="t", table="d.t")
    link = SparkLink()
    assert link.get_link(task, ti_key=None) == ""
    task._spark = worker.hook
    assert worker.submit() == {}
    assert link.get_link(task, ti_key=None) == address


@pytest.mark.parametrize("lines", [["Submitting application_1_7 to ResourceManager"], ["a", "b"]])
def test_the_run_records_the_application_id_that_spark_submit_shows(
    lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_YARN", json.dumps({"conn_type": "spark", "host": "yarn"}))
    program = tmp_path / "spark-submit"
    event = NothingChanged(database="shop", event_id=7)
    shown = [*lines, f"unchanged HIVE_FEDERATION_EVENT {json.dumps(event.to_json())}", "100 %"]
    program.write_text("\n".join(["#!/bin/sh", *(f"echo {shlex.quote(line)}" for line in shown)]))
    program.chmod(0o755)
    seen: list[str] = []
    events: list[Event] = []
    submit = PipelineSubmitHook(
        conn_id="yarn", deploy_mode="cluster", on_application=seen.append, observer=events.append
    )
    submit.submit("main.py", env={"PATH": f"{tmp_path}:{os.defpath}"})
    assert seen == (["application_1_7"] if "application_1_7" in lines[0] else [])
    assert (events, [*submit.tail]) == ([event], [*lines, "100 %"])
    # The connection has no address of a ResourceManager: the files of the run decide.
    assert not submit.has("application_1_7")
    # Earlier versions of the provider do not ask at all.
    monkeypatch.delattr(SparkSubmitHook, "query_yarn_application_status", raising=False)
    assert not submit.has("application_1_7")


def test_a_worker_without_the_provider_of_kubernetes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_submit, "kube_client", None, raising=False)
    monkeypatch.setenv(
        "AIRFLOW_CONN_K8S", json.dumps({"conn_type": "spark", "host": "k8s://https://api:6443"})
    )
    for missing in (False, True):
        if missing:
            monkeypatch.delattr(spark_submit, "kube_client")
        with pytest.raises(ConfigurationError, match=r"Connection k8s .*needs the provider cncf\.kubernetes"):
            PipelineSubmitHook(conn_id="k8s")


@pytest.mark.parametrize("uploads", [False, True])
def test_a_job_on_kubernetes_takes_its_keys_from_a_secret(
    uploads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The provider asks for its client of Kubernetes, by which it kills pods; a submission uses none.
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)
    extra = {"deploy-mode": "cluster", "namespace": "etl"}
    connection = {"conn_type": "spark", "host": "k8s://https://api:6443", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_K8S", json.dumps(connection))
    program = tmp_path / "spark-submit"
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {tmp_path}/arguments\n")
    program.chmod(0o755)
    report = (tmp_path / "_report.json").as_uri()
    env = {"PATH": f"{tmp_path}:{os.defpath}"}
    conf = {"spark.kubernetes.file.upload.path": "s3a://lake/jobs"} if uploads else {}

    def submit(**more: str) -> list[str]:
        hook = spark.SparkPipelineHook(
            "k8s", storage_options={"key": "open sesame"}, conf={**conf, **more}, env=env
        )
        hook.depart(True)
        hook.submit("copy-files", ["--plan", "p"], report_uri=report)
        raise AssertionError("the task did not leave its worker")

    with pytest.raises(ConfigurationError, match="secretKeyRef"):
        submit()
    with pytest.raises(JobDeparture):
        submit(**{spark.OPTIONS_PROPERTY: "stores:options"})
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert "open sesame" not in "".join(arguments)
    assert ("--py-files" in arguments) is uploads
    at = arguments.index("--report")
    local = Path(spark.__file__).parents[1] / "spark" / "main.py"
    assert arguments[at - 1] == (str(local) if uploads else "local:///opt/hive-federation/spark/main.py")
    assert arguments[at + 4 :] == ["copy-files", "--plan", "p"]


def test_old_result_that_holds_no_more(worker: Worker) -> None:
    """Somebody has removed the copied files between the end of the application and the retry."""
    folder = Path(worker.files.report.removeprefix("file://")).parent
    plan, outcomes = (folder / "copy_plan.jsonl").as_uri(), (folder / "outcomes").as_uri()
    files = RunFiles(f"{outcomes}/_report.json")
    target = folder / "target"
    write_plan(plan, [CopyItem(source="file:/nowhere", target=target.as_uri(), size_bytes=3)])
    write_records(
        f"{outcomes}/1-a-0.jsonl",
        [CopyOutcome(target=target.as_uri(), size_bytes=3, digest="d", copied=True)],
    )
    key = run_key("copy-files", ["--plan", plan, "--outcomes", outcomes])
    for content, calls in ((b"abc", 0), (b"ab", 1), (None, 2)):
        target.unlink(missing_ok=True)
        if content is not None:
            target.write_bytes(content)
        files.write_run(JobRun(attempt="earlier", key=key))
        write_atomically(files.report, [of_attempt(result_report({"copied": 1}), "earlier").encode()])
        worker.hook.copy_runner()(plan, outcomes)
        assert worker.calls == calls
        assert files.run() is None


@pytest.mark.parametrize("change", ["other order", "other plan", "results gone", "long ago", "no task"])
def test_verification_finds_its_job_again(
    worker: Worker, tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan of each try has a directory of its own; the job of an earlier try had the same lines."""
    monkeypatch.setattr(worker.hook, "runs_here", lambda: False)

    def plan(name: str, *lines: str) -> str:
        folder = tmp_path / "verify" / name
        folder.mkdir(parents=True)
        (folder / "tables.jsonl").write_text("t\n")
        (folder / "files.jsonl").write_text("".join(f"{line}\n" for line in lines))
        return folder.as_uri()

    first = plan("1", "a", "b")
    rows = tmp_path / "verify" / "1" / "rows.jsonl"
    rows.touch()
    files = RunFiles((tmp_path / "verify" / "task-x" / "_report.json").as_uri())
    key = run_key("verify-replica", [job_runners._digest_of_plan(first, {})])
    files.write_run(JobRun(attempt="earlier", key=key))
    write_atomically(files.report, [of_attempt(result_report({"results": first}), "earlier").encode()])
    if change == "results gone":
        rows.unlink()
    elif change == "long ago":
        os.utime(rows, (1, time.time() - 2 * job_runners._VERIFIED_S))
    second = plan("2", *(["c"] if change == "other plan" else ["b", "a"]))
    results = worker.hook.verify_runner("" if change == "no task" else "task-x")(second, second)
    again = change == "other order"
    assert (results, worker.calls) == ((first, 0) if again else (second, 1))
    assert (files.run() is None) is (change != "no task")


def test_report_that_a_suspended_job_has_overwritten(worker: Worker) -> None:
    """The earlier job was suspended after it had made sure of its run, and before it wrote its report."""
    late = of_attempt(result_report({"copied": 1}), "earlier")
    submit = Path(worker.files.report.removeprefix("file://")).parent / "spark-submit"
    submit.write_text(f"{submit.read_text()}\nPath(report.removeprefix('file://')).write_text({late!r})\n")
    with pytest.raises(SparkRunTakenError) as caught:
        worker.submit()
    assert caught.value.retryable


def test_application_id_that_cannot_be_written_down(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task reads on what spark-submit writes, so that it still ends with it."""

    def full(*_: object) -> None:
        raise StorageFullError("full", path=worker.files.report)

    monkeypatch.setattr(RunFiles, "write_application", full)
    monkeypatch.setattr(PipelineSubmitHook, "application", "application_1_1")
    submit = Path(worker.files.report.removeprefix("file://")).parent / "spark-submit"
    submit.write_text(f"{submit.read_text()}\nprint('Application report', flush=True)\n")
    assert worker.submit() == {"copied": 2}


@pytest.mark.parametrize("waits", [True, False])
def test_timeout_of_the_task_ends_the_job(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """Airflow calls ``on_kill`` after its timeout, no ``Exception``, has passed through the hook."""

    class TaskTimeout(BaseException):
        pass

    def timeout(*_: object, **__: object) -> None:
        raise TaskTimeout

    killed: list[str] = []
    monkeypatch.setattr(PipelineSubmitHook, "on_kill", lambda _: killed.append("spark-submit"))
    monkeypatch.setattr(job_runs, "wait_until", timeout)
    monkeypatch.setattr(PipelineSubmitHook, "submit", timeout)
    if waits:
        worker.files.write_run(JobRun(attempt="earlier", key=""))
    with pytest.raises(TaskTimeout):
        worker.submit()
    run = worker.files.run()
    assert (run is not None and run.stopped) is waits
    assert killed == ([] if waits else ["spark-submit"])


def test_source_keeps_its_files_while_a_load_waits(
    tmp_path: Path, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that kept the dump's lease was killed."""
    kept: list[str] = []
    source: Any = "source"

    @contextmanager
    def keep(pool: Any, txn_id: int) -> Iterator[None]:
        kept.append(f"{pool} {txn_id}")
        yield
        kept.append("ended")

    monkeypatch.setattr(lease, "LeaseKeeper", keep)
    monkeypatch.setattr(job_runs, "wait_until", lambda *_: kept.append("waits"))
    dump = DumpDirectory((tmp_path / "dump").as_uri())
    dump.finish_dump(manifest(lease=7))
    worker.hook.wait_for_copy(dump.uri, source)
    assert kept == []
    files = RunFiles(f"{dump.uri}/load/outcomes/_report.json")
    files.write_run(JobRun(attempt="earlier", key="k"))
    worker.hook.wait_for_copy(dump.uri, source)
    assert kept == ["source 7", "waits", "ended"]
    # The load itself asks for the result.
    assert files.run() is not None
