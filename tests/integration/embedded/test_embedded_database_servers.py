"""A database server that belongs to an embedded metastore: it starts, ends and fails with it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from airflow_hive_federation.cli.main import main
from airflow_hive_federation.embedded.database import SERVERS
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import ConfigurationError, MetastoreStartError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.runtime.cache import is_locked
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support.debian import require_program
from tests.support.small_source import connected

pytestmark = pytest.mark.slow
SOON = PollPolicy(first_s=0.05, longest_s=0.5, timeout_s=30)


@pytest.fixture
def directory() -> Iterator[Path]:
    """A metastore's directory that the server's user can reach, also if root runs the tests."""
    base = Path(tempfile.mkdtemp(prefix="hive-on-postgresql-"))
    base.chmod(0o755)
    yield base / "m"
    shutil.rmtree(base)


def server_of(home: Path) -> Path:
    return home / json.loads((home / "postgresql.json").read_text("utf-8"))["server"]


def cli(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["metastore", *arguments])
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def test_the_server_starts_stops_and_dies_with_its_metastore(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"pg-{os.getpid()}"
    start = ("start", name, "--directory", str(directory), "--database")
    code, text = cli(capsys, *start, "postgresql", "--json")
    assert code == 0, text
    lock = server_of(directory) / "server.lock"
    try:
        assert json.loads(text)["database"] == "postgresql"
        assert is_locked(lock)
        code, text = cli(capsys, *start, "derby")
        assert code != 0
        assert "is running on postgresql, not derby" in text
    finally:
        assert cli(capsys, "stop", name, "--directory", str(directory))[0] == 0
    assert not is_locked(lock)

    with pytest.raises(ConfigurationError, match="has its data in postgresql, not in derby"):
        EmbeddedMetastore.start("other", directory=directory, database="derby")
    with EmbeddedMetastore.start("other", directory=directory) as metastore, connected(metastore) as client:
        # The database has the name of its first start.
        assert metastore.jdbc_url.endswith(f"/{name}")
        client.create_database(types.Database(name="kept", parameters={}))
        os.kill(metastore.pid, signal.SIGKILL)
        assert wait_until(lambda: not is_locked(lock), SOON)
        metastore.restart()
        assert "kept" in client.list_databases()


def test_a_failed_start_leaves_nothing(directory: Path) -> None:
    settings = {"datanucleus.connectionPoolingType": "no-such-pool"}
    with pytest.raises(MetastoreStartError):
        EmbeddedMetastore.start("failed", directory=directory, database="postgresql", settings=settings)
    assert not (directory / "postgresql.json").exists()
    assert not (directory / "postgresql").exists()
    with pytest.raises(ConfigurationError, match="'oracle' is no database"):
        EmbeddedMetastore.start("failed", directory=directory, database="oracle")


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_ends_with_its_guard_and_refuses_a_taken_port_and_directory(kind: str) -> None:
    if kind == "mariadb":
        require_program("mariadbd", "mariadb-server")
    made = SERVERS[kind]
    with made.start() as server:
        with pytest.raises(ConfigurationError, match=f"a {made.title} server is running on"):
            made.start(directory=server.directory)
        process = psutil.Process(server.pid)
        guard = process.parent()
        assert guard is not None
        assert process.uids().real != 0
        guard.kill()
        assert wait_until(lambda: not process.is_running(), SOON)
        with socket.create_server(("127.0.0.1", server.port)):
            with pytest.raises(MetastoreStartError, match=f"{made.title} server in") as caught:
                server.restart()
            assert Path(caught.value.log_path) == server.log_path
        server.restart()
        process = psutil.Process(server.pid)
        with subprocess.Popen(["sleep", "600"]) as followed:
            server.follow(followed.pid)
            followed.kill()
        assert wait_until(lambda: not process.is_running(), SOON)


PARENT = """
import os, time
from airflow_hive_federation.embedded.postgresql import EmbeddedPostgresql
server = EmbeddedPostgresql.start()
print(server.pid, server.directory, flush=True)
if os.fork() == 0:
    # A child that has inherited the pipe to the guard, and outlives the parent.
    os.close(1)
    time.sleep(60)
    os._exit(0)
time.sleep(60)
"""


def test_a_server_ends_with_its_killed_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid, home = parent.stdout.readline().decode().split()
        process = psutil.Process(int(pid))
        parent.kill()
    assert wait_until(lambda: not process.is_running(), SOON)
    assert wait_until(lambda: not is_locked(Path(home) / "server.lock"), SOON)
    shutil.rmtree(home)
