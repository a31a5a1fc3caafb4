"""The container file of Spark on Kubernetes, and its entry point: made of files that exist."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from airflow_hive_federation.hooks.spark import _PROGRAM_OF_IMAGE

ROOT = Path(__file__).parents[3]
CONTAINER = ROOT / "deploy" / "spark.Dockerfile"
ENTRY = ROOT / "deploy" / "spark-entrypoint.sh"


def test_the_image_is_built_of_what_there_is() -> None:
    text = CONTAINER.read_text(encoding="utf-8")
    copied = {
        source for copy in re.findall(r"^COPY (.*)$", text, re.MULTILINE) for source in copy.split()[:-1]
    }
    assert [name for name in copied if not (ROOT / name).exists()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (extras,) = re.findall(r"pip install .*'\.\[(.*?)\]'", text)
    assert set(extras.split(",")) <= set(project["project"]["optional-dependencies"])
    # A number, since Kubernetes cannot know that a name is not root's.
    (uid,) = re.findall(r"useradd --uid (\d+)", text)
    assert f"\nUSER {uid}\n" in text


def test_the_hooks_program_is_in_the_image() -> None:
    """The image has a link to the package, whose place depends on Python's version."""
    link, _, path = _PROGRAM_OF_IMAGE.removeprefix("local://").partition("/hive-federation/")
    assert re.search(rf"__path__\[0\]\)'\)\" \\\n\s+{link}/hive-federation \\\n", CONTAINER.read_text())
    assert (ROOT / "airflow_hive_federation" / path).is_file()


@pytest.mark.parametrize(
    ("role", "environment", "expected"),
    [
        (
            ["driver", "--class", "C", "main.py", "a b"],
            {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.1"},
            [
                *("spark-submit", "--conf", "spark.driver.bindAddress=10.0.0.1"),
                *("--conf", "spark.executorEnv.SPARK_DRIVER_POD_IP=10.0.0.1"),
                *("--deploy-mode", "client", "--class", "C", "main.py", "a b"),
            ],
        ),
        (
            ["executor"],
            {
                **{f"SPARK_JAVA_OPT_{number}": f"-Do={number} x" for number in (10, 2)},
                "SPARK_EXECUTOR_MEMORY": "512m",
                "SPARK_DRIVER_URL": "spark://d",
                "SPARK_EXECUTOR_ID": "7",
                "SPARK_EXECUTOR_CORES": "2",
                "SPARK_APPLICATION_ID": "app",
                "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
                "SPARK_RESOURCE_PROFILE_ID": "0",
                "SPARK_EXECUTOR_POD_NAME": "pod",
            },
            [
                *("java", "-Do=2 x", "-Do=10 x", "-Xms512m", "-Xmx512m", "-cp", "::{home}/jars/*"),
                "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
                *("--driver-url", "spark://d", "--executor-id", "7", "--cores", "2", "--app-id", "app"),
                *("--hostname", "10.0.0.2", "--resourceProfileId", "0", "--podName", "pod"),
            ],
        ),
        (["echo", "else"], {}, ["else"]),
    ],
    ids=["driver", "executor", "else"],
)
def test_the_entry_point(
    role: list[str], environment: dict[str, str], expected: list[str], tmp_path: Path
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("java", "spark-submit"):
        (programs / name).write_text(f"#!/bin/sh\nprintf '%s\\n' {name} \"$@\"\n")
        (programs / name).chmod(0o755)
    environment = {
        **environment,
        "SPARK_HOME": str(tmp_path),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run([ENTRY, *role], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [text.format(home=tmp_path) for text in expected]
