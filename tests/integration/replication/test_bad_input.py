"""A failure outside of us is a typed error that names the object; the next run goes on from there.

Other files prove the rest: peers that are no metastore, or never answer (test_metastore_calls), a file that
vanishes while it is copied and a full disk under it (test_copy_job), a target that is not ours
(test_target_protection), transactions that never end (test_drain), Java too old (test_java), and no network
at the first start (test_embedded_metastore).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import (
    DumpCorruptError,
    DumpIncompleteError,
    HiveFederationError,
    MetastoreUnreachableError,
    NoSuchObjectError,
    StorageFullError,
    StoragePermissionError,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.dump.drain import open_transactions
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.storage.filesystem import local_path
from tests.support.disks import disk
from tests.support.dump_loading import load, published
from tests.support.kills import Case
from tests.support.observing import at_steps
from tests.support.small_source import connected


@pytest.fixture
def case(small_source: EmbeddedMetastore, target: EmbeddedMetastore, tmp_path: Path) -> Iterator[Case]:
    case = Case(small_source, target, tmp_path / "dumps")
    case.drop()
    yield case
    case.drop()


def with_policy(case: Case, **fields: str) -> None:
    case.policy = ReplicationPolicy(**{**case.policy.to_json(), **fields})


def open_on(metastore: EmbeddedMetastore) -> set[int]:
    with connected(metastore) as client:
        return set(open_transactions(client.get_open_txns()))


def test_a_copy_plan_that_was_changed_before_the_job_reads_it(case: Case, tmp_path: Path) -> None:
    dump = case.dump()
    plan, outside = Path(local_path(dump) or "") / "load/copy_plan.jsonl", tmp_path / "outside"

    def change(step: str) -> None:
        if step == "copy":
            first, *rest = plan.read_text(encoding="utf-8").splitlines()
            changed = json.dumps({**json.loads(first), "target": f"file:{outside}"})
            plan.write_text("\n".join([changed, *rest, ""]), encoding="utf-8")

    with pytest.raises(DumpCorruptError, match="not the copy plan that the load has written"):
        load(case, dump, at_steps(change))
    assert not outside.exists()
    assert not published(case)
    load(case, dump)
    assert published(case)


def test_a_dump_on_a_full_disk(case: Case, tmp_path: Path) -> None:
    before = open_on(case.source)
    with disk(tmp_path / "full", "size=8k") as remount:
        with_policy(case, dump_root=f"file:{tmp_path}/full")
        with pytest.raises(StorageFullError) as caught:
            case.dump()
        assert caught.value.path.startswith(case.policy.directory)
        # Nobody will load it: nothing has to be kept for it on the source.
        assert open_on(case.source) <= before
        remount("size=4m")
        case.load()
        assert published(case)


def test_a_dump_directory_that_cannot_be_written(case: Case, tmp_path: Path) -> None:
    with disk(tmp_path / "locked", "size=4m,ro") as remount:
        with_policy(case, dump_root=f"file:{tmp_path}/locked")
        with pytest.raises(StoragePermissionError) as caught:
            case.dump()
        assert str(tmp_path / "locked") in caught.value.path
        remount("rw")
        case.load()
        assert published(case)


def test_a_target_directory_that_cannot_be_written(case: Case, tmp_path: Path) -> None:
    with disk(tmp_path / "locked", "size=4m,ro") as remount:
        with_policy(case, external_base=f"file:{tmp_path}/locked/base")
        with pytest.raises(StoragePermissionError) as caught:
            case.load()
        assert str(tmp_path / "locked") in caught.value.path
        assert not published(case)
        remount("rw")
        case.load()
        assert published(case)
        case.drop()


def test_a_target_directory_on_a_full_disk(case: Case, tmp_path: Path) -> None:
    with disk(tmp_path / "full", "size=4k,nr_inodes=2") as remount:
        with_policy(case, external_base=f"file:{tmp_path}/full/base")
        with pytest.raises(StorageFullError):
            case.load()
        assert not published(case)
        remount("size=4m,nr_inodes=1000")
        case.load()
        assert published(case)
        case.drop()


def test_every_file_of_a_dump_that_is_cut_short_or_lost_is_named(case: Case) -> None:
    dump = Path(local_path(case.dump()) or "")
    # Written for people and for Hive's tools; the load reads neither.
    unread = {"_begun.json", "_external_tables_info"}
    files = [path for path in sorted(dump.rglob("*")) if path.is_file() and path.name not in unread]
    assert len(files) > 8
    for path in files:
        content = path.read_bytes()
        for damaged in (content[: len(content) // 2], None):
            if damaged == content:
                continue
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            with pytest.raises((DumpCorruptError, DumpIncompleteError)) as caught:
                load(case, f"file:{dump}")
            assert str(dump) in str(caught.value)
            assert not published(case)
            path.write_bytes(content)
    case.load()
    assert published(case)


def test_a_database_that_is_not_there(case: Case) -> None:
    with_policy(case, source_database="nowhere", name="nowhere")
    before = open_on(case.source)
    with pytest.raises(NoSuchObjectError, match="nowhere"):
        case.dump()
    assert open_on(case.source) <= before
    with connected(case.source) as client:
        client.create_database(types.Database(name="nowhere", parameters={}))
        try:
            assert case.dump().endswith(case.start.dump_name)
        finally:
            client.drop_database("nowhere", delete_data=True)


def test_a_target_that_dies_under_a_load(
    small_source: EmbeddedMetastore, own_metastores: Callable[..., EmbeddedMetastore], tmp_path: Path
) -> None:
    target = own_metastores("dying")
    case = Case(small_source, target, tmp_path)
    dump = case.dump()

    def killing(before: str) -> Callable[[str], None]:
        return lambda step: target.kill() if step == before else None

    for step in ("create acid", "publish"):
        with pytest.raises(HiveFederationError) as caught:
            load(case, dump, observer=at_steps(killing(before=step)))
        assert isinstance(caught.value, MetastoreUnreachableError)
        assert target.uri in str(caught.value)
        target.restart()
        assert not published(case)
    load(case, dump)
    assert published(case)
