"""The systemd unit and the container file: commands that exist, and files that they are made of."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from airflow_hive_federation.cli.main import build_parser
from airflow_hive_federation.gateway.config import MetricsSection
from airflow_hive_federation.gateway.grpc.settings import GrpcFrontSettings
from airflow_hive_federation.gateway.thrift_settings import ThriftSettings

ROOT = Path(__file__).parents[3]
UNIT = ROOT / "deploy" / "hive-federation-gateway.service"
CONTAINER = ROOT / "deploy" / "gateway.Dockerfile"
FILE = "/etc/hive-federation/gateway.toml"


def line(path: Path, key: str) -> str:
    (value,) = re.findall(rf"^{key}[ =](.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return str(value)


def test_the_units_command_is_one() -> None:
    binary, *arguments = shlex.split(line(UNIT, "ExecStart"))
    assert Path(binary).name == "hive-federation"
    args = build_parser().parse_args(arguments)
    assert (args.command, args.gateway_action, str(args.config)) == ("gateway", "serve", FILE)
    assert args.workers == 2


def test_the_unit_lets_the_gateway_drain() -> None:
    drains_s = (ThriftSettings().drain_timeout_s, GrpcFrontSettings().drain_timeout_s)
    assert int(line(UNIT, "TimeoutStopSec")) >= max(drains_s) + 15
    assert int(line(UNIT, "LimitNOFILE")) > 2 * (
        ThriftSettings().max_connections + GrpcFrontSettings().max_connections
    )
    # Under ProtectSystem=strict, an access log can be written nowhere else.
    assert line(UNIT, "LogsDirectory") == "hive-federation"


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd-analyze is missing")
    # The program is where it was installed, which is not here.
    text = UNIT.read_text(encoding="utf-8").replace(shlex.split(line(UNIT, "ExecStart"))[0], sys.executable)
    copy = tmp_path / UNIT.name
    copy.write_text(text, encoding="utf-8")
    process = subprocess.run([analyze, "verify", str(copy)], capture_output=True, text=True, check=False)
    # Keys that it does not know are a warning, and no failure.
    assert (process.returncode, process.stdout + process.stderr) == (0, "")


def test_the_containers_command_is_one() -> None:
    program, *arguments = json.loads(line(CONTAINER, "ENTRYPOINT"))
    assert program == "hive-federation"
    args = build_parser().parse_args(arguments)
    assert (args.gateway_action, str(args.config)) == ("serve", FILE)
    ports = [ThriftSettings().port, GrpcFrontSettings().port, MetricsSection().port]
    assert line(CONTAINER, "EXPOSE").split() == [str(port) for port in ports]


def test_the_container_is_built_of_what_there_is() -> None:
    copied: set[str] = set()
    for copy in re.findall(r"^COPY (.*)$", CONTAINER.read_text(encoding="utf-8"), re.MULTILINE):
        *sources, _target = copy.split()
        copied |= set(sources)
    assert [name for name in copied if not (ROOT / name).exists()] == []
    # What the build reads: hatchling refuses to build without it.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    read = {project["project"]["readme"], *project["project"]["license-files"]}
    assert copied >= {"pyproject.toml", *read, *wheel["packages"], *wheel["force-include"]}


def test_the_container_installs_an_extra_that_exists_and_runs_as_its_own_user() -> None:
    text = CONTAINER.read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extras,) = re.findall(r"pip install .*'\.\[(.*?)\]'", text)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    python = line(CONTAINER, "FROM").removeprefix("python:").removesuffix("-slim")
    assert f"Programming Language :: Python :: {python}" in project["classifiers"]
    # A number, since Kubernetes cannot know that a name is not root's.
    (uid,) = re.findall(r"useradd .*--uid (\d+)", text)
    assert line(CONTAINER, "USER") == uid != "0"
