"""A dump and a load copy from the policy's source roots, and from nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import SourceNotAllowedError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.spark.job import run_job
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.storage.plan_files import write_plan
from tests.support.dump_loading import load, published
from tests.support.kills import Case
from tests.support.small_source import DATABASE, connected
from tests.support.tampering import at, tamper

pytestmark = pytest.mark.usefixtures("unbound_sources")


@pytest.fixture
def case(small_source: EmbeddedMetastore, target: EmbeddedMetastore, tmp_path: Path) -> Iterator[Case]:
    case = Case(small_source, target, tmp_path / "dumps")
    case.drop()
    yield case
    case.drop()


def allow(case: Case, *roots: Path) -> None:
    case.policy = replace(case.policy, allowed_source_roots=[f"file:{root}" for root in roots])


def refused(case: Case, *named: str) -> None:
    with pytest.raises(SourceNotAllowedError) as caught:
        case.dump()
    for name in (*named, "allowed_source_roots"):
        assert name in str(caught.value)


def test_local_disks_are_copied_from_where_a_policy_allows_it(case: Case, tmp_path: Path) -> None:
    source = case.source
    refused(case, "location of table small.", "file:")
    allow(case, source.warehouse)
    refused(case, "location of table small.ext", str(source.external_warehouse))
    allow(case, source.warehouse, source.external_warehouse)
    secret = tmp_path / "secret"
    secret.write_text("sesame", encoding="utf-8")
    link = source.external_warehouse / f"{DATABASE}_ext" / "link"
    link.symlink_to(secret)
    try:
        refused(case, "A file of table small.ext", str(link), str(secret))
    finally:
        link.unlink()
    case.load()
    assert published(case)


def test_a_jar_is_copied_from_where_a_policy_allows_it(case: Case, tmp_path: Path) -> None:
    allow(case, case.source.warehouse, case.source.external_warehouse)
    jar = tmp_path / "udf.jar"
    jar.write_bytes(b"jar")
    function = types.Function(
        dbName=DATABASE,
        functionName="f",
        className="a.B",
        ownerName="root",
        ownerType=types.PrincipalType.USER,
        createTime=1,
        functionType=types.FunctionType.JAVA,
        resourceUris=[types.ResourceUri(resourceType=types.ResourceType.JAR, uri=f"file:{jar}")],
    )
    with connected(case.source) as client:
        client.create_function(function)
    try:
        refused(case, "jar or file of function f", str(jar))
        allow(case, case.source.warehouse, case.source.external_warehouse, jar)
        case.load()
    finally:
        with connected(case.source) as client:
            client.drop_function(DATABASE, "f")
    assert published(case)
    assert (tmp_path / f"dumps/functions/{case.policy.name}/{DATABASE}/f/udf.jar").read_bytes() == b"jar"


def test_a_dump_that_lists_files_of_elsewhere_is_not_loaded(case: Case, tmp_path: Path) -> None:
    allow(case, case.source.warehouse, case.source.external_warehouse)
    dump = Path(local_path(case.dump()) or "")
    before = json.loads((dump / "files/ext.jsonl").read_text(encoding="utf-8").splitlines()[0])
    for field, value in (("directory", "file:/etc"), ("kept", "file:/etc/passwd")):
        tamper(dump, "files/ext.jsonl", at(field, value=value))
        with pytest.raises(SourceNotAllowedError, match="file:/etc"):
            load(case, f"file:{dump}")
        assert not published(case)
        tamper(dump, "files/ext.jsonl", lambda _: before)
    load(case, f"file:{dump}")
    assert published(case)


def test_the_copy_job_asks_where_it_may_copy_from(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "table/a").write_text("rows", encoding="utf-8")
    (tmp_path / "secret").write_text("sesame", encoding="utf-8")
    (tmp_path / "table/b").symlink_to(tmp_path / "secret")
    plan = f"file:{tmp_path}/copy_plan.jsonl"
    items = [
        CopyItem(source=f"file:{tmp_path}/table/{name}", target=f"file:{tmp_path}/to/{name}", size_bytes=size)
        for name, size in (("a", 4), ("b", 6))
    ]
    write_plan(plan, items)
    job = ["--plan", plan, "--outcomes", f"file:{tmp_path}/outcomes"]
    with pytest.raises(SourceNotAllowedError):
        run_job(spark, "copy-files", job)
    assert not list((tmp_path / "to").glob("[!.]*"))
    with pytest.raises(SourceNotAllowedError, match="secret"):
        run_job(spark, "copy-files", [*job, "--source-root", f"file:{tmp_path}/table"])
    assert [path.name for path in (tmp_path / "to").glob("[!.]*")] == ["a"]
    run_job(spark, "copy-files", [*job, "--source-root", f"file:{tmp_path}"])
    assert (tmp_path / "to/b").read_text(encoding="utf-8") == "sesame"
