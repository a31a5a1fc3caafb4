"""A metastore's database without servers: its place, its schema's statements, and what cannot run here."""

from __future__ import annotations

import fcntl
import platform
import pwd
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest

from airflow_hive_federation.embedded import database, guard, postgresql, postgresql_programs
from airflow_hive_federation.embedded.configuration import metastore_settings, sql_settings
from airflow_hive_federation.embedded.database import jdbc_password, jdbc_url, kind_of, open_database
from airflow_hive_federation.embedded.jvm import LAUNCHER
from airflow_hive_federation.embedded.postgresql import EmbeddedPostgresql
from airflow_hive_federation.embedded.postgresql_programs import ServerUser, is_reachable, reachable_home
from airflow_hive_federation.embedded.process import telling_line
from airflow_hive_federation.embedded.schema import statements
from airflow_hive_federation.errors import ConfigurationError, MetastoreStartError
from airflow_hive_federation.runtime.cache import exclusively
from airflow_hive_federation.runtime.java import Java

JAVA = Java(home=Path("/no/java"), version=21, vendor="none")
RECORD = '{"server": "postgresql", "database": "first", "own": true}'


def test_settings_follow_the_url() -> None:
    url = "jdbc:postgresql://127.0.0.1:1/d"
    for settings in (
        metastore_settings(Path("/d"), jdbc_url=url, password="p"),
        sql_settings(Path("/d"), "thrift://127.0.0.1:1", url, password="p"),
    ):
        assert settings["javax.jdo.option.ConnectionURL"] == url
        assert settings["javax.jdo.option.ConnectionDriverName"] == "org.postgresql.Driver"
        assert settings["javax.jdo.option.ConnectionUserName"] == "hive"
        assert settings["javax.jdo.option.ConnectionPassword"] == "p"


def test_the_place_of_the_data_moves_with_its_directory(tmp_path: Path) -> None:
    assert kind_of(tmp_path) == "derby"
    (tmp_path / "postgresql.json").write_text(RECORD, encoding="utf-8")
    assert kind_of(tmp_path) == "postgresql"
    assert jdbc_url(tmp_path, 5) == "jdbc:postgresql://127.0.0.1:5/first"
    (tmp_path / "postgresql").mkdir()
    (tmp_path / "postgresql" / "password").write_text("secret\n", encoding="utf-8")
    assert jdbc_password(tmp_path) == "secret"
    (tmp_path / "postgresql" / "password").unlink()
    with pytest.raises(ConfigurationError, match="password of the embedded PostgreSQL server cannot be read"):
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
    with pytest.raises(ConfigurationError, match="has its data in postgresql, not in derby"):
        open_database(JAVA, shared, "derby", name="n", port=0, temporary=False)


@pytest.mark.parametrize("recorded", [True, False])
def test_a_server_whose_password_is_lost_does_not_run_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: bool
) -> None:
    """The next start, with the password, would find it running."""
    ended = []

    class Server(EmbeddedPostgresql):
        def __init__(self, home: Path) -> None:
            options = postgresql._Options(home=home, delete=False, created=not recorded, settings={})
            super().__init__(options, cast("Any", None), 0)

        def stop(self) -> None:
            ended.append("stopped")

        def remove(self) -> None:
            ended.append("removed")

    def start(directory: Path, **_: object) -> Server:
        return Server(directory)

    monkeypatch.setattr(database, "driver_jars", lambda _: [])
    monkeypatch.setattr(EmbeddedPostgresql, "start", start)
    if recorded:
        (tmp_path / "postgresql.json").write_text(RECORD, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        open_database(JAVA, tmp_path, "postgresql", name="n", port=0, temporary=False)
    assert ended == (["stopped"] if recorded else ["removed"])
    assert (tmp_path / "postgresql.json").exists() == recorded


def test_the_schemas_difference_is_the_same_for_both_databases() -> None:
    derby, postgres = (
        [
            sql.replace('"APP".', "")
            for sql in statements((LAUNCHER / f"schema-4.2.0.{kind}.sql").read_text("utf-8"))
        ]
        for kind in ("derby", "postgres")
    )
    assert derby == postgres
    assert len(postgres) == 13
    assert not [sql for sql in postgres if sql.endswith(";")]


def test_root_alone_needs_another_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    assert not is_reachable(closed / "home")
    assert reachable_home(closed / "home", ServerUser()) == closed / "home"
    elsewhere = tmp_path / "roots"
    monkeypatch.setattr(postgresql_programs, "_ROOTS_SERVERS", elsewhere)
    monkeypatch.setattr(postgresql_programs.tempfile, "gettempdir", lambda: str(closed))
    assert reachable_home(closed / "home", ServerUser(user=65534, group=65534)).parent == elsewhere


def test_machines_and_users_without_a_server_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: str) -> NoReturn:
        raise KeyError

    monkeypatch.setattr(postgresql_programs.os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwnam", unknown)
    with pytest.raises(ConfigurationError, match="no user 'nobody'"):
        postgresql_programs.server_user()
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(ConfigurationError, match="no PostgreSQL programs are known"):
        postgresql_programs.programs(JAVA)


def test_a_failed_start_keeps_the_files_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> NoReturn:
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "postgresql.log").write_text("FATAL: no", encoding="utf-8")
        raise MetastoreStartError("no", log_path="")

    monkeypatch.setattr(postgresql, "_started", fail)
    monkeypatch.setattr(postgresql, "find_java", lambda: JAVA)
    monkeypatch.setattr(postgresql, "server_user", ServerUser)
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
    monkeypatch.setattr(postgresql, "exclusively", exclusively_after_another)
    monkeypatch.setattr(postgresql, "_started", fail)
    monkeypatch.setattr(postgresql, "find_java", lambda: JAVA)
    monkeypatch.setattr(postgresql, "server_user", ServerUser)
    with pytest.raises(ConfigurationError, match="is running"):
        EmbeddedPostgresql.start(directory=home)
    assert (home / "data").is_dir()


def test_a_program_that_does_not_end_in_time_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "_PREPARE_TIMEOUT_S", 0.01)
    (tmp_path / ".data.partial").mkdir()
    with pytest.raises(MetastoreStartError, match=f"sleep did not prepare {tmp_path} within"):
        postgresql._run(["/bin/sleep", "60"], ServerUser(), tmp_path / ".data.partial")


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
