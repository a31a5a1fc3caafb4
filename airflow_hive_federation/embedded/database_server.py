"""Runs a database server for embedded metastores, with its own data directory, port and password.

The server listens on 127.0.0.1 only. A guard runs it, and ends it with the process that it belongs to.
:mod:`postgresql` and :mod:`mariadb` know their server's programs, files and signals.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

from airflow_hive_federation.embedded import guard
from airflow_hive_federation.embedded.jvm import free_port
from airflow_hive_federation.embedded.process import end_server, start_server
from airflow_hive_federation.embedded.server_user import ServerUser, reachable_home, server_user
from airflow_hive_federation.errors import ConfigurationError, MetastoreStartError
from airflow_hive_federation.runtime.cache import cache_directory, exclusively, is_locked
from airflow_hive_federation.runtime.java import Java, find_java

#: Bytes of a generated password.
PASSWORD_BYTES = 24
#: The file of the password in a server's directory.
PASSWORD_FILE = "password"  # noqa: S105 - the name of a file
_LOCK = "server.lock"
_ANNOUNCEMENT = "server.json"
_PREPARE_TIMEOUT_S = 120
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 30.0
_POLL_S = 0.02
_PORT_ATTEMPTS = 5


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The options that a server was started with.

    :param home: the directory of its data, password and log.
    :param delete: the directory is removed when the server stops.
    :param created: the start has created the directory, or found an empty one.
    """

    home: Path
    delete: bool
    created: bool
    settings: Mapping[str, str]
    port: int = 0


@dataclass(frozen=True, kw_only=True)
class ServerProgram:
    """The program of a server whose data is ready.

    :param command: starts the server.
    :param pid_file: the file into which the server writes its process id.
    :param ready_line: the number of the file's line, from 0, that reads ``ready`` once the server answers;
        ``None`` if the file has no such line.
    :param greeting_port: the port at which the server greets clients once it answers; ``None`` if the file
        alone shows that.
    """

    command: tuple[str, ...]
    pid_file: Path
    ready_line: int | None = None
    greeting_port: int | None = None


