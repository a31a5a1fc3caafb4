"""Objects to copy: whether a copy has the rows of a snapshot of the primary."""

from __future__ import annotations

import shutil
import struct
from contextlib import nullcontext
from pathlib import Path
from typing import cast
from unittest.mock import MagicMock

import pytest

from airflow_hive_federation.clusters import acid_snapshots
from airflow_hive_federation.clusters.copies.objects import CopyObject, chosen_partitions, copy_objects
from airflow_hive_federation.clusters.metadata import Secondary
from airflow_hive_federation.errors import CopyRefusedError, MetastoreServerError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.transactions.snapshots import Snapshot


def partition_at(place: Path, write_ids: str, **parameters: str) -> CopyObject:
    table = types.Table(
        dbName="d",
        tableName="t",
        partitionKeys=[types.FieldSchema(name="p", type="string")],
        parameters={"transactional": "true", **parameters},
    )
    storage = types.StorageDescriptor(location=f"file:{place}")
    snapshot = Snapshot(write_ids=ValidWriteIds.parse(write_ids), txns=ValidTxns.everything())
    (copied,) = copy_objects(table, {"p=a": types.Partition(values=["a"], sd=storage)}, None, snapshot)
    return copied


class Unreadable:
    """A metastore that cannot read conditions."""

    def find_partitions(self, _database: str, _table: str, _where: str) -> list[types.Partition]:
        raise MetastoreServerError("Specified key <k> is not a partitioning key for the table")


def test_a_condition_that_the_metastore_cannot_read_is_refused_with_the_keys() -> None:
    keys = [types.FieldSchema(name="day", type="string")]
    table = types.Table(dbName="d", tableName="t", partitionKeys=keys)
    with pytest.raises(CopyRefusedError, match=r"d\.t by the condition \"k = '1'\": Specified key") as caught:
        chosen_partitions(cast("MetastoreClient", Unreadable()), table, None, "k = '1'")
    assert "(day)" in (caught.value.remedy or "")


def test_partitions_that_do_not_exist_are_refused_alike_by_copies_and_their_removal() -> None:
    client = MagicMock(spec=MetastoreClient, **{"get_partitions_of.return_value": []})
    plain = types.Table(dbName="d", tableName="t")
    with pytest.raises(CopyRefusedError, match=r"^d\.t has no partitions\.") as caught:
        chosen_partitions(client, plain, None, "k = '1'")
    assert "without a condition" in (caught.value.remedy or "")
    keyed = types.Table(dbName="d", tableName="t", partitionKeys=[types.FieldSchema(name="p", type="string")])
    with pytest.raises(CopyRefusedError, match=r"^d\.t has no partition p=b\.") as caught:
        chosen_partitions(client, keyed, ["p=b"], None)
    assert caught.value.partition == "p=b"


def test_a_partition_that_was_truncated_by_removing_its_files_is_not_current(tmp_path: Path) -> None:
    place = tmp_path / "p=a"
    (place / "delta_0000001_0000001_0000").mkdir(parents=True)
    (place / "delta_0000001_0000001_0000" / "bucket_00000").write_bytes(b"ORC")
    before = partition_at(place, "d.t:1:9223372036854775807::")
    copy = Secondary(location="file:/copy", source=before.mark, snapshot=before.write_ids)
    assert before.has_current(copy)
    # 2 wrote to another partition.
    assert partition_at(place, "d.t:2:9223372036854775807::").has_current(copy)
    # Hive 3 truncates so, with write id 3, of which nothing remains in the directory.
    shutil.rmtree(place / "delta_0000001_0000001_0000")
    truncated = partition_at(place, "d.t:3:9223372036854775807::")
    assert not truncated.has_current(copy)
    empty = Secondary(location="file:/empty", source=truncated.mark, snapshot=truncated.write_ids)
    assert truncated.has_current(empty)


def test_files_of_streaming_writers_count_as_far_as_they_are_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "p=a"
    delta = place / "delta_0000001_0000004"
    delta.mkdir(parents=True)
    flushed = {"bucket_00000": 5, "bucket_00001": 0, "bucket_00002": None}
    for name, length in flushed.items():
        (delta / name).write_bytes(b"0123456789")
        if length is not None:
            (delta / f"{name}_flush_length").write_bytes(struct.pack(">qq", 0, length))

    def sizes() -> dict[str, int]:
        partition = partition_at(place, "d.t:4:2:2,3:4")
        assert {f"{delta.name}/{name}" for name in growing} == partition.growing
        return {file.path.rpartition("/")[2]: file.size_bytes for file in partition.files}

    growing = ["bucket_00000", "bucket_00001"]
    assert sizes() == {"bucket_00000": 5, "bucket_00002": 10}
    # A writer that has closed the file after the listing has appended before, and removed the side file.
    read = acid_snapshots.read_flushed_length

    def closed(uri: str, options: object) -> int | None:
        name = uri.rpartition("/")[2].removesuffix("_flush_length")
        with (delta / name).open("ab") as file:
            file.write(b"more")
        (delta / f"{name}_flush_length").unlink()
        return read(uri, None)

    monkeypatch.setattr(acid_snapshots, "read_flushed_length", closed)
    assert sizes() == {"bucket_00000": 14, "bucket_00001": 14, "bucket_00002": 10}


@pytest.mark.parametrize(
    ("names", "refusal"),
    [
        (
            ["delta_0000001_0000004/bucket_00000"],
            "delta_0000001_0000004 mixes committed with other write ids",
        ),
        # Hive's compactor leaves the rows of aborted write ids out.
        (["delta_0000001_0000004_v0000009/bucket_00000"], ""),
        (
            ["delta_0000001_0000002/bucket_00000", "delta_0000001_0000002/bucket_00000_flush_length"],
            "a writer has delta_0000001_0000002/bucket_00000 open",
        ),
    ],
)
def test_files_of_an_insert_only_table_are_copied_if_all_of_their_rows_count(
    names: list[str], refusal: str, tmp_path: Path
) -> None:
    """Their rows have no write ids, so that readers of a copy could leave none out."""
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(struct.pack(">q", 4))

    def files(**parameters: str) -> list[str]:
        partition = partition_at(tmp_path, "d.t:4:9223372036854775807::3", **parameters)
        return [file.path for file in partition.files]

    assert files() == names[:1]
    expected = pytest.raises(CopyRefusedError, match=refusal) if refusal else nullcontext()
    with expected:
        assert files(transactional_properties="insert_only") == names[:1]
