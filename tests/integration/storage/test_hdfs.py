"""HDFS as a store: NameNode and DataNodes of Hadoop, Hive's SQL on tables that lie there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.compaction.requests import compact_table
from airflow_hive_federation.compaction.runners import in_threads
from airflow_hive_federation.embedded.configuration import site_xml
from airflow_hive_federation.embedded.hdfs import EmbeddedHdfs
from airflow_hive_federation.embedded.jvm import free_port
from airflow_hive_federation.errors import (
    EmbeddedError,
    FileVanishedError,
    StorageError,
    StorageFullError,
    StoragePermissionError,
    StorageUnavailableError,
)
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.metastore import MetastoreClient, MetastorePool, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.replication.dump import external_snapshots
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.runtime.cache import is_locked
from airflow_hive_federation.spark.job import run_job
from airflow_hive_federation.storage.copying import CopySettings, copy_file
from airflow_hive_federation.storage.filesystem import open_filesystem, reading
from airflow_hive_federation.storage.hdfs import USER_VARIABLE
from airflow_hive_federation.storage.listing import is_there, list_directory, list_files
from airflow_hive_federation.storage.permissions import Preserve
from airflow_hive_federation.storage.plan_files import write_plan
from airflow_hive_federation.storage.publishing import make_private, publishing, remove_file, write_atomically
from airflow_hive_federation.tables.read.reader import read_table
from airflow_hive_federation.tables.write.statements import append
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support.cycling import rows
from tests.support.key_server import BARRED, KeyServer, cipher_jars, key_server
from tests.support.on_hdfs import Lake, OnHdfs, Side, acl, modes, path_of, side, user
from tests.support.processes import is_alive
from tests.support.small_source import make_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

KEY, PROVIDER = "lake", "hadoop.security.key.provider.path"
SOON = PollPolicy(first_s=0.05, longest_s=0.5, timeout_s=30)
START_ANOTHER = """
import sys, time
from pathlib import Path
from airflow_hive_federation.embedded.hdfs import EmbeddedHdfs
hdfs = EmbeddedHdfs.start(directory=Path(sys.argv[1]))
hdfs.shell("-mkdir", "/kept")
print(hdfs.pid, flush=True)
time.sleep(600)
"""


def test_it_ends_with_its_killed_parent_and_its_files_are_kept(tmp_path: Path) -> None:
    command = [sys.executable, "-c", START_ANOTHER, str(tmp_path / "hdfs")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    assert wait_until(lambda: not is_alive(pid), SOON)
    # A killed JVM keeps its lock until the last of its threads has ended, when it is a zombie already.
    assert wait_until(lambda: not is_locked(tmp_path / "hdfs" / "hdfs.lock"), SOON)
    with EmbeddedHdfs.start(directory=tmp_path / "hdfs") as again:
        assert "/kept" in again.shell("-ls", "/")
        with pytest.raises(EmbeddedError, match="another HDFS is running"):
            EmbeddedHdfs.start(directory=tmp_path / "hdfs")
    assert not is_alive(again.pid)
    with pytest.raises(EmbeddedError, match="has been stopped"):
        again.shell("-ls", "/")


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyServer]:
    with key_server(tmp_path_factory.mktemp("keys")) as server:
        server.make_key(KEY)
        yield server


@pytest.fixture(scope="session")
def hive_hdfs_settings(keys: KeyServer) -> dict[str, str]:
    return {PROVIDER: keys.uri}


@pytest.fixture
def root(hive_hdfs: EmbeddedHdfs, request: pytest.FixtureRequest) -> str:
    """URI of a directory of HDFS for one test, which anybody may write."""
    name = f"/{request.node.name.partition('[')[0]}-{uuid.uuid4().hex[:8]}"
    hive_hdfs.shell("-mkdir", name)
    hive_hdfs.shell("-chmod", "777", name)
    return f"{hive_hdfs.uri}{name}"


def test_files_are_written_listed_read_and_renamed(hive_hdfs: EmbeddedHdfs, root: str) -> None:
    odd = f"{root}/p=1?2#3%41 ;é/f"
    assert write_atomically(odd, [b"a" * 10, b"b" * 3]) == 13
    write_atomically(f"{root}/empty", [])
    filesystem, path = open_filesystem(root)
    filesystem.makedirs(f"{path}/none/at/all")
    sizes = {entry.path: entry.size_bytes for entry in list_files(root, empty_directories=True)}
    assert sizes == {"p=1?2#3%41 ;é/f": 13, "empty": 0, "none/at/all/": 0}
    modified_ns = next(e.modified_ns for e in list_files(root) if e.size_bytes)
    assert modified_ns == int(hive_hdfs.shell("-stat", "%Y", path_of(odd))) * 1_000_000
    with reading(odd) as file:
        assert (file.seek(8), file.read(3), file.read()) == (8, b"aab", b"bb")
        assert (file.seek(100), file.read(), file.seek(-1, os.SEEK_END), file.read()) == (100, b"", 12, b"b")
    # Replaced, and in one step: a second file of the name, and nothing hidden stays.
    write_atomically(odd, [b"new"])
    with reading(odd) as file:
        assert file.read() == b"new"
    assert set(list_directory(f"{root}/p=1?2#3%41 ;é")) == {"f"}
    with filesystem.open(path_of(odd), "ab") as file:
        file.write(b"er")
        file.hsync()
        assert hive_hdfs.shell("-cat", f"{root}/p=1?2#3%41 ;é/f") == "newer"
    with pytest.raises(FileExistsError), filesystem.open(path_of(odd), "xb"):
        pass
    assert (remove_file(odd), remove_file(odd), is_there(odd)) == (True, False, False)
    with pytest.raises(FileVanishedError), reading(odd):
        pass
    with pytest.raises(ZeroDivisionError), publishing(f"{root}/half") as file:
        file.write(bytes([1 // 0]))
    assert set(list_directory(root)) == {"empty"}


def test_what_a_name_node_refuses_has_a_type(hive_hdfs: EmbeddedHdfs, root: str) -> None:
    def write(name: str = "f") -> None:
        write_atomically(f"{root}/{name}", [b"x" * 100])

    hive_hdfs.admin("-safemode", "enter")
    try:
        with pytest.raises(StorageUnavailableError, match="safe mode") as caught:
            write()
    finally:
        hive_hdfs.admin("-safemode", "leave")
    assert caught.value.retryable
    assert "dfsadmin -safemode" in caught.value.remedy
    hive_hdfs.admin("-setQuota", "3", path_of(root))
    write("a")
    write("b")
    with pytest.raises(StorageFullError, match="quota=3"):
        write("c")
    hive_hdfs.admin("-clrQuota", path_of(root))
    hive_hdfs.admin("-setSpaceQuota", "1000", path_of(root))
    with pytest.raises(StorageFullError, match="DiskSpace quota"):
        write("d")
    assert set(list_directory(root)) == {"a", "b"}
    hive_hdfs.shell("-chmod", "700", path_of(root))
    with user("alice"), pytest.raises(StoragePermissionError, match="user=alice, access=") as denied:
        write("e")
    assert "at org.apache" not in str(denied.value)


def test_files_of_an_encryption_zone_need_their_key(
    hive_hdfs: EmbeddedHdfs, root: str, keys: KeyServer
) -> None:
    hive_hdfs.crypto("-createZone", "-keyName", KEY, "-path", path_of(root))
    with pytest.raises(StorageError, match="no key server") as caught:
        write_atomically(f"{root}/f", [b"rows"])
    assert PROVIDER in caught.value.remedy
    with_keys = {PROVIDER: keys.uri}
    write_atomically(f"{root}/f", [b"rows"], options=with_keys)
    filesystem, path = open_filesystem(f"{root}/f", with_keys)
    with filesystem.open(path, "ab") as file:
        file.write(b" more")
    assert hive_hdfs.shell("-cat", f"{root}/f") == "rows more"
    with user(BARRED), pytest.raises(StoragePermissionError, match="refuses the key") as refused:
        write_atomically(f"{root}/g", [b"rows"], options=with_keys)
    assert "kms-acls.xml" in refused.value.remedy
    with pytest.raises(StorageUnavailableError, match="does not answer"):
        write_atomically(
            f"{root}/g", [b"rows"], options={PROVIDER: f"kms://http@127.0.0.1:{free_port()}/kms"}
        )
    with pytest.raises(StorageError, match="can't be moved from") as moved:
        filesystem.mv(path, f"/{path.rpartition('/')[2]}-moved")
    assert "in one zone" in moved.value.remedy
    # A refused file leaves nothing.
    assert {name for name in list_directory(root) if name != ".Trash"} == {"f"}


@pytest.mark.parametrize("place", ["closed", "speaks HTTP"])
def test_a_name_node_that_does_not_answer(hive_hdfs: EmbeddedHdfs, place: str) -> None:
    port = free_port() if place == "closed" else int(hive_hdfs.web_uri.rpartition(":")[2])
    options = {"dfs.client.failover.max.attempts": "1"}
    with pytest.raises(StorageUnavailableError, match="does not answer") as caught:
        list_files(f"hdfs://127.0.0.1:{port}/x", options=options)
    assert caught.value.retryable


@pytest.fixture
def table(hive_hdfs: EmbeddedHdfs, root: str) -> CopyItem:
    """A file with two directories of a table's, and where they are to be copied."""
    source = f"{root}/source/t/p=1/f"
    write_atomically(source, [b"rows"])
    (listed,) = list_files(f"{root}/source/t/p=1")
    return CopyItem(
        source=source,
        target=f"{root}/target/t/p=1/f",
        size_bytes=4,
        modified_ns=listed.modified_ns,
        source_levels=2,
        target_levels=2,
    )


