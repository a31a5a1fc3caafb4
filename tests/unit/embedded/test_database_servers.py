"""A metastore's database without servers: its place, its schema's statements, and what cannot run here."""

from __future__ import annotations

import fcntl
import json
import platform
import pwd
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest

from airflow_hive_federation.embedded import (
    database,
    database_server,
    guard,
    mariadb,
    postgresql_programs,
    server_user,
)
from airflow_hive_federation.embedded.configuration import metastore_settings, sql_settings
from airflow_hive_federation.embedded.database import jdbc_password, jdbc_url, kind_of, open_database
from airflow_hive_federation.embedded.database_server import ServerOptions
from airflow_hive_federation.embedded.jvm import LAUNCHER
from airflow_hive_federation.embedded.mariadb import EmbeddedMariadb
from airflow_hive_federation.embedded.postgresql import EmbeddedPostgresql
from airflow_hive_federation.embedded.process import telling_line
from airflow_hive_federation.embedded.schema import statements
from airflow_hive_federation.embedded.server_user import ServerUser, is_reachable, reachable_home
from airflow_hive_federation.errors import ConfigurationError, MetastoreStartError
from airflow_hive_federation.runtime.cache import exclusively
from airflow_hive_federation.runtime.java import Java

JAVA = Java(home=Path("/no/java"), version=21, vendor="none")
RECORD = '{"server": "postgresql", "database": "first", "own": true}'


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("jdbc:postgresql://127.0.0.1:1/d", "org.postgresql.Driver"),
        ("jdbc:mariadb://127.0.0.1:1/d", "org.mariadb.jdbc.Driver"),
    ],
)
def test_settings_follow_the_url(url: str, driver: str) -> None:
    for settings in (
        metastore_settings(Path("/d"), jdbc_url=url, password="p"),
        sql_settings(Path("/d"), "thrift://127.0.0.1:1", url, password="p"),
    ):
        assert settings["javax.jdo.option.ConnectionURL"] == url
        assert settings["javax.jdo.option.ConnectionDriverName"] == driver
        assert settings["javax.jdo.option.ConnectionUserName"] == "hive"
        assert settings["javax.jdo.option.ConnectionPassword"] == "p"


@pytest.mark.parametrize(("kind", "title"), [("postgresql", "PostgreSQL"), ("mariadb", "MariaDB")])
def test_the_place_of_the_data_moves_with_its_directory(kind: str, title: str, tmp_path: Path) -> None:
    assert kind_of(tmp_path) == "derby"
    (tmp_path / f"{kind}.json").write_text(RECORD.replace("postgresql", kind), encoding="utf-8")
    assert kind_of(tmp_path) == kind
    assert jdbc_url(tmp_path, 5) == f"jdbc:{kind}://127.0.0.1:5/first"
    (tmp_path / kind).mkdir()
    (tmp_path / kind / "password").write_text("secret\n", encoding="utf-8")
    assert jdbc_password(tmp_path) == "secret"
    (tmp_path / kind / "password").unlink()
    with pytest.raises(ConfigurationError, match=f"password of the embedded {title} server cannot be read"):
        jdbc_password(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"server": 1}', '{"server": 1, "database": "d", "own": true}']
)
def test_a_damaged_record_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "postgresql.json").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"postgresql\.json"):
        kind_of(tmp_path)


def test_no_metastore_begins_anew_beside_its_data(tmp_path: Path) -> None:
    derby, shared = tmp_path / "derby", tmp_path / "shared"
    (derby / "metastore_db").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="has its data in derby, not in postgresql"):
        open_database(JAVA, derby, "postgresql", name="n", port=0, temporary=False)
    shared.mkdir()
    record = RECORD.replace("true", "false").replace('"postgresql"', f'"{tmp_path}/elsewhere"')
    (shared / "postgresql.json").write_text(record, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="elsewhere, which has others"):
        open_database(JAVA, shared, None, name="n", port=0, temporary=False)
    for other in ("derby", "mariadb"):
        with pytest.raises(ConfigurationError, match=f"has its data in postgresql, not in {other}"):
            open_database(JAVA, shared, other, name="n", port=0, temporary=False)


