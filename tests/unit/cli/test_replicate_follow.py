"""The options of ``replicate follow``, and the end at a signal."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from airflow_hive_federation.cli.main import build_parser, main
from airflow_hive_federation.cli.replicate_follow import _stopped_by_signals
from airflow_hive_federation.waiting import StopRequest

POLICY = """
name = "p"
source = "thrift://127.0.0.1:1"
target = "thrift://127.0.0.1:1"
source_database = "d"
dump_root = "file:/d"
"""


@pytest.mark.parametrize(
    "options", [["--for", "0"], ["--for", "inf"], ["--cycles", "0"], ["--look-every", "-1"], ["--for", "x"]]
)
def test_impossible_options_are_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(["replicate", "follow", "policy.toml", *options])
    assert ended.value.code == 2
    assert options[0] in capsys.readouterr().err


def test_a_taken_port_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY, encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["replicate", "follow", str(policy), "--metrics-port", str(port)]) == 1
    assert f"ConfigurationError: Metrics cannot be served at 127.0.0.1:{port}" in capsys.readouterr().err


def test_a_group_is_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "group.toml"
    head = POLICY.replace('source_database = "d"\n', "")
    policy.write_text(f'{head}\n[[policies]]\nsource_database = "d"\n', encoding="utf-8")
    assert main(["replicate", "follow", str(policy)]) == 1
    assert "GroupMembershipError" in capsys.readouterr().err


def test_the_first_signal_requests_the_stop_and_the_second_is_not_held_back() -> None:
    stop, ended, before = StopRequest(), [], signal.getsignal(signal.SIGTERM)
    with _stopped_by_signals(stop, lambda: ended.append("job")):
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(60)
        assert ended == ["job"]
        assert signal.getsignal(signal.SIGTERM) is before
