"""``hive-federation metastore sql``: the statements of a script, and the printed tables."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from airflow_hive_federation.cli import metastore
from airflow_hive_federation.cli.main import build_parser, main
from airflow_hive_federation.cli.metastore import _next_commands
from airflow_hive_federation.cli.metastore_sql import print_answer, statements_of
from airflow_hive_federation.embedded import naming
from airflow_hive_federation.embedded.metastore import RunningMetastore
from airflow_hive_federation.embedded.sql import HiveAnswer
from airflow_hive_federation.errors import ConfigurationError


def running(name: str, directory: Path) -> RunningMetastore:
    return RunningMetastore(name=name, port=1, jdbc_port=2, pid=3, directory=directory)


def test_the_commands_that_a_start_prints_are_valid(tmp_path: Path) -> None:
    directory = tmp_path / "its directory"
    for line in _next_commands("dev", directory).splitlines():
        program, *arguments = shlex.split(line.partition(": ")[2])
        assert program == "hive-federation"
        args = build_parser().parse_args(arguments)
        assert (args.name, args.directory) == ("dev", directory)
    assert "--directory" not in _next_commands("dev", naming.default_directory("dev"))


def test_a_script_is_cut_at_semicolons_outside_of_quotes_and_comments() -> None:
    script = "-- first; comment\nSET a=b;\nSELECT 'x;y' /* ; */ ;;\n"
    assert statements_of(script) == ["SET a=b", "SELECT 'x;y' /* ; */"]
    with pytest.raises(ConfigurationError, match="There is no statement to run"):
        statements_of(" ; -- nothing")


def test_rows_are_a_table_in_which_no_cell_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    answer = HiveAnswer(columns=("id", "text"), rows=[("1", "x" * 300), ("2", None), ("3", "[b] ")])
    print_answer(answer, rows_are_values=True, always=True)
    printed = capsys.readouterr().out
    assert "x" * 300 in printed
    assert "│ 2  │ NULL" in printed
    assert "[b]" in printed


def test_an_insert_prints_no_empty_table(capsys: pytest.CaptureFixture[str]) -> None:
    empty = HiveAnswer(columns=("col1",), rows=[])
    print_answer(empty, rows_are_values=False, always=False)
    assert capsys.readouterr().out == ""
    print_answer(empty, rows_are_values=True, always=True)
    assert "col1" in capsys.readouterr().out


def test_a_name_means_the_metastore_of_its_own_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_HIVE_FEDERATION_DATA", str(tmp_path))
    own = running("dev", tmp_path / "metastores" / "dev")
    others = [running("dev", tmp_path / "a"), running("dev", tmp_path / "b")]
    monkeypatch.setattr(naming, "running_metastores", lambda: [*others, own])
    assert naming.named_metastore("dev") == own
    assert naming.named_metastore("dev", tmp_path / "a") == others[0]
    monkeypatch.setattr(naming, "running_metastores", lambda: others)
    with pytest.raises(ConfigurationError, match="2 metastores named 'dev' are running") as caught:
        naming.named_metastore("dev")
    assert "--directory" in caught.value.remedy
    with pytest.raises(ConfigurationError, match=f"'dev' is running in {tmp_path / 'c'}") as caught:
        naming.named_metastore("dev", tmp_path / "c")
    assert "metastore list" in caught.value.remedy


def test_a_directory_is_the_same_by_each_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_HIVE_FEDERATION_DATA", str(tmp_path / "link"))
    (tmp_path / "data" / "metastores" / "dev").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "data")
    own = running("dev", tmp_path / "data" / "metastores" / "dev")
    monkeypatch.setattr(naming, "running_metastores", lambda: [running("dev", tmp_path), own])
    assert naming.named_metastore("dev") == own
    assert naming.named_metastore("dev", tmp_path / "link" / "metastores" / "x" / ".." / "dev") == own


def test_a_name_alone_stops_no_metastore_of_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW_HIVE_FEDERATION_DATA", str(tmp_path / "mine"))
    own = running("dev", tmp_path / "mine" / "metastores" / "dev")
    other = running("dev", tmp_path / "its tests")
    stopped: list[RunningMetastore] = []
    monkeypatch.setattr(metastore, "stop_metastore", stopped.append)
    monkeypatch.setattr(naming, "running_metastores", lambda: [other])
    assert main(["metastore", "stop", "dev"]) == 1
    message = capsys.readouterr().err
    assert not stopped
    assert str(own.directory) in message
    # The remedy is the command that stops the other one.
    command = shlex.split(message[message.index("hive-federation metastore stop") :])
    assert main(command[1:]) == 0
    assert stopped == [other]
    monkeypatch.setattr(naming, "running_metastores", lambda: [other, own])
    assert main(["metastore", "stop", "dev"]) == 0
    assert stopped == [other, own]


def test_mistakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(naming, "running_metastores", lambda: [running("dev", tmp_path)])
    assert main(["metastore", "sql", "dev", "SELECT 1", "-f", "x.sql"]) == 1
    assert "SQL and --file are both given" in capsys.readouterr().err
    assert main(["metastore", "sql", "dev", "-f", str(tmp_path / "none.sql")]) == 1
    assert "none.sql cannot be read" in capsys.readouterr().err
    assert main(["metastore", "sql", "dev", "SELECT 'x"]) == 1
    assert "does not end" in capsys.readouterr().err
    assert main(["metastore", "sql", "nobody", "SELECT 1"]) == 1
    assert "Name one that runs: dev." in capsys.readouterr().err
