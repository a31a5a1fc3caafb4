"""The search for planted secrets finds a leak of each kind."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support import planted_secrets
from tests.support.planted_secrets import (
    Planted,
    WatchedProcesses,
    in_database,
    in_environment,
    in_files,
    in_json,
)

Plant = Callable[[Path, str], object]


@pytest.fixture
def planted() -> Planted:
    made = Planted()
    made.plant("a password")
    made.plant("another")
    return made


PLANTS: dict[str, Plant] = {
    "a log": lambda path, secret: path.write_text(f"user=me password={secret}!\n", encoding="utf-8"),
    "JSON": lambda path, secret: path.write_text(json.dumps({"a": [secret]}), encoding="utf-8"),
    "UTF-16": lambda path, secret: path.write_text(f"<{secret}>", encoding="utf-16-le"),
    "gzip": lambda path, secret: path.write_bytes(gzip.compress(secret.encode())),
    "a header": lambda path, secret: path.write_bytes(base64.b64encode(f"me:{secret}\n".encode())),
    "a header of a longer name": lambda path, secret: path.write_bytes(
        base64.b64encode(f"alice:{secret}".encode())
    ),
    "a name": lambda path, secret: path.with_name(f"dump-{secret}").touch(),
}


@pytest.mark.parametrize("kind", PLANTS)
def test_in_files(kind: str, planted: Planted, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "innocent").write_text("pLtd0000 " * 100, encoding="utf-8")
    assert in_files(planted, [tmp_path]) == []
    PLANTS[kind](tmp_path / "sub" / "file", planted.values["a password"])
    (leak,) = in_files(planted, [tmp_path])
    assert leak.startswith("a password is in ")
    left_out = set((tmp_path / "sub").iterdir())
    assert in_files(planted, [tmp_path], but=left_out) == []


def test_in_a_database(planted: Planted, tmp_path: Path) -> None:
    path = tmp_path / "airflow.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE xcom (key TEXT, value BLOB)")
        database.execute("INSERT INTO xcom VALUES ('a', 'b'), ('c', NULL)")
        database.commit()
        assert in_database(planted, path) == ([], {"xcom": 2})
        database.execute("INSERT INTO xcom VALUES (?, ?)", ("d", f"x{planted.values['another']}"))
        database.commit()
    assert in_database(planted, path) == (["another is in a row of xcom"], {"xcom": 3})


def test_in_parameters(planted: Planted) -> None:
    secret = planted.values["a password"]
    assert in_json(planted, "t", {"parameters": {"a": "b"}, "cols": [{"name": "x"}]}) == []
    for nested in (
        {"parameters": {"a": secret}},
        {"parameters": {secret: "b"}},
        {"cols": [{"name": secret}]},
    ):
        (leak,) = in_json(planted, "t", nested)
        assert leak.startswith("a password is in t")


def test_in_command_lines_and_environments(planted: Planted) -> None:
    secret = planted.values["a password"]
    waits = "import sys; print(flush=True); sys.stdin.read()"
    may = {"entitled": re.compile("OPTIONS")}
    started: list[subprocess.Popen[bytes]] = []
    with WatchedProcesses(planted, may) as watched:

        def start(*arguments: str, **variables: str) -> None:
            process = subprocess.Popen(
                [sys.executable, "-c", waits, *arguments],
                env={**os.environ, **variables},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            started.append(process)
            assert process.stdout is not None
            process.stdout.readline()

        try:
            start("entitled", OPTIONS=secret)
            start("harmless", OPTIONS="x")
            watched.look()
            assert watched.leaks == set()
            start(f"--password={secret}")
            start("entitled", OTHER=secret)
            watched.look()
        finally:
            for process in started:
                process.communicate()
    assert sorted(leak.split(" is in ")[1].split()[1] for leak in watched.leaks) == ["command", "variable"]
    assert in_environment(planted, "entitled", {"OPTIONS": secret}, may) == []
    assert len(in_environment(planted, "other", {"OPTIONS": secret}, may)) == 1


def test_spawned_processes_are_noted(planted: Planted, tmp_path: Path) -> None:
    noted = tmp_path / "spawned"
    script = (
        "import os, subprocess, sys; from pathlib import Path;"
        "from tests.support.spawned import note_spawned;"
        f"note_spawned(Path({str(noted)!r}));"
        "subprocess.run(['true', 'one'], env={'A': 'b'}); subprocess.run(['true', 'two']);"
        "os.system('true three'); os.execv('/bin/true', ['true', 'four'])"
    )
    environment = {**os.environ, "SECRET": planted.values["another"]}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)
    lines = [json.loads(line) for line in noted.read_text(encoding="utf-8").splitlines()]
    seen = {line["command"].replace("\0", " "): "SECRET" in line["environment"] for line in lines}
    assert seen == {"true one": False, "true two": True, "true three": True, "true four": True}


def test_an_environment_that_is_not_there_yet(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system shows a program's command line a moment before its environment."""
    watched = WatchedProcesses(planted, {})
    secret = {"OTHER": planted.values["a password"]}
    environments = iter([{}, secret])
    child = SimpleNamespace(
        pid=1,
        create_time=lambda: 1.0,
        cmdline=lambda: ["program"],
        environ=lambda: next(environments),
        parents=list,
    )
    mine = SimpleNamespace(children=lambda recursive: [child])
    monkeypatch.setattr(planted_secrets.psutil, "Process", lambda: mine)
    watched.look()
    assert watched.leaks == set()
    watched.look()
    assert watched.leaks == {"a password is in the variable OTHER of 'program'"}