@pytest.mark.parametrize("recorded", [True, False])
def test_a_server_whose_password_is_lost_does_not_run_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: bool
) -> None:
    """The next start, with the password, would find it running."""
    ended = []

    class Server(EmbeddedPostgresql):
        def __init__(self, home: Path) -> None:
            options = ServerOptions(home=home, delete=False, created=not recorded, settings={})
            super().__init__(options, cast("Any", None), 0)

        def stop(self) -> None:
            ended.append("stopped")

        def remove(self) -> None:
            ended.append("removed")

    def start(directory: Path, **_: object) -> Server:
        return Server(directory)

    monkeypatch.setattr(database, "driver_jars", lambda *_: [])
    monkeypatch.setattr(EmbeddedPostgresql, "start", start)
    if recorded:
        (tmp_path / "postgresql.json").write_text(RECORD, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        open_database(JAVA, tmp_path, "postgresql", name="n", port=0, temporary=False)
    assert ended == (["stopped"] if recorded else ["removed"])
    assert (tmp_path / "postgresql.json").exists() == recorded


def test_the_schemas_difference_is_the_same_for_all_databases() -> None:
    derby, postgres, mysql = (
        [
            re.sub(r"(DROP INDEX \S+) ON \S+", r"\1", sql.replace('"APP".', "").replace("`", '"'))
            for sql in statements((LAUNCHER / f"schema-4.2.0.{kind}.sql").read_text("utf-8"))
        ]
        for kind in ("derby", "postgres", "mysql")
    )
    assert derby == postgres == mysql
    assert len(postgres) == 13
    assert not [sql for sql in postgres if sql.endswith(";")]


def test_root_alone_needs_another_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    assert not is_reachable(closed / "home")
    assert reachable_home(closed / "home", ServerUser(), "postgresql") == closed / "home"
    elsewhere = tmp_path / "roots"
    monkeypatch.setattr(server_user, "_ROOTS_SERVERS", elsewhere)
    monkeypatch.setattr(server_user.tempfile, "gettempdir", lambda: str(closed))
    assert reachable_home(closed / "home", ServerUser(user=65534, group=65534), "mariadb").parent == elsewhere


def test_machines_and_users_without_a_server_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: str) -> NoReturn:
        raise KeyError

    monkeypatch.setattr(server_user.os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwnam", unknown)
    with pytest.raises(ConfigurationError, match="no user 'nobody'"):
        server_user.server_user("PostgreSQL")
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(ConfigurationError, match="no PostgreSQL programs are known"):
        postgresql_programs.programs(JAVA)
    monkeypatch.setattr(mariadb.shutil, "which", lambda *_, **__: None)
    with pytest.raises(ConfigurationError, match="no program mariadbd") as caught:
        EmbeddedMariadb._prepare(JAVA, Path("/no/home"), ServerUser())
    assert "mariadb-server" in caught.value.remedy


def test_a_failed_start_keeps_the_files_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> NoReturn:
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "postgresql.log").write_text("FATAL: no", encoding="utf-8")
        raise MetastoreStartError("no", log_path="")

    monkeypatch.setattr(EmbeddedPostgresql, "_started", fail)
    monkeypatch.setattr(database_server, "find_java", lambda: JAVA)
    monkeypatch.setattr(database_server, "server_user", lambda _: ServerUser())
    with pytest.raises(MetastoreStartError):
        EmbeddedPostgresql.start(directory=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["postgresql.log"]
    (tmp_path / "mine").touch()
    with pytest.raises(MetastoreStartError):
        EmbeddedPostgresql.start(directory=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"data", "mine", "postgresql.log"}


def test_a_failed_start_keeps_the_data_of_one_that_came_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have found the directory empty; the later one waits, and then a server runs there."""
    home = tmp_path / "home"

    @contextmanager
    def exclusively_after_another(lock: Path) -> Iterator[None]:
        with exclusively(lock):
            (home / "data").mkdir(parents=True)
            yield

    def fail(*_: object) -> NoReturn:
        lock = tmp_path / "postgresql-start.lock"
        with lock.open("r+b") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        raise ConfigurationError("a PostgreSQL server is running")

    monkeypatch.setenv("AIRFLOW_HIVE_FEDERATION_CACHE", str(tmp_path))
    monkeypatch.setattr(database_server, "exclusively", exclusively_after_another)
    monkeypatch.setattr(EmbeddedPostgresql, "_started", fail)
    monkeypatch.setattr(database_server, "find_java", lambda: JAVA)
    monkeypatch.setattr(database_server, "server_user", lambda _: ServerUser())
    with pytest.raises(ConfigurationError, match="is running"):
        EmbeddedPostgresql.start(directory=home)
    assert (home / "data").is_dir()


def test_a_program_that_does_not_end_in_time_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_server, "_PREPARE_TIMEOUT_S", 0.01)
    (tmp_path / ".data.partial").mkdir()
    with pytest.raises(MetastoreStartError, match=f"sleep did not prepare {tmp_path} within"):
        database_server.run_program("MariaDB", ["/bin/sleep", "60"], ServerUser(), tmp_path / ".data.partial")


def test_the_password_of_mariadb_is_on_no_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[list[str], str]] = []

    def note(_: str, command: list[str], __: ServerUser, ___: Path, text: str = "") -> None:
        given.append((command, text))

    monkeypatch.setattr(mariadb, "_found", Path)
    monkeypatch.setattr(mariadb, "run_program", note)
    monkeypatch.setattr(mariadb, "schema_script", lambda *_: "CREATE TABLE a (\n  b INT\n);\n")
    program = EmbeddedMariadb._prepare(JAVA, tmp_path, ServerUser())
    password = EmbeddedMariadb.read_password(tmp_path)
    options = ServerOptions(home=tmp_path, delete=False, created=True, settings={"a": "b"}, port=7)
    started = EmbeddedMariadb._program(program, options)
    commands = [*(command for command, _ in given), started.command]
    assert not [word for command in commands for word in command if password in word]
    assert [password in text for _, text in given] == [False, True]
    assert {"--port=7", "--a=b", "--bind-address=127.0.0.1", "--socket="} <= set(started.command)
    files = ("password", "schema.json")
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in files} == {0o600}
    assert json.loads((tmp_path / "schema.json").read_text("utf-8"))[0] == "CREATE TABLE a (\n  b INT\n)"


def test_the_line_of_a_failed_mariadb_names_the_cause() -> None:
    log = (
        "2026-01-01  0:00:00 0 [Note] Starting MariaDB\n"
        "2026-01-01  0:00:00 0 [ERROR] Do you already have another server running on port: 1 ?\n"
        "2026-01-01  0:00:00 0 [ERROR] Aborting\n"
    )
    assert telling_line(log).endswith("running on port: 1 ?")


@pytest.mark.parametrize(
    ("line", "content", "ready"),
    [
        (None, "7\n", True),
        (None, "8\n", False),
        (None, "", False),
        (1, "7\nready \n", True),
        (1, "7\nstarting\n", False),
        (1, "7\n", False),
    ],
)
def test_a_server_is_ready_by_its_own_file(
    line: int | None, content: str, ready: bool, tmp_path: Path
) -> None:
    (tmp_path / "pid").write_text(content, encoding="utf-8")
    assert guard._is_ready(tmp_path / "pid", 7, line) is ready


def test_a_server_with_a_greeting_is_ready_only_after_it() -> None:
    """A MariaDB that gets its signal to end before that waits for its own threads forever."""
    assert guard._greets(None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer(text: bytes) -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(text)

        for text in (b"", b"5.5.5-10.11"):
            thread = threading.Thread(target=answer, args=(text,))
            thread.start()
            assert guard._greets(port) is bool(text)
            thread.join()
    assert not guard._greets(port)


def test_the_line_of_a_failed_server_is_its_fatal_one() -> None:
    log = (
        "2026-01-01 00:00:00.000 UTC [1] LOG:  starting\n"
        "2026-01-01 00:00:00.000 UTC [1] FATAL:  could not create any TCP/IP sockets\n"
        "2026-01-01 00:00:00.000 UTC [1] LOG:  database system is shut down\n"
    )
    assert telling_line(log).endswith("FATAL:  could not create any TCP/IP sockets")


def test_the_guard_runs_by_itself() -> None:
    """It imports nothing of the package, nor of other packages."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", guard.__file__, "{"], capture_output=True, text=True, check=False
    )
    assert "JSONDecodeError" in done.stderr
