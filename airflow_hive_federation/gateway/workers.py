"""Starts, watches and stops several gateway processes that share the same ports."""

from __future__ import annotations

import contextlib
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import TextIO

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway.stopping import Stopping

log = logging.getLogger(__name__)

#: Shortest life, in seconds, of a worker that is started again; an earlier end of one ends all workers.
_SHORT_LIFE_S = 5.0
_LOOK_S = 0.5
#: Number of attempts to find consecutive free ports.
_ATTEMPTS = 50


def reserve_port(host: str, port: int) -> tuple[socket.socket, int]:
    """Reserve a port that several processes will share (``SO_REUSEPORT``), without listening at it.

    :return: the socket to keep open, and the port.
    :raises ConfigurationError: the port is taken.
    """
    holder = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind((host, port))
    except (OSError, OverflowError) as error:
        holder.close()
        raise ConfigurationError(
            f"The gateway cannot listen at {host}:{port}: {error}",
            remedy="Give an address of this machine and a free port.",
        ) from error
    return holder, int(holder.getsockname()[1])


def reserve_ports(host: str, port: int, count: int) -> tuple[list[socket.socket], int]:
    """Reserve consecutive ports, one per process, without listening at them.

    :param port: the first port; 0 searches for consecutive free ports.
    :return: the sockets to keep open, and the first port.
    :raises ConfigurationError: a port is taken; for port 0, every attempt has met a taken port.
    """
    for attempt in range(1 if port else _ATTEMPTS):
        holder, first = reserve_port(host, port)
        holders = [holder]
        try:
            for place in range(1, count):
                holders.append(reserve_port(host, first + place)[0])
        except ConfigurationError:
            for reserved in holders:
                reserved.close()
            if port or attempt == _ATTEMPTS - 1:
                raise
        else:
            return holders, first
    raise AssertionError("unreachable")


class Workers:
    """Runs one process per command until it is stopped, and starts a process that dies again.

    A line that all processes print at their start is printed once, when the last one has printed it.

    :param commands: command line of each process, which has to end when its standard input ends.
    :param stop_timeout_s: seconds that a process has to drain before it is killed.
    :param out: stream for the processes' lines; ``None`` is standard output.
    """

    def __init__(
        self, commands: Sequence[Sequence[str]], *, stop_timeout_s: float = 60.0, out: TextIO | None = None
    ) -> None:
        self._commands = commands
        self._stop_timeout_s = stop_timeout_s
        self._out = out or sys.stdout
        self._lines: dict[str, set[int]] = {}
        self._printing = threading.Lock()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._born: list[float] = []

    def run(self) -> int:
        """Run the processes until ``SIGTERM`` or ``SIGINT``; return 0, or 1 if one ends at its start."""
        with Stopping() as stopping:
            try:
                for place in range(len(self._commands)):
                    self._processes.append(self._start(place))
                    self._born.append(time.monotonic())
                return self._watch(stopping)
            finally:
                self._stop()

    def _watch(self, stopping: Stopping) -> int:
        while not stopping.wait(_LOOK_S):
            for place, process in enumerate(self._processes):
                if (code := process.poll()) is None:
                    continue
                if time.monotonic() - self._born[place] < _SHORT_LIFE_S:
                    log.error("worker %s ended with status %s at its start", place, code)
                    return 1
                log.warning("worker %s ended with status %s and is started again", place, code)
                _close_input(process)
                self._processes[place] = self._start(place)
                self._born[place] = time.monotonic()
        return 0

    def _stop(self) -> None:
        for process in self._processes:
            _close_input(process)
        end = time.monotonic() + self._stop_timeout_s
        for process in self._processes:
            try:
                process.wait(max(end - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, place: int) -> subprocess.Popen[bytes]:
        # The pipe closes whenever this process ends, even by SIGKILL, and the worker then ends, too.
        process = subprocess.Popen(self._commands[place], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        threading.Thread(target=self._pass_on, args=(place, process), daemon=True).start()
        return process

    def _pass_on(self, place: int, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for raw in lines:
                line = raw.decode(errors="replace")
                with self._printing:
                    printed_by = self._lines.setdefault(line, set())
                    complete = len(printed_by) < len(self._commands)
                    printed_by.add(place)
                    if complete and len(printed_by) == len(self._commands):
                        print(line, end="", file=self._out, flush=True)


def _close_input(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
