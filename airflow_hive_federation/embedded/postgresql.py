"""Runs a PostgreSQL server for embedded metastores, with its own data directory, port and password.

The programs come from Maven Central. The server listens on 127.0.0.1 only. PostgreSQL refuses to run as root:
if root starts it, it runs as the user ``nobody``, and its data directory belongs to that user.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from airflow_hive_federation.embedded import guard
from airflow_hive_federation.embedded.configuration import POSTGRESQLS_USER
from airflow_hive_federation.embedded.jvm import LAUNCHER, free_port
from airflow_hive_federation.embedded.postgresql_programs import (
    ServerUser,
    reachable_home,
    reachable_programs,
    server_user,
)
from airflow_hive_federation.embedded.process import end_server, start_server
from airflow_hive_federation.embedded.schema import schema_script, statements
from airflow_hive_federation.errors import ConfigurationError, MetastoreStartError
from airflow_hive_federation.runtime.cache import cache_directory, exclusively, is_locked, write_atomically
from airflow_hive_federation.runtime.java import Java, find_java

_SCHEMA = "hive-schema-4.0.0.postgres.sql"
_DIFFERENCE = LAUNCHER / "schema-4.2.0.postgres.sql"
_LOCK = "server.lock"
_START_LOCK = "postgresql-start.lock"
_LOG = "postgresql.log"
_PASSWORD_FILE = "password"  # noqa: S105 - the name of a file
_ANNOUNCEMENT = "server.json"
_PASSWORD_BYTES = 24
_PREPARE_TIMEOUT_S = 120
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 30.0
_POLL_S = 0.02
_PORT_ATTEMPTS = 5
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    # Each metastore has several pools of connections, and each SQL engine too.
    "max_connections": "300",
    "log_line_prefix": "%m [%p] ",
    # Statements may hold values of tables.
    "log_min_error_statement": "panic",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
#: Settings of a server that need not survive a crash of the machine.
TEMPORARY = {"fsync": "off"}


@dataclass(frozen=True, kw_only=True)
class _Options:
    home: Path
    delete: bool
    created: bool
    settings: Mapping[str, str]
    port: int = 0


class EmbeddedPostgresql:
    """A PostgreSQL server for any number of embedded metastores, on a port of 127.0.0.1.

    Each metastore has a database of its own name in it. The server ends with this process, even if that is
    killed. As a context manager it stops at the end::

        with EmbeddedPostgresql.start() as server:
            with EmbeddedMetastore.start("source", database=server) as metastore: …
    """

    def __init__(self, options: _Options, process: subprocess.Popen[bytes], pid: int) -> None:
        self._options = options
        self._process = process
        self._pid = pid

    @classmethod
    def start(
        cls,
        *,
        directory: Path | None = None,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
    ) -> EmbeddedPostgresql:
        """Start a server and return when it answers (2 s; the very first start also fetches its programs).

        :param directory: its directory, created if missing; an existing server in it continues. By default a
            temporary one, which is removed when the server stops. If this process is root's, and the user
            ``nobody`` cannot reach the directory, :attr:`directory` is another one.
        :param port: its port; 0 takes a free one.
        :param settings: settings of PostgreSQL that replace ours.
        :raises ConfigurationError: if a server runs on the directory, there are no programs for this machine,
            or there is no user that the server could run as.
        :raises JavaNotFoundError: if no Java runtime fits, which fetches the programs.
        :raises JarDownloadError: if the programs or Hive's schema could not be fetched.
        :raises MetastoreStartError: if the server did not start; the error has the most informative line of
            its log, and ``log_path``.
        """
        java, user = find_java(), server_user()
        wanted = (
            Path(tempfile.mkdtemp(prefix="hive-postgresql-")) if directory is None else directory.absolute()
        )
        home = reachable_home(wanted, user)
        if home != wanted and directory is None:
            wanted.rmdir()
        lasting = {} if directory is not None else TEMPORARY
        with exclusively(cache_directory() / _START_LOCK):
            # A failed start removes its own files, and nothing else: no other start may run beside it.
            created = home != wanted or not home.exists() or not any(home.iterdir())
            options = _Options(
                home=home,
                delete=directory is None,
                created=created,
                settings={**lasting, **(settings or {})},
                port=port,
            )
            try:
                options, process, pid = _started(java, options, user)
            except BaseException:
                # An interrupt, too.
                if created:
                    _leave_log(home)
                raise
        return cls(options, process, pid)

    @property
    def port(self) -> int:
        """Return its port on 127.0.0.1."""
        return self._options.port

    @property
    def pid(self) -> int:
        """Return the process id of the server."""
        return self._pid

    @property
    def directory(self) -> Path:
        """Return the directory of its data, password and log."""
        return self._options.home

    @property
    def created(self) -> bool:
        """Return whether its start has created its directory, or found an empty one."""
        return self._options.created

    @property
    def log_path(self) -> Path:
        """Return the path of the server's log."""
        return self.directory / _LOG

    @property
    def password(self) -> str:
        """Return the password of the role ``hive``.

        :raises ConfigurationError: if it cannot be read.
        """
        return read_password(self.directory)

    def follow(self, pid: int) -> None:
        """Let the server end with another process, and no longer with this one."""
        stdin = self._process.stdin
        if stdin is None or stdin.closed:
            raise ConfigurationError("this PostgreSQL server has been stopped.")
        # Closing also writes the line. The guard has no more use for the pipe.
        with stdin:
            stdin.write(f"{pid}\n".encode())
        # The thread collects the guard's exit status, also if nobody keeps this object.
        threading.Thread(target=self._process.wait, name=f"reap-{self._pid}", daemon=True).start()

    def stop(self) -> None:
        """Stop the server in an orderly way, or delete its directory if it was a temporary one."""
        if self._options.delete:
            self.remove()
        else:
            end_server(self._process, timeout_s=_STOP_TIMEOUT_S)

    def kill(self) -> None:
        """Kill the server as a crash would; its directory stays, for :meth:`restart`."""
        # The guard ends after the server, and is the only process that may reuse its id.
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGQUIT)
        end_server(self._process, timeout_s=_STOP_TIMEOUT_S)

    def restart(self) -> None:
        """Stop the server if it runs, and start it again in the same directory and on the same port.

        :raises MetastoreStartError: as :meth:`start`.
        """
        end_server(self._process, timeout_s=_STOP_TIMEOUT_S)
        self._options, self._process, self._pid = _started(find_java(), self._options, server_user())

    def remove(self) -> None:
        """End the server and delete its directory, with all databases."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def read_password(home: Path) -> str:
    """Return the password of the server in a directory.

    :raises ConfigurationError: if it cannot be read, by another user of the machine for instance.
    """
    path = home / _PASSWORD_FILE
    try:
        password = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"The password of the embedded PostgreSQL server cannot be read from {path}: {error}.",
            remedy="Use the server as the user who started it first; the file cannot be made anew.",
        ) from error
    return password


def _leave_log(home: Path) -> None:
    """Remove all but the log, to which the error refers; remove the directory if there is no log."""
    for path in home.iterdir() if home.is_dir() else ():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != _LOG:
            path.unlink()
    with contextlib.suppress(OSError):
        home.rmdir()


def await_end(home: Path) -> None:
    """Wait until no server runs in a directory, after the process that it follows has ended."""
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while is_locked(home / _LOCK) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _started(
    java: Java, options: _Options, user: ServerUser
) -> tuple[_Options, subprocess.Popen[bytes], int]:
    """Start a server; return its options with the port, its guard and its process id."""
    home = options.home
    if is_locked(home / _LOCK):
        raise ConfigurationError(
            f"a PostgreSQL server is running on {home}.",
            remedy="stop it (hive-federation metastore list), or name another directory.",
        )
    home.mkdir(parents=True, exist_ok=True)
    if user.user is not None:
        # The server's user passes the directory, and reads only its own files in it.
        home.chmod(0o711)
    folder = reachable_programs(java, home, user)
    _prepare(java, home, folder, user)
    attempts = 1 if options.port else _PORT_ATTEMPTS
    for attempt in range(1, attempts + 1):
        asked = replace(options, port=options.port or free_port())
        try:
            process, pid = _start(asked, folder, user)
        except MetastoreStartError:
            # Another process may have taken the free port before the server bound it.
            if attempt == attempts or not _port_was_taken(home):
                raise
        else:
            return asked, process, pid
    raise AssertionError("the last attempt returns or raises")


def _prepare(java: Java, home: Path, folder: Path, user: ServerUser) -> None:
    """Create the server's data, with Hive's schema in the template of its databases, unless they exist."""
    data, partial = home / "data", home / ".data.partial"
    if data.is_dir():
        return
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700)
    password, handed = secrets.token_hex(_PASSWORD_BYTES), home / ".password.handed"
    handed.unlink(missing_ok=True)
    try:
        write_atomically(handed, password.encode(), private=True)
        if user.user is not None and user.group is not None:
            os.chown(partial, user.user, user.group)
            os.chown(handed, user.user, user.group)
        locale = ("--encoding=UTF8", "--locale=C", "--locale-provider=icu", "--icu-locale=en-US")
        login = (f"--username={POSTGRESQLS_USER}", f"--pwfile={handed}", "--auth=scram-sha-256")
        _run([f"{folder}/bin/initdb", f"--pgdata={partial}", "--no-sync", *locale, *login], user, partial)
    finally:
        handed.unlink(missing_ok=True)
    scripts = (schema_script(java, _SCHEMA), _DIFFERENCE.read_text("utf-8"))
    lines = (" ".join(sql.split("\n")) for script in scripts for sql in statements(script))
    # A single-user server takes one statement per line, and ends at the first error.
    alone = ["--single", "-D", str(partial), "-c", "exit_on_error=on", "template1"]
    _run([f"{folder}/bin/postgres", *alone], user, partial, "".join(f"{line};\n" for line in lines))
    write_atomically(home / _PASSWORD_FILE, password.encode(), private=True)
    partial.rename(data)


def _run(command: list[str], user: ServerUser, directory: Path, text: str = "") -> None:
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            user=user.user,
            group=user.group,
            extra_groups=None if user.user is None else [],
            umask=0o077,
            input=text,
            capture_output=True,
            text=True,
            timeout=_PREPARE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MetastoreStartError(
            f"PostgreSQL's {Path(command[0]).name} did not prepare {directory.parent} within "
            f"{_PREPARE_TIMEOUT_S} s.",
            remedy="start again when the machine has less to do.",
            log_path="",
        ) from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no output"]
        reason = next((line for line in lines if "ERROR:" in line or "FATAL:" in line), lines[-1])
        raise MetastoreStartError(
            f"PostgreSQL's {Path(command[0]).name} could not prepare {directory.parent}: {reason}",
            remedy="give the directory room and rights, or name another.",
            log_path="",
        )


def _start(options: _Options, folder: Path, user: ServerUser) -> tuple[subprocess.Popen[bytes], int]:
    home = options.home
    settings = {**_SETTINGS, **options.settings, "port": str(options.port)}
    command = [f"{folder}/bin/postgres", "-D", f"{home}/data"]
    command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    announcement = home / _ANNOUNCEMENT
    announcement.unlink(missing_ok=True)
    asked = {
        "command": command,
        "directory": f"{home}/data",
        "lock": f"{home}/{_LOCK}",
        "announcement": str(announcement),
        "pid_file": f"{home}/data/postmaster.pid",
        "parent": os.getpid(),
        "user": user.user,
        "group": user.group,
    }

    def announced(pid: int) -> int | None:
        try:
            facts = json.loads(announcement.read_text("utf-8"))
        except FileNotFoundError:
            return None
        return int(facts["pid"]) if facts["guard"] == pid else None

    pid, process = start_server(
        [sys.executable, "-I", "-S", guard.__file__, json.dumps(asked)],
        server=f"the PostgreSQL server in {home}",
        log_path=home / _LOG,
        announced=announced,
        timeout_s=_START_TIMEOUT_S,
    )
    return process, pid


def _port_was_taken(home: Path) -> bool:
    return "Address already in use" in (home / _LOG).read_text("utf-8", "replace")[-2000:]
