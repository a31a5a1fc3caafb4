"""Messages of ``hive-federation route``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.cli import route
from airflow_hive_federation.cli.main import main
from airflow_hive_federation.clusters.registry import ClusterRegistry
from tests.support.two_clusters import two_clusters

CORRECT = "Correct the name, or the session's database, or assign the table to a cluster."


class NoTables:
    """A metastore without tables and events."""

    def call(self, _method: str, *_arguments: str) -> str:
        return ""

    def get_tables(self, _database: str, _names: list[str]) -> list[Any]:
        return []


@pytest.fixture
def no_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def opened(_args: Any) -> Iterator[tuple[Any, ClusterRegistry, Any]]:
        yield NoTables(), two_clusters("/one", "/two"), SimpleNamespace(settings=None, storage_options={})

    monkeypatch.setattr(route, "opened", opened)


@pytest.mark.usefixtures("no_tables")
def test_a_refused_statement_of_a_script_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["route", "select 1; select * from t; select 2; select 3"]) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0] == "C1"
    assert printed.out.splitlines()[1].startswith("none: default.t: the metastore has no such table")
    assert printed.err == (
        f"hive-federation route: statement 2 of 4 is refused; the 2 after it are not routed. {CORRECT}\n"
    )
    assert main(["route", "select 1; select * from t"]) == 1
    assert capsys.readouterr().err == f"hive-federation route: statement 2 of 2 is refused. {CORRECT}\n"
    assert main(["route", "select 1; use cluster c9"]) == 1
    assert "UnknownClusterError: Statement 2 of 2, from line 1: There is" in capsys.readouterr().err


@pytest.mark.usefixtures("no_tables")
def test_a_single_statement_needs_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["route", "select * from t;"]) == 1
    assert capsys.readouterr().err == f"hive-federation route: {CORRECT}\n"
    assert main(["route", "selec * from t"]) == 1
    assert "Write it in a simpler form" in capsys.readouterr().err
    assert main(["route", "select 1; select 2"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("no_tables")
def test_an_explanation_of_a_script_names_each_statement(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["route", "--explain", "select 1; select 2"]) == 0
    headings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Statement")]
    assert headings == ["Statement 1 of 2: select 1", "Statement 2 of 2: select 2"]
    assert main(["route", "--explain", "select 1"]) == 0
    assert "Statement" not in capsys.readouterr().out