@pytest.mark.parametrize("filtered", [False, True])
def test_no_copy_is_wider_than_its_source(hive_hdfs: EmbeddedHdfs, table: CopyItem, filtered: bool) -> None:
    source, target = path_of(table.source), path_of(table.target)
    hive_hdfs.shell("-chmod", "600", source)
    hive_hdfs.shell("-chmod", "750", source.rpartition("/")[0])
    seen: list[str] = []

    def rewrite(source: str, target: str, write_ids: str, options: object) -> None:
        filesystem, path = open_filesystem(target)
        with filesystem.open(path, "wb") as file:
            file.write(b"rows")
        seen.append(modes(hive_hdfs, target))

    item = replace(table, visible_write_ids="t:1:1:9223372036854775807::") if filtered else table
    for _ in range(2):
        assert copy_file(item, CopySettings(rewrite=rewrite)).preserved
        assert modes(hive_hdfs, table.target).endswith(" 600")
        assert modes(hive_hdfs, table.target.rpartition("/")[0]).endswith(" 750")
        # As an earlier copy left it.
        hive_hdfs.shell("-chmod", "644", target)
    assert copy_file(item, CopySettings(rewrite=rewrite)).copied is False
    assert modes(hive_hdfs, table.target).endswith(" 600")
    assert all(mode.endswith(" 600") for mode in seen)
    # The list grants bob what the mode shows as the group's: without the list, the group must not get it.
    hive_hdfs.shell("-setfacl", "--set", "user::rw-,user:bob:rw-,group::---,other::---", source)
    assert modes(hive_hdfs, table.source).endswith(" 660")
    hive_hdfs.shell("-rm", target)
    copy_file(item, CopySettings(rewrite=rewrite))
    assert modes(hive_hdfs, table.target).endswith(" 600")
    assert acl(hive_hdfs, table.target) == {"user::rw-", "group::---", "other::---"}


