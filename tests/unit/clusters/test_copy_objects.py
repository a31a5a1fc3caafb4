"""Objects to copy: whether a copy has the rows of a snapshot of the primary."""

from __future__ import annotations

import shutil
from pathlib import Path

from airflow_hive_federation.clusters.copies.objects import CopyObject, copy_objects
from airflow_hive_federation.clusters.metadata import Secondary
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.transactions.snapshots import Snapshot


def partition_at(place: Path, write_ids: str) -> CopyObject:
    table = types.Table(
        dbName="d",
        tableName="t",
        partitionKeys=[types.FieldSchema(name="p", type="string")],
        parameters={"transactional": "true"},
    )
    storage = types.StorageDescriptor(location=f"file:{place}")
    snapshot = Snapshot(write_ids=ValidWriteIds.parse(write_ids), txns=ValidTxns.everything())
    (one,) = copy_objects(table, {"p=a": types.Partition(values=["a"], sd=storage)}, None, snapshot)
    return one


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