class DatabaseServer(ABC):
    """A database server for any number of embedded metastores, on a port of 127.0.0.1.

    Each metastore has a database of its own name in it. The server ends with this process, even if that is
    killed. As a context manager it stops at the end::

        with EmbeddedPostgresql.start() as server:
            with EmbeddedMetastore.start("source", database=server) as metastore: …
    """

    #: Its kind in options, records, names of files and JDBC URLs.
    kind: ClassVar[str]
    #: Its name in sentences.
    title: ClassVar[str]
    #: Settings of a server that need not survive a crash of the machine.
    temporary: ClassVar[Mapping[str, str]]
    #: The signals that end the server in an orderly way, and at once.
    ending: ClassVar[tuple[int, int]]

    def __init__(self, options: ServerOptions, process: subprocess.Popen[bytes], pid: int) -> None:
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
    ) -> Self:
        """Start a server and return when it answers, after 2 s; the very first start also fetches jars.

        :param directory: its directory, created if missing; an existing server in it continues. By default a
            temporary one, which is removed when the server stops. If this process is root's, and the user
            ``nobody`` cannot reach the directory, :attr:`directory` is another one.
        :param port: its port; 0 takes a free one.
        :param settings: settings of the server that replace ours.
        :raises ConfigurationError: if a server runs on the directory, there are no programs for this machine,
            or there is no user that the server could run as.
        :raises JavaNotFoundError: if no Java runtime fits, which fetches the jars.
        :raises JarDownloadError: if the programs or Hive's schema could not be fetched.
        :raises MetastoreStartError: if the server did not start; the error has the most informative line of
            its log, and ``log_path``.
        """
        java, user = find_java(), server_user(cls.title)
        wanted = (
            Path(tempfile.mkdtemp(prefix=f"hive-{cls.kind}-")) if directory is None else directory.absolute()
        )
        home = reachable_home(wanted, user, cls.kind)
        if home != wanted and directory is None:
            wanted.rmdir()
        weaker = cls.temporary if directory is None else {}
        with exclusively(cache_directory() / f"{cls.kind}-start.lock"):
            # A failed start removes its own files, and nothing else: no other start may run beside it.
            created = home != wanted or not home.exists() or not any(home.iterdir())
            options = ServerOptions(
                home=home,
                delete=directory is None,
                created=created,
                settings={**weaker, **(settings or {})},
                port=port,
            )
            try:
                options, process, pid = cls._started(java, options, user)
            except BaseException:
                # An interrupt, too.
                if created:
                    _leave_log(home, cls._log_name())
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
        return self.directory / self._log_name()

    @property
    def schema(self) -> Path | None:
        """Return the file whose statements a new database needs; ``None`` if new ones have the schema."""
        return None

    @property
    def password(self) -> str:
        """Return the password of the user ``hive``.

        :raises ConfigurationError: if it cannot be read.
        """
        return self.read_password(self.directory)

    @classmethod
    def read_password(cls, home: Path) -> str:
        """Return the password of the server in a directory.

        :raises ConfigurationError: if it cannot be read, by another user of the machine for instance.
        """
        path = home / PASSWORD_FILE
        try:
            return path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"The password of the embedded {cls.title} server cannot be read from {path}: {error}.",
                remedy="Use the server as the user who started it first; the file cannot be made anew.",
            ) from error

    def follow(self, pid: int) -> None:
        """Let the server end with another process, and no longer with this one."""
        stdin = self._process.stdin
        if stdin is None or stdin.closed:
            raise ConfigurationError(f"this {self.title} server has been stopped.")
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
                os.kill(self._pid, self.ending[1])
        end_server(self._process, timeout_s=_STOP_TIMEOUT_S)

    def restart(self) -> None:
        """Stop the server if it runs, and start it again in the same directory and on the same port.

        :raises MetastoreStartError: as :meth:`start`.
        """
        end_server(self._process, timeout_s=_STOP_TIMEOUT_S)
        started = self._started(find_java(), self._options, server_user(self.title))
        self._options, self._process, self._pid = started

    def remove(self) -> None:
        """End the server and delete its directory, with all databases."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @classmethod
    @abstractmethod
    def _prepare(cls, java: Java, home: Path, user: ServerUser) -> Path:
        """Create the server's data and password, unless they exist; return the path of its program.

        :raises ConfigurationError: if there are no programs for this machine.
        :raises JarDownloadError: if programs or schema could not be fetched.
        :raises MetastoreStartError: if the programs refuse.
        """

    @classmethod
    @abstractmethod
    def _program(cls, path: Path, options: ServerOptions) -> ServerProgram:
        """Return the command of a server with its settings; no setting may be a secret."""

    @classmethod
    def _log_name(cls) -> str:
        return f"{cls.kind}.log"

    @classmethod
    def _started(
        cls, java: Java, options: ServerOptions, user: ServerUser
    ) -> tuple[ServerOptions, subprocess.Popen[bytes], int]:
        """Start a server; return its options with the port, its guard and its process id."""
        home = options.home
        if is_locked(home / _LOCK):
            raise ConfigurationError(
                f"a {cls.title} server is running on {home}.",
                remedy="Stop it (hive-federation metastore list), or name another directory.",
            )
        home.mkdir(parents=True, exist_ok=True)
        if user.user is not None:
            # The server's user passes the directory, and reads only its own files in it.
            home.chmod(0o711)
        path = cls._prepare(java, home, user)
        attempts = 1 if options.port else _PORT_ATTEMPTS
        for attempt in range(1, attempts + 1):
            asked = replace(options, port=options.port or free_port())
            try:
                process, pid = cls._start_once(asked, path, user)
            except MetastoreStartError:
                # Another process may have taken the free port before the server bound it.
                if attempt == attempts or not _port_was_taken(home / cls._log_name()):
                    raise
            else:
                return asked, process, pid
        raise AssertionError("the last attempt returns or raises")

    @classmethod
    def _start_once(
        cls, options: ServerOptions, path: Path, user: ServerUser
    ) -> tuple[subprocess.Popen[bytes], int]:
        home, program = options.home, cls._program(path, options)
        announcement = home / _ANNOUNCEMENT
        announcement.unlink(missing_ok=True)
        asked = {
            "command": program.command,
            "directory": f"{home}/data",
            "lock": f"{home}/{_LOCK}",
            "announcement": str(announcement),
            "pid_file": str(program.pid_file),
            "ready_line": program.ready_line,
            "greeting_port": program.greeting_port,
            "signals": cls.ending,
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
            server=f"the {cls.title} server in {home}",
            log_path=home / cls._log_name(),
            announced=announced,
            timeout_s=_START_TIMEOUT_S,
        )
        return process, pid


def await_end(home: Path) -> None:
    """Wait until no server runs in a directory, after the process that it follows has ended."""
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while is_locked(home / _LOCK) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def run_program(title: str, command: list[str], user: ServerUser, directory: Path, text: str = "") -> None:
    """Run a program that prepares a server's data.

    :param title: the server's name for the error.
    :param directory: the program's working directory, inside of the server's directory.
    :param text: its standard input.
    :raises MetastoreStartError: if it fails, or does not end within two minutes.
    """
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
            f"{title}'s {Path(command[0]).name} did not prepare {directory.parent} within "
            f"{_PREPARE_TIMEOUT_S} s.",
            remedy="Start again when the machine has less to do.",
            log_path="",
        ) from error
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["no output"]
        telling = ("ERROR:", "FATAL:", "[ERROR]")
        reason = next((line for line in lines if any(word in line for word in telling)), lines[-1])
        raise MetastoreStartError(
            f"{title}'s {Path(command[0]).name} could not prepare {directory.parent}: {reason}",
            remedy="Give the directory room and rights, or name another.",
            log_path="",
        )


def _leave_log(home: Path, log: str) -> None:
    """Remove all but the log, to which the error refers; remove the directory if there is no log."""
    for path in home.iterdir() if home.is_dir() else ():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != log:
            path.unlink()
    with contextlib.suppress(OSError):
        home.rmdir()


def _port_was_taken(log: Path) -> bool:
    return "Address already in use" in log.read_text("utf-8", "replace")[-2000:]