def test_a_copy_on_another_store_is_not_wider_either(
    hive_hdfs: EmbeddedHdfs, table: CopyItem, tmp_path: Path
) -> None:
    hive_hdfs.shell("-chmod", "600", path_of(table.source))
    out = replace(table, target=f"file:{tmp_path}/t/p=1/f")
    assert copy_file(out, CopySettings(preserve=Preserve(letters="p"))).preserved
    assert (tmp_path / "t/p=1/f").stat().st_mode & 0o777 == 0o600
    (tmp_path / "t/p=1/f").chmod(0o640)
    back = replace(table, source=out.target, source_levels=0, modified_ns=0)
    assert copy_file(back, CopySettings()).copied
    assert modes(hive_hdfs, back.target).endswith(" 640")


def test_owner_group_mode_and_access_list_are_kept_on_demand(
    hive_hdfs: EmbeddedHdfs, table: CopyItem
) -> None:
    source = path_of(table.source)
    folder = source.rpartition("/")[0]
    hive_hdfs.shell("-setfacl", "-m", "user:bob:rw-,group:eng:r--", source)
    hive_hdfs.shell("-setfacl", "-m", "user:bob:r-x,default:group:eng:rwx", folder)
    hive_hdfs.shell("-chmod", "1770", folder)
    for name in (source, folder):
        hive_hdfs.shell("-chown", "carol:staff", name)
    copy_file(table)
    assert modes(hive_hdfs, table.target).split()[0] != "carol"
    target_folder = table.target.rpartition("/")[0]
    # Then as a run that was killed in between leaves them.
    for _ in range(2):
        assert copy_file(table, CopySettings(preserve=Preserve(letters="ugpa"))).preserved
        for there, here in ((table.source, table.target), (table.source.rpartition("/")[0], target_folder)):
            assert modes(hive_hdfs, here) == modes(hive_hdfs, there)
            assert acl(hive_hdfs, here) == acl(hive_hdfs, there)
        hive_hdfs.shell("-setfacl", "-b", path_of(table.target))
        hive_hdfs.shell("-chmod", "700", path_of(target_folder))
    assert "user:bob:rw-" in acl(hive_hdfs, table.source)
    assert "default:group:eng:rwx" in acl(hive_hdfs, target_folder)
    # A list that the source lost goes from the copy as well.
    hive_hdfs.shell("-setfacl", "-b", source)
    assert copy_file(table, CopySettings(preserve=Preserve(letters="a"))).preserved
    assert acl(hive_hdfs, table.target) == acl(hive_hdfs, table.source)


