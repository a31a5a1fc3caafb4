"""Starts, stops and lists real Hive metastores on this machine."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from airflow_hive_federation.embedded.configuration import (
    core_site_xml,
    metastore_settings,
    site_xml,
    warehouse_settings,
)
from airflow_hive_federation.embedded.database import (
    OpenDatabase,
    jdbc_password,
    jdbc_url,
    kind_of,
    open_database,
    server_directory,
)
from airflow_hive_federation.embedded.database_server import DatabaseServer, await_end
from airflow_hive_federation.embedded.failed_starts import FOLDERS, leaving_nothing
from airflow_hive_federation.embedded.jars import metastore_jars
from airflow_hive_federation.embedded.jvm import (
    METASTORE_MAIN,
    java_command,
    launcher_classes,
)
from airflow_hive_federation.embedded.process import end_server, signal_holder, start_server
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.json_values import Fields, count, text
from airflow_hive_federation.runtime.cache import (
    DATA_VARIABLE,
    cache_directory,
    is_locked,
    short_digest,
    write_atomically,
)
from airflow_hive_federation.runtime.java import Java, find_java
from airflow_hive_federation.storage.filesystem import refuse_hidden

_START_TIMEOUT_S = 90.0
_STOP_TIMEOUT_S = 10.0
_POLL_S = 0.02
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_LOCK = "metastore.lock"
_LOG = "metastore.log"


@dataclass(frozen=True, kw_only=True)
class RunningMetastore:
    """A running metastore, started by this or another process.

    :param name: the name that it was started with.
    :param port: its Thrift port on 127.0.0.1.
    :param jdbc_port: the port of its database on 127.0.0.1.
    :param pid: process id of its JVM.
    :param directory: directory of its database, warehouse and log.
    """

    name: str
    port: int
    jdbc_port: int
    pid: int
    directory: Path

    @property
    def uri(self) -> str:
        """Return ``thrift://127.0.0.1:PORT``."""
        return f"thrift://127.0.0.1:{self.port}"

    @property
    def jdbc_url(self) -> str:
        """Return the JDBC URL of its database (user ``APP`` of Derby, else ``hive``)."""
        return jdbc_url(self.directory, self.jdbc_port)

    @property
    def jdbc_password(self) -> str:
        """Return the password of that user.

        :raises ConfigurationError: if it cannot be read, by another user of the machine for instance.
        """
        return jdbc_password(self.directory)

    @property
    def database(self) -> str:
        """Return the kind of its database: ``derby``, ``postgresql`` or ``mariadb``."""
        return kind_of(self.directory)

    @property
    def warehouse(self) -> Path:
        """Return the directory of managed tables."""
        return self.directory / "warehouse"

    @property
    def external_warehouse(self) -> Path:
        """Return the directory of external tables."""
        return self.directory / "external"

    @property
    def log_path(self) -> Path:
        """Return the path of the metastore's log."""
        return self.directory / _LOG

    def is_in(self, directory: Path) -> bool:
        """Return whether it runs in a directory, whose path may lead through links or ``..``."""
        return self.directory.resolve() == directory.resolve()


