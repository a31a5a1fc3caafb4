"""Finds in the output of spark-submit, and in YARN's diagnostics, why a cluster runs no job."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass

from airflow_hive_federation.errors import SparkJobError, SparkRefusedError, SparkUnreachableError
from airflow_hive_federation.spark.container_kills import (
    DRIVER_KILLED,
    GIVEN_UP,
    ContainerKill,
    driver_kill,
    executor_kill,
)
from airflow_hive_federation.spark.failures import EXECUTOR_SETTING, container_killed, executor_killed

_LOGIN = re.compile(
    r"KerberosAuthException|LoginException|GSS initiate failed|No valid credentials provided|"
    r"Client cannot authenticate via"
)
#: The thread that hands a driver to a standalone master has failed; jobs have no such error.
_NOT_HANDED_OVER = (
    r'Exception in thread "main" org\.apache\.spark\.SparkException: Exception thrown in awaitResult.*\n'
    r"(?:.*\n)*?Caused by: "
)
_DRIVER_SETTING = "spark.driver.memoryOverhead"


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A job on its way to a cluster.

    :param application: the cluster's id of the application; empty until it is known.
    :param queue: the queue of the connection; empty for the default one.
    :param principal: the principal of the login; empty for that of the ticket.
    """

    application: str = ""
    queue: str = ""
    principal: str = ""


def refusal(lines: Iterable[str], submission: Submission) -> SparkJobError | None:
    """Return the error of a job that the cluster has refused or ended; ``None`` for any other cause.

    :param lines: the lines of spark-submit's output, or YARN's diagnostics.
    """
    text = "\n".join(lines)
    for pattern, error in _CAUSES.items():
        if match := pattern.search(text):
            return error(match, submission)
    return None


def _refused(submission: Submission, reason: str, message: str, remedy: str) -> SparkRefusedError:
    return SparkRefusedError(
        message,
        remedy=remedy,
        reason=reason,
        application=submission.application,
        queue=submission.queue,
        principal=submission.principal,
    )


def _no_right(match: re.Match[str], submission: Submission) -> SparkJobError:
    user, queue = match["user"], match["queue"]
    return _refused(
        Submission(application=submission.application, queue=queue, principal=submission.principal),
        "right",
        f"YARN refuses the job: user {user} has no right to submit applications to queue {queue}.",
        f"Grant it to {user} (acl_submit_applications of the queue), or name another queue.",
    )


def _unknown_queue(match: re.Match[str], submission: Submission) -> SparkJobError:
    queue = match["queue"]
    return _refused(
        Submission(application=submission.application, queue=queue, principal=submission.principal),
        "queue",
        f"YARN refuses the job of user {match['user']}: unknown queue: {queue}.",
        "Correct the queue of the Spark connection.",
    )


def _driver(match: re.Match[str], submission: Submission) -> SparkJobError:
    kill = driver_kill(match.string)
    name = f"the driver of {submission.application}" if submission.application else "the driver"
    error = container_killed(name, kill or ContainerKill(exceeded=False), _DRIVER_SETTING)
    error.facts.update(asdict(submission))
    return error


def _executors(match: re.Match[str], submission: Submission) -> SparkJobError:
    if kill := executor_kill(match.string):
        # The log of a driver in client mode has the reason.
        error = executor_killed(kill)
        error.facts.update(asdict(submission))
        return error
    application = submission.application or "the application"
    return _refused(
        submission,
        "executors",
        f"Spark has ended {application}, since YARN has ended too many of its executors.",
        "Read the reason in the driver's log (yarn logs -applicationId …); if it is the executors' memory, "
        f"raise {EXECUTOR_SETTING}.",
    )


def _away(match: re.Match[str], _: Submission) -> SparkJobError:
    return SparkUnreachableError(
        f"The ResourceManager at {match['address']} does not answer.",
        remedy="Check that it runs, and its address in the yarn-site.xml of HADOOP_CONF_DIR.",
        address=match["address"],
    )


def _no_master(match: re.Match[str], _: Submission) -> SparkJobError:
    address = f"{match['host'] or match['ip']}:{match['port']}"
    return SparkUnreachableError(
        f"Spark's master at {address} does not answer.",
        remedy="Check that it runs, and its host and port in the Spark connection (7077 by default; 6066 is "
        "the port of its REST API).",
        address=address,
    )


def _no_port_of_master(*_: object) -> SparkJobError:
    return SparkJobError(
        "No master of Spark answers at the port of the Spark connection.",
        remedy="Set the port of the master itself (7077 by default); 6066 is the port of its REST API.",
    )


def _login(match: re.Match[str], submission: Submission) -> SparkJobError:
    text = match.string
    if "Clock skew too great" in text:
        reason, cause, remedy = "clock", "the clocks differ too much", "Synchronize the clocks by NTP."
    elif "Ticket expired" in text:
        reason, cause = "expired", "the ticket has expired"
        remedy = "Run kinit, or let 'airflow kerberos' renew the ticket."
    else:
        causes = [line.strip() for line in text.splitlines() if _LOGIN.search(line)]
        reason, cause = "login", causes[-1].removeprefix("Caused by: ").rstrip(".")
        remedy = "Check principal and keytab (klist -kt), or run kinit."
    known = submission.principal or "the ticket's principal"
    return _refused(
        submission, reason, f"Kerberos refuses the login of {known} to the cluster: {cause}.", remedy
    )


def _no_home(match: re.Match[str], submission: Submission) -> SparkJobError:
    user = match["user"]
    return _refused(
        submission,
        "staging",
        f"User {user} of the job has no right to make its staging directory below {match['path']}.",
        f"Make /user/{user} in HDFS for this user, or set spark.yarn.stagingDir.",
    )


#: The words of Hadoop and Spark for each cause, in the order in which they count.
_CAUSES: Mapping[re.Pattern[str], Callable[[re.Match[str], Submission], SparkJobError]] = {
    re.compile(
        r"[Uu]ser (?P<user>\S+) (?:cannot submit applications|does not have permission to submit \S+) "
        r"to queue (?P<queue>[\w.-]+)"
    ): _no_right,
    re.compile(r"submitted by user (?P<user>\S+) to unknown queue: (?P<queue>[\w.-]+)"): _unknown_queue,
    DRIVER_KILLED: _driver,
    re.compile(r"to (?P<address>\S+:\d+) failed on (?:connection|socket timeout) exception"): _away,
    re.compile(
        rf"{_NOT_HANDED_OVER}java\.io\.IOException: Failed to connect to "
        r"(?P<host>[^/\s]*)/(?P<ip>\S+):(?P<port>\d+)"
    ): _no_master,
    # Spark takes an answer of HTTP for the length of a message.
    re.compile(
        rf"{_NOT_HANDED_OVER}java\.lang\.IllegalArgumentException: Too large frame"
    ): _no_port_of_master,
    _LOGIN: _login,
    re.compile(r'Permission denied: user=(?P<user>[^,]+), access=WRITE, inode="(?P<path>[^"]+)"'): _no_home,
    GIVEN_UP: _executors,
}
