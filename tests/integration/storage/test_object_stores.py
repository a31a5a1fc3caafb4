"""Google's store, and Azure's by request, as dumps and copies use them; each store is a double.

Google's is fake-gcs-server. Azure's is Azurite, and its tests run only beside one that runs already, see
``tests/support/object_stores.py``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.compaction.files import publish
from airflow_hive_federation.compaction.plan import CompactionPlan, Decision, FileFormat
from airflow_hive_federation.errors import BucketMissingError, FileVanishedError
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.spark.copy_files import copy_plan
from airflow_hive_federation.spark.digest_files import digest_plan
from airflow_hive_federation.spark.workers import ThisProcess
from airflow_hive_federation.storage.copying import CopySettings, copy_file
from airflow_hive_federation.storage.digests import CHUNK_BYTES, FileDigest, FileToDigest, digest_file
from airflow_hive_federation.storage.filesystem import open_filesystem
from airflow_hive_federation.storage.listing import (
    file_size,
    has_entries,
    is_there,
    list_children,
    list_directory,
    list_files,
)
from airflow_hive_federation.storage.plan_files import (
    read_outcomes,
    read_record_parts,
    write_plan,
    write_records,
)
from airflow_hive_federation.storage.publishing import publishing, remove_file, rename, write_atomically
from tests.support.object_stores import STORES, ObjectStore, object_store
from tests.support.store_checks import check_listing, content_of, put

# The drivers send blocks of megabytes in one piece.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body directly")

GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.fixture(scope="module", params=STORES)
def store(request: pytest.FixtureRequest) -> Iterator[ObjectStore]:
    with object_store(request.param) as made:
        yield made


@pytest.fixture
def bucket(store: ObjectStore) -> str:
    """URI of an empty bucket."""
    return store.bucket()


def test_listing(bucket: str, store: ObjectStore) -> None:
    other = {"gs": "gcs", "abfs": "abfss"}[store.scheme]
    check_listing(bucket, store.options, other_scheme=other)


def test_an_object_that_another_of_its_length_replaces_is_another_one(
    bucket: str, store: ObjectStore
) -> None:
    """Both may have the same second; nothing of an earlier listing is kept."""
    seen = []
    for content in (b"one", b"two", b"one"):
        put(f"{bucket}/t/f", content, store.options)
        (entry,) = list_files(f"{bucket}/t", options=store.options)
        seen.append((entry.size_bytes, entry.modified_ns))
        assert content_of(f"{bucket}/t/f", store.options) == content
    assert seen[0] != seen[1]
    assert seen[1] != seen[2]


@pytest.mark.parametrize("way", ["up", "down", "across"])
def test_copying(way: str, bucket: str, store: ObjectStore, tmp_path: Path) -> None:
    for size_bytes in (0, 1, 2 * CHUNK_BYTES + 1):
        source = f"file:{tmp_path}/{size_bytes}/f" if way == "up" else f"{bucket}/{size_bytes}/s/f"
        target = f"{'file:' + str(tmp_path) if way == 'down' else bucket}/t{size_bytes}/p=a%3Ab/f"
        content = os.urandom(size_bytes)
        put(source, content, store.options)
        (listed,) = list_files(source.rpartition("/")[0], options=store.options)
        item = CopyItem(source=source, target=target, size_bytes=size_bytes, modified_ns=listed.modified_ns)
        settings = CopySettings(options={bucket: store.options})
        with pytest.raises(FileVanishedError, match="was replaced by another file"):
            copy_file(replace(item, modified_ns=listed.modified_ns - 1_000_000_000), settings)
        outcome = copy_file(item, settings)
        assert (outcome.copied, outcome.digest) == (True, hashlib.sha256(content).hexdigest())
        assert content_of(target, store.options) == content
        assert digest_file(target, size_bytes=size_bytes, options=store.options).digest == outcome.digest
        assert not copy_file(item, settings).copied
        assert list(list_directory(target.rpartition("/")[0], options=store.options)) == ["f"]


def test_a_file_has_its_name_when_it_is_whole(bucket: str, store: ObjectStore) -> None:
    put(f"{bucket}/t/f", b"former", store.options)
    for blocks in (0, 1):
        with pytest.raises(ZeroDivisionError):
            write_and_fail(f"{bucket}/t/f", blocks, store)
        assert list_directory(f"{bucket}/t", options=store.options) == {"f": 6}
    with publishing(f"{bucket}/t/g", store.options) as file:
        file.write(b"new")
        assert list_directory(f"{bucket}/t", options=store.options) == {"f": 6}
    assert list_directory(f"{bucket}/t", options=store.options) == {"f": 6, "g": 3}
    assert content_of(f"{bucket}/t/f", store.options) == b"former"


def write_and_fail(uri: str, blocks: int, store: ObjectStore) -> None:
    with publishing(uri, store.options) as file:
        # More than blocks of the driver's: the upload has begun.
        file.write(bytes(blocks * file.blocksize + 1))
        raise ZeroDivisionError


def test_what_fails_leaves_the_target_as_it_was(bucket: str, store: ObjectStore) -> None:
    put(f"{bucket}/s", b"new", store.options)
    put(f"{bucket}/t", b"old", store.options)
    settings = CopySettings(options=store.options)
    with pytest.raises(FileVanishedError, match="changed while it was read"):
        copy_file(CopyItem(source=f"{bucket}/s", target=f"{bucket}/t", size_bytes=4), settings)
    with pytest.raises(FileVanishedError) as caught:
        copy_file(CopyItem(source=f"{bucket}/gone", target=f"{bucket}/t", size_bytes=4), settings)
    assert caught.value.path == f"{bucket}/gone"
    assert content_of(f"{bucket}/t", store.options) == b"old"


def test_a_directory_is_moved_with_all_its_files(bucket: str, store: ObjectStore) -> None:
    filesystem, path = open_filesystem(f"{bucket}/t", store.options)
    names = ["bucket_00000", "bucket_00001", "p=x y+z#?/é"]
    for name in names:
        put(f"{bucket}/t/.stage/base_5/{name}", name.encode(), store.options)
    put(f"{bucket}/t/.stage/base_50/other", b"", store.options)
    put(f"{bucket}/t/base_5/bucket_00001", b"of a run that was killed", store.options)
    rename(filesystem, f"{path}/.stage/base_5", f"{path}/base_5")
    assert [entry.path for entry in list_files(f"{bucket}/t/base_5", options=store.options)] == names
    assert content_of(f"{bucket}/t/base_5/bucket_00001", store.options) == b"bucket_00001"
    left = list_files(f"{bucket}/t/.stage", options=store.options)
    assert [entry.path for entry in left] == ["base_50/other"]
    assert remove_file(f"{bucket}/t/.stage/base_50/other", store.options)
    assert not remove_file(f"{bucket}/t/.stage/base_50/other", store.options)


def test_a_compaction_without_rows_leaves_a_base(bucket: str, store: ObjectStore) -> None:
    plan = CompactionPlan(decision=Decision.COMPACT, directories=("base_0000005_v0000007",))
    publish(plan, f"{bucket}/t", FileFormat.ORC, store.options)
    made = list_directory(f"{bucket}/t/base_0000005_v0000007", options=store.options)
    assert made == {"_orc_acid_version": 1}


#: The name of the missing bucket is that of no other test.
MISSING: list[Callable[[str, Any], object]] = [
    lambda uri, options: list_files(uri, options=options),
    lambda uri, options: list_files(uri, options=options, missing_ok=True),
    lambda uri, options: list_directory(uri, options=options),
    lambda uri, options: list_children(uri, options=options),
    lambda uri, options: has_entries(uri, options=options),
    lambda uri, options: is_there(uri, options=options),
    lambda uri, options: file_size(uri, options=options),
    lambda uri, options: digest_file(uri, options=options),
    lambda uri, options: write_atomically(uri, [b"1"], options),
    lambda uri, options: write_atomically(uri, [bytes(60 << 20)], options),
    remove_file,
    lambda uri, options: copy_file(
        CopyItem(source=uri, target=f"{uri}2", size_bytes=1), CopySettings(options=options)
    ),
]


@pytest.mark.parametrize("number", range(len(MISSING)))
def test_a_bucket_that_is_not_there_is_no_empty_directory(number: int, store: ObjectStore) -> None:
    uri = f"{store.scheme}://no-such-bucket/t"
    with pytest.raises(BucketMissingError, match=r"no-such-bucket.* does not exist") as caught:
        MISSING[number](uri, store.options)
    assert caught.value.path.startswith(uri)
    assert "Create it" in caught.value.remedy


def test_a_plan_copies_a_table_there_and_back(bucket: str, store: ObjectStore, tmp_path: Path) -> None:
    """A table that Hive wrote; plans and outcomes are in the store, too."""
    table = GOLDEN / "acid_changed"
    there = copied(f"file:{table}", f"{bucket}/t", f"{bucket}/dump/1", store)
    assert there == digests_of(table)
    back = copied(f"{bucket}/t", f"file:{tmp_path}/t", f"{bucket}/dump/2", store)
    assert back == there == digests_of(tmp_path / "t")
    to_digest = [
        FileToDigest(uri=f"{bucket}/t/{path}", size_bytes=(table / path).stat().st_size) for path in there
    ]
    write_records(f"{bucket}/v/plan.jsonl", to_digest, options=store.options)
    digest_plan(ThisProcess(), f"{bucket}/v/plan.jsonl", f"{bucket}/v/digests", options=store.options)
    parts = read_record_parts(f"{bucket}/v/digests", FileDigest, options=store.options)
    assert {digest.uri.removeprefix(f"{bucket}/t/"): digest.digest for digest in parts} == there


def copied(source: str, target: str, dump: str, store: ObjectStore) -> dict[str, str]:
    """Copy a directory by a plan, twice, and return the digests of its files."""
    entries = list_files(source, options=store.options)
    items = [
        CopyItem(
            source=f"{source}/{entry.path}", target=f"{target}/{entry.path}", size_bytes=entry.size_bytes
        )
        for entry in entries
    ]
    assert items
    write_plan(f"{dump}/plan.jsonl", items, options=store.options)
    for expected in (len(items), 0):
        summary = copy_plan(
            ThisProcess(), f"{dump}/plan.jsonl", f"{dump}/outcomes", options={bucket_of(dump): store.options}
        )
        assert (summary.copied, summary.failed) == (expected, 0)
    recorded = read_outcomes(f"{dump}/outcomes", options=store.options)
    return {uri.removeprefix(f"{target}/"): str(outcome.digest) for uri, outcome in recorded.items()}


def bucket_of(uri: str) -> str:
    return "/".join(uri.split("/")[:3])


def digests_of(directory: Path) -> dict[str, str]:
    return {
        entry.path: hashlib.sha256((directory / entry.path).read_bytes()).hexdigest()
        for entry in list_files(f"file:{directory}")
    }
