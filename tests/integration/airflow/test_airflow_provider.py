"""The provider as Airflow itself sees it, and the wheel it is installed from."""

from __future__ import annotations

import configparser
import json
import os
import sqlite3
import subprocess
import sys
import zipfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation import __version__

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of an Airflow with a home of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
    return {
        **kept,
        "AIRFLOW_HOME": str(tmp_path_factory.mktemp("airflow")),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "NO_COLOR": "1",
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)],
        cwd=ROOT,
        capture_output=True,
        check=True,
        timeout=120,
    )
    (built,) = directory.glob("*.whl")
    return built


#: A program that prints what Airflow finds of the provider, with load_examples on.
FOUND = """
import json
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag
from airflow.providers_manager import ProvidersManager
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime
hook = ProvidersManagerTaskRuntime().hooks["hive_federation"]
manager = ProvidersManager()
fields = {
    info.field_name: {"sensitive": info.is_sensitive, **info.field}
    for name, info in manager.connection_form_widgets.items() if name.startswith("extra__hive_federation__")
}
(ours,) = [one for one in DagBundlesManager().get_all_dag_bundles() if "hive" in one.name]
ours.initialize()
bag = DagBag(dag_folder=ours.path, bundle_path=ours.path, bundle_name=ours.name)
print(json.dumps({
    "version": manager.providers["airflow-hive-federation"].version,
    "hook": [hook.hook_name, hook.hook_class_name, hook.connection_testable],
    "fields": fields,
    "behaviour": manager.field_behaviours["hive_federation"],
    "bundle": [ours.name, str(ours.path)],
    "dags": sorted(bag.dags),
    "errors": bag.import_errors,
}))
"""


@dataclass(frozen=True)
class Installed:
    """The wheel in a directory of its own, which shadows the checkout, and what Airflow finds of it."""

    site: Path
    found: dict[str, Any]


@pytest.fixture(scope="module")
def installed(wheel: Path, home: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    done = subprocess.run(
        [sys.executable, "-c", FOUND],
        env={**home, "AIRFLOW__CORE__LOAD_EXAMPLES": "True", "PYTHONPATH": str(site)},
        # Not in the checkout: a Python command finds its modules in the working directory first.
        cwd=home["AIRFLOW_HOME"],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return Installed(site, json.loads(done.stdout.strip().splitlines()[-1]))


def test_airflow_finds_the_provider(installed: Installed) -> None:
    assert installed.found["version"] == __version__


def test_airflow_knows_the_connection_type_its_form_and_its_hook(installed: Installed) -> None:
    assert installed.found["hook"] == [
        "Hive metastore (federation)",
        "airflow_hive_federation.hooks.metastore.HiveMetastoreHook",
        True,
    ]
    fields = installed.found["fields"]
    assert {field for field in fields if fields[field]["sensitive"]} == {
        "tls_key_password",
        "delegation_token",
        "http_bearer_token",
        "grpc_token",
        "ssh_passphrase",
        "secret_storage_options",
    }
    assert all(field["description"] and field["schema"]["title"] for field in fields.values())
    assert installed.found["behaviour"]["hidden_fields"] == ["schema"]


def test_an_installed_provider_has_its_example_dags_as_a_bundle(installed: Installed) -> None:
    name, path = installed.found["bundle"]
    assert "airflow-hive-federation" in name
    assert path == str(installed.site / "airflow_hive_federation" / "example_dags")
    assert "replicate_database" in installed.found["dags"]
    assert installed.found["errors"] == {}


def test_the_command_line_finds_connections_of_airflows_database(
    home: dict[str, str], airflow_database: Path, tmp_path: Path
) -> None:
    database = tmp_path / "airflow.db"
    with closing(sqlite3.connect(airflow_database)) as made, closing(sqlite3.connect(database)) as copied:
        made.backup(copied)
        copied.execute(
            "INSERT INTO connection (conn_id, conn_type, host, port, is_encrypted, is_extra_encrypted) "
            "VALUES ('mine', 'hive_federation', '127.0.0.1', 1, 0, 0)"
        )
        copied.commit()
    done = subprocess.run(
        [sys.executable, "-m", "airflow_hive_federation.cli.main", "doctor", "mine", "--json"],
        env={**home, "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{database}"},
        cwd=home["AIRFLOW_HOME"],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    # Nothing listens on port 1.
    assert done.returncode == 1
    findings = json.loads(done.stdout)
    assert "No metastore answers: thrift://127.0.0.1:1" in findings[-1]["detail"], done.stderr
    # Airflow logs this of each such connection in its database.
    assert "shall not contain '_'" in done.stderr


def test_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (entry_points,) = (name for name in names if name.endswith("dist-info/entry_points.txt"))
        parser = configparser.ConfigParser()
        parser.read_string(archive.read(entry_points).decode())
    package = {name.partition("/")[0] for name in names}
    assert package == {"airflow_hive_federation", f"airflow_hive_federation-{__version__}.dist-info"}
    assert "airflow_hive_federation/example_dags/replicate_database.py" in names
    assert any(name.endswith("dist-info/licenses/LICENSE") for name in names)
    assert not any("__pycache__" in name or "/tests/" in name for name in names)
    # What is not Python comes along.
    for kept in (path for path in ROOT.joinpath("airflow_hive_federation").rglob("*") if path.is_file()):
        if "__pycache__" not in kept.parts:
            assert str(kept.relative_to(ROOT)) in names
    assert parser["apache_airflow_provider"]["provider_info"].endswith("provider:get_provider_info")
    assert parser["console_scripts"]["hive-federation"].endswith("cli.main:main")
