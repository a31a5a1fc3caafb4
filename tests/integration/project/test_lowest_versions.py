"""The wheel beside the lowest versions that are declared, with Airflow 3.1 to 3.3, and the oldest Spark.

The locks in ``requirements/`` are as of the release of that Airflow: so are its own constraints.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_hive_federation.acid.bucketing import bucket_numbers
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.model.types import parse_type
from airflow_hive_federation.provider import get_provider_info
from airflow_hive_federation.runtime.java import spark_java_home

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[3]
CHECK = Path(__file__).parents[2] / "support" / "installed_provider.py"
ROUND_TRIP = Path(__file__).parents[2] / "support" / "spark_round_trip.py"
DAGS = [
    "compaction_worker",
    "failover",
    "ingest_files",
    "keep_secondaries_current",
    "replicate_database",
    "replicate_databases",
    "replicate_on_change",
    "replicate_over_grpc",
    "report_on_replica",
    "routed_query",
]


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Return the output of a command; a failure shows its errors."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def uv(*arguments: str | Path) -> str:
    return run(sys.executable, "-m", "uv", *arguments)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    uv(
        "build",
        "--quiet",
        "--wheel",
        "--no-build-isolation",
        "--python",
        sys.executable,
        "--out-dir",
        out,
        ROOT,
    )
    (made,) = out.glob("*.whl")
    return made


@pytest.mark.parametrize("version", ["3.1", "3.2", "3.3"])
def test_every_module_and_dag_is_imported(
    version: str, wheel: Path, source: EmbeddedMetastore, tmp_path: Path
) -> None:
    python = tmp_path / "env" / "bin" / "python"
    uv("venv", "--quiet", "--python", sys.executable, tmp_path / "env")
    lock = ROOT / "requirements" / f"lowest-{version}.lock"
    uv("pip", "sync", "--quiet", "--system-certs", "--python", python, "--require-hashes", lock)
    uv("pip", "install", "--quiet", "--python", python, "--no-deps", wheel)
    uv("pip", "check", "--quiet", "--python", python)
    report = json.loads(run(python, CHECK, cwd=tmp_path, AIRFLOW_HOME="").splitlines()[-1])
    assert report["imports"] == {}
    assert report["dag_errors"] == {}
    assert report["dags"] == DAGS
    assert report["tables"] == ["a", "b", "c"]
    (connection,) = get_provider_info()["connection-types"]
    assert report["form"] == sorted(connection["conn-fields"])
    if version == "3.1":
        # All have the same Spark.
        check_round_trip(json.loads(run_spark(python, source, tmp_path).splitlines()[-1]))


def run_spark(python: Path, source: EmbeddedMetastore, directory: Path) -> str:
    """Write and read ACID tables by the Spark of an environment."""
    java = str(spark_java_home())
    return run(python, ROUND_TRIP, source.uri, "oldest_spark", cwd=directory, JAVA_HOME=java)


def check_round_trip(report: dict[str, Any]) -> None:
    assert report["spark"].startswith("3.5.")
    assert (report["inserted"], report["deleted"]) == (20, 5)
    names = [f"n{number}" for number in (7, 17, 18, 19)]
    buckets = bucket_numbers([pa.array(names)], [parse_type("string")], buckets=3, version=2)
    assert len(set(buckets)) > 1
    expected = [[int(name[1:]), name, int(bucket)] for name, bucket in zip(names, buckets, strict=True)]
    assert report["rows"] == expected
    assert report["answer"] == [[4, 19]]
    # Only this cast fails: other rows of the same table are written.
    assert report["refusals"].keys() == {"id", "day"}
    assert all("cannot be cast" in message for message in report["refusals"].values()), report["refusals"]
    assert (report["filled"], report["days"]) == (20, [[0, 10], [1, 10]])
