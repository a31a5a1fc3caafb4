"""Cycles in a process that can be suspended at any of their steps, as a machine or a container may be.

A step is a call of a metastore, or a change of a file system. The process stops itself (``SIGSTOP``) in the
place of the step: all its threads stand still, its heartbeats too, and its clock goes on.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fsspec.implementations.local import LocalFileSystem

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.replication.cycle import dump_next_increment, load_dump
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import cycle_lock
from airflow_hive_federation.transactions import lasting_locks
from tests.support.incrementing import run_copy
from tests.support.kills import pool

_CHANGES = ("makedirs", "mv", "rm", "rm_file")
#: Times of a lock here, the loss and the silence in about the proportion of the real ones: a busy machine may
#: keep a heartbeat waiting for seconds.
FAST = (
    (cycle_lock, "_BEAT_S", 0.3),
    (lasting_locks, "LOST_AFTER_S", 7.5),
    (cycle_lock, "SILENCE_S", 9.0),
    (cycle_lock, "_LOOK_S", 0.25),
)


def worker(argv: list[str]) -> None:
    """The process: ``SOURCE TARGET POLICY``. It reads the step to stop at, and prints the outcome."""
    source_uri, target_uri, policy_json = argv
    policy = ReplicationPolicy(**json.loads(policy_json))
    for module, name, value in FAST:
        setattr(module, name, value)
    for line in sys.stdin:
        steps: list[str] = []
        with pool(source_uri) as source, pool(target_uri) as target:
            try:
                dumped = dump_next_increment(source, target, policy)  # changes nothing of the target
                with suspending_at(int(line), steps):
                    load_dump(source, target, policy, dumped.dump, run_copy=run_copy)
                outcome = "loaded"
            except HiveFederationError as error:
                outcome = f"{type(error).__name__}: {error}"
        print(json.dumps({"outcome": outcome, "steps": steps}), flush=True)


@contextmanager
def suspending_at(step: int, steps: list[str]) -> Iterator[None]:
    """Have steps noted, and stop this process in the place of one of them.

    :param step: its number, from 0; a negative one for none.
    :param steps: the steps that were done.
    """

    def take(name: str) -> None:
        if name == "heartbeat":  # comes when it comes
            return
        steps.append(name)
        if len(steps) == step + 1:
            print(json.dumps({"suspended": name}), flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)

    def noted(call: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
        def stepping(self: Any, *args: Any, **kwargs: Any) -> Any:
            take(name(*args, **kwargs))
            return call(self, *args, **kwargs)

        return stepping

    with ExitStack() as patches:
        call = noted(MetastoreClient._call, lambda method, *_: str(method))
        patches.enter_context(patch.object(MetastoreClient, "_call", call))
        for change in _CHANGES:
            made = noted(
                getattr(LocalFileSystem, change), lambda *args, change=change, **_: f"{change} {args[0]}"
            )
            patches.enter_context(patch.object(LocalFileSystem, change, made))
        yield


class Suspendable:
    """The process, seen from the test."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, step: int) -> dict[str, Any]:
        """Run a cycle; return when it has stopped at the step, or has ended."""
        assert self._process.stdin
        self._process.stdin.write(f"{step}\n")
        self._process.stdin.flush()
        answer = self._answer()
        if "suspended" in answer:
            # The process prints a line before it stops itself, and its heartbeats go on until then.
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)
        return answer

    def resume(self) -> dict[str, Any]:
        """Let it go on; return what its cycle has come to."""
        os.kill(self._process.pid, signal.SIGCONT)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the process has died"
        report: dict[str, Any] = json.loads(line)
        return report


@contextmanager
def suspendable(source_uri: str, target_uri: str, policy: ReplicationPolicy) -> Iterator[Suspendable]:
    code = "import sys; from tests.support.suspending import worker; worker(sys.argv[1:])"
    arguments = [source_uri, target_uri, json.dumps(policy.to_json())]
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        try:
            yield Suspendable(process)
        finally:
            process.kill()
