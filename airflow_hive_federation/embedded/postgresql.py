"""Runs a PostgreSQL server for embedded metastores, with programs from Maven Central."""

from __future__ import annotations

import secrets
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from airflow_hive_federation.embedded.configuration import SERVERS_USER
from airflow_hive_federation.embedded.database_server import (
    PASSWORD_BYTES,
    PASSWORD_FILE,
    DatabaseServer,
    ServerOptions,
    ServerProgram,
    run_program,
)
from airflow_hive_federation.embedded.jvm import LAUNCHER
from airflow_hive_federation.embedded.lock import POSTGRESQL
from airflow_hive_federation.embedded.postgresql_programs import reachable_programs
from airflow_hive_federation.embedded.schema import schema_script, statements
from airflow_hive_federation.embedded.server_user import ServerUser
from airflow_hive_federation.runtime.cache import write_atomically
from airflow_hive_federation.runtime.java import Java

_SCHEMA = "hive-schema-4.0.0.postgres.sql"
_DIFFERENCE = LAUNCHER / "schema-4.2.0.postgres.sql"
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
#: The line of PostgreSQL's file ``postmaster.pid`` that has its state (``LOCK_FILE_LINE_PM_STATUS``).
_STATE_LINE = 7


class EmbeddedPostgresql(DatabaseServer):
    """A PostgreSQL 17 server; its settings are those of ``postgresql.conf``."""

    kind: ClassVar[str] = POSTGRESQL
    title: ClassVar[str] = "PostgreSQL"
    temporary: ClassVar[Mapping[str, str]] = {"fsync": "off"}
    ending: ClassVar[tuple[int, int]] = (signal.SIGINT, signal.SIGQUIT)

    @classmethod
    def _prepare(cls, java: Java, home: Path, user: ServerUser) -> Path:
        """Create the server's data, with Hive's schema in its template, unless they exist."""
        folder = reachable_programs(java, home, user)
        program = folder / "bin" / "postgres"
        data, partial = home / "data", home / ".data.partial"
        if data.is_dir():
            return program
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(mode=0o700)
        password, handed = secrets.token_hex(PASSWORD_BYTES), home / ".password.handed"
        handed.unlink(missing_ok=True)
        try:
            write_atomically(handed, password.encode(), private=True)
            user.own(partial)
            user.own(handed)
            locale = ("--encoding=UTF8", "--locale=C", "--locale-provider=icu", "--icu-locale=en-US")
            login = (f"--username={SERVERS_USER}", f"--pwfile={handed}", "--auth=scram-sha-256")
            command = [f"{folder}/bin/initdb", f"--pgdata={partial}", "--no-sync", *locale, *login]
            run_program(cls.title, command, user, partial)
        finally:
            handed.unlink(missing_ok=True)
        scripts = (schema_script(java, _SCHEMA), _DIFFERENCE.read_text("utf-8"))
        lines = (" ".join(sql.split("\n")) for script in scripts for sql in statements(script))
        # A single-user server takes one statement per line, and ends at the first error.
        alone = ["--single", "-D", str(partial), "-c", "exit_on_error=on", "template1"]
        text = "".join(f"{line};\n" for line in lines)
        run_program(cls.title, [str(program), *alone], user, partial, text)
        write_atomically(home / PASSWORD_FILE, password.encode(), private=True)
        partial.rename(data)
        return program

    @classmethod
    def _program(cls, path: Path, options: ServerOptions) -> ServerProgram:
        settings = {**_SETTINGS, **options.settings, "port": str(options.port)}
        data = options.home / "data"
        parts = (part for name, value in settings.items() for part in ("-c", f"{name}={value}"))
        return ServerProgram(
            command=(str(path), "-D", str(data), *parts),
            pid_file=data / "postmaster.pid",
            ready_line=_STATE_LINE,
        )
