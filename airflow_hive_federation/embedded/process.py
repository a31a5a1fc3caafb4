"""Starts and ends servers that run in a JVM of their own and write a file when they are ready."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from airflow_hive_federation.embedded.jvm import clean_environment
from airflow_hive_federation.errors import EmbeddedError, MetastoreStartError

T = TypeVar("T")
_STOP_TIMEOUT_S = 10.0
_POLL_S = 0.02


def start_server(
    command: Sequence[str],
    *,
    server: str,
    log_path: Path,
    announced: Callable[[int], T | None],
    timeout_s: float,
    stdin: int = subprocess.PIPE,
    stdout: int | None = None,
) -> tuple[T, subprocess.Popen[bytes]]:
    """Start a server in the directory of its log, and wait until it is ready.

    :param server: the server's name for the error.
    :param announced: returns the announcement of the process with an id; ``None`` if it has none yet.
    :param stdin: the process' standard input; by default a pipe, whose closing ends the server.
    :param stdout: its standard output; by default its log.
    :return: the server's announcement and its process.
    :raises MetastoreStartError: if the server ended, or was not ready in time; the error has the most
        informative line of its log.
    """
    with log_path.open("ab") as log:
        logged_before = log.tell()
        process = subprocess.Popen(
            command,
            cwd=log_path.parent,
            env=clean_environment(),
            stdin=stdin,
            stdout=log if stdout is None else stdout,
            stderr=log,
            # This process handles an interrupt of the terminal, and ends the server itself.
            start_new_session=True,
        )
    try:
        facts = _await(process, announced, time.monotonic() + timeout_s)
    except BaseException:
        # An interrupt of the terminal does not reach the server, and nobody else knows its process.
        _kill(process)
        raise
    if facts is not None:
        return facts, process
    ended = process.poll()
    _kill(process)
    with log_path.open("rb") as log:
        log.seek(logged_before)
        reason = telling_line(log.read().decode("utf-8", "replace"))
    how = f"was not ready within {timeout_s:.0f} s" if ended is None else f"ended with exit code {ended}"
    raise MetastoreStartError(f"{server} {how}: {reason}", remedy=f"See {log_path}.", log_path=str(log_path))


def _await(
    process: subprocess.Popen[bytes], announced: Callable[[int], T | None], deadline: float
) -> T | None:
    """Return the announcement of a process; ``None`` if it has ended, or the deadline has passed."""
    while process.poll() is None and time.monotonic() < deadline:
        facts = announced(process.pid)
        if facts is not None:
            return facts
        time.sleep(_POLL_S)
    return None


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    close_pipes(process)


def end_server(
    process: subprocess.Popen[bytes], number: int = signal.SIGTERM, *, timeout_s: float = _STOP_TIMEOUT_S
) -> None:
    """Send a signal to a server, wait for its end, and kill it if it does not end in time."""
    if process.poll() is None:
        process.send_signal(number)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    close_pipes(process)


def close_pipes(process: subprocess.Popen[bytes]) -> None:
    """Close our ends of a process' pipes."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def telling_line(log_text: str) -> str:
    """Return the most informative line of a failed start's log: a known cause, else the last error."""
    lines = [line.strip() for line in log_text.splitlines() if line.strip()]
    for pattern in (r"^FATAL another", r"^Caused by: .*(XSDB6|XJ040|Address already in use|BindException)"):
        for line in lines:
            if re.search(pattern, line):
                return line
    # MariaDB's last error only reports that it ends.
    cause = r"Caused by:|FATAL|Error:|.* ERROR |.* FATAL:|.* \[ERROR\] (?!Aborting)"
    causes = [line for line in lines if re.match(cause, line)]
    return causes[-1] if causes else last_line(log_text)


def last_line(log_text: str) -> str:
    """Return the last line of a log that is not empty; it shows how far a slow server has come."""
    lines = log_text.split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")


def signal_holder(pid: int, number: signal.Signals, lock: Path, *, name: str) -> None:
    """Send a signal to the server that holds a lock.

    Processes of several containers or machines may see one lock, while a process id belongs to one of them.

    :param pid: the id that the server announced.
    :param lock: the file, which the server's command line names.
    :param name: the server's name for the error.
    :raises EmbeddedError: the process of this machine is another one, or there is none.
    """
    processes = Path("/proc")
    if (processes / "self").exists() and not _names(processes / str(pid), lock):
        raise EmbeddedError(
            f"Metastore {name} runs on another machine, or in another container: process {pid} here is not "
            f"the holder of {lock}.",
            remedy="Stop it where it was started.",
            name=name,
        )
    os.kill(pid, number)


def _names(process: Path, file: Path) -> bool:
    try:
        arguments = (process / "cmdline").read_bytes().split(b"\0")
    except FileNotFoundError:
        return False
    paths = (Path(os.fsdecode(argument)) for argument in arguments)
    return any(path.name == file.name and path.exists() and path.samefile(file) for path in paths)