@pytest.mark.parametrize("letters", ["u", "a"])
def test_what_may_not_be_set_stops_the_copy_before_it_has_a_name(
    hive_hdfs: EmbeddedHdfs, table: CopyItem, letters: str
) -> None:
    source = path_of(table.source)
    hive_hdfs.shell("-setfacl", "-m", "user:bob:rw-", source)
    hive_hdfs.shell("-mkdir", "-p", path_of(table.target).rpartition("/")[0])
    hive_hdfs.shell("-chmod", "-R", "777", f"{path_of(table.target).rpartition('/t/')[0]}")
    item = replace(table, source_levels=0)
    strict = CopySettings(preserve=Preserve(letters=letters))
    with user("alice"):
        if letters == "u":
            with pytest.raises(StoragePermissionError, match=r"not a super user.*") as caught:
                copy_file(item, strict)
            assert "preserve_strictly" in str(caught.value)
            assert list_directory(table.target.rpartition("/")[0]) == {}
            lenient = CopySettings(preserve=Preserve(letters=letters, strictly=False))
            assert not copy_file(item, lenient).preserved
            assert modes(hive_hdfs, table.target).startswith("alice ")
        else:
            # The list of a file of one's own is one's own to set.
            assert copy_file(item, strict).preserved
            hive_hdfs.shell("-chown", "carol", path_of(table.target))
            hive_hdfs.shell("-setfacl", "-b", path_of(table.target))
            with pytest.raises(StoragePermissionError, match="not the owner"):
                copy_file(item, strict)


def test_private_files_and_directories(hive_hdfs: EmbeddedHdfs, root: str) -> None:
    write_atomically(f"{root}/a/f", [b"x"], private=True)
    make_private(f"{root}/b")
    hive_hdfs.shell("-mkdir", f"{path_of(root)}/c")
    make_private(f"{root}/c")
    modes_found = [modes(hive_hdfs, f"{root}/{name}").split()[2] for name in ("a", "a/f", "b", "c")]
    assert modes_found == ["700", "600", "700", "700"]


@pytest.fixture(scope="module")
def sides(
    hive_hdfs: EmbeddedHdfs, keys: KeyServer, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Side, Side]]:
    """Two metastores whose tables lie in an encryption zone each."""
    for zone in ("/one", "/other"):
        hive_hdfs.shell("-mkdir", zone)
        hive_hdfs.crypto("-createZone", "-keyName", KEY, "-path", zone)
    conf = tmp_path_factory.mktemp("conf")
    (conf / "core-site.xml").write_text(site_xml({PROVIDER: keys.uri}), encoding="utf-8")
    with (
        pytest.MonkeyPatch.context() as patch,
        side(hive_hdfs, "one", jars=cipher_jars()) as first,
        side(hive_hdfs, "other", jars=cipher_jars()) as other,
    ):
        patch.setenv("HADOOP_CONF_DIR", str(conf))
        patch.setitem(spark.sparkContext.environment, "HADOOP_CONF_DIR", str(conf))
        yield first, other


