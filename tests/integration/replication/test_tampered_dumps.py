"""A load of a tampered dump changes nothing, on the target or elsewhere; mended, it goes on.

Who tampers may write into the dump, so the digests are right. Each document's checks have unit tests
(test_dump_documents).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import DumpCorruptError, NoSuchObjectError
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.storage.plan_files import write_plan
from tests.support.dump_loading import load
from tests.support.increment_site import Site, site
from tests.support.kills import Case
from tests.support.small_source import DATABASE, connected
from tests.support.tampering import DEEP, Edit, at, tamper

__all__ = ["site"]

OUT = "../../../../outside"
TAMPERED: list[tuple[str, Edit]] = [
    ("_manifest.json", at("tables", 0, "name", value=OUT)),
    ("_manifest.json", lambda _: DEEP),
    ("database.json", at("name", value=7)),
    ("tables/acid.json", at("table", "tableName", value=OUT)),
    ("tables/acid.json", at("table", "sd", "location", value="file:/..")),
    ("tables/ext.json", at("places", 0, 1, value="file:/a/../../etc")),
    ("partitions/acid.jsonl", at("name", value=OUT)),
    ("partitions/acid.jsonl", at("partition", "createTime", value="now")),
    ("files/acid.jsonl", at("target_path", value=OUT)),
    ("files/acid.jsonl", at("path", value="/etc/passwd")),
    ("files/ext.jsonl", at("directory", value="file:/a\0b")),
    ("files/ext.jsonl", lambda _: DEEP),
]
INCREMENT: list[tuple[str, Edit]] = [
    ("_manifest.json", at("dropped", value=["..", "a\nb"])),
    ("_manifest.json", at("previous", value="file:/a/../b")),
    ("tables/acid.json", at("table", "tableName", value=OUT)),
    ("partitions/acid.jsonl", at("name", value="p=one/..")),
    ("files/acid.jsonl", at("target_path", value=OUT)),
    ("writes/acid.jsonl", lambda _: ["1", 2]),
    ("ends.jsonl", lambda _: DEEP),
]


@pytest.fixture
def case(small_source: EmbeddedMetastore, target: EmbeddedMetastore, tmp_path: Path) -> Iterator[Case]:
    case = Case(small_source, target, tmp_path / "dumps")
    case.drop()
    yield case
    case.drop()


def everything(*roots: Path) -> dict[str, int]:
    """Files below directories, and when they were changed."""
    return {str(path): path.stat().st_mtime_ns for root in roots for path in root.rglob("*")}


def there(case: Case) -> bool:
    with connected(case.target) as client:
        try:
            client.get_database(DATABASE)
        except NoSuchObjectError:
            return False
    return True


def test_a_tampered_bootstrap_changes_nothing(case: Case, tmp_path: Path) -> None:
    dump = Path(local_path(case.dump()) or "")
    original = tmp_path / "whole"
    shutil.copytree(dump, original)
    roots = case.target.warehouse, case.target.external_warehouse, case.source.warehouse
    before = everything(*roots, dump.parent)
    for name, edit in TAMPERED:
        tamper(dump, name, edit)
        with pytest.raises(DumpCorruptError) as caught:
            load(case, f"file:{dump}")
        assert caught.value.file == name
        assert not there(case)
        shutil.rmtree(dump)
        shutil.copytree(original, dump)
        assert everything(*roots, dump.parent).keys() == before.keys()
    load(case, f"file:{dump}")
    assert there(case)


@pytest.mark.parametrize(
    "place", ["file:{root}/base/../victim", "file:{root}/victim\0", "file:{root}/victim"], ids=range(3)
)
def test_the_copy_plan_of_an_earlier_load_removes_nothing_elsewhere(
    case: Case, tmp_path: Path, place: str
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious", encoding="utf-8")
    dump = case.dump()
    plan = f"{case.policy.directory}/1-2/load/copy_plan.jsonl"
    write_plan(plan, [CopyItem(source="file:/a", target=place.format(root=tmp_path), size_bytes=1)])
    if place.endswith("{root}/victim"):
        load(case, dump)
    else:
        with pytest.raises(DumpCorruptError, match=r"1-2/load/copy_plan\.jsonl:1"):
            load(case, dump)
        assert not there(case)
        shutil.rmtree(os.path.dirname(os.path.dirname(local_path(plan) or "")))  # noqa: PTH120
        load(case, dump)
    assert victim.read_text(encoding="utf-8") == "precious"
    assert there(case)


def test_a_tampered_increment_changes_nothing(site: Site, tmp_path: Path) -> None:
    site.bootstrap()
    site.commit()
    dump = Path(local_path(site.dump().dump) or "")
    original = tmp_path / "whole"
    shutil.copytree(dump, original)
    roots = site.target.warehouse, tmp_path / "base", site.source.warehouse
    before, last_id = everything(*roots), site.last_id()
    for name, edit in INCREMENT:
        tamper(dump, name, edit)
        with pytest.raises(DumpCorruptError) as caught:
            site.load(f"file:{dump}")
        assert caught.value.file == name
        shutil.rmtree(dump)
        shutil.copytree(original, dump)
        assert everything(*roots) == before
        assert site.last_id() == last_id
    site.load(f"file:{dump}")
    assert int(site.last_id()) > int(last_id)
    assert len(set(site.high_watermarks())) == 1
