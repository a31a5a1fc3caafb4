"""Databases to ingest from: real servers on loopback ports, with directories of their own."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_hive_federation.embedded.jvm import free_port
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support.debian import require_program

_SOON = PollPolicy(first_s=0.1, timeout_s=200)
_POSTGRESQL_PROGRAMS = Path("/usr/lib/postgresql")


@dataclass(frozen=True, kw_only=True)
class Database:
    """A server that runs.

    :param connect: makes a connection, as Airflow's hook or the driver does.
    :param placeholder: of parameters.
    """

    name: str
    port: int
    connect: Callable[[], Any]
    placeholder: str = "%s"

    def execute(self, *statements: str) -> None:
        """Run statements, and commit."""
        with closing(self.connect()) as connection:
            with closing(connection.cursor()) as cursor:
                for statement in statements:
                    cursor.execute(statement)
            connection.commit()


def postgresql_connection(port: int) -> Any:
    """A connection by Airflow's hook."""
    from airflow.providers.postgres.hooks.postgres import PostgresHook
    from airflow.sdk import Connection

    described = Connection(
        conn_id="shop", conn_type="postgres", host="127.0.0.1", port=port, login="shop", schema="postgres"
    )
    return PostgresHook(connection=described).get_conn()


def mariadb_connection(port: int) -> Any:
    """A connection by the driver."""
    import pymysql

    return pymysql.connect(
        host="127.0.0.1", port=port, user="shop", database="shop", charset="utf8mb4", collation="utf8mb4_bin"
    )


@contextmanager
def postgresql() -> Iterator[Database]:
    """PostgreSQL, for as long as the block lasts."""
    require_program("psql", "postgresql")
    programs = max(_POSTGRESQL_PROGRAMS.glob("*/bin"), key=lambda path: int(path.parent.name))
    port = free_port()
    with _directory() as directory:
        data, user = f"{directory}/data", _unprivileged()
        command = [f"{programs}/initdb", "-D", data, "-U", "shop", "-A", "trust", "-E", "UTF8", "--locale=C"]
        subprocess.run(command, user=user, check=True, capture_output=True, cwd=directory)
        database = Database(name="postgresql", port=port, connect=lambda: postgresql_connection(port))
        places = ["-p", str(port), "-k", directory, "-c", "listen_addresses=127.0.0.1", "-F"]
        with _running([f"{programs}/postgres", "-D", data, *places], user, directory, database):
            yield database


@contextmanager
def mariadb() -> Iterator[Database]:
    """MariaDB, for as long as the block lasts."""
    server = require_program("mariadbd", "mariadb-server")
    install = require_program("mariadb-install-db", "mariadb-server")
    port = free_port()
    with _directory() as directory:
        user = _unprivileged()
        common = ["--no-defaults", f"--datadir={directory}/data"]
        subprocess.run(
            [install, *common, "--auth-root-authentication-method=normal", "--skip-test-db"],
            user=user,
            check=True,
            capture_output=True,
            cwd=directory,
        )
        initial = Path(directory, "init.sql")
        # A statement a line.
        initial.write_text(
            "CREATE DATABASE shop COLLATE utf8mb4_bin;\n"
            "CREATE USER shop@'%';\n"
            "GRANT ALL ON shop.* TO shop@'%';\n"
        )
        initial.chmod(0o644)
        places = [
            f"--port={port}",
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            f"--socket={directory}/socket",
            f"--pid-file={directory}/pid",
            f"--init-file={initial}",
        ]
        database = Database(name="mariadb", port=port, connect=lambda: mariadb_connection(port))
        with _running([server, *common, *places], user, directory, database):
            yield database


@contextmanager
def _directory() -> Iterator[str]:
    """A directory that the server's user can reach, as pytest's own cannot be."""
    directory = tempfile.mkdtemp(prefix="hive-federation-database-")
    try:
        if os.geteuid() == 0:
            shutil.chown(directory, _unprivileged())
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _unprivileged() -> str:
    """Servers refuse to run as root."""
    return "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name


@contextmanager
def _running(command: list[str], user: str, directory: str, database: Database) -> Iterator[None]:
    with Path(directory, "log").open("wb") as log:
        process = subprocess.Popen(
            command, user=user if os.geteuid() == 0 else None, cwd=directory, stdout=log, stderr=log
        )
    try:
        if not wait_until(lambda: process.poll() is not None or _answers(database), _SOON):
            raise AssertionError(Path(directory, "log").read_text())
        assert process.poll() is None, Path(directory, "log").read_text()
        yield
    finally:
        process.terminate()
        process.wait()


def _answers(database: Database) -> bool:
    try:
        database.connect().close()
    except Exception as error:
        if "OperationalError" in type(error).__name__:
            return False
        raise
    return True
