"""The task that sweeps a cluster."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.cli import cluster
from airflow_hive_federation.cli.main import main
from airflow_hive_federation.clusters.notes import Kind, Note, take_note
from airflow_hive_federation.clusters.registry import ClusterRegistry
from airflow_hive_federation.clusters.sweeping import days_in_seconds
from airflow_hive_federation.errors import ConfigurationError, CopyRefusedError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.operators.cluster_sweep import SweepCopiesOperator
from airflow_hive_federation.storage.filesystem import local_path
from tests.support.one_table import OneTable
from tests.support.two_clusters import two_clusters

SECRET = "the-key-of-the-store"
DAY_S = 24 * 3600.0


def registry(root: Path) -> ClusterRegistry:
    return two_clusters(root / "C1", root / "C2")


def on_one_table(root: Path, **arguments: Any) -> SweepCopiesOperator:
    """Return the operator on a metastore with the table ``d.t``."""

    class OnOneTable(SweepCopiesOperator):
        @contextmanager
        def _open(self) -> Iterator[tuple[MetastoreClient, ClusterRegistry, dict[str, Any]]]:
            storage = types.StorageDescriptor(location="file:/elsewhere")
            table = types.Table(dbName="d", tableName="t", createTime=1, parameters={}, sd=storage)
            yield OneTable(table).client, registry(root), {"s3": {"secret": SECRET}}

    return OnOneTable(task_id="sweep", cluster="C2", **arguments)


def aged(root: Path, kind: Kind, days: float, table: str = "t") -> str:
    """Make a directory of C2 with a note of an age; return its URI."""
    parts = ("_hive_federation", f"sql-{days}") if kind is Kind.STATEMENT else ("d.db", table, f"copy-{days}")
    place = root.joinpath("C2", *parts)
    place.mkdir(parents=True)
    owner = types.Table(dbName="d", tableName=table, createTime=1)
    note = Note.of(owner, kind, f"file:{place}")
    if kind is Kind.STATEMENT:
        note = Note(kind=kind, directory=f"file:{place}")
    take_note(registry(root).cluster("C2"), replace(note, taken_s=time.time() - days * DAY_S))
    return f"file:{place}"


def test_a_task_sweeps_what_is_old_enough(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    copies = [aged(tmp_path, Kind.COPY, days) for days in (0.5, 1.5)]
    statements = [aged(tmp_path, Kind.STATEMENT, days) for days in (6.5, 7.5)]
    result = on_one_table(tmp_path).execute({})
    assert set(result) == {"cluster", "removed", "used", "left"}
    assert sorted(result["removed"]) == [statements[1], copies[1]]
    assert set(result["left"]) == {copies[0], statements[0]}
    assert json.loads(json.dumps(result)) == result
    again = on_one_table(tmp_path, table="D.T", statement_days="0", former_days="0.25").execute({})
    assert (again["removed"], again["left"]) == ([copies[0]], {})
    again = on_one_table(tmp_path, statement_days=6).execute({})
    assert (again["removed"], again["left"]) == ([statements[0]], {})
    assert SECRET not in caplog.text + repr(result)


def test_fields_that_templates_may_fill_are_arguments(tmp_path: Path) -> None:
    task = on_one_table(tmp_path)
    assert set(task.template_fields) == {
        "metastore_conn_id",
        "clusters",
        "cluster",
        "table",
        "statement_days",
        "former_days",
    }
    assert all(hasattr(task, name) for name in task.template_fields)


@pytest.mark.parametrize("days", ["nan", "-1", "inf", "a week", ""])
def test_an_age_that_is_not_a_number_removes_nothing(tmp_path: Path, days: str) -> None:
    """No age is above one that is not a number."""
    copy = aged(tmp_path, Kind.COPY, 0.5)
    with pytest.raises(ConfigurationError, match="is not a number of days"):
        on_one_table(tmp_path, former_days=days).execute({})
    assert Path(str(local_path(copy))).is_dir()
    with pytest.raises(ConfigurationError, match=re.escape(repr(days))):
        days_in_seconds(days)
    assert days_in_seconds("0") == 0.0


@pytest.mark.parametrize("table", ["", "t", "d.t.p"])
def test_a_text_that_names_no_table_removes_nothing(tmp_path: Path, table: str) -> None:
    """A template may have been rendered as an empty text, which is the name in the notes of statements."""
    statement = aged(tmp_path, Kind.STATEMENT, 7.5)
    with pytest.raises(CopyRefusedError, match="is no name of a table"):
        on_one_table(tmp_path, table=table).execute({})
    assert Path(str(local_path(statement))).is_dir()


def test_the_command_sweeps_one_table_and_refuses_such_an_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copies = [aged(tmp_path, Kind.COPY, 1.5, table) for table in ("t", "u")]
    statement = aged(tmp_path, Kind.STATEMENT, 7.5)

    @contextmanager
    def opened(_: object) -> Iterator[tuple[MetastoreClient, ClusterRegistry, object]]:
        with on_one_table(tmp_path)._open() as (client, clusters, options):
            yield client, clusters, SimpleNamespace(storage_options=options)

    monkeypatch.setattr(cluster, "opened", opened)
    sweep = ["cluster", "sweep", "C2", "--table", "d.t"]
    for option in ("--former-days", "--statement-days"):
        assert main([*sweep, option, "nan"]) == 1
        assert "'nan' is not a number of days" in capsys.readouterr().err
    assert main(sweep) == 0
    captured = capsys.readouterr()
    assert "C2: 1 directory removed, 0 in use, 0 left" in captured.out
    assert SECRET not in captured.out + captured.err
    places = [Path(str(local_path(uri))) for uri in (*copies, statement)]
    assert [place.is_dir() for place in places] == [False, True, True]
