"""S3 as dumps and copies use it, on S3Proxy or the store that HIVE_FEDERATION_TESTS_S3 names.

The metastore of these tests has no S3 driver, so tables stay on the local disk; the dump, the copy plan, its
outcomes and the files of a plan are on S3.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hive_federation.compaction.files import publish
from airflow_hive_federation.compaction.plan import CompactionPlan, Decision, FileFormat
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import (
    BucketMissingError,
    DumpCorruptError,
    FileVanishedError,
    StorageError,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.model.write_ids import ValidTxns
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.layout import TargetLayout
from airflow_hive_federation.spark.copy_files import copy_plan
from airflow_hive_federation.spark.digest_files import digest_plan
from airflow_hive_federation.spark.workers import SparkWorkers
from airflow_hive_federation.storage.copying import CopySettings, copy_file
from airflow_hive_federation.storage.digests import CHUNK_BYTES, FileDigest, FileToDigest, digest_file
from airflow_hive_federation.storage.empty_directories import remove_empty_directory
from airflow_hive_federation.storage.filesystem import open_filesystem, reading
from airflow_hive_federation.storage.listing import file_size, has_entries, list_directory, list_files
from airflow_hive_federation.storage.plan_files import (
    read_outcomes,
    read_plan,
    read_record_parts,
    write_plan,
    write_records,
)
from airflow_hive_federation.storage.publishing import publishing, remove_file, rename
from airflow_hive_federation.storage.unfinished_uploads import RECORD, finish, upload
from airflow_hive_federation.tables.write.staging import sweep
from tests.support.kills import Case
from tests.support.s3_site import S3Store, s3_store
from tests.support.small_source import DATABASE, connected
from tests.support.store_checks import NAMES, check_listing, content_of, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Options = dict[str, Any]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Store]:
    with s3_store(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture(scope="module")
def options(store: S3Store) -> Options:
    return store.options


@pytest.fixture
def bucket(request: pytest.FixtureRequest, store: S3Store) -> str:
    """URI of an empty bucket."""
    name = request.node.originalname.replace("_", "-")[:63].strip("-")
    store.make_bucket(name)
    return f"s3://{name}"


def test_listing(bucket: str, options: Options) -> None:
    check_listing(bucket, options, other_scheme="s3a")


def test_a_listing_longer_than_one_answer_and_not_remembered(bucket: str, options: Options) -> None:
    """S3 answers with 1,000 keys; a driver that remembered a listing would miss what others write."""
    filesystem, path = open_filesystem(f"{bucket}/many", options)
    with ThreadPoolExecutor(8) as workers:
        list(workers.map(lambda n: filesystem.pipe_file(f"{path}/p={n % 7}/f{n:04}", b"1"), range(1_050)))
    assert len(list_files(f"{bucket}/many", options=options)) == 1_050
    import boto3

    client = boto3.client(
        "s3",
        aws_access_key_id=options["key"],
        aws_secret_access_key=options["secret"],
        **options["client_kwargs"],
    )
    client.put_object(Bucket=bucket.removeprefix("s3://"), Key="many/p=0/late", Body=b"22")
    assert len(list_files(f"{bucket}/many", options=options)) == 1_051
    client.put_object(Bucket=bucket.removeprefix("s3://"), Key="many/p=0/late", Body=b"333")
    assert file_size(f"{bucket}/many/p=0/late", options=options) == 3


@pytest.mark.parametrize("way", ["up", "down", "across"])
@pytest.mark.parametrize("size_bytes", [0, 1, 2 * CHUNK_BYTES + 1])
def test_copying(way: str, size_bytes: int, store: S3Store, options: Options, tmp_path: Path) -> None:
    name = f"copying-{way}-{size_bytes}"
    store.make_bucket(name)
    source = f"file:{tmp_path}/s/f" if way == "up" else f"s3://{name}/s/f"
    target = f"file:{tmp_path}/t/p=a%3Ab/f" if way == "down" else f"s3a://{name}/t/p=a%3Ab/f"
    content = os.urandom(size_bytes)
    put(source, content, options)
    (listed,) = list_files(source.rpartition("/")[0], options=options)
    item = CopyItem(source=source, target=target, size_bytes=size_bytes, modified_ns=listed.modified_ns)
    # Source and target may want different keys.
    settings = CopySettings(options={f"s3://{name}/s": options, f"s3://{name}/t": options})
    with pytest.raises(FileVanishedError, match="was replaced by another file"):
        copy_file(replace(item, modified_ns=listed.modified_ns - 1_000_000_000), settings)
    outcome = copy_file(item, settings)
    assert (outcome.copied, outcome.digest) == (True, hashlib.sha256(content).hexdigest())
    assert content_of(target, options) == content
    assert digest_file(target, size_bytes=size_bytes, options=options).digest == outcome.digest
    assert not copy_file(item, settings).copied
    assert list(list_directory(target.rpartition("/")[0], options=options)) == ["f"]


def test_what_fails_leaves_the_target_as_it_was(bucket: str, options: Options) -> None:
    put(f"{bucket}/s", b"new", options)
    put(f"{bucket}/t", b"old", options)
    longer = CopyItem(source=f"{bucket}/s", target=f"{bucket}/t", size_bytes=4)
    with pytest.raises(FileVanishedError, match="changed while it was read"):
        copy_file(longer, CopySettings(options=options))
    gone = CopyItem(source=f"{bucket}/gone", target=f"{bucket}/t", size_bytes=4)
    with pytest.raises(FileVanishedError) as caught:
        copy_file(gone, CopySettings(options=options))
    assert caught.value.path == f"{bucket}/gone"
    assert content_of(f"{bucket}/t", options) == b"old"


def test_an_upload_that_breaks_off_leaves_no_parts(bucket: str, options: Options) -> None:
    """Parts of an upload that is never finished are invisible, and paid for."""
    with pytest.raises(ZeroDivisionError):
        write_a_part_and_fail(f"{bucket}/t", options)
    filesystem, path = open_filesystem(bucket, options)
    assert filesystem.call_s3("list_multipart_uploads", Bucket=path).get("Uploads", []) == []
    assert list_directory(bucket, options=options) == {}


def write_a_part_and_fail(uri: str, options: Options) -> None:
    with publishing(uri, options) as file:
        # More than a block of the driver's: the upload has begun.
        file.write(os.urandom(file.blocksize + 1))
        raise ZeroDivisionError


def test_marks_of_directories_are_no_files(bucket: str, options: Options) -> None:
    """Hadoop marks a directory by an empty object whose name ends with a slash."""
    filesystem, path = open_filesystem(bucket, options)
    for key in ("t/", "t/p=1/"):
        filesystem.call_s3("put_object", Bucket=path, Key=key)
    assert list_files(f"{bucket}/t", options=options) == []
    assert not has_entries(f"{bucket}/t/p=1", options=options)
    # A base without rows is one, and hides what was before.
    assert paths_with_directories(f"{bucket}/t", options) == ["p=1/"]
    put(f"{bucket}/t/p=1/f", b"1", options)
    assert [entry.path for entry in list_files(f"{bucket}/t", options=options)] == ["p=1/f"]
    assert list_directory(f"{bucket}/t/p=1", options=options) == {"f": 1}
    assert list_directory(f"{bucket}/t", options=options) == {}
    assert paths_with_directories(f"{bucket}/t", options) == ["p=1/f"]


def paths_with_directories(uri: str, options: Options) -> list[str]:
    return [entry.path for entry in list_files(uri, options=options, empty_directories=True)]


def test_a_directory_is_moved_with_all_its_files(bucket: str, options: Options) -> None:
    """A move of s3fs would leave a directory where it is, without an error."""
    filesystem, path = open_filesystem(f"{bucket}/t", options)
    names = ["bucket_00000", "bucket_00001", "p=x y+z#?/é"]
    for name in names:
        put(f"{bucket}/t/.stage/base_5/{name}", name.encode(), options)
    put(f"{bucket}/t/.stage/base_50/other", b"", options)
    put(f"{bucket}/t/base_5/bucket_00001", b"of a run that was killed", options)
    rename(filesystem, f"{path}/.stage/base_5", f"{path}/base_5")
    assert [entry.path for entry in list_files(f"{bucket}/t/base_5", options=options)] == names
    assert content_of(f"{bucket}/t/base_5/bucket_00001", options) == b"bucket_00001"
    assert [entry.path for entry in list_files(f"{bucket}/t/.stage", options=options)] == ["base_50/other"]
    with pytest.raises(FileNotFoundError):
        rename(filesystem, f"{path}/.stage/base_5", f"{path}/base_5")


def test_hadoops_object_for_an_empty_directory_is_removed(bucket: str, options: Options) -> None:
    """Hive and its metastore make one for each directory of a partition; s3fs removes no directories."""
    filesystem, path = open_filesystem(bucket, options)
    filesystem.call_s3("put_object", Bucket=path, Key="t/p=1/", Body=b"")
    put(f"{bucket}/t/p=1/f", b"row", options)
    put(f"{bucket}/t/p=10", b"beside", options)
    assert not remove_empty_directory(f"{bucket}/t/p=1", options)
    assert remove_file(f"{bucket}/t/p=1/f", options)
    for _ in range(2):
        assert remove_empty_directory(f"{bucket}/t/p=1", options)
    assert paths_with_directories(f"{bucket}/t", options) == ["p=10"]


def test_a_file_that_loses_rows_on_its_way_replaces_the_former_one(
    bucket: str, options: Options, tmp_path: Path
) -> None:
    (tmp_path / "s").write_bytes(b"1234")

    def rewrite(source: str, uri: str, _write_ids: str, options: Any) -> None:
        with reading(source, options) as file:
            put(uri, file.read()[:2], options)

    item = CopyItem(source=f"file:{tmp_path}/s", target=f"{bucket}/t/f", size_bytes=4, visible_write_ids="x")
    settings = CopySettings(options=options, rewrite=rewrite)
    put(item.target, b"former", options)
    assert copy_file(item, settings).copied
    assert content_of(item.target, options) == b"12"
    assert not copy_file(item, settings).copied
    assert list(list_directory(f"{bucket}/t", options=options)) == ["f"]


def test_a_compaction_without_rows_leaves_a_base(bucket: str, options: Options) -> None:
    plan = CompactionPlan(decision=Decision.COMPACT, directories=("base_0000005_v0000007",))
    publish(plan, f"{bucket}/t", FileFormat.ORC, options)
    assert list_directory(f"{bucket}/t/base_0000005_v0000007", options=options) == {"_orc_acid_version": 1}


def uploads(bucket: str, options: Options) -> list[Any]:
    filesystem, path = open_filesystem(bucket, options)
    return list(filesystem.call_s3("list_multipart_uploads", Bucket=path).get("Uploads", []))


def test_a_file_of_a_task_appears_when_the_driver_finishes_its_upload(
    bucket: str, options: Options, tmp_path: Path
) -> None:
    for size_bytes in (1, (16 << 20) + 1):
        appears_when_it_is_finished(bucket, options, tmp_path, size_bytes)


def appears_when_it_is_finished(bucket: str, options: Options, tmp_path: Path, size_bytes: int) -> None:
    content = os.urandom(size_bytes)
    (tmp_path / "made").write_bytes(content)
    target, record = f"{bucket}/{size_bytes}/t/p=a%3Ab/f", f"{bucket}/{size_bytes}/t/.staging/1{RECORD}"
    upload(tmp_path / "made", target, record, options)
    assert list_directory(f"{bucket}/{size_bytes}/t/p=a%3Ab", options=options) == {}
    with reading(record, options) as file:
        kept = file.read()
    assert finish(record, options) == target
    assert content_of(target, options) == content
    # As if the answer to the request had been lost.
    put(record, kept, options)
    assert finish(record, options) == target
    assert list_directory(record.rpartition("/")[0], options=options) == {}
    assert uploads(bucket, options) == []


def test_uploads_that_do_not_count_are_abandoned(bucket: str, options: Options, tmp_path: Path) -> None:
    """A task that outlives its statement publishes nothing; the next statement removes its parts."""
    (tmp_path / "made").write_bytes(b"rows")
    staging, target = f"{bucket}/t/.hive-staging_spark_7_abc", f"{bucket}/t/delta_1_1_0/bucket_00000_0"
    upload(tmp_path / "made", target, f"{staging}/1{RECORD}", options)
    assert len(uploads(bucket, options)) == 1
    open_txns = ValidTxns(high_watermark=7, open_ids=frozenset({7}))
    assert sweep(f"{bucket}/t", lambda: open_txns, options) == []
    assert len(uploads(bucket, options)) == 1
    ended = ValidTxns(high_watermark=7)
    assert sweep(f"{bucket}/t", lambda: ended, options) == [".hive-staging_spark_7_abc"]
    assert uploads(bucket, options) == []
    assert list_files(f"{bucket}/t", options=options, missing_ok=True) == []
    with pytest.raises(FileVanishedError):
        finish(f"{staging}/1{RECORD}", options)
    gone = f"{bucket}/no-record{RECORD}"
    put(gone, b"{}", options)
    with pytest.raises(StorageError, match="no record of an upload"):
        finish(gone, options)


def test_a_refused_record_leaves_no_parts(bucket: str, options: Options, tmp_path: Path) -> None:
    (tmp_path / "made").write_bytes(b"rows")
    with pytest.raises(BucketMissingError):
        upload(tmp_path / "made", f"{bucket}/t/f", f"s3://no-such-bucket/1{RECORD}", options)
    assert uploads(bucket, options) == []


def test_a_bucket_that_is_not_there(options: Options, tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(b"1")
    item = CopyItem(source=f"file:{tmp_path}/s", target="s3://no-such-bucket/t", size_bytes=1)
    with pytest.raises(BucketMissingError, match="no-such-bucket"):
        copy_file(item, CopySettings(options=options))
    for missing_ok in (False, True):
        with pytest.raises(BucketMissingError, match="no-such-bucket"):
            list_files("s3://no-such-bucket/t", options=options, missing_ok=missing_ok)


def test_a_store_that_does_not_answer(options: Options) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    client = {"endpoint_url": f"http://127.0.0.1:{port}", "region_name": "eu-central-1"}
    quick = {"retries": {"max_attempts": 0}}
    with pytest.raises(StorageError, match="a-bucket/t") as caught:
        list_files("s3://a-bucket/t", options={**options, "client_kwargs": client, "config_kwargs": quick})
    assert options["secret"] not in str(caught.value)


def test_spark_copies_and_digests(bucket: str, options: Options, spark: SparkSession, tmp_path: Path) -> None:
    contents = {f"{tmp_path}/s/{name}": os.urandom(10_000 + len(name)) for name in NAMES}
    for path, content in contents.items():
        put(path, content, options)
    items = [
        CopyItem(source=f"file:{path}", target=f"s3a://{bucket[5:]}/t/{name}", size_bytes=len(contents[path]))
        for name, path in ((path.removeprefix(f"{tmp_path}/s/"), path) for path in contents)
    ]
    plan, outcomes = f"{bucket}/dump/copy_plan.jsonl", f"{bucket}/dump/outcomes"
    write_plan(plan, items, options=options)
    context = spark.sparkContext
    first = copy_plan(SparkWorkers(context), plan, outcomes, options=options)
    assert (first.files, first.copied, first.failed) == (len(NAMES), len(NAMES), 0)
    again = copy_plan(SparkWorkers(context), plan, outcomes, options=options)
    assert (again.recorded, again.copied) == (len(NAMES), 0)
    expected = {item.target: hashlib.sha256(contents[item.source[5:]]).hexdigest() for item in items}
    recorded = read_outcomes(outcomes, options=options)
    assert {uri: outcome.digest for uri, outcome in recorded.items()} == expected
    to_digest = [FileToDigest(uri=item.target, size_bytes=item.size_bytes) for item in items]
    write_records(f"{bucket}/v/plan.jsonl", to_digest, options=options)
    digest_plan(SparkWorkers(context), f"{bucket}/v/plan.jsonl", f"{bucket}/v/digests", options=options)
    parts = read_record_parts(f"{bucket}/v/digests", FileDigest, options=options)
    assert {digest.uri: digest.digest for digest in parts} == expected


def test_a_dump_on_s3(
    bucket: str,
    options: Options,
    small_source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Written, loaded, refused where it is damaged, and found finished: as on a disk."""
    monkeypatch.setattr("tests.support.kills.run_copy", lambda *uris: run_copy(*uris, options))
    case = Case(small_source, target, tmp_path)
    case.drop()
    case.policy = ReplicationPolicy(
        **{**case.policy.to_json(), "dump_root": f"{bucket}/dumps", "storage_options": options}
    )
    dump = case.dump()
    assert dump.startswith(f"{bucket}/dumps/{DATABASE}/")
    tables = content_of(f"{dump}/tables/acid.json", options)
    put(f"{dump}/tables/acid.json", tables[:-1], options)
    with pytest.raises(DumpCorruptError, match=r"tables/acid\.json"):
        case.load()
    put(f"{dump}/tables/acid.json", tables, options)
    case.load()
    case.load()
    assert "_finished_load" in list_directory(dump, options=options)
    with connected(target) as client:
        parameters: Any = client.get_database(DATABASE).parameters
    assert parameters["repl.last.id"] == str(case.start.event_id)
    case.drop()


def run_copy(plan: str, outcomes: str, options: Options) -> None:
    settings = CopySettings(options=options)
    results = [copy_file(item, settings) for item in read_plan(plan, options=options)]
    assert results
    for outcome in results:
        assert outcome.copied or outcome.digest


def test_where_external_tables_land_on_s3() -> None:
    policy = ReplicationPolicy(
        name="p", source_database="d", dump_root="s3://b/dumps", external_base="s3a://b/base/"
    )
    layout = TargetLayout(policy=policy, managed="s3a://b/warehouse/d.db")
    external = TableDocument(table=types.Table(tableName="e"), kind=TableKind.EXTERNAL)
    assert layout.directory(external, "s3a://far/ext_loc/x", "") == "s3a://b/base/ext_loc/x"
    storage = types.StorageDescriptor(location="hdfs://n/w/d.db/m")
    managed = TableDocument(table=types.Table(tableName="m", sd=storage), kind=TableKind.FULL_ACID)
    assert layout.directory(managed, "hdfs://n/w/d.db/m/p=1", "p=1") == "s3a://b/warehouse/d.db/m/p=1"
