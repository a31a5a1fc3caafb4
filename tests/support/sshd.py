"""Real OpenSSH servers as child processes, each with a host key and a port of its own."""

from __future__ import annotations

import contextlib
import getpass
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from airflow_hive_federation.embedded.jvm import free_port
from airflow_hive_federation.tunnel.route import Hop
from tests.support.debian import require_program

_START_S = 60.0


def require_sshd() -> str:
    """Path of ``sshd``; installs it where that is possible, and skips the test where it is not."""
    return require_program("sshd", "openssh-server")


@dataclass
class Sshd:
    """A running server.

    :param known_hosts: file with its host key, and those of the servers started before it.
    """

    port: int
    key: Path
    known_hosts: Path
    process: subprocess.Popen[bytes]

    @property
    def hop(self) -> Hop:
        return Hop(host="127.0.0.1", user=getpass.getuser(), port=self.port, keys=(str(self.key),))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server and to all its sessions."""
        parent = psutil.Process(self.process.pid)
        for process in [*parent.children(recursive=True), parent]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def stop(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            self.signal(signal.SIGKILL)
        self.process.wait()


def start_sshd(directory: Path, *, forwarding: bool = True) -> Sshd:
    """Start a server that lets this user in with a key of its own."""
    program = require_sshd()
    directory.mkdir(parents=True)
    directory.chmod(0o700)
    key, host_key = directory / "user_key", directory / "host_key"
    for path in (key, host_key):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True, timeout=30
        )
    port = free_port()
    settings = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": host_key,
        "AuthorizedKeysFile": f"{key}.pub",
        "PidFile": "none",
        "StrictModes": "no",
        "UsePAM": "no",
        "PermitRootLogin": "prohibit-password",
        "PasswordAuthentication": "no",
        "AllowTcpForwarding": "yes" if forwarding else "no",
        "LogLevel": "ERROR",
    }
    config = directory / "sshd_config"
    config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()), encoding="utf-8")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(parents=True, exist_ok=True)
    known = directory / "known_hosts"
    kind, text, *_ = Path(f"{host_key}.pub").read_text(encoding="utf-8").split()
    known.write_text(f"[127.0.0.1]:{port} {kind} {text}\n", encoding="utf-8")
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    server = Sshd(port=port, key=key, known_hosts=known, process=process)
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return server
        time.sleep(0.02)
    server.stop()
    raise AssertionError((directory / "log").read_text(encoding="utf-8"))
