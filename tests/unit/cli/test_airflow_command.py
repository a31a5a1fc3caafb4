"""``airflow hive-federation``; test_docs_blocks parses such a line by Airflow's own parser."""

from __future__ import annotations

import argparse

import pytest

from airflow_hive_federation import __version__
from airflow_hive_federation.cli.airflow_command import get_commands


@pytest.mark.parametrize("arguments", [["--version"], ["--", "--version"]])
def test_arguments_go_to_our_command_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (command,) = get_commands()
    assert command.name == "hive-federation"
    with pytest.raises(SystemExit) as ended:
        command.func(argparse.Namespace(arguments=arguments))
    assert ended.value.code == 0
    assert capsys.readouterr().out.strip() == __version__


def test_a_failure_is_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    (command,) = get_commands()
    with pytest.raises(SystemExit) as ended:
        command.func(argparse.Namespace(arguments=["replicate", "status", "/no/such/policy.toml"]))
    assert ended.value.code == 1
    assert "cannot be read" in capsys.readouterr().err