@pytest.fixture(scope="module")
def replica(sides: tuple[Side, Side], spark: SparkSession) -> Iterator[OnHdfs]:
    source, target = sides
    policy = ReplicationPolicy(
        name="shop",
        source_database="shop",
        target_database="shop_copy",
        dump_root=f"{target.base}/dumps",
        external_base=f"{target.base}/ext",
        preserve="ugpa",
    )
    with (
        MetastorePool(MetastoreSettings(uris=(source.metastore.uri,)), 4) as source_pool,
        MetastorePool(MetastoreSettings(uris=(target.metastore.uri,)), 4) as target_pool,
    ):
        yield OnHdfs(source_pool, target_pool, policy, spark)


QUERIES = (
    "select id, name, day, ROW__ID.writeId, ROW__ID.rowId from {db}.orders",
    "select a, b from {db}.outside",
)


def assert_same(sides: tuple[Side, Side]) -> list[list[Any]]:
    """Return Hive's rows of both sides, which must be the same."""
    there = [rows(sides[0].sql, query.format(db="shop")) for query in QUERIES]
    assert [rows(sides[1].sql, query.format(db="shop_copy")) for query in QUERIES] == there
    return there


def list_dumps(replica: OnHdfs) -> list[str]:
    """URIs of the policy's dumps; beside them lie fences and the target's record."""
    filesystem, path = open_filesystem(replica.policy.directory)
    names = [str(name).rpartition("/")[2] for name in filesystem.ls(path, detail=False)]
    return [f"{replica.policy.directory}/{name}" for name in names if not name.startswith("_")]


def test_a_database_is_replicated_from_hdfs_to_hdfs(
    hive_hdfs: EmbeddedHdfs, sides: tuple[Side, Side], replica: OnHdfs
) -> None:
    source, target = sides
    hive, acid = source.sql, "stored as orc tblproperties ('transactional'='true')"
    hive.execute("create database shop")
    hive.execute(f"create table shop.orders (id int, name string) partitioned by (day string) {acid}")
    hive.execute("insert into shop.orders values (1, 'one', 'mon'), (2, 'two', 'tue:x')")
    hive.execute("update shop.orders set name = 'zwei' where id = 2")
    lake = f"{source.base}/lake/outside"
    hive.execute(f"create external table shop.outside (a int, b string) stored as orc location '{lake}'")
    hive.execute("insert into shop.outside values (7, 'x')")
    orders = f"{source.base}/warehouse/shop.db/orders"
    hive_hdfs.shell("-chown", "-R", "carol:staff", path_of(orders))
    hive_hdfs.shell("-chmod", "-R", "700", path_of(orders))
    hive_hdfs.shell("-setfacl", "-m", "user:bob:r-x,default:user:bob:r-x", path_of(orders))

    replica.cycle()
    assert_same(sides)
    assert replica.jobs == ["copy", "verify"]
    copied = f"{target.base}/warehouse/shop_copy.db/orders"
    for name in ("", "/day=mon", "/day=tue%3Ax"):
        assert modes(hive_hdfs, copied + name) == modes(hive_hdfs, orders + name)
        assert acl(hive_hdfs, copied + name) == acl(hive_hdfs, orders + name)
    for entry in list_files(f"{copied}/day=mon"):
        assert modes(hive_hdfs, f"{copied}/day=mon/{entry.path}") == "carol staff 700"
    (dump,) = list_dumps(replica)
    assert modes(hive_hdfs, dump).endswith(" 700")
    assert modes(hive_hdfs, f"{dump}/database.json").endswith(" 600")

    # An increment: rows that come and go, a partition that goes, files of an external table.
    hive.execute("insert into shop.orders values (3, 'three', 'wed')")
    hive.execute("delete from shop.orders where id = 1")
    hive.execute("insert into shop.outside values (8, 'y')")
    hive.execute("alter table shop.orders drop partition (day='mon')")
    replica.cycle()
    orders_rows, outside_rows = assert_same(sides)
    assert (len(orders_rows), len(outside_rows)) == (2, 2)
    # The metastore moves a dropped partition to its user's trash, which a zone has for itself.
    assert f"{path_of(copied)}/day=mon" in hive_hdfs.shell("-ls", "-R", "/other/.Trash")
    report = replica.verify()
    assert (list(report.differences), list(report.failures)) == ([], [])
    copied = f"{target.base}/ext{path_of(source.base)}/lake/outside"
    lost = next(entry.path for entry in list_files(copied) if entry.size_bytes)
    remove_file(f"{copied}/{lost}")
    differences = [item for item in replica.verify().differences if item.what == "file"]
    assert [(item.table, item.found, item.where.rpartition("/")[2]) for item in differences] == [
        ("outside", "no file", lost)
    ]


