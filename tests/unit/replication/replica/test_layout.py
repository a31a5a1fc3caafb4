"""The copy items of a dump's files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.layout import TargetLayout

SOURCE = "hdfs://nn/w/t"
POLICY = ReplicationPolicy(
    name="p", source_database="d", dump_root="file:/dumps", external_base="hdfs://far/ext"
)
FILE = VisibleFile(
    directory=SOURCE,
    partition="",
    path="delta_0000001_0000001_0000/bucket_00000",
    target_path="delta_0000001_0000001_0000/bucket_00000",
    size_bytes=3,
    modified_ns=7,
)


@pytest.mark.parametrize(
    ("kind", "file", "modified_ns"),
    [
        (TableKind.FULL_ACID, FILE, 7),
        (TableKind.INSERT_ONLY, FILE, 7),
        (TableKind.FULL_ACID, replace(FILE, filtered=True), 0),
        (TableKind.FULL_ACID, replace(FILE, side_file=f"{FILE.path}_flush_length"), 0),
        (TableKind.MANAGED, FILE, 0),
        (TableKind.EXTERNAL, FILE, 0),
    ],
)
def test_only_files_that_never_change_are_copied_by_their_time(
    kind: TableKind, file: VisibleFile, modified_ns: int
) -> None:
    table = types.Table(dbName="d", tableName="t", sd=types.StorageDescriptor(location=SOURCE))
    write_ids = ValidWriteIds(table="d.t", high_watermark=1) if kind.transactional else None
    document = TableDocument(table=table, kind=kind, write_ids=write_ids)
    layout = TargetLayout(policy=POLICY, managed="hdfs://far/w")
    assert layout.item(document, file).modified_ns == modified_ns
