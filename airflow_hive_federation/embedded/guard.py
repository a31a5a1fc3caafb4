"""Runs a server as another user, and ends it with the process that it belongs to, even if that is killed.

The script runs by itself (``python guard.py …``) and imports nothing of the package. Its standard input is a
pipe of the process that started it: at its end, or when that process is gone (a fork may hold the pipe open),
the guard ends the server. A line with a process id makes the guard follow that process instead. The guard
holds a lock while the server runs, and writes the server's process id into a file when it is ready.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

_READY_POLL_MS = 20
_POLL_MS = 1000
#: Long, because servers shut out a machine after many connections that ended without a login.
_GREETING_TIMEOUT_S = 5.0
_STOP_TIMEOUT_MS = 8000
_PR_SET_PDEATHSIG = 1


def main(argument: str) -> int:
    """Run the server until it ends or has to end; return its exit code.

    :param argument: JSON with ``command``, ``directory`` (working directory), ``lock``, ``announcement``,
        ``pid_file`` (the server's), ``ready_line`` (number of its line that reads ``ready``, or null),
        ``greeting_port`` (the port at which a server that is ready greets its clients, or null), ``signals``
        (two numbers: those that end the server in an orderly way and at once), ``parent`` (process id),
        ``user`` and ``group`` (ids, or null).
    """
    asked = json.loads(argument)
    with Path(asked["lock"]).open("ab") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write(f"FATAL another server is running on {asked['lock']}\n")
            return 3
        return _run(asked)


def _run(asked: dict[str, Any]) -> int:
    # Without its guard, nobody would end the server.
    end_with_parent = ctypes.CDLL(None, use_errno=True).prctl
    server = subprocess.Popen(
        asked["command"],
        cwd=asked["directory"],
        env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
        stdin=subprocess.DEVNULL,
        user=asked["user"],
        group=asked["group"],
        extra_groups=None if asked["user"] is None else [],
        umask=0o077,
        # This process has a single thread. The kernel forgets the signal when the user changes, and Python
        # calls this function after that.
        preexec_fn=lambda: end_with_parent(_PR_SET_PDEATHSIG, asked["signals"][0], 0, 0, 0),  # noqa: PLW1509
    )
    signal.signal(signal.SIGTERM, lambda *_: _end(server, asked["signals"]))
    _await_ready(server, asked)
    _follow(server, int(asked["parent"]), asked["signals"])
    return server.wait()


def _await_ready(server: subprocess.Popen[bytes], asked: dict[str, Any]) -> None:
    announcement = Path(asked["announcement"])
    while server.poll() is None:
        if _is_ready(Path(asked["pid_file"]), server.pid, asked["ready_line"]) and _greets(
            asked["greeting_port"]
        ):
            partial = announcement.with_name(f".{announcement.name}.partial")
            partial.write_text(json.dumps({"guard": os.getpid(), "pid": server.pid}), encoding="utf-8")
            partial.replace(announcement)
            return
        # The end of the input means that the process which waits for the server is gone.
        if select.select([sys.stdin], [], [], _READY_POLL_MS / 1000)[0] and not os.read(0, 64):
            server.send_signal(asked["signals"][0])
            return


def _is_ready(pid_file: Path, pid: int, ready_line: int | None) -> bool:
    try:
        lines = pid_file.read_text("utf-8").splitlines()
    except (FileNotFoundError, UnicodeDecodeError):
        return False
    if not lines or lines[0].strip() != str(pid):
        return False
    return ready_line is None or [line.strip() for line in lines[ready_line : ready_line + 1]] == ["ready"]


def _greets(port: int | None) -> bool:
    """Return whether a server greets at a port of this machine, if it has one."""
    if port is None:
        return True
    try:
        with socket.create_connection(("127.0.0.1", port), _GREETING_TIMEOUT_S) as connection:
            return bool(connection.recv(1))
    except OSError:
        return False


def _follow(server: subprocess.Popen[bytes], parent: int, signals: list[int]) -> None:
    """Return when the server has ended; end it when the process that it belongs to has."""
    poll = select.poll()
    ended = os.pidfd_open(server.pid)
    poll.register(ended, select.POLLIN)
    poll.register(0, select.POLLIN | select.POLLHUP)
    try:
        followed = os.pidfd_open(parent)
        poll.register(followed, select.POLLIN)
        while server.poll() is None:
            ready = {descriptor for descriptor, _ in poll.poll(_POLL_MS)}
            if followed in ready:
                return _end(server, signals)
            if 0 in ready:
                line = os.read(0, 64).strip()
                if not line:
                    return _end(server, signals)
                # The process that wrote the line may end now.
                poll.unregister(0)
                poll.unregister(followed)
                followed = os.pidfd_open(int(line))
                poll.register(followed, select.POLLIN)
    except ProcessLookupError:
        _end(server, signals)
    return None


def _end(server: subprocess.Popen[bytes], signals: list[int]) -> None:
    """End the server in an orderly way, after some seconds at once, and then by force."""
    for number in signals:
        server.send_signal(number)
        try:
            server.wait(_STOP_TIMEOUT_MS / 1000)
        except subprocess.TimeoutExpired:
            continue
        return
    server.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
