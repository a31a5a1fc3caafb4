"""Documents of dumps as they lie on disks: each is read, and written again without a change."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from airflow_hive_federation.replication.format.files import CopiedFile, PlacedTime, VisibleFile
from airflow_hive_federation.replication.format.manifest import FinishedLoad, Manifest
from airflow_hive_federation.replication.format.tables import PartitionLine, TableDocument

DIGEST = "0" * 64
POLICY = {"source_database": "shop", "dump_root": "/dumps", "name": "shop", "allowed_source_roots": []}
LAST_EVENT = {"id": 7, "time": 1700000000, "type": "COMMIT_TXN", "message": DIGEST}
ENTRY = {
    "name": "t",
    "kind": "full_acid",
    "partitions": 1,
    "partition_names": "ab",
    "reached": 5,
    "files": 2,
    "size_bytes": 3,
}
CHANGES = {"seed": 0, "writes": 1, "renewed": ["p=1"], "gone": ["p=2"]}
BOOTSTRAP = {
    "adopted": ["t"],
    "dumped_files": 2,
    "event_id": 7,
    "files": {"tables/t.json": DIGEST},
    "format": 1,
    "kind": "BOOTSTRAP",
    "last_event": LAST_EVENT,
    "lease": 9,
    "partitions": 1,
    "policy": POLICY,
    "size_bytes": 3,
    "skipped": {"v": "it is a materialized view"},
    "tables": [ENTRY],
}
INCREMENT = {
    "adopted": [],
    "dropped": ["u"],
    "event_id": 8,
    "events": 1,
    "files": {"tables/t.json": DIGEST},
    "format": 1,
    "from_id": 7,
    "functions_changed": False,
    "functions_gone": ["f"],
    "kind": "INCREMENT",
    "last_event": None,
    "lease": 10,
    "lost": False,
    "mend": {"tables": ["t"], "replaced": [], "files": ["s3://b/x"], "database": False},
    "open_writes": [[3, {"t": 6}], [4, {"t": 7, "u": 1}]],
    "partitions": 3,
    "policy": POLICY,
    "previous": "/dumps/shop/7-1",
    "retained": ["v"],
    "skipped": {"v": "it is a materialized view"},
    "tables": [
        {**ENTRY, "dump": "/dumps/shop/7-8-10", "work": "continue", **CHANGES},
        {**ENTRY, "name": "a", "dump": "/dumps/shop/7-1", "work": "nothing"},
        {**ENTRY, "name": "b", "dump": "/dumps/shop/5-6-7", "work": "nothing", **CHANGES},
    ],
    "transactions": 2,
    "unreadable": ["Event 8 cannot be read."],
}
STORAGE = {"location": "hdfs://nn/d/t", "cols": [{"name": "a", "type": "int"}], "numBuckets": -1}
TABLE = {
    "constraints": {"primaryKeys": [{"table_db": "d", "table_name": "t", "column_name": "a", "key_seq": 1}]},
    "kind": "external",
    "places": [["", "hdfs://nn/d/t"], ["p=1", "hdfs://nn/elsewhere"]],
    "table": {"tableName": "t", "dbName": "d", "sd": STORAGE, "partitionKeys": [{"name": "p"}]},
    "write_ids": "d.t:7:5:5:6",
}
PARTITION = {
    "name": "p=1",
    "partition": {"values": ["1"], "createTime": 3, "sd": STORAGE, "parameters": {"numRows": "1"}},
}
FILE = {
    "directory": "hdfs://nn/d/t",
    "filtered": False,
    "kept": "",
    "modified_ns": 1,
    "partition": "",
    "path": "base_0000005_v0000077/bucket_00000",
    "side_file": "",
    "size_bytes": 1,
    "target_path": "base_0000005/bucket_00000",
}


@pytest.mark.parametrize(
    ("document", "read"),
    [
        (BOOTSTRAP, Manifest.from_json),
        (INCREMENT, Manifest.from_json),
        (TABLE, TableDocument.from_json),
        ({**TABLE, "write_ids": None, "places": [], "constraints": {}}, TableDocument.from_json),
        (PARTITION, PartitionLine.from_json),
        (FILE, VisibleFile.from_json),
        ({"database": "d", "event_id": 7}, FinishedLoad.from_json),
        ({"database": "d", "adopted": True}, FinishedLoad.from_json),
        ({"uri": "file:/t/a", "digest": DIGEST}, CopiedFile.from_json),
        ({"uri": "file:/t/a", "modified_ns": 7}, PlacedTime.from_json),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_a_document_is_written_as_it_was_read(document: Any, read: Callable[[object], Any]) -> None:
    assert json.loads(json.dumps(read(json.loads(json.dumps(document))).to_json())) == document


def test_a_file_without_later_fields_is_read() -> None:
    later = {"filtered", "kept", "side_file"}
    assert VisibleFile.from_json({name: value for name, value in FILE.items() if name not in later}) == (
        VisibleFile.from_json(FILE)
    )


def test_an_increment_of_before_reasons_were_recorded_is_read() -> None:
    assert Manifest.from_json({**INCREMENT, "skipped": ["v"]}).skipped == {}
