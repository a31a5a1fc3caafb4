"""Runs a MariaDB server for embedded metastores, with the programs that the machine has.

Maven Central has the programs for x86-64 only, in 140 MB, so that the machine's own packages bring them.
"""

from __future__ import annotations

import json
import os
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
from airflow_hive_federation.embedded.lock import MARIADB
from airflow_hive_federation.embedded.schema import schema_script, statements
from airflow_hive_federation.embedded.server_user import ServerUser
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.runtime.cache import write_atomically
from airflow_hive_federation.runtime.java import Java

_SCHEMA = "hive-schema-4.0.0.mysql.sql"
_DIFFERENCE = LAUNCHER / "schema-4.2.0.mysql.sql"
_SCHEMA_FILE = "schema.json"
# Packages put the server where only administrators look for programs.
_SYSTEM_PATH = ("/usr/sbin", "/usr/local/sbin", "/sbin")
_SETTINGS = {
    "bind-address": "127.0.0.1",
    # Without a name, there is no socket file.
    "socket": "",
    "skip-name-resolve": "1",
    # Each metastore has several pools of connections, and each SQL engine too.
    "max-connections": "300",
    "default-time-zone": "+00:00",
}


class EmbeddedMariadb(DatabaseServer):
    """A MariaDB server of the machine's version; its settings are those of ``mariadbd``'s command line."""

    kind: ClassVar[str] = MARIADB
    title: ClassVar[str] = "MariaDB"
    temporary: ClassVar[Mapping[str, str]] = {
        "innodb-flush-method": "nosync",
        "innodb-flush-log-at-trx-commit": "0",
    }
    ending: ClassVar[tuple[int, int]] = (signal.SIGTERM, signal.SIGKILL)

    @property
    def schema(self) -> Path:
        """Return the file of Hive's schema, as a JSON array of statements."""
        return self.directory / _SCHEMA_FILE

    @classmethod
    def _prepare(cls, java: Java, home: Path, user: ServerUser) -> Path:
        """Create the server's data, with the user ``hive`` as the only one who can log in."""
        program, installer = _found("mariadbd"), _found("mariadb-install-db")
        data, partial = home / "data", home / ".data.partial"
        if not data.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(mode=0o700)
            user.own(partial)
            place = ("--no-defaults", f"--datadir={partial}")
            login = ("--auth-root-authentication-method=normal", "--skip-test-db")
            run_program(cls.title, [str(installer), *place, *login], user, partial)
            password = secrets.token_hex(PASSWORD_BYTES)
            run_program(cls.title, [str(program), *place, "--bootstrap"], user, partial, _logins(password))
            write_atomically(home / PASSWORD_FILE, password.encode(), private=True)
            partial.rename(data)
        scripts = (schema_script(java, _SCHEMA), _DIFFERENCE.read_text("utf-8"))
        schema = [sql for script in scripts for sql in statements(script)]
        write_atomically(home / _SCHEMA_FILE, json.dumps(schema).encode(), private=True)
        return program

    @classmethod
    def _program(cls, path: Path, options: ServerOptions) -> ServerProgram:
        data = options.home / "data"
        settings = {**_SETTINGS, **options.settings, "port": str(options.port)}
        # MariaDB writes the file when it listens. A signal to end that comes then, before its last threads
        # run, would leave it waiting for them forever (``init_slave``).
        pid_file = data / "server.pid"
        parts = (f"--{name}={value}" for name, value in settings.items())
        command = (str(path), "--no-defaults", f"--datadir={data}", f"--pid-file={pid_file}", *parts)
        return ServerProgram(command=command, pid_file=pid_file, greeting_port=options.port)


def _logins(password: str) -> str:
    """Return the statements that make the user of all databases, and remove those that need no password."""
    login = f"{SERVERS_USER}@'127.0.0.1'"
    return "".join(
        f"{statement};\n"
        for statement in (
            # A server that bootstraps reads its users only when it is asked to.
            "FLUSH PRIVILEGES",
            f"CREATE USER {login} IDENTIFIED BY '{password}'",
            f"GRANT ALL PRIVILEGES ON *.* TO {login}",
            # mariadb.sys owns a view of the system, and cannot log in.
            f"DELETE FROM mysql.global_priv WHERE User NOT IN ('{SERVERS_USER}', 'mariadb.sys')",  # noqa: S608
            "DELETE FROM mysql.proxies_priv",
        )
    )


def _found(name: str) -> Path:
    path = shutil.which(name) or shutil.which(name, path=os.pathsep.join(_SYSTEM_PATH))
    if path is None:
        raise ConfigurationError(
            f"this machine has no program {name}, which a metastore on MariaDB needs.",
            remedy="Install MariaDB's server (Debian's package mariadb-server), or start the metastore on "
            "Derby, which is the default.",
        )
    return Path(path)
