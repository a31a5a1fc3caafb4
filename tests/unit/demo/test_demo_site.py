"""The demo's sites: where tables, dumps and reports lie."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_hive_federation.demo.command import _report, _show_changes
from airflow_hive_federation.demo.local_airflow import DemoAirflow
from airflow_hive_federation.demo.site import HADOOP, LOCAL, Site, start_site
from airflow_hive_federation.embedded.configuration import warehouse_settings
from airflow_hive_federation.errors import ConfigurationError, HiveFederationError
from airflow_hive_federation.storage.filesystem import canonical


@pytest.mark.parametrize("base", ["hdfs://127.0.0.1:8020/demo", "file:"])
def test_tables_lie_where_hive_is_configured_to_put_them(base: str, tmp_path: Path) -> None:
    if base == "file:":
        with ExitStack() as stack:
            site = start_site(LOCAL, stack, tmp_path)
        assert site.settings("source") == {}
        settings = warehouse_settings(tmp_path / "source")
    else:
        site = Site(base=base)
        settings = site.settings("source")
    assert canonical(settings["hive.metastore.warehouse.dir"]) == canonical(site.warehouse("source"))
    external = canonical(settings["hive.metastore.warehouse.external.dir"])
    assert external == canonical(site.external("source"))
    assert (site.database, site.dumps) == (None, f"{site.base}/dumps")


def test_hadoop_without_its_client_is_refused_before_a_server_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with ExitStack() as stack, pytest.raises(ConfigurationError, match="HDFS is not installed") as caught:
        start_site(HADOOP, stack, tmp_path)
    assert "[demo,hdfs]" in caught.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_the_servers_of_hadoop_have_their_addresses_shown(tmp_path: Path) -> None:
    database = SimpleNamespace(port=5433)
    hadoop = SimpleNamespace(resource_manager_uri="http://localhost:8088", configuration=tmp_path)
    site = Site(base="hdfs://127.0.0.1:8020/demo", database=database, hadoop=hadoop)  # type: ignore[arg-type]
    assert site.described() == [
        "store    hdfs://127.0.0.1:8020/demo",
        "database 127.0.0.1:5433 (PostgreSQL)",
        "YARN     http://localhost:8088",
    ]
    assert site.spark_connection()["host"] == "yarn"
    variables = site.spark_environment()
    assert variables["HADOOP_CONF_DIR"] == variables["SPARK_CONF_DIR"] == str(tmp_path)
    assert "spark.yarn.jars local:" in (tmp_path / "spark-defaults.conf").read_text()
    assert Site(base="file:/demo").described() == []
    assert (
        Site(base="file:/demo").spark_connection()["host"],
        Site(base="file:/demo").spark_environment(),
    ) == (
        "local[*]",
        {},
    )


@pytest.mark.parametrize(
    ("site", "command"),
    [
        (LOCAL, "hive-federation demo --ui (make demo UI=1)"),
        (HADOOP, "hive-federation demo --site hadoop --ui (make demo SITE=hadoop UI=1)"),
    ],
)
def test_the_next_step_keeps_the_site(site: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    _show_changes({"tables": [], "not_compared": {}, "event_id": 95}, site)
    assert f"Next: {command} shows the same DAG" in capsys.readouterr().out


def test_the_report_is_that_of_the_last_verification(tmp_path: Path) -> None:
    site, airflow = Site(base=f"file:{tmp_path}"), DemoAirflow(tmp_path)
    (tmp_path / "dumps" / "policy").mkdir(parents=True)
    with pytest.raises(HiveFederationError, match="no verification report"):
        _report(site, airflow)
    # A bootstrap, and the increment after it.
    for name, event_id in (("75-1795725293211", 75), ("75-95-20", 95), ("95-110-15", 110)):
        directory = tmp_path / "dumps" / "policy" / name
        directory.mkdir()
        (directory / "_verified.json").write_text(json.dumps({"event_id": event_id}), encoding="utf-8")
        assert _report(site, airflow)["event_id"] == event_id
