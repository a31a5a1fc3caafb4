"""Killed containers, in the words of Spark 3.5 to 4.2 (``YarnAllocator``) and of Hadoop 3.5."""

from __future__ import annotations

import pytest

from airflow_hive_federation.errors import SparkRefusedError
from airflow_hive_federation.hooks.submit_failures import Submission, refusal
from airflow_hive_federation.spark.container_kills import ContainerKill, driver_kill, executor_kill
from airflow_hive_federation.spark.failures import from_spark

LOST = (
    "Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure: Lost "
    "task 0.3 in stage 0.0 (TID 3) (node7.example.com executor 4): ExecutorLostFailure (executor 4 exited "
    "caused by one of the running tasks) Reason: "
)
#: The monitor of processes names the memory; elastic control groups do not.
EXCEEDED = "Container killed by YARN for exceeding physical memory limits. "
ADVICE = " Consider boosting spark.executor.memoryOverhead."
#: Strict control groups: the kernel kills, with the texts of Spark 3.5 and of Spark 4.2.
BAD_NODE = "Container from a bad node: container_1_2_01_000005 on host: node7.example.com. Exit status: 137. "
SIGNAL = (
    "Diagnostics: [2026-11-27 10:00:00.000]Container killed on request. Exit code is 137\n"
    "[2026-11-27 10:00:00.001]Container exited with a non-zero exit code 137. \n"
    "[2026-11-27 10:00:00.002]Killed by external signal\n."
)
POSSIBLE = "Possible causes: Unknown executor exit code (137) (died from signal 9?). "
#: The beginning of YARN's diagnostics of an application (``RMAppAttemptImpl``).
DRIVER = (
    "Application application_1_2 failed 1 times (global limit =2; local limit is =1) due to AM Container for "
    "appattempt_1_2_000001 exited with  exitCode: {status}\n"
    "Failing this attempt.Diagnostics: [2026-11-27 10:00:00.000]"
)
GIVEN_UP = "Max number of executor failures (3) reached"
SUBMISSION = Submission(application="application_1_2", queue="etl", principal="alice@R")


@pytest.mark.parametrize(
    ("reason", "usage", "exceeded"),
    [
        (
            f"{EXCEEDED}1.5 GB of 1.4 GB physical memory used.{ADVICE}",
            "1.5 GB of 1.4 GB",
            True,
        ),
        (
            (
                "Container killed by YARN for exceeding virtual memory limits. 2.2 GB of 2.1 GB virtual "
                f"memory used.{ADVICE[:-1]} or boosting yarn.nodemanager.vmem-pmem-ratio or disabling "
                "yarn.nodemanager.vmem-check-enabled because of YARN-4714."
            ),
            "2.2 GB of 2.1 GB",
            True,
        ),
        (f"{EXCEEDED}{ADVICE}", "", True),
        (f"{BAD_NODE}{SIGNAL}", "", False),
        (f"{BAD_NODE}{POSSIBLE}{SIGNAL}", "", False),
    ],
    ids=["monitor", "virtual", "elastic", "strict-3.5", "strict-4.2"],
)
def test_an_executor_is_named(reason: str, usage: str, exceeded: bool) -> None:
    kill = executor_kill(f"{LOST}{reason}\nDriver stacktrace:\n\tat org.apache.spark.Frame")
    assert kill == ContainerKill(executor="4", host="node7.example.com", usage=usage, exceeded=exceeded)
    error = from_spark(RuntimeError(f"{LOST}{reason}"))
    assert isinstance(error, SparkRefusedError)
    assert error.reason == ("memory" if exceeded else "signal")
    assert error.executor == "4"
    assert "executor 4 on node7.example.com" in error.message
    assert usage in error.message
    assert "spark.executor.memoryOverhead" in error.remedy
    assert not error.retryable


@pytest.mark.parametrize(
    "reason",
    [
        "Container container_1_2_01_000005 on host: node7.example.com was preempted.",
        f"{BAD_NODE.replace('137', '1')}Diagnostics: Exception from container-launch.",
        f"{BAD_NODE.replace('137', '143')}Diagnostics: Killed by external signal.",
        "Executor heartbeat timed out after 137 ms",
    ],
)
def test_other_ends_of_an_executor(reason: str) -> None:
    assert executor_kill(f"{LOST}{reason}") is None


@pytest.mark.parametrize(
    ("status", "diagnostics", "usage", "exceeded"),
    [
        (
            -104,
            (
                "Container [pid=7,containerID=container_1_2_01_000001] is running 1048576B beyond the "
                "'PHYSICAL' memory limit. Current usage: 513.0 MB of 512 MB physical memory used; "
                "2.6 GB of 1.0 GB virtual memory used. Killing container.\n"
                "Dump of the process-tree for container_1_2_01_000001 :\n"
            ),
            "513.0 MB of 512 MB physical memory used",
            True,
        ),
        (
            -104,
            "container_1_2_01_000001 is under oom because it exceeded its physical memory limit",
            "",
            True,
        ),
        (
            137,
            (
                "Container killed on request. Exit code is 137\n[2026-11-27 10:00:00.001]Container exited "
                "with a non-zero exit code 137. \n[2026-11-27 10:00:00.002]Killed by external signal\n"
            ),
            "",
            False,
        ),
    ],
    ids=["monitor", "elastic", "strict"],
)
def test_a_driver_is_named(status: int, diagnostics: str, usage: str, exceeded: bool) -> None:
    text = DRIVER.format(status=status) + diagnostics
    assert driver_kill(text) == ContainerKill(usage=usage, exceeded=exceeded)
    error = refusal(text.splitlines(), SUBMISSION)
    assert isinstance(error, SparkRefusedError)
    assert error.reason == ("memory" if exceeded else "signal")
    assert (error.application, error.queue, error.principal) == ("application_1_2", "etl", "alice@R")
    assert "the driver of application_1_2" in error.message
    assert usage in error.message
    assert "spark.driver.memoryOverhead" in error.remedy


def test_another_end_of_a_driver() -> None:
    assert driver_kill(DRIVER.format(status=13) + "User application exited with status 137") is None


def test_an_application_that_has_lost_its_executors() -> None:
    error = refusal([f"diagnostics: {GIVEN_UP}"], SUBMISSION)
    assert isinstance(error, SparkRefusedError)
    assert (error.reason, error.application) == ("executors", "application_1_2")
    assert "raise spark.executor.memoryOverhead" in error.remedy


def test_the_log_of_a_driver_in_client_mode_names_the_executor() -> None:
    endpoint = "WARN YarnSchedulerBackend$YarnSchedulerEndpoint"
    log = [
        f"{endpoint}: Requesting driver to remove executor {number} for reason "
        f"{EXCEEDED}513.{number} MB of 512 MB physical memory used.{ADVICE}"
        for number in (1, 2, 3)
    ]
    error = refusal([*log, f"ERROR YarnClientSchedulerBackend: Diagnostics message: {GIVEN_UP}"], SUBMISSION)
    assert isinstance(error, SparkRefusedError)
    assert (error.reason, error.executor, error.application) == ("memory", "1", "application_1_2")
    assert "executor 1, which exceeded its memory (513.1 MB of 512 MB)" in error.message
    # Spark has replaced the executor, and the job has failed for another reason.
    assert refusal(log, SUBMISSION) is None
