"""``hive-federation sql``: what it prints of a script that ends half-way."""

from __future__ import annotations

import pytest

from airflow_hive_federation.cli import sql
from airflow_hive_federation.cli.main import main
from airflow_hive_federation.errors import NotARemoteError
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.remotes.describe import Answer, message
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.remotes.statement import DropRemote, Statement


class Halfway(Remotes):
    """Has no metastore, and one remote."""

    def execute(self, statement: Statement) -> Answer:  # type: ignore[override]
        assert isinstance(statement, DropRemote)
        if statement.name.table == "there":
            return message("Dropped.")
        raise NotARemoteError("There is none.")


def test_results_before_an_error_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = MetastoreSettings(uris=("thrift://127.0.0.1:1",))
    monkeypatch.setattr(sql, "remotes_for", lambda name, database: Halfway(settings, database=database))
    assert main(["sql", "DROP REMOTE TABLE there; DROP REMOTE TABLE nothing"]) == 1
    printed = capsys.readouterr()
    assert printed.out == "Dropped.\n"
    assert "There is none." in printed.err
    # A script that cannot be parsed does nothing.
    assert main(["sql", "DROP REMOTE TABLE there; DROP REMOTE"]) == 1
    assert capsys.readouterr().out == ""