class EmbeddedMetastore:
    """A real Hive 4.2 metastore with its own port, database, warehouse and log.

    It has transactions, notification events, and the compactor's initiator and cleaner, but no compaction
    worker. It listens on 127.0.0.1 only. As a context manager it stops at the end::

        with EmbeddedMetastore.start("source") as metastore:
            connect(metastore.uri)
    """

    def __init__(
        self,
        running: RunningMetastore,
        process: subprocess.Popen[bytes],
        server: DatabaseServer | None,
        *,
        options: _StartOptions,
    ) -> None:
        self._running = running
        self._process = process
        self._server = server
        self._options = options

    @classmethod
    def start(
        cls,
        name: str = "source",
        *,
        directory: Path | None = None,
        keep: bool = False,
        tied_to_parent: bool = True,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        database: str | DatabaseServer | None = None,
        jars: Sequence[Path] = (),
    ) -> EmbeddedMetastore:
        """Start a metastore and return when it answers (3 to 5 s; the very first start also fetches jars).

        :param directory: its directory, created if missing; an existing metastore in it continues. By default
            a temporary directory.
        :param keep: keep the temporary directory when the metastore stops. A given directory is always kept.
        :param tied_to_parent: end the metastore when this process ends, even if it is killed.
        :param port: the Thrift port; 0 takes a free one.
        :param settings: Hive settings that replace ours.
        :param database: ``derby``, ``postgresql`` or ``mariadb`` (a server that ends with the metastore), or
            a running server, in which the metastore has a database of its name. By default, that of an
            existing metastore in the directory continues, and a new one is on Derby.
        :param jars: further jars of its class path, those of a file system for instance.
        :raises ConfigurationError: if the name cannot be a file name, the directory is in use or has its data
            in another database, the password of its database cannot be read, or its server cannot run here.
        :raises HiddenLocationError: if Hive would read tables in that directory as empty.
        :raises EmbeddedError: if the launchers do not compile against the jars.
        :raises JavaNotFoundError: if no Java runtime fits.
        :raises JarDownloadError: if the jars could not be fetched.
        :raises MetastoreStartError: if it did not start; the error has the most informative line of its log,
            and ``log_path``. The files of the start are removed if the directory had none before; the log is
            kept in the cache.
        """
        if not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"{name!r} cannot be the name of a metastore.",
                remedy="Use letters, digits, '_', '-' and '.', at most 64 of them.",
            )
        temporary = directory is None
        home = Path(tempfile.mkdtemp(prefix=f"hive-{name}-")) if directory is None else directory
        options = _StartOptions(
            name=name,
            directory=home.absolute(),
            delete=temporary and not keep,
            tied_to_parent=tied_to_parent,
            settings=dict(settings or {}),
            database=database,
            jars=tuple(jars),
        )
        with leaving_nothing(options.directory, name, remove=temporary):
            running, process, server = _start(options, port, 0)
        return cls(running, process, server, options=options)

    @property
    def name(self) -> str:
        """Return the name that the metastore was started with."""
        return self._running.name

    @property
    def uri(self) -> str:
        """Return ``thrift://127.0.0.1:PORT``."""
        return self._running.uri

    @property
    def port(self) -> int:
        """Return the Thrift port."""
        return self._running.port

    @property
    def jdbc_url(self) -> str:
        """Return the JDBC URL of its database (user ``APP`` of Derby, else ``hive``)."""
        return self._running.jdbc_url

    @property
    def jdbc_password(self) -> str:
        """Return the password of that user.

        :raises ConfigurationError: if its file was removed.
        """
        return self._running.jdbc_password

    @property
    def database(self) -> str:
        """Return the kind of its database: ``derby``, ``postgresql`` or ``mariadb``."""
        return self._running.database

    @property
    def pid(self) -> int:
        """Return the process id of the JVM."""
        return self._running.pid

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the JVM, the negative number of the signal that ended it, or ``None``."""
        return self._process.poll()

    @property
    def directory(self) -> Path:
        """Return the directory of database, warehouse and log."""
        return self._running.directory

    @property
    def warehouse(self) -> Path:
        """Return the directory of managed tables."""
        return self._running.warehouse

    @property
    def external_warehouse(self) -> Path:
        """Return the directory of external tables."""
        return self._running.external_warehouse

    @property
    def log_path(self) -> Path:
        """Return the path of the metastore's log."""
        return self._running.log_path

    def stop(self) -> None:
        """Stop the metastore in an orderly way, and delete its directory if it was a temporary one.

        A second call does nothing.
        """
        end_server(self._process)
        if self._server is not None and self._options.delete:
            self._server.remove()
        elif self._server is not None:
            self._server.stop()
        if self._options.delete:
            shutil.rmtree(self.directory, ignore_errors=True)

    def kill(self) -> None:
        """Kill the metastore, as a crash would; its directory stays, for :meth:`restart`.

        A database server of its own ends, too.
        """
        end_server(self._process, signal.SIGKILL)
        if self._server is not None:
            self._server.stop()

    def restart(self) -> None:
        """Stop the metastore if it runs, and start it again in the same directory and on the same port.

        :raises MetastoreStartError: as :meth:`start`.
        """
        end_server(self._process)
        if self._server is not None:
            self._server.stop()
        started = _start(self._options, self.port, self._running.jdbc_port)
        self._running, self._process, self._server = started

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def running_metastores() -> list[RunningMetastore]:
    """Return this user's running embedded metastores, sorted by name, and remove outdated announcements.

    Several users may share one cache; the announcements of others are left alone.
    """
    running = []
    for announcement in sorted(_register().glob("*.json")):
        if not _is_own(announcement):
            continue
        announced = _announced(announcement)
        if announced is not None and is_locked(announced.directory / _LOCK):
            running.append(announced)
        else:
            announcement.unlink(missing_ok=True)
    return sorted(running, key=lambda metastore: metastore.name)


def stop_metastore(metastore: RunningMetastore) -> None:
    """Stop a metastore that any process of this user has started, and wait for its end.

    A database server of its own stops, too.

    :raises EmbeddedError: the metastore runs elsewhere.
    """
    server, lock = server_directory(metastore.directory), metastore.directory / _LOCK
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        # Another process may have the id by now; the lock shows that the metastore still runs.
        if is_locked(lock):
            signal_holder(metastore.pid, number, lock, name=metastore.name)
        while is_locked(lock):
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        else:
            break
    if server is not None:
        await_end(server)


@dataclass(frozen=True, kw_only=True)
class _StartOptions:
    name: str
    directory: Path
    delete: bool
    tied_to_parent: bool
    settings: Mapping[str, str]
    database: str | DatabaseServer | None
    jars: tuple[Path, ...]


_Started = tuple[RunningMetastore, subprocess.Popen[bytes], DatabaseServer | None]


