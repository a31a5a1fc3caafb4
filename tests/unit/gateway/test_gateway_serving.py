"""The gateway as a whole: both fronts in one process, several processes on one port, and their end."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from airflow_hive_federation.cli.main import main
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway.config import GatewayConfig, config_of
from airflow_hive_federation.gateway.serving import start
from airflow_hive_federation.gateway.workers import Workers, reserve_ports
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from tests.support.gateways import Clients, Peers
from tests.support.metastore_peers import Thrift

NAMES = ["a", "b"]


def databases(method: str, _args: Any) -> Any:
    return NAMES if method == "get_all_databases" else None


def nobody(connection: str) -> MetastoreSettings:
    raise AssertionError(connection)


def test_both_fronts_ask_the_same_handler(
    peer: Peers, stack: ExitStack, client: Clients, tmp_path: Path
) -> None:
    log = tmp_path / "access"
    config = config_of(
        {
            "upstream": {"uris": [peer(Thrift(databases)).uri]},
            "thrift": {"port": 0},
            "grpc": {"port": 0},
            "metrics": {"port": 0},
            "log": {"access": str(log)},
        }
    )
    serving = start(config, nobody)
    stack.callback(serving.stop)
    uris = [front.uri for front in serving.fronts]
    assert [uri.partition(":")[0] for uri in uris] == ["thrift", "grpc"]
    for uri in uris:
        assert client(uri, user="me").call("get_all_databases") == NAMES
    assert serving.metrics is not None
    where = f"http://127.0.0.1:{serving.metrics.port}"
    text = urllib.request.urlopen(f"{where}/metrics", timeout=20).read().decode()
    for front in ("thrift", "grpc"):
        assert f'front="{front}",method="get_all_databases",status="ok"}} 1' in text
    assert f'hive_gateway_client_connections{{worker="0",front="{uris[0]}"}} 1' in text
    assert f'hive_gateway_refused_connections_total{{worker="0",front="{uris[0]}"}} 0' in text
    assert 'hive_gateway_upstream_connections{worker="0",upstream="main"}' in text
    assert "# TYPE hive_gateway_missing_parts_total counter" in text
    assert "# TYPE hive_gateway_upstream_up gauge" in text
    assert urllib.request.urlopen(f"{where}/healthz", timeout=20).read() == b"ok\n"
    lines = [json.loads(line[line.index("{") :]) for line in log.read_text().splitlines()]
    assert {(line["front"], line["user"]) for line in lines} >= {("thrift", "me")}


def test_what_was_started_is_stopped_if_the_rest_fails(peer: Peers) -> None:
    serving = start(config_of({"upstream": {"uris": ["thrift://x:1"]}, "thrift": {"port": 0}}), nobody)
    port = serving.fronts[0].uri.rpartition(":")[2]
    values = {"upstream": {"uris": ["thrift://x:1"]}, "thrift": {"port": 0}, "metrics": {"port": int(port)}}
    with pytest.raises(ConfigurationError, match="Metrics cannot be served"):
        start(config_of(values), nobody)
    serving.stop()


@contextmanager
def served(*options: str) -> Any:
    command = [sys.executable, "-m", "airflow_hive_federation.cli.main", "gateway", "serve", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def uris_of(out: IO[str], count: int) -> set[str]:
    return {out.readline().split()[-1] for _ in range(count)}


def test_workers_end_when_their_parent_is_killed(peer: Peers) -> None:
    upstream = peer(Thrift(databases)).uri
    with served("--upstream", upstream, "--port", "0", "--workers", "2") as process:
        uris_of(process.stdout, 1)
        process.kill()
        # The pipe ends when the last worker, which has it too, has ended.
        process.stderr.read()


def test_processes_share_free_ports_of_all_fronts_and_end_together(peer: Peers) -> None:
    upstream = peer(Thrift(databases)).uri
    ports = ["--port", "0", "--grpc-port", "0", "--metrics-port", "0"]
    with served("--upstream", upstream, *ports, "--workers", "2") as process:
        metrics = [process.stdout.readline().split()[-1] for _ in range(2)]
        uris = [process.stdout.readline().split()[-1] for _ in range(2)]
        assert sorted(uri.partition(":")[0] for uri in uris) == ["grpc", "thrift"]
        # The kernel chooses the process: each connection is one more draw, until both have answered.
        for uri, front in ((uri, uri.partition(":")[0]) for uri in uris):
            while not all(_answered(where, front) for where in metrics):
                with MetastoreClient(MetastoreSettings(uris=(uri,))) as client:
                    assert client.call("get_all_databases") == NAMES
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stdout.read() == ""


def _answered(where: str, front: str) -> bool:
    text = urllib.request.urlopen(where, timeout=20).read().decode()
    return f'front="{front}",method="get_all_databases",status="ok"}}' in text


def test_ports_that_follow_each_other_are_held_or_none_is() -> None:
    holders, first = reserve_ports("127.0.0.1", 0, 3)
    assert [holder.getsockname()[1] for holder in holders] == [first, first + 1, first + 2]
    holders[0].close()
    holders[1].close()
    with socket.socket() as taken:
        # Without SO_REUSEPORT it is nobody else's.
        taken.bind(("127.0.0.1", first + 1))
        with pytest.raises(ConfigurationError, match=f"cannot listen at 127.0.0.1:{first + 1}"):
            reserve_ports("127.0.0.1", first, 3)
    with socket.socket() as free:
        free.bind(("127.0.0.1", first))
    with pytest.raises(ConfigurationError, match=r"cannot listen at 127\.0\.0\.1:65536"):
        reserve_ports("127.0.0.1", 65535, 2)
    holders[2].close()


def test_what_workers_print_is_printed_when_the_last_one_has() -> None:
    code = "import sys; print('serving x', flush=True); print(sys.argv[1], flush=True); sys.stdin.read()"
    out = io.StringIO()
    workers = Workers([[sys.executable, "-c", code, str(number)] for number in range(3)], out=out)
    thread = threading.Thread(target=_run_until_printed, args=(workers, out))
    thread.start()
    thread.join(60)
    assert out.getvalue() == "serving x\n"


def _run_until_printed(workers: Workers, out: io.StringIO) -> None:
    for place in range(3):
        workers._processes.append(workers._start(place))
    while not out.getvalue():
        time.sleep(0.01)
    workers._stop()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--port", "65536"], "port of the Thrift front is 65536"),
        (["--port", "0", "--grpc-port", "65536"], "port of the gRPC front is 65536"),
        (["--port", "0", "--metrics-port", "65536"], "Metrics cannot be served at 127.0.0.1:65536"),
        (["--port", "0", "--workers", "0"], "--workers is 0"),
    ],
)
def test_a_number_that_cannot_be_is_an_error_that_names_it(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gateway", "serve", "--upstream", "thrift://x:1", *options]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_gateway_without_a_front_does_not_start(
    tmp_path: Path, workers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*configured(tmp_path, "thrift = false"), "--workers", workers]) == 1
    assert "The gateway would serve no front." in capsys.readouterr().err


def test_a_failing_start_is_an_error() -> None:
    with served("--upstream", "thrift://x:1", "--host", "0.0.0.0", "--port", "0") as process:
        assert process.wait(60) == 1
        assert "0.0.0.0 in plain text" in process.stderr.read()


@pytest.mark.parametrize("chosen", [None, "", "event_engine_listener"])
def test_the_command_chooses_grpcs_threads_unless_the_user_has(
    monkeypatch: pytest.MonkeyPatch, chosen: str | None
) -> None:
    monkeypatch.setenv("GRPC_EXPERIMENTS", chosen or "")
    if chosen is None:
        monkeypatch.delenv("GRPC_EXPERIMENTS")
    assert main(["gateway", "serve", "--config", "/none"]) != 0
    assert os.environ["GRPC_EXPERIMENTS"] == ("-event_engine_listener" if chosen is None else chosen)


def configured(tmp_path: Path, text: str) -> list[str]:
    """Return the command that serves a configuration file."""
    file = tmp_path / "gateway.toml"
    file.write_text(f'{text}\n[upstream]\nuris = ["thrift://x:1"]\n', encoding="utf-8")
    return ["gateway", "serve", "--config", str(file)]


@pytest.mark.parametrize(
    ("text", "longest_s"),
    [
        ("[thrift]\nport = 0\ndrain_timeout_s = 7", 7.0),
        ("[thrift]\nport = 0\ndrain_timeout_s = 7\n[grpc]\nport = 0\ndrain_timeout_s = 300", 300.0),
        ("[thrift]\nport = 0\ndrain_timeout_s = 300\n[grpc]\nport = 0\ndrain_timeout_s = 7", 300.0),
        ("thrift = false\n[grpc]\nport = 0\ndrain_timeout_s = 7", 7.0),
    ],
)
def test_workers_are_waited_for_as_long_as_any_front_drains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, longest_s: float
) -> None:
    stop_timeouts_s = []

    class Recorder:
        def __init__(self, _commands: Any, *, stop_timeout_s: float) -> None:
            stop_timeouts_s.append(stop_timeout_s)

        def run(self) -> int:
            return 0

    monkeypatch.setattr("airflow_hive_federation.gateway.workers.Workers", Recorder)
    assert main([*configured(tmp_path, text), "--workers", "2"]) == 0
    assert stop_timeouts_s == [10.0 + longest_s]


@pytest.mark.parametrize(
    ("options", "host"),
    [
        (["--host", "0.0.0.0"], None),
        (["--allow-plain"], None),
        (["--cert-file", "c", "--key-file", "k"], None),
        (["--port", "9183"], "127.0.0.1"),
        (["--port", "9183", "--host", "0.0.0.0"], "0.0.0.0"),
    ],
)
def test_a_thrift_front_that_the_file_leaves_out_stays_out_unless_it_gets_a_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], host: str | None
) -> None:
    """It has no authentication: a file that leaves it out must not have one off loopback by an option."""
    configs: list[GatewayConfig] = []

    def start(config: GatewayConfig, *_: Any, **__: Any) -> Any:
        configs.append(config)
        raise ConfigurationError("enough")

    monkeypatch.setattr("airflow_hive_federation.gateway.serving.start", start)
    assert main([*configured(tmp_path, "thrift = false\n[grpc]\nport = 0"), *options]) == 1
    (config,) = configs
    assert (config.thrift and config.thrift.host) == host