def test_a_copy_job_without_the_right_publishes_nothing(
    hive_hdfs: EmbeddedHdfs, table: CopyItem, spark: SparkSession, root: str
) -> None:
    hive_hdfs.shell("-mkdir", "-p", path_of(table.target).rpartition("/")[0])
    for name in ("target", "source"):
        hive_hdfs.shell("-chmod", "-R", "777", f"{path_of(root)}/{name}")
    write_plan(f"{root}/plan.jsonl", [replace(table, source_levels=0)])
    environment = spark.sparkContext.environment
    environment[USER_VARIABLE] = "alice"
    try:
        with pytest.raises(StoragePermissionError, match="not a super user"):
            run_job(
                spark,
                "copy-files",
                ["--plan", f"{root}/plan.jsonl", "--outcomes", f"{root}/outcomes", "--preserve", "u"],
            )
    finally:
        del environment[USER_VARIABLE]
    assert list_directory(table.target.rpartition("/")[0]) == {}
    run_job(
        spark,
        "copy-files",
        ["--plan", f"{root}/plan.jsonl", "--outcomes", f"{root}/outcomes", "--preserve", "u"],
    )
    assert set(list_directory(table.target.rpartition("/")[0])) == {"f"}


def test_acid_tables_of_the_replicated_side_are_written_read_and_compacted(
    hive_hdfs: EmbeddedHdfs, sides: tuple[Side, Side], spark: SparkSession
) -> None:
    hive, settings = sides[0].sql, MetastoreSettings(uris=(sides[0].metastore.uri,))
    hive.execute("create database w")
    hive.execute(
        "create table w.t (id int, name string) stored as orc tblproperties ('transactional'='true')"
    )
    with MetastoreClient(settings) as client:
        appended = spark.range(10).selectExpr("cast(id as int) id", "concat('n', id) name").coalesce(1)
        assert append(spark, client, "w.t", appended).inserted == 10
        hive.execute("delete from w.t where id = 3")
        ours = sorted((str(row.id), row.name) for row in read_table(spark, client, "w.t").collect())
    query = "select id, name, ROW__ID from w.t"
    theirs = rows(hive, query)
    assert [row[:2] for row in theirs] == ours == [(str(n), f"n{n}") for n in range(10) if n != 3]
    (report,) = compact_table(settings, "w.t", CompactionKind.MAJOR, in_threads(1))
    assert (report.state, report.rows, report.deleted) == ("compacted", 9, 1)
    assert "/base_" in hive_hdfs.shell("-ls", f"{path_of(sides[0].base)}/warehouse/w.db/t")
    assert rows(hive, query) == theirs


