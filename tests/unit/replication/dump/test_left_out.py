"""Tables whose directories show that a copy would be no replica."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.replication.dump.left_out import left_out
from airflow_hive_federation.replication.policy import ReplicationPolicy
from tests.support.spark_definitions import table

POLICY = ReplicationPolicy(name="p", source_database="d", dump_root="file:/dumps", exclude_tables="secret")


def named(name: str, **how: Any) -> Any:
    definition = table(**how)
    definition.tableName = name
    return definition


@pytest.mark.parametrize(
    ("log", "kept_by"),
    [("_delta_log", "Delta Lake"), (".hoodie", "Hudi"), ("_spark_metadata", "Spark's streaming file sink")],
)
@pytest.mark.parametrize("kind", ["EXTERNAL_TABLE", "MANAGED_TABLE"])
def test_a_directory_with_names_of_its_own_files(tmp_path: Path, log: str, kept_by: str, kind: str) -> None:
    (tmp_path / "with" / log).mkdir(parents=True)
    (tmp_path / "without" / "p=1" / log).mkdir(parents=True)
    tables = [
        named(name, location=f"file:{tmp_path}/{name}", path=None, provider=None, kind=kind)
        for name in ("with", "without", "missing")
    ]
    reasons = left_out(POLICY, tables)
    assert reasons.keys() == {"with"}
    assert f"has {log}: {kept_by} keeps names of its files there" in reasons["with"]


def test_it_is_looked_for_where_spark_reads(tmp_path: Path) -> None:
    (tmp_path / "data" / "_delta_log").mkdir(parents=True)
    placeholder = f"file:{tmp_path}/t-__PLACEHOLDER__"
    definition = named("t", location=placeholder, path=f"file:{tmp_path}/data", provider="csv")
    assert "_delta_log" in left_out(POLICY, [definition])["t"]


def test_a_single_file_is_no_directory(tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_text("1\n", encoding="utf-8")
    definition = named(
        "t", location=f"file:{tmp_path}/t-__PLACEHOLDER__", path=f"file:{file}", provider="csv"
    )
    assert "one file" in left_out(POLICY, [definition])["t"]


def test_directories_of_what_stays_out_anyway_are_not_looked_at() -> None:
    nowhere = "nosuchscheme://x/t"
    tables = [
        named("secret", location=nowhere, path=None, provider=None),
        named("delta", location=nowhere, path=None, provider="delta"),
        named("acid", location=nowhere, path=None, provider=None, kind="MANAGED_TABLE", transactional="true"),
    ]
    assert left_out(POLICY, tables).keys() == {"secret", "delta"}