def _start(options: _StartOptions, port: int, jdbc_port: int) -> _Started:
    directory = options.directory
    if is_locked(directory / _LOCK):
        raise ConfigurationError(
            f"a metastore is running on {directory}.",
            remedy="Stop it (hive-federation metastore list), or name another directory.",
        )
    settings = metastore_settings(directory, options.settings)
    for kind in warehouse_settings(directory):
        refuse_hidden(
            settings[kind],
            f"the warehouse of metastore {options.name!r} ({kind})",
            remedy="Name a directory that is not hidden: --directory of hive-federation metastore start, "
            f"directory of EmbeddedMetastore.start, the environment variable {DATA_VARIABLE}, or TMPDIR for "
            "temporary ones.",
        )
    java = find_java()
    for folder in FOLDERS:
        try:
            (directory / folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"{directory / folder} cannot be created: {error.strerror}.", remedy="Name another directory."
            ) from error
    database = open_database(
        java,
        directory,
        options.database,
        name=options.name,
        port=jdbc_port,
        temporary=options.delete,
    )
    try:
        command, announcement = _command(java, options, database, port)
        running, process = _spawn(command, options, announcement)
        if database.server is not None:
            database.server.follow(process.pid)
    except BaseException:
        # An interrupt, too, must leave no server behind.
        database.undo()
        raise
    return running, process, database.server


def _command(java: Java, options: _StartOptions, database: OpenDatabase, port: int) -> tuple[list[str], Path]:
    """Write the metastore's configuration; return its command and the path of its announcement."""
    directory = options.directory
    settings = metastore_settings(
        directory, options.settings, jdbc_url=database.jdbc_url, password=database.password
    )
    write_atomically(directory / "conf" / "metastore-site.xml", site_xml(settings).encode(), private=True)
    write_atomically(directory / "conf" / "core-site.xml", core_site_xml(settings).encode(), private=True)
    jars = [*metastore_jars(java), *database.jars]
    announcement = _register() / f"{options.name}-{short_digest(str(directory).encode())}.json"
    announcement.parent.mkdir(parents=True, exist_ok=True)
    _withdraw(directory)
    command = java_command(
        java,
        METASTORE_MAIN,
        [
            str(port),
            str(database.jdbc_port),
            str(directory / _LOCK),
            str(announcement),
            options.name,
            str(directory),
            str(os.getpid()) if options.tied_to_parent else "0",
            database.kind,
            str(database.schema or "-"),
        ],
        class_path=[launcher_classes(java, jars), *jars, directory / "conf", *options.jars],
        argument_file=directory / "conf" / "java.args",
        properties={
            "derby.stream.error.file": str(directory / "derby.log"),
            # In seconds. Derby locks all rows that it scans, so that a commit and Hive's cleaner sometimes
            # deadlock (CommitTxnFunction, MarkCleanedFunction). Hive repeats one of them, but until Derby
            # checks for deadlocks, by default after 20 s, every other call waits as well.
            "derby.locks.deadlockTimeout": "1",
            # Hive has more texts of statements than Derby keeps compiled by default (100). With that number,
            # a third of the metastore's processor time is Derby's compiler.
            "derby.language.statementCacheSize": "2000",
        },
    )
    return command, announcement


def _spawn(
    command: list[str], options: _StartOptions, announcement: Path
) -> tuple[RunningMetastore, subprocess.Popen[bytes]]:
    def announced(pid: int) -> RunningMetastore | None:
        running = _announced(announcement)
        return running if running is not None and running.pid == pid else None

    running, process = start_server(
        command,
        server=f"the embedded metastore {options.name!r}",
        log_path=options.directory / _LOG,
        announced=announced,
        timeout_s=_START_TIMEOUT_S,
        stdin=subprocess.PIPE if options.tied_to_parent else subprocess.DEVNULL,
    )
    if not options.tied_to_parent:
        # If the metastore ends before this process, the thread collects its exit status.
        threading.Thread(target=process.wait, name=f"reap-{options.name}", daemon=True).start()
    return running, process


def _register() -> Path:
    return cache_directory() / "running"


def _withdraw(directory: Path) -> None:
    """Remove the announcements of killed metastores that ran in a directory by any name or path.

    The lock of the next one would make them look alive, with a process id that belongs to another program.
    """
    for announcement in _register().glob("*.json"):
        announced = _announced(announcement) if _is_own(announcement) else None
        if announced is not None and announced.is_in(directory):
            announcement.unlink(missing_ok=True)


def _is_own(announcement: Path) -> bool:
    try:
        return announcement.stat().st_uid == os.getuid()
    except FileNotFoundError:
        return False


def _announced(announcement: Path) -> RunningMetastore | None:
    try:
        fields = Fields(bounded_json.loads(announcement.read_text("utf-8")))
        return RunningMetastore(
            name=fields.needed("name", text),
            port=fields.needed("port", count),
            jdbc_port=fields.needed("jdbc_port", count),
            pid=fields.needed("pid", count),
            directory=Path(fields.needed("directory", text)),
        )
    except (FileNotFoundError, ValueError):
        return None
