"""Uploads that a task makes and the driver finishes, in a store in memory that answers as S3 does."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from airflow_hive_federation.errors import ConfigurationError, FileVanishedError, StorageError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage import filesystem as storage_filesystem
from airflow_hive_federation.storage.unfinished_uploads import RECORD, finish, upload
from airflow_hive_federation.tables.write.plan import StagedFile, table_layout
from airflow_hive_federation.tables.write.publish import Publication, Statement, publish
from airflow_hive_federation.tables.write.staging import staging_directory
from airflow_hive_federation.transactions.locks import WriteKind
from tests.support.small_source import storage

TABLE = "s3://b/t"
DELTA = "delta_0000005_0000005_0000"


class Store(MemoryFileSystem):  # type: ignore[misc]
    """A file system with S3's requests for uploads in parts."""

    store: dict[str, Any] = {}  # noqa: RUF012 - the class has one as well
    pseudo_dirs: list[str] = [""]  # noqa: RUF012
    s3_additional_kwargs: dict[str, Any] = {}  # noqa: RUF012
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.refused: set[str] = set()
        self._ids = map(str, itertools.count(1))

    def call_s3(self, method: str, *_defaults: Any, **arguments: Any) -> dict[str, Any]:
        if method in self.refused:
            raise OSError(method)
        if method == "create_multipart_upload":
            made = next(self._ids)
            self.uploads[made] = {}
            return {"UploadId": made}
        if arguments["UploadId"] not in self.uploads:
            raise FileNotFoundError("NoSuchUpload")
        parts = self.uploads[arguments["UploadId"]]
        if method == "upload_part":
            parts[arguments["PartNumber"]] = arguments["Body"]
            return {"ETag": f"etag-{arguments['PartNumber']}"}
        del self.uploads[arguments["UploadId"]]
        if method == "complete_multipart_upload":
            kept = [parts[part["PartNumber"]] for part in arguments["MultipartUpload"]["Parts"]]
            self.pipe_file(f"{arguments['Bucket']}/{arguments['Key']}", b"".join(kept))
        return {}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store()
    made.store.clear()
    monkeypatch.setattr(storage_filesystem, "_driver", lambda _location, _options: made)
    return made


def staged(tmp_path: Path, partition: str, staging: str = f"{TABLE}/.staging") -> StagedFile:
    """Upload the file of one partition, as a task does."""
    (tmp_path / "made").write_bytes(f"rows of {partition}".encode())
    record = f"{staging}/{partition}{RECORD}"
    upload(tmp_path / "made", f"{TABLE}/p={partition}/{DELTA}/bucket_00000_0", record)
    return StagedFile(path=record, values=(partition,), bucket=0, row_count=1, size_bytes=9)


def publish_into(locations: dict[str, str], files: list[StagedFile], undo: list[Any]) -> None:
    """Publish an INSERT into a table whose partitions have these locations."""
    table = types.Table(
        dbName="d",
        tableName="t",
        tableType="MANAGED_TABLE",
        sd=storage(TABLE),
        partitionKeys=[types.FieldSchema(name="p", type="string")],
        parameters={"transactional": "true", "bucketing_version": "2"},
    )
    partitions = [
        types.Partition(dbName="d", tableName="t", values=[value], sd=storage(location), parameters={})
        for value, location in locations.items()
    ]
    client: Any = SimpleNamespace(
        get_table=lambda *_: table,
        iter_partitions=lambda *_, names: iter(partitions),
        call=lambda *_: None,
    )
    transaction: Any = SimpleNamespace(id=5, on_abort=undo.append)
    statement = Statement(
        client=client,
        transaction=transaction,
        layout=table_layout(table),
        write_id=5,
        statement_id=0,
        kind=WriteKind.INSERT,
        static_values=None,
        storage_options=None,
    )
    publish([Publication(statement=statement, files=files)])


def files_of(store: Store) -> dict[str, bytes]:
    return {
        name.removeprefix("/b/t/"): store.cat_file(name) for name in store.find("b/t") if "/bucket_" in name
    }


def test_files_of_partitions_in_and_outside_of_the_table(store: Store, tmp_path: Path) -> None:
    files = [staged(tmp_path, value) for value in ("1", "2")]
    assert files_of(store) == {}
    publish_into({"1": f"{TABLE}/p=1", "2": f"{TABLE}/elsewhere/"}, files, [])
    assert files_of(store) == {
        f"p=1/{DELTA}/bucket_00000_0": b"rows of 1",
        f"elsewhere/{DELTA}/bucket_00000_0": b"rows of 2",
    }
    assert (store.uploads, store.find("b/t/.staging")) == ({}, [])


def test_a_file_that_cannot_be_copied_to_its_partition_is_removed(store: Store, tmp_path: Path) -> None:
    undo: list[Any] = []
    files = [staged(tmp_path, "1")]
    with pytest.raises(ConfigurationError, match="in another store than its table"):
        publish_into({"1": "s3://other/p=1"}, files, undo)
    assert files_of(store) == {}
    undo[0]()
    assert store.find("other") == []


@pytest.mark.parametrize(
    "locations",
    [
        {"1": f"{TABLE}/p=2", "2": f"{TABLE}/p=1"},
        {"1": f"{TABLE}/elsewhere", "2": f"{TABLE}/p=1"},
        {"1": f"{TABLE}/both", "2": "s3a://b/t/both/"},
    ],
)
def test_partitions_whose_files_would_replace_each_other(
    store: Store, tmp_path: Path, locations: dict[str, str]
) -> None:
    files = [staged(tmp_path, value) for value in ("1", "2")]
    with pytest.raises(ConfigurationError, match=r"d\.t: files of partitions p=1 and p=2 would replace each"):
        publish_into(locations, files, [])
    assert files_of(store) == {}


@pytest.mark.parametrize("fails", [False, True])
def test_what_does_not_count_is_abandoned_with_its_statement(
    store: Store, tmp_path: Path, fails: bool
) -> None:
    try:
        with staging_directory(TABLE, 5) as staging:
            counts = staged(tmp_path, "1", staging)
            staged(tmp_path, "lost", staging)
            if fails:
                raise ZeroDivisionError
            publish_into({"1": f"{TABLE}/p=1"}, [counts], [])
    except ZeroDivisionError:
        pass
    assert list(files_of(store)) == ([] if fails else [f"p=1/{DELTA}/bucket_00000_0"])
    assert store.uploads == {}
    assert [name for name in store.find("b/t") if ".hive-staging" in name] == []


def test_an_upload_that_was_abandoned_meanwhile_is_missed(store: Store, tmp_path: Path) -> None:
    record = staged(tmp_path, "1").path
    store.uploads.clear()
    with pytest.raises(FileVanishedError):
        finish(record)
    target = json.loads(store.cat_file("b/t/.staging/1.upload"))["target"].removeprefix("s3://")
    store.pipe_file(target, b"other rows")
    with pytest.raises(FileVanishedError):
        finish(record)
    # The answer to the first request was lost.
    store.pipe_file(target, b"rows of 1")
    assert finish(record) == f"s3://{target}"
    assert not store.exists("b/t/.staging/1.upload")


@pytest.mark.parametrize("refused", ["create_multipart_upload", "upload_part"])
def test_an_upload_that_the_store_refuses_leaves_nothing(store: Store, tmp_path: Path, refused: str) -> None:
    store.refused = {refused}
    with pytest.raises(StorageError, match=refused):
        staged(tmp_path, "1")
    assert (store.uploads, store.find("b")) == ({}, [])
