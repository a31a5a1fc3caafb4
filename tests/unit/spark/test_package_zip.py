from __future__ import annotations

import ast
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from airflow_hive_federation.spark.job import JOBS
from airflow_hive_federation.spark.package_zip import main_file, package_zip, zip_bytes


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AIRFLOW_HIVE_FEDERATION_CACHE", str(tmp_path))
    return tmp_path


def test_holds_what_jobs_need_and_no_airflow(cache: Path) -> None:
    built = package_zip()
    assert built.is_relative_to(cache)
    names = zipfile.ZipFile(built).namelist()
    assert "airflow_hive_federation/spark/copy_files.py" in names
    assert "airflow_hive_federation/storage/copying.py" in names
    assert "fsspec/core.py" in names
    assert not [name for name in names if "/hooks/" in name or "/operators/" in name or "__pycache__" in name]


def test_built_once_and_always_alike(cache: Path) -> None:
    built = package_zip()
    written_at = built.stat().st_mtime_ns
    assert package_zip() == built
    assert built.stat().st_mtime_ns == written_at
    content = built.read_bytes()
    for path in (cache / "py-files").iterdir():
        path.unlink()
    assert package_zip().read_bytes() == content


def test_zip_bytes_do_not_depend_on_order_or_dates(tmp_path: Path) -> None:
    entries = [("b", tmp_path / "b"), ("a", tmp_path / "a")]
    for name, path in entries:
        path.write_text(name)
    first = zip_bytes(entries)
    (tmp_path / "a").touch()
    assert zip_bytes(reversed(entries)) == first


def test_a_bare_python_imports_the_jobs_from_it(cache: Path) -> None:
    """No site-packages (-S), nothing on the path but the zip."""
    modules = "copy_files", "digest_files", "job", "groups"
    program = "import sys; sys.path.insert(0, sys.argv[1])\n" + "\n".join(
        f"import airflow_hive_federation.spark.{module} as m; print(m.__file__)" for module in modules
    )
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", program, str(package_zip())],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count(str(cache)) == len(modules)


def test_main_file_does_not_hide_other_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """spark-submit puts the directory of the submitted file first on the path."""
    folder = str(main_file().parent)
    monkeypatch.setattr(sys, "path", [folder, *sys.path])
    runpy.run_path(str(main_file()), run_name="not main")
    assert folder not in sys.path


def test_every_job_runs_from_the_zip_alone(cache: Path) -> None:
    """The package's modules come from the zip, and all that a job imports is in it."""
    program = (
        "import importlib, sys; sys.path.insert(0, sys.argv[1])\n"
        "from airflow_hive_federation.spark.job import JOBS\n"
        "for module in JOBS.values():\n"
        "    print(importlib.import_module(module).__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(package_zip())], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    files = done.stdout.split()
    assert len(files) == len(JOBS)
    assert all(file.startswith(str(cache)) for file in files)


#: Modules in the zip that no job uses, and the packages that they need from outside.
_OUTSIDE = {
    "provider.py": "hooks",
    "replication/format/dumped_policy.py": "replication.policy",
    "replication/format/unfinished.py": "replication.policy",
    "spark/streaming_sink.py": "ingest",
}


def test_modules_in_the_zip_import_modules_in_the_zip(cache: Path) -> None:
    """Imports inside of functions, too: a job fails by a missing one in the middle of its work."""
    package = "airflow_hive_federation"
    with zipfile.ZipFile(package_zip()) as archive:
        names = [
            name for name in archive.namelist() if name.startswith(f"{package}/") and name.endswith(".py")
        ]
        sources = {name: archive.read(name) for name in names}
    modules = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in names}
    missing = [
        (name, imported)
        for name, source in sources.items()
        for imported in _imports(source)
        if imported.split(".")[0] == package and imported not in modules
    ]
    outside = [
        (name, imported)
        for name, imported in missing
        if not imported.startswith(f"{package}.{_OUTSIDE.get(name.removeprefix(f'{package}/'), '-')}")
    ]
    assert not outside


def _imports(source: bytes) -> list[str]:
    nodes = list(ast.walk(ast.parse(source)))
    froms = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return froms + [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
