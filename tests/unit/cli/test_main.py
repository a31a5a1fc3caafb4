from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_hive_federation import __version__
from airflow_hive_federation.cli import compact
from airflow_hive_federation.cli.connecting import settings_for
from airflow_hive_federation.cli.main import COMMANDS, build_parser, main
from airflow_hive_federation.runtime import installed_spark
from airflow_hive_federation.runtime.cache import CACHE_VARIABLE
from airflow_hive_federation.runtime.installed_spark import InstalledSpark


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        with pytest.raises(SystemExit) as caught:
            build_parser().parse_args([command, "--help"])
        assert caught.value.code == 0
        assert f"hive-federation {command}" in capsys.readouterr().out


def test_every_command_takes_json() -> None:
    parser = build_parser()
    for line in (
        ["demo", "--json"],
        ["doctor", "thrift://h", "--json"],
        ["replicate", "run", "p.toml", "--json", "--into-existing"],
        ["replicate", "verify", "p.toml", "file:/dump", "--json"],
        ["replicate", "verify", "p.toml", "--json"],
        ["replicate", "plan", "p.toml", "--json"],
        ["replicate", "status", "p.toml", "--json"],
        ["metastore", "list", "--json"],
    ):
        assert parser.parse_args(line).json is True


@pytest.mark.parametrize(
    "line", [[], ["nonsense"], ["doctor", "a", "b"], ["replicate", "fly"], ["replicate", "verify"]]
)
def test_wrong_command_lines(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(line)
    assert caught.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("hive-federation")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.strip() == __version__


def test_a_reader_of_the_output_that_has_ended_is_no_error(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", "airflow_hive_federation.cli.main", "metastore", "list", "--json"],
            env={**os.environ, CACHE_VARIABLE: str(tmp_path)},
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (141, "")


def test_an_error_of_the_operating_system_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: argparse.Namespace) -> int:
        raise PermissionError(13, "Permission denied", "/closed")

    monkeypatch.setattr("airflow_hive_federation.cli.metastore.run", refuse)
    assert main(["metastore", "list"]) == 1
    assert capsys.readouterr().err == "hive-federation metastore: [Errno 13] Permission denied: '/closed'\n"


def test_one_clear_line_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replicate", "run", str(tmp_path / "none.toml")]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert line.startswith("hive-federation replicate: ConfigurationError: Policy file")


def test_an_interrupt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("airflow_hive_federation.cli.doctor.run", interrupted)
    assert main(["doctor", "thrift://h"]) == 130
    assert capsys.readouterr().err == "hive-federation doctor: interrupted\n"


def test_an_interrupt_while_the_command_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("airflow_hive_federation.cli.doctor.add_parser", interrupted)
    assert main(["doctor", "thrift://h"]) == 130
    assert capsys.readouterr().err == "hive-federation: interrupted\n"


def test_doctor_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "thrift://127.0.0.1:1"]) == 1
    report = capsys.readouterr().out
    assert "error    reachable  No metastore answers: thrift://127.0.0.1:1" in report
    assert "→ Start the metastore" in report
    assert main(["doctor", "thrift://127.0.0.1:1", "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)
    assert [(finding["name"], finding["state"]) for finding in findings] == [
        ("spark", "ok"),
        ("reachable", "error"),
    ]


@pytest.mark.parametrize(
    ("installed", "state", "words"),
    [
        (("3.5.7", None, "5.6.0"), "ok", "pyspark 3.5.7 beside the apache-spark provider 5.6.0"),
        (("3.5.7", "4.2.0", "6.3.4"), "error", "'apache-airflow-providers-apache-spark<6'"),
        ((None, "4.2.0", "6.3.4"), "warning", "pyspark is not installed"),
    ],
)
def test_doctor_of_the_installation(
    installed: tuple[str | None, str | None, str],
    state: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pyspark, client, provider = installed
    versions = InstalledSpark(pyspark=pyspark, client=client, provider=provider)
    monkeypatch.setattr(installed_spark, "installed_spark", lambda: versions)
    assert main(["doctor"]) == int(state == "error")
    report = capsys.readouterr().out
    assert f"{state:<9}spark" in report
    assert words in report


def test_the_longest_answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    bounds = []

    def run(args: argparse.Namespace) -> int:
        bounds.append(settings_for(args.connection).max_answer_bytes)
        return 0

    monkeypatch.setattr("airflow_hive_federation.cli.doctor.run", run)
    monkeypatch.setenv("AIRFLOW_CONN_SMALL", "hive-federation://h:1/?max_answer_bytes=4000")
    for connection in ("thrift://h:1", "small"):
        assert main(["--max-answer-bytes", "5000", "doctor", connection]) == 0
        assert main(["doctor", connection]) == 0
    assert bounds == [5000, 256 << 20, 5000, 4000]
    with pytest.raises(SystemExit):
        main(["--max-answer-bytes", "0", "doctor", "thrift://h:1"])
    assert "--max-answer-bytes: 0 is not a whole number above 0" in capsys.readouterr().err


def test_the_command_starts_quickly() -> None:
    """The parser imports every command: none may import Airflow, Spark or Arrow for it."""
    code = """
import sys
from airflow_hive_federation.cli.main import build_parser
build_parser()
print([name for name in ("airflow", "pyspark", "pyarrow", "rich", "thriftpy2") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_airflow_searches_the_database_unless_the_process_is_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    variable = "_AIRFLOW_PROCESS_CONTEXT"
    contexts = []

    def run(_: argparse.Namespace) -> int:
        contexts.append(os.environ.get(variable))
        return 0

    monkeypatch.setattr("airflow_hive_federation.cli.doctor.run", run)
    monkeypatch.delenv(variable, raising=False)
    assert main(["doctor", "thrift://h:1"]) == 0
    assert variable not in os.environ
    monkeypatch.setenv(variable, "client")
    assert main(["doctor", "thrift://h:1"]) == 0
    assert os.environ[variable] == "client"
    assert contexts == ["server", "client"]


def test_a_table_without_partitions_has_nothing_to_compact(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compact, "_compact", lambda *_: [])
    monkeypatch.setattr(compact, "_serve", lambda *_: [])
    assert main(["compact", "sales.orders", "--metastore", "thrift://h:1"]) == 0
    assert capsys.readouterr().out == "Nothing was compacted: sales.orders has no partitions.\n"
    assert main(["compact", "worker", "--metastore", "thrift://h:1"]) == 0
    assert capsys.readouterr().out == "Nothing was compacted: no request was waiting.\n"


@pytest.mark.parametrize(
    "line",
    [
        ["metastore", "sql", "dev", "-- one\nSELECT 1", "--directory", "d"],
        ["metastore", "sql", "dev", "--directory", "d", "-- one\nSELECT 1"],
        ["metastore", "sql", "--directory", "d", "dev", "-- one\nSELECT 1"],
        ["metastore", "sql", "--directory", "d", "dev", "--", "-- one\nSELECT 1"],
    ],
)
def test_options_stand_anywhere(line: list[str]) -> None:
    args = build_parser().parse_args(line)
    assert (args.name, str(args.directory), args.sql) == ("dev", "d", "-- one\nSELECT 1")


def test_inputs_stand_before_and_after_options() -> None:
    args = build_parser().parse_args(["ingest", "d.t", "a.csv", "--header", "b.csv", "--name", "n", "c.csv"])
    assert (args.table, args.inputs, args.header, args.name) == (
        "d.t",
        ["a.csv", "b.csv", "c.csv"],
        True,
        "n",
    )


def test_wrong_lines_are_refused_as_ever(capsys: pytest.CaptureFixture[str]) -> None:
    for line, complaint in (
        (["metastore", "sql", "--directory", "d"], "the following arguments are required: NAME"),
        (["metastore", "sql", "dev", "--nothing", "SELECT 1"], "unrecognized arguments: --nothing"),
        (["metastore", "sql", "dev", "SELECT 1", "SELECT 2"], "unrecognized arguments: SELECT 2"),
        (["ingest", "d.t", "--header"], "the following arguments are required: INPUT"),
    ):
        with pytest.raises(SystemExit) as caught:
            build_parser().parse_args(line)
        assert caught.value.code == 2
        assert complaint in capsys.readouterr().err