@pytest.fixture
def lake(
    hive_hdfs: EmbeddedHdfs,
    sides: tuple[Side, Side],
    replica: OnHdfs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Lake:
    """An external table of carol's in a directory that allows snapshots, and a policy that uses them."""
    source, target = sides
    policy = ReplicationPolicy(
        name="lake",
        source_database="lake",
        target_database="lake_copy",
        dump_root=f"file:{tmp_path}/dumps",
        external_base=f"{target.base}/lake_copy",
        external_snapshots=True,
        storage_options={"dfs.namenode.http-address": hive_hdfs.web_uri.rpartition("//")[2]},
    )
    lake = Lake(replica.source, replica.target, policy, replica.spark, root=f"{source.base}/lakes")
    hive_hdfs.shell("-mkdir", "-p", path_of(lake.root))
    hive_hdfs.shell("-chmod", "777", path_of(lake.root))
    hive_hdfs.admin("-allowSnapshot", path_of(lake.root))
    connection = {"conn_type": "hive_federation", "login": "carol", "extra": {"uris": source.metastore.uri}}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    with replica.source.client() as client:
        client.create_database(types.Database(name="lake"))
    with HiveMetastoreHook("lake").client() as client:
        make_table(client, "lake", "t", location=f"{lake.root}/t")
    return lake


def test_external_tables_are_copied_by_snapshot(
    hive_hdfs: EmbeddedHdfs, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, copied = path_of(lake.root), path_of(lake.target_root)
    # The metastore made the directory as the user of the connection.
    assert modes(hive_hdfs, f"{lake.root}/t").startswith("carol ")
    lake.write("t/a", "t/p=1/c")
    growing = lake.filesystem.open(f"{root}/t/growing", "wb")
    growing.write(b"first")
    growing.hsync()
    lake.cycle()
    assert lake.copied() == {"a": b"t/a", "p=1/c": b"t/p=1/c", "growing": b"first"}
    assert (lake.reasons, len(lake.snapshots())) == ([], 1)

    # All changes that a snapshot's difference names; a change after the dump waits for the next cycle.
    lake.write("t/new", "t/p=1/d")
    growing.write(b" and last")
    growing.close()
    with lake.filesystem.open(f"{root}/t/a", "ab") as file:
        file.write(b"more")
    lake.filesystem.mv(f"{root}/t/p=1", f"{root}/t/p=2")
    lake.write("t/p=1/again")
    dump = lake.dump()
    expected = {**lake.files("t"), "a": b"t/amore"}
    lake.write("t/a", "t/later")

    # A quota stops the cycle amid its copies; once it is raised, the same dump's load goes on.
    directories, files, *_ = map(int, hive_hdfs.shell("-count", copied).split()[:2])
    hive_hdfs.admin("-setQuota", str(directories + files + 1), copied)
    with pytest.raises(StorageFullError, match="NameSpace quota") as full:
        lake.load_one_by_one(dump)
    assert (full.value.directory, full.value.quota) == (copied, directories + files + 1)
    assert f"the quota of {copied} (hdfs dfsadmin -setQuota)" in full.value.remedy
    assert lake.copied()["growing"] == b"first and last"
    hive_hdfs.admin("-clrQuota", copied)

    # A renamed file is not copied but renamed. Both snapshots stay for the next cycle, if this one is killed.
    lake.kill_before_it_publishes(dump)
    assert lake.copied() == expected
    assert len(lake.snapshots()) == 2

    # The next cycle goes on from the snapshot of the last published one, whatever was copied meanwhile.
    lake.filesystem.rm_file(f"{root}/t/new")
    lake.cycle()
    lake.assert_same()
    assert (lake.reasons, len(lake.snapshots())) == ([], 2)

    # Somebody has removed the snapshot, and a file of the target: both sides are listed.
    last = max(lake.snapshots(), key=lambda name: int(name.rpartition("-")[2]))
    hive_hdfs.shell("-deleteSnapshot", root, last)
    remove_file(f"{lake.target_root}/a")
    lake.filesystem.rm(f"{root}/t/p=1", recursive=True)
    lake.write("t/p=2/c", text="other rows")
    with monkeypatch.context() as patch:
        # As if somebody removed the new one, too, before it is listed: it lacks all files.
        patch.setattr(external_snapshots, "create_snapshot", lambda *_: None)
        with pytest.raises(FileVanishedError, match="was removed while it was listed"):
            lake.dump()
    lake.cycle()
    lake.assert_same()
    assert lake.reasons == [f"the snapshot {last} of its last copy is gone"]

    # A snapshot that the policy does not need goes; those of another policy, and of a later cycle, stay.
    others = sorted(
        [f"{external_snapshots.snapshot_prefix(lake.policy)}999999999", "hive-federation-lake-of-somebody-7"]
    )
    for name in others:
        hive_hdfs.shell("-createSnapshot", root, name)
    lake.change(external_snapshots=False)
    assert lake.cycle().idle
    assert lake.snapshots() == others
    for name in others:
        hive_hdfs.shell("-deleteSnapshot", root, name)
    hive_hdfs.admin("-disallowSnapshot", root)
    lake.change(external_snapshots=True)
    lake.filesystem.rm_file(f"{root}/t/later")
    lake.reasons.clear()
    lake.dump()
    assert lake.reasons == ["HDFS allows no snapshots of it (hdfs dfsadmin -allowSnapshot)"]
