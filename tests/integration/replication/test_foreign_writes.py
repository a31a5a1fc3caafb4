"""Writes on a target that no cycle made are found before anything is placed, and nothing of them goes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import CompactionRunningError, TargetChangedError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.cycle import dump_next_increment, load_dump
from airflow_hive_federation.replication.format.manifest import RepairPlan
from airflow_hive_federation.replication.format.unfinished import COPY_PLAN
from airflow_hive_federation.storage.filesystem import local_path
from tests.support.increment_site import DATABASE, Site
from tests.support.incrementing import run_copy
from tests.support.kills import pool
from tests.support.observing import at_steps
from tests.support.small_source import add_partition, commit_files, connected, make_small_source, make_table


@pytest.fixture
def site(source: EmbeddedMetastore, target: EmbeddedMetastore, tmp_path: Path) -> Iterator[Site]:
    """A replica: an ACID table of two partitions, an external one, a view."""
    make_small_source(source, DATABASE)
    site = Site(source, target, tmp_path / "dumps", tmp_path / "base")
    site.bootstrap()
    yield site
    for metastore in (source, target):
        with connected(metastore) as client:
            client.drop_database(DATABASE, delete_data=True, cascade=True, if_exists=True)
    site.external().unlink()
    site.external().parent.rmdir()


def replica(site: Site, table: str) -> Path:
    with connected(site.target) as client:
        definition: Any = client.get_table(DATABASE, table)
    return Path(local_path(definition.sd.location) or "")


def contents(*roots: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for root in roots for path in root.rglob("*") if path.is_file()}


def change_source(site: Site) -> None:
    """All tables of the source change: each is one that the next cycle is concerned with."""
    site.commit()
    site.external().write_text("hello, hello\n", encoding="utf-8")


def write_row(site: Site) -> None:
    with connected(site.target) as client:
        commit_files(client, DATABASE, "acid")


def leave_open(site: Site) -> None:
    with connected(site.target) as client:
        client.allocate_table_write_ids(DATABASE, "acid", client.open_txns(1))


def abort(site: Site) -> None:
    """Its files stay; the metastore may forget the write id before the next cycle."""
    with connected(site.target) as client:
        (txn_id,) = client.open_txns(1)
        client.allocate_table_write_ids(DATABASE, "acid", [txn_id])
        client.abort_txns([txn_id])
    put(site, "acid", "p=one/delta_0000003_0000003_0000/bucket_00000_0")


def add_a_partition(site: Site) -> None:
    with connected(site.target) as client:
        add_partition(client, DATABASE, "theirs")


def rename_a_partition(site: Site) -> None:
    with connected(site.target) as client:
        (partition,) = client.iter_partitions(DATABASE, "acid", names=["p=one"])
        partition.values = ["theirs"]
        client.call("rename_partition", DATABASE, "acid", ["one"], partition)


def put(site: Site, table: str, path: str, content: str = "theirs") -> None:
    file = replica(site, table) / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content, encoding="utf-8")


def replace_in_place(site: Site) -> None:
    """The file is as long as before: only its time and its bytes differ."""
    (file,) = replica(site, "ext").iterdir()
    file.write_text("HELLO\n", encoding="utf-8")
    os.utime(file, (1000, 1000))


def make_function(site: Site) -> None:
    with connected(site.target) as client:
        client.call(
            "create_function",
            types.Function(
                functionName="theirs",
                dbName=DATABASE,
                className="C",
                ownerName="root",
                ownerType=types.PrincipalType.USER,
                createTime=1,
                functionType=types.FunctionType.JAVA,
                resourceUris=[],
            ),
        )


Write = Callable[[Site], None]


@pytest.mark.parametrize(
    ("write", "named"),
    [
        (write_row, "acid: write id 3, where the last cycle left 2"),
        (leave_open, r"acid: write id 3 \(open: 3\)"),
        (abort, r"acid: (write id 3 \(aborted: 3\)|file .*delta_0000003_0000003_0000/bucket_00000_0)"),
        (add_a_partition, "acid: partition p=theirs, made or altered 20"),
        (rename_a_partition, "acid: partition p=theirs"),
        (lambda site: put(site, "acid", "p=one/000000_0"), r"acid: file .*p=one/000000_0 \(6 bytes, modif"),
        (lambda site: put(site, "ext", "theirs"), r"ext: file .*/theirs \(6 bytes"),
        (lambda site: put(site, "ext", "data", "longer than before"), r"ext: file .*/data \(18 bytes"),
        (replace_in_place, r"ext: file .*/data \(6 bytes, modified 1970"),
        (make_function, "function theirs"),
    ],
    ids=[
        "committed",
        "open",
        "aborted",
        "partition",
        "renamed partition",
        "file without a write id",
        "file",
        "replaced file",
        "file replaced in place",
        "function",
    ],
)
def test_a_foreign_write_is_named_and_stays(site: Site, write: Write, named: str) -> None:
    write(site)
    change_source(site)
    before = site.last_id()
    there = contents(replica(site, "acid"), replica(site, "ext"))
    with pytest.raises(TargetChangedError, match=named):
        site.cycle()
    assert contents(replica(site, "acid"), replica(site, "ext")) == there
    assert site.last_id() == before


def test_a_write_between_dump_and_load_is_found(site: Site) -> None:
    change_source(site)
    dump = site.dump().dump
    write_row(site)
    there = contents(replica(site, "acid"))
    with pytest.raises(TargetChangedError, match="acid: write id 3"):
        site.load(dump)
    assert contents(replica(site, "acid")) == there
    assert not Path(f"{local_path(dump)}/{COPY_PLAN}").exists()


def test_a_write_during_the_load_is_not_published(site: Site) -> None:
    def copy(plan: str, outcomes: str) -> None:
        run_copy(plan, outcomes)
        with connected(site.target) as client:
            for _ in range(2):  # the load takes one of the numbers at the same time
                commit_files(client, DATABASE, "other")

    with connected(site.source) as client:
        make_table(client, DATABASE, "other")
    site.cycle()
    before = site.last_id()
    change_source(site)
    with pytest.raises(TargetChangedError, match="other: write ids 1 to 2"):
        site.load(site.dump().dump, copy)
    assert site.last_id() == before


@pytest.mark.parametrize("write", [write_row, add_a_partition])
def test_a_table_that_the_source_dropped_keeps_what_others_wrote(site: Site, write: Write) -> None:
    write(site)
    with connected(site.source) as client:
        client.drop_table(DATABASE, "acid", delete_data=True)
    with pytest.raises(TargetChangedError, match="acid: "):
        site.cycle()
    with connected(site.target) as client:
        assert "acid" in client.list_tables(DATABASE)


def test_what_a_repair_mends_is_not_refused(site: Site) -> None:
    write_row(site)
    add_a_partition(site)
    put(site, "ext", "theirs")
    change_source(site)
    repair_plan = RepairPlan(tables=frozenset({"acid", "ext"}), replaced=frozenset({"acid"}))
    with pool(site.source.uri) as source_pool, pool(site.target.uri) as target_pool:
        dump = dump_next_increment(source_pool, target_pool, site.policy, repair_plan=repair_plan).dump
    site.load(dump)
    assert site.high_watermarks() == [3, 3]
    assert not (replica(site, "ext") / "theirs").exists()
    change_source(site)
    site.cycle()


def test_what_a_compaction_leaves_of_a_dropped_partition_is_ours(site: Site) -> None:
    """The metastore forgets the request with the partition, while the worker goes on."""
    place = replica(site, "acid") / "p=one"
    with connected(site.target) as client:
        (txn,) = client.open_txns(1, kind=types.TxnType.COMPACTION)
    result = f"base_0000002_v{txn:07d}"
    with connected(site.source) as client:
        client.drop_partitions(DATABASE, "acid", ["p=one"], delete_data=True)
    site.cycle()
    assert not place.exists()
    leave(place / result)
    with connected(site.source) as client:
        add_partition(client, DATABASE, "one")
        commit_files(client, DATABASE, "acid")
    dump = site.dump().dump
    with pytest.raises(CompactionRunningError, match=rf"{result}: its transaction {txn} is open"):
        site.load(dump)
    assert (place / result).exists()
    with connected(site.target) as client:
        client.commit_txn(txn)
    site.load(dump)
    assert [path.name for path in place.iterdir()] == ["delta_0000003_0000003_0000"]
    # The same of a table. The next one of its name has other write ids.
    with connected(site.source) as client:
        client.drop_table(DATABASE, "acid", delete_data=True)
    site.cycle()
    leave(place / result)
    with connected(site.source) as client:
        make_table(client, DATABASE, "acid", partitioned=True)
        add_partition(client, DATABASE, "one")
        commit_files(client, DATABASE, "acid")
    site.cycle()
    assert [path.name for path in place.iterdir()] == ["delta_0000001_0000001_0000"]


def leave(result: Path) -> None:
    """A result of a compaction, as a worker of Hive writes it."""
    result.mkdir(parents=True)
    for name in ("bucket_00000", "_orc_acid_version"):
        (result / name).write_text(name, encoding="utf-8")


def test_files_of_a_partition_that_the_target_does_not_have(site: Site) -> None:
    with connected(site.source) as client:
        add_partition(client, DATABASE, "new")
    change_source(site)
    # No load has placed rows there, whatever the name of the directory.
    leave(replica(site, "acid") / "p=new" / "base_0000001_v0000001")
    named = r"_v0000001/bucket_00000 \(.*\), of a table or partition that the target does not have"
    there = contents(replica(site, "acid"))
    with pytest.raises(TargetChangedError, match=named):
        site.cycle()
    assert contents(replica(site, "acid")) == there
    repair_plan = RepairPlan(tables=frozenset({"acid"}))
    with pool(site.source.uri) as source_pool, pool(site.target.uri) as target_pool:
        dump = dump_next_increment(source_pool, target_pool, site.policy, repair_plan=repair_plan).dump
    site.load(dump)
    delta = replica(site, "acid") / "p=new" / "delta_0000003_0000003_0000"
    assert list(delta.parent.iterdir()) == [delta]


def test_what_a_killed_load_left_is_ours(site: Site) -> None:
    """Each time another dump goes on: files and write ids of the last load are no foreign writes."""
    with connected(site.source) as client:
        add_partition(client, DATABASE, "later")
    change_source(site)

    class KilledError(Exception):
        pass

    def killed_at(step: str) -> Callable[[str], None]:
        def react(name: str) -> None:
            if name == step:
                raise KilledError

        return react

    for number, step in enumerate(("copy", "shape ext", "drop partitions acid", "publish")):
        with pool(site.source.uri) as source_pool, pool(site.target.uri) as target_pool:
            dump = site.dump().dump
            with pytest.raises(KilledError):
                load_dump(
                    source_pool,
                    target_pool,
                    site.policy,
                    dump,
                    run_copy=run_copy,
                    observer=at_steps(killed_at(step)),
                )
        site.external().write_text("hello" * number, encoding="utf-8")
        if number == 1:
            site.commit()
    site.cycle()
    assert site.high_watermarks() == [4, 4]
    assert not site.cycle().tables
    change_source(site)
    site.cycle()
    assert site.high_watermarks() == [5, 5]
