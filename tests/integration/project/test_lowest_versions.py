"""The wheel beside the lowest versions that are declared, with Airflow 3.1 to 3.3, and the oldest Spark.

The locks in ``requirements/`` are as of the release of that Airflow: so are its own constraints. The page in
Airflow is tried in 3.1 and 3.2 here, and in 3.3 by ``test_airflow_standalone``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from playwright.sync_api import expect

from airflow_hive_federation.acid.bucketing import bucket_numbers
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.model.types import parse_type
from airflow_hive_federation.plugin.registration import NAME, ROUTE
from airflow_hive_federation.provider import get_provider_info
from airflow_hive_federation.runtime.java import spark_java_home
from tests.support.browsing import WIDE, Sight, chromium, sight
from tests.support.page_server import MARKUP, PASSWORD, USER, page_server

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

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

#: The tables of each tab of the page.
TABS = {
    "Replication": ["Policies"],
    "Remotes": ["Remotes"],
    "Clusters": ["Tables by cluster", "Last routes"],
    "Ingest and compaction": ["Ingest", "Requests"],
}


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


@dataclass(frozen=True)
class Environment:
    """An environment with a version of Airflow and the wheel."""

    version: str
    python: Path


@pytest.fixture(scope="module")
def environment(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    version: str = request.param
    directory = tmp_path_factory.mktemp(f"airflow-{version}")
    python = directory / "env" / "bin" / "python"
    uv("venv", "--quiet", "--python", sys.executable, directory / "env")
    lock = ROOT / "requirements" / f"lowest-{version}.lock"
    uv("pip", "sync", "--quiet", "--system-certs", "--python", python, "--require-hashes", lock)
    uv("pip", "install", "--quiet", "--python", python, "--no-deps", wheel)
    return Environment(version=version, python=python)


@pytest.mark.parametrize("environment", ["3.1", "3.2", "3.3"], indirect=True, scope="module")
def test_every_module_and_dag_is_imported(
    environment: Environment, source: EmbeddedMetastore, tmp_path: Path
) -> None:
    uv("pip", "check", "--quiet", "--python", environment.python)
    report = json.loads(run(environment.python, CHECK, cwd=tmp_path, AIRFLOW_HOME="").splitlines()[-1])
    assert report["imports"] == {}
    assert report["dag_errors"] == {}
    assert report["dags"] == DAGS
    assert report["tables"] == ["a", "b", "c"]
    (connection,) = get_provider_info()["connection-types"]
    assert report["form"] == sorted(connection["conn-fields"])
    if environment.version == "3.1":
        # All have the same Spark.
        check_round_trip(json.loads(run_spark(environment.python, source, tmp_path).splitlines()[-1]))


@pytest.mark.parametrize(
    ("environment", "prefix"), [("3.1", "/a/prefix/"), ("3.2", "/")], indirect=["environment"], scope="module"
)
def test_the_page_of_older_airflows(environment: Environment, prefix: str, tmp_path: Path) -> None:
    """After a login, each tab has its rows, whose markup is text; 3.1 lends the page no widgets."""
    with logged_in(environment, prefix, tmp_path) as seen:
        page = seen.page
        expect(page.get_by_role("heading", name=NAME)).to_be_visible()
        # The version that lends the page no widgets is the one that is meant.
        lends = page.evaluate("Boolean(globalThis.ChakraUI && globalThis.ReactRouterDOM)")
        assert lends == (environment.version != "3.1")
        for tab, tables in TABS.items():
            page.get_by_role("link", name=tab, exact=True).click()
            for table in tables:
                expect(rows_of(page, table).nth(1)).to_contain_text(MARKUP)
            seen.take_picture(f"airflow-{environment.version}-{tab.split()[0].lower()}")
            assert seen.serious_problems(".hf") == []
        page.go_back()
        expect(page.get_by_role("heading", name="Tables by cluster")).to_be_visible()
        page.get_by_role("link", name="Replication", exact=True).click()
        page.get_by_role("link", name=MARKUP).click()
        expect(page.get_by_text(f"Remedy: Start {MARKUP}.").first).to_be_visible()
        for table in ("Tables", "Tables that are not replicated"):
            expect(rows_of(page, table).filter(has_text=MARKUP)).to_have_count(1)
        assert seen.serious_problems(".hf") == []
        # A link from outside leads to the policy, too.
        page.reload()
        expect(page.get_by_text(f"Remedy: Start {MARKUP}.").first).to_be_visible()
        seen.take_picture(f"airflow-{environment.version}-policy")
        assert page.evaluate("document.documentElement.classList.contains('dark')")
        assert page.evaluate("globalThis.executed") is None
        assert seen.complaints == []


@contextmanager
def logged_in(environment: Environment, prefix: str, directory: Path) -> Iterator[Sight]:
    """Open the page in an environment's Airflow, in dark mode, by its login."""
    with (
        page_server(environment.python, directory, prefix=prefix) as server,
        chromium() as browser,
        sight(browser, f"{server.url}/plugin/{ROUTE}", scheme="dark", size=WIDE) as seen,
    ):
        seen.page.get_by_label("Username").fill(USER)
        seen.page.get_by_label("Password").fill(PASSWORD)
        # Airflow itself asks for the user before there is one.
        seen.complaints.clear()
        seen.page.get_by_role("button", name="Sign in").click()
        yield seen


def rows_of(page: Page, table: str) -> Locator:
    return page.get_by_role("region", name=f"{table}: rows").get_by_role("row")


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
