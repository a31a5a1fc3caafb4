"""Failures of a cluster, in the words of Hadoop 3.5 and Spark 4.2."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from airflow_hive_federation.errors import SparkJobError, SparkRefusedError, SparkUnreachableError
from airflow_hive_federation.hooks.compat import AirflowException
from airflow_hive_federation.hooks.pipeline_submit import PipelineSubmitHook
from airflow_hive_federation.hooks.spark import SparkPipelineHook
from airflow_hive_federation.hooks.submit_failures import Submission, refusal

SUBMISSION = Submission(application="application_1_2", queue="etl", principal="alice@R")
#: The first line of a trace of 60 lines.
NO_HOME = (
    'Exception in thread "main" org.apache.hadoop.security.AccessControlException: Permission denied: '
    'user=alice, access=WRITE, inode="/":hdfs:supergroup:drwxr-xr-x'
)


@pytest.mark.parametrize(
    ("line", "reason", "named", "remedy"),
    [
        (
            "Application application_1_2 submitted by user root to unknown queue: nobodys",
            "queue",
            "user root: unknown queue: nobodys",
            "Correct the queue",
        ),
        (
            (
                "org.apache.hadoop.yarn.exceptions.YarnException: "
                "org.apache.hadoop.security.AccessControlException: "
                "User alice does not have permission to submit application_1_2 to queue closed"
            ),
            "right",
            "user alice .* to queue closed",
            "Grant it to alice",
        ),
        (
            (
                "Container [pid=7,containerID=container_1_2_01_000001] is running 1048576B beyond the "
                "'PHYSICAL' memory limit. Current usage: 513.0 MB of 512 MB physical memory used; "
                "2.6 GB of 1.0 GB virtual memory used. Killing container."
            ),
            "memory",
            r"the driver of application_1_2, .* \(513.0 MB of 512 MB physical memory used\)",
            "Raise spark.driver.memoryOverhead",
        ),
        (
            (
                "KerberosAuthException: failure to login: for principal: alice@R from keytab /k "
                "javax.security.auth.login.LoginException: Unable to obtain password from user"
            ),
            "login",
            "login of alice@R .*Unable to obtain password",
            "klist -kt",
        ),
        (
            "GSSException: No valid credentials provided (Mechanism level: Ticket expired (32) - TGS)",
            "expired",
            "alice@R to the cluster: the ticket has expired",
            "kinit",
        ),
        (
            "GSSException: No valid credentials provided (Mechanism level: Clock skew too great (37))",
            "clock",
            "the clocks differ too much",
            "NTP",
        ),
        (NO_HOME, "staging", "User alice .* below /", "Make /user/alice"),
    ],
)
def test_a_refusal_names_who_and_where(line: str, reason: str, named: str, remedy: str) -> None:
    error = refusal(["before", line, "after"], SUBMISSION)
    assert isinstance(error, SparkRefusedError)
    assert (error.reason, error.application, error.principal) == (reason, "application_1_2", "alice@R")
    assert not error.retryable
    with pytest.raises(SparkRefusedError, match=f"{named}.*{remedy}"):
        raise error


def test_a_cluster_that_is_away_may_come_back() -> None:
    line = (
        "java.net.ConnectException: Call From worker/10.0.0.1 to rm.example.com:8032 failed on connection "
        "exception: java.net.ConnectException: Connection refused; For more details see:  "
        "http://wiki.apache.org/hadoop/ConnectionRefused"
    )
    error = refusal([line], SUBMISSION)
    assert isinstance(error, SparkUnreachableError)
    assert error.address == "rm.example.com:8032"
    assert error.retryable


def test_a_master_that_is_away_may_come_back() -> None:
    lines = [
        'Exception in thread "main" org.apache.spark.SparkException: Exception thrown in awaitResult: ',
        "\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:53)",
        "Caused by: java.io.IOException: Failed to connect to {}",
        "Caused by: java.net.ConnectException: finishConnect(..) failed with error(-111): Connection refused",
    ]
    for shown, address in (
        ("/10.0.0.1:7077", "10.0.0.1:7077"),
        ("master.example.com/<unresolved>:7077", "master.example.com:7077"),
    ):
        error = refusal([line.format(shown) for line in lines], SUBMISSION)
        assert isinstance(error, SparkUnreachableError)
        assert error.address == address
    # The answer of its REST API is no message of the master.
    frame = "Caused by: java.lang.IllegalArgumentException: Too large frame: 5211883372140375593"
    assert "6066" in str(refusal([lines[0], frame], SUBMISSION))
    # An application's own connections are no business of the master.
    assert refusal([line.format("/10.0.0.1:4040") for line in lines[2:]], SUBMISSION) is None


def test_other_failures_are_no_refusal() -> None:
    assert (
        refusal(['Exception in thread "main" java.lang.OutOfMemoryError: Java heap space'], SUBMISSION)
        is None
    )


def test_the_first_line_of_a_long_trace_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_YARN", json.dumps({"conn_type": "spark", "host": "yarn"}))
    shown = [NO_HOME, *(f"at org.apache.hadoop.Frame{number}" for number in range(60))]
    program = tmp_path / "spark-submit"
    program.write_text("\n".join(["#!/bin/sh", *(f"echo {shlex.quote(line)}" for line in shown), "exit 1"]))
    program.chmod(0o755)
    submit = PipelineSubmitHook(conn_id="yarn", deploy_mode="cluster", principal="alice@R")
    with pytest.raises(AirflowException):
        submit.submit("main.py", env={"PATH": f"{tmp_path}:{os.defpath}"})
    assert submit.last_error.startswith(
        "org.apache.hadoop.security.AccessControlException: Permission denied"
    )
    assert isinstance(submit.refusal, SparkRefusedError)
    assert submit.refusal.principal == "alice@R"


#: A spark-submit in client mode whose application has lost its executors: Python only knows that Spark ended.
_GIVEN_UP = """#!{python}
import sys
from pathlib import Path
from airflow_hive_federation.spark.failures import error_report, from_spark, of_attempt
report, attempt = (sys.argv[sys.argv.index(name) + 1] for name in ("--report", "--attempt"))
print(
    "26/01/01 WARN YarnSchedulerBackend$YarnSchedulerEndpoint: Requesting driver to remove executor 3 for "
    "reason Container killed by YARN for exceeding physical memory limits. 1.5 GB of 1.4 GB physical memory "
    "used."
)
print("26/01/01 ERROR YarnClientSchedulerBackend: Diagnostics message: {end}")
stopped = RuntimeError("org.apache.spark.SparkException: Job 0 cancelled because SparkContext was shut down")
Path(report.removeprefix("file://")).write_text(of_attempt(error_report(from_spark(stopped)), attempt))
sys.exit(1)
"""


@pytest.mark.parametrize("end", ["Max number of executor failures (3) reached", "Shutdown hook called"])
def test_a_job_that_spark_leaves_has_the_reason_of_the_cluster(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_YARN", json.dumps({"conn_type": "spark", "host": "yarn"}))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    program = tmp_path / "spark-submit"
    program.write_text(_GIVEN_UP.format(python=sys.executable, end=end))
    program.chmod(0o755)
    with pytest.raises(SparkJobError) as failed:
        SparkPipelineHook("yarn").submit("copy-files", [], report_uri=f"{tmp_path.as_uri()}/_report.json")
    if end.startswith("Max"):
        assert isinstance(failed.value, SparkRefusedError)
        assert failed.value.message.startswith("YARN has killed the container of executor 3,")
    else:
        assert type(failed.value) is SparkJobError
        assert "SparkContext was shut down. Its log ends with:" in failed.value.message
