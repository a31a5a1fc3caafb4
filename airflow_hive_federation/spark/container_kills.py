"""Recognizes, in the words of Spark and Hadoop, that YARN or the kernel has killed a container. Pure.

A NodeManager enforces memory in one of three ways. Its monitor of processes (``ContainersMonitorImpl``) and
control groups with elastic memory end a container with the exit status -104 or -103, and name memory. Control
groups with strict limits let the kernel kill, and YARN only sees the exit status 137, that of ``SIGKILL``.
Spark's ``YarnAllocator`` has texts of its own for each of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_USAGE = r"[\d.]+ [KMGT]?B of [\d.]+ [KMGT]?B"
#: A lost executor in an error of a task (``ExecutorLostFailure``), with its machine where Spark names it.
_LOST_BY_TASK = re.compile(
    r"(?:\((?P<host>\S+) executor \S+\): )?ExecutorLostFailure \(executor (?P<executor>\S+) exited"
)
#: A lost executor in the log of a driver in client mode (``YarnSchedulerBackend``).
_LOST_IN_LOG = re.compile(r"(?P<host>)driver to remove executor (?P<executor>\S+) for reason ")
_EXECUTOR_EXCEEDED = re.compile(
    rf"Container killed by YARN for exceeding (?:physical |virtual )?memory limits\.?\s*(?P<usage>{_USAGE})?"
)
_EXECUTOR_KILLED = re.compile(r"Container (?:marked as failed|from a bad node): .*Exit status: 137\b")
_DRIVER_EXCEEDED = (
    r"running (?:\d+B )?beyond (?:the )?'?(?:physical|virtual)'? memory limit|"
    r"is under oom because it exceeded its physical memory limit"
)
_DRIVER_USAGE = re.compile(rf"{_USAGE} physical memory used")
#: The words of YARN's diagnostics for an application whose driver was killed.
DRIVER_KILLED = re.compile(
    rf"(?P<exceeded>{_DRIVER_EXCEEDED})|AM Container for \S+ exited with\s+exitCode: 137\b", re.IGNORECASE
)
#: The words of Spark's ``ApplicationMaster`` that has lost too many executors, whatever the cause was.
GIVEN_UP = re.compile(
    r"Max number of executor failures \(\d+\) reached|"
    r"Due to executor failures all available nodes are (?:excluded|blacklisted)"
)


@dataclass(frozen=True, kw_only=True)
class ContainerKill:
    """A container that was killed.

    :param executor: Spark's id of the executor; empty for the driver, and where Spark does not name it.
    :param host: the executor's machine; empty where it is not known.
    :param usage: the memory that was used, and the limit, as YARN formats both; empty where it is not known.
    :param exceeded: YARN names memory as the cause; otherwise, only the signal is known.
    """

    executor: str = ""
    host: str = ""
    usage: str = ""
    exceeded: bool


def executor_kill(text: str) -> ContainerKill | None:
    """Return the kill of an executor that an error or a log of Spark names; ``None`` if it names none."""
    exceeded = _EXECUTOR_EXCEEDED.search(text)
    killed = exceeded or _EXECUTOR_KILLED.search(text)
    if killed is None:
        return None
    # The name stands before the reason.
    lost = [
        match
        for pattern in (_LOST_IN_LOG, _LOST_BY_TASK)
        for match in pattern.finditer(text, 0, killed.start())
    ][-1:]
    return ContainerKill(
        executor="".join(match["executor"] for match in lost),
        host="".join(match["host"] or "" for match in lost),
        usage=(exceeded["usage"] or "") if exceeded else "",
        exceeded=exceeded is not None,
    )


def driver_kill(text: str) -> ContainerKill | None:
    """Return the kill of the driver that YARN's diagnostics name; ``None`` if they name none."""
    # The diagnostics begin with the exit status, and name memory in a later line.
    kills = list(DRIVER_KILLED.finditer(text))
    if not kills:
        return None
    usage = _DRIVER_USAGE.search(text)
    return ContainerKill(usage=usage[0] if usage else "", exceeded=any(kill["exceeded"] for kill in kills))
