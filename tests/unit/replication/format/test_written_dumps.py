"""Documents of dumps as they lie on disks: each is read, and written again without a change.

The plan and the results of the verification job are among them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from airflow_hive_federation.replication.format.files import CopiedFile, PlacedTime, VisibleFile
from airflow_hive_federation.replication.format.job_records import SidePlan, SideRows
from airflow_hive_federation.replication.format.manifest import (
    FinishedLoad,
    Manifest,
    RepairPlan,
    SourceEvent,
    TableEntry,
)
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
CHANGED = {**ENTRY, "dump": "/dumps/shop/7-8-10", "work": "continue", **CHANGES}
SOME = {**CHANGED, "concerned": ["p=1", "p=2"], "rest": ["/dumps/shop/7-7-9"], "unsettled": ["p=1"]}
MEND = {"tables": ["t"], "replaced": [], "files": ["s3://b/x"], "database": False}
BOOTSTRAP = {
    "adopted": ["t"],
    "dumped_files": 2,
    "event_id": 7,
    "files": {"tables/t.json": DIGEST},
    "format": 2,
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
    "format": 2,
    "from_id": 7,
    "functions_changed": False,
    "functions_gone": ["f"],
    "kind": "INCREMENT",
    "last_event": None,
    "lease": 10,
    "lost": False,
    "mend": MEND,
    "open_writes": [[3, {"t": 6}], [4, {"t": 7, "u": 1}]],
    "partitions": 3,
    "policy": POLICY,
    "previous": "/dumps/shop/7-1",
    "begun": ["/dumps/shop/7-8-9"],
    "retained": ["v"],
    "skipped": {"v": "it is a materialized view"},
    "tables": [
        CHANGED,
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
    "snapshots": [["hdfs://nn/d/t", "hdfs://nn/d/.snapshot/s-1/t"]],
    "table": {"tableName": "t", "dbName": "d", "sd": STORAGE, "partitionKeys": [{"name": "p"}]},
    "write_ids": "d.t:7:5:5:6",
}
PARTITION: dict[str, Any] = {
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


SIDE = {
    "side": "source",
    "kind": "full_acid",
    "table": TABLE["table"],
    "write_ids": "d.t:7:5:5:6",
    "storages": [{"cols": [], "inputFormat": "x", "serdeInfo": {"serializationLib": "", "parameters": {}}}],
    "directories": [["hdfs://nn/d/t", None, [["a", 1]]], ["hdfs://nn/elsewhere", 0, []]],
    "row_digests": True,
}
ROWS = {"table": "t", "side": "target", "rows": 7, "row_digest": "9", "not_counted": "no reader"}
UNREAD = {"table": "t", "side": "target", "rows": None, "unreadable": "File a is gone.", "vanished": True}

Read = Callable[[object], Any]
DOCUMENTS: list[tuple[dict[str, Any], Read]] = [
    (BOOTSTRAP, Manifest.from_json),
    (INCREMENT, Manifest.from_json),
    (CHANGED, TableEntry.from_json),
    (SOME, TableEntry.from_json),
    (LAST_EVENT, SourceEvent.from_json),
    (MEND, RepairPlan.from_json),
    (TABLE, TableDocument.from_json),
    (PARTITION, PartitionLine.from_json),
    (FILE, VisibleFile.from_json),
    ({"database": "d", "event_id": 7}, FinishedLoad.from_json),
    ({"database": "d", "adopted": True}, FinishedLoad.from_json),
    ({"uri": "file:/t/a", "digest": DIGEST}, CopiedFile.from_json),
    ({"uri": "file:/t/a", "modified_ns": 7}, PlacedTime.from_json),
    (SIDE, SidePlan.from_json),
    (ROWS, SideRows.from_json),
    (UNREAD, SideRows.from_json),
]
COUNTS = {
    Manifest.from_json: ["event_id", "lease", "partitions", "from_id", "events", "transactions"],
    TableEntry.from_json: ["partitions", "files", "size_bytes", "reached", "seed", "writes"],
}
NAMES = {
    Manifest.from_json: ["adopted", "retained", "dropped", "functions_gone"],
    TableEntry.from_json: ["renewed", "gone", "concerned", "unsettled"],
    RepairPlan.from_json: ["tables", "replaced"],
}


def named(value: object) -> str:
    return getattr(value, "__qualname__", "")


@pytest.mark.parametrize(
    ("document", "read"),
    [
        *DOCUMENTS,
        ({**TABLE, "write_ids": None, "places": [], "constraints": {}}, TableDocument.from_json),
    ],
    ids=named,
)
def test_a_document_is_written_as_it_was_read(document: Any, read: Read) -> None:
    assert json.loads(json.dumps(read(json.loads(json.dumps(document))).to_json())) == document


@pytest.mark.parametrize(
    ("document", "read", "field"),
    [(document, read, name) for document, read in DOCUMENTS for name in document],
    ids=lambda value: value if isinstance(value, str) else named(value),
)
def test_a_field_of_another_type_is_refused(document: dict[str, Any], read: Read, field: str) -> None:
    with pytest.raises(ValueError, match=r"1\.5"):
        read({**document, field: 1.5})


@pytest.mark.parametrize("field", ["values", "sd", "createTime"])
def test_a_field_of_a_partition_of_another_type_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=r"partition: .*1\.5"):
        PartitionLine.from_json({**PARTITION, "partition": {**PARTITION["partition"], field: 1.5}})


@pytest.mark.parametrize(
    ("read", "field", "value"),
    [
        *((read, field, -1) for read, fields in COUNTS.items() for field in fields),
        *((read, field, [".."]) for read, fields in NAMES.items() for field in fields),
        (Manifest.from_json, "skipped", {"v": 1}),
        (Manifest.from_json, "unreadable", [1]),
    ],
    ids=lambda value: value if isinstance(value, str) else named(value),
)
def test_a_number_or_name_that_no_dump_has_is_refused(read: Read, field: str, value: object) -> None:
    documents = [document for document, reader in DOCUMENTS if reader == read and field in document]
    for document in documents:
        with pytest.raises(ValueError, match=f"{field}: "):
            read({**document, field: value})
    assert documents


def test_a_file_without_later_fields_is_read() -> None:
    later = {"filtered", "kept", "side_file"}
    assert VisibleFile.from_json({name: value for name, value in FILE.items() if name not in later}) == (
        VisibleFile.from_json(FILE)
    )


def test_a_dump_of_the_first_format_is_read() -> None:
    assert Manifest.from_json({**INCREMENT, "format": 1}) == Manifest.from_json(INCREMENT)


def test_a_table_that_refers_to_other_dumps_names_the_partitions_of_its_own() -> None:
    without = {name: value for name, value in SOME.items() if name != "concerned"}
    with pytest.raises(ValueError, match="rest: it refers to other dumps"):
        TableEntry.from_json(without)


def test_an_increment_of_before_reasons_were_recorded_is_read() -> None:
    assert Manifest.from_json({**INCREMENT, "skipped": ["v"]}).skipped == {}
