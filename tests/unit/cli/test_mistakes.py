"""Mistakes on the command line end with an exit status other than 0, one line, and a remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest
import structlog

from airflow_hive_federation.cli import compact
from airflow_hive_federation.cli.main import main
from airflow_hive_federation.errors import SparkJobError
from tests.support.metastore_peers import DEAD_URI

#: Refused before a metastore is asked. The command, and a part of its error.
REFUSED = {
    "a table and an option of the worker": (
        ["compact", "d.t", "--until-empty"],
        "--until-empty is for the worker",
    ),
    "a pool and a table": (["compact", "d.t", "--pool-name", "p"], "--pool-name is for the worker"),
    "a partition and the worker": (["compact", "worker", "--partition", "p=1"], "--partition is for a table"),
    "a Spark that is not defined": (
        ["compact", "d.t", "--spark-conn-id", "nowhere"],
        "Connection nowhere is not defined",
    ),
    "a header of JSON": (["ingest", "d.t", "f", "--format", "json", "--header"], "--header is for csv"),
    "a quote of Parquet": (
        ["ingest", "d.t", "f", "--format", "parquet", "--quote", "|"],
        "--quote is for csv",
    ),
    "an expression for csv": (["ingest", "d.t", "f", "--regex", "(.)"], "--regex is for regex"),
    "no expression": (["ingest", "d.t", "f", "--format", "regex"], "The format regex needs an expression"),
    "a limit of nothing": (["ingest", "d.t", "f", "--dead-letter-limit", "1"], "--dead-letters"),
    "a long quote": (["ingest", "d.t", "f", "--quote", "ab"], "The quote of csv is 'ab'"),
    "no statement": (["sql", " -- nothing\n;"], "There is no statement to run."),
    "a missing file": (["ingest", "d.t", "/no/such/file"], "/no/such/file does not exist"),
}
#: Refused by the parser of the command line.
NO_VALUES = [
    ["compact", "d.t", "--threads", "0"],
    ["compact", "d.t", "--threads", "many"],
    ["compact", "d.t", "--compression", "rar"],
    ["compact", "worker", "--max-compactions", "0"],
    ["compact", "worker", "--timeout-s", "-1"],
    ["compact", "worker", "--timeout-s", "nan"],
    ["ingest", "d.t", "f", "--commit-records", "0"],
    ["ingest", "d.t", "f", "--commit-interval-s", "soon"],
    ["ingest", "d.t", "f", "--dead-letter-limit", "-1"],
]
#: Commands whose metastore is down.
DOWN = [
    ["compact", "d.t"],
    ["compact", "worker", "--until-empty"],
    ["ingest", "d.t", "FILE"],
    ["remote", "list"],
    ["remote", "describe", "d"],
    ["remote", "refresh", "d"],
    ["route", "SELECT 1"],
    ["sql", "SHOW REMOTES"],
]


def ended(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that fails, and return its one line."""
    assert main([*command, "--metastore", DEAD_URI]) == 1
    shown = capsys.readouterr()
    assert not shown.out
    (line,) = shown.err.splitlines()
    assert line.startswith(f"hive-federation {command[0]}: ")
    assert " Remedy: " in line
    return line


@pytest.mark.parametrize("case", REFUSED)
def test_a_command_that_contradicts_itself(
    case: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f").write_text("1,a\n", encoding="utf-8")
    command, message = REFUSED[case]
    assert message in ended(command, capsys)


@pytest.mark.parametrize(
    "command",
    [["doctor", ""], ["remote", "list", "--metastore", ""], ["sql", "SHOW REMOTES", "--metastore", " "]],
)
def test_a_metastore_without_a_name(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command) == 1
    shown = capsys.readouterr()
    assert not shown.out
    assert "The name of the metastore is empty. Remedy: Give its URIs" in shown.err


@pytest.mark.parametrize("command", NO_VALUES, ids=" ".join)
def test_a_value_that_an_option_cannot_have(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        main(command)
    assert ending.value.code == 2
    assert f"argument {command[-2]}: " in capsys.readouterr().err


@pytest.mark.parametrize("command", DOWN, ids=" ".join)
def test_a_metastore_that_is_down(
    command: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "f").write_text("1,a\n", encoding="utf-8")
    command = [str(tmp_path / "f") if word == "FILE" else word for word in command]
    assert "No metastore answers: thrift://127.0.0.1:1: [Errno 111] Connection refused." in ended(
        command, capsys
    )


@pytest.mark.parametrize("verbose", [True, False])
def test_a_failed_job_is_a_line_unless_its_log_is_asked_for(
    verbose: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> NoReturn:
        log: Any = structlog.get_logger("spark-submit")
        log.info("INFO SparkContext: Running Spark")
        log.warning("the disk is nearly full")
        raise SparkJobError("The job ended with 1.")

    monkeypatch.setattr(compact, "_compact", fail)
    command = ["compact", "d.t", "--spark-conn-id", "s", *(["--verbose"] if verbose else [])]
    assert main(command) == 1
    error = capsys.readouterr().err
    assert "the disk is nearly full" in error
    assert ("Running Spark" in error) is verbose
    assert ("Run it again with --verbose" in error) is not verbose


@pytest.mark.parametrize(
    "options",
    [
        ["--source-lost", "--roll-back"],
        ["--source-lost", "--back", "b.toml"],
        ["--roll-back", "--back", "b.toml"],
        ["--roll-back", "--target-lost", "--source-lost"],
    ],
)
def test_a_failover_is_of_one_kind(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Otherwise one of two options would win, and a take-over be the answer to a wish to roll back."""
    with pytest.raises(SystemExit) as ended:
        main(["replicate", "failover", "p.toml", *options])
    assert ended.value.code == 2
    assert "not allowed with argument" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--source-lost"], ["--back", "b.toml"]])
def test_a_failover_needs_its_target(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replicate", "failover", "/no/such/file", "--target-lost", *options]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "--target-lost is not for a failover" in line
    assert "Remedy: Add --roll-back" in line
