"""Every document of a dump is refused if it lacks a field that it needs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_hive_federation.replication.format.files import (
    CopiedFile,
    PlacedTime,
    VisibleFile,
)
from airflow_hive_federation.replication.format.job_records import SidePlan, SideRows
from airflow_hive_federation.replication.format.kinds import TableKind, TableWork
from airflow_hive_federation.replication.format.manifest import (
    FinishedLoad,
    Manifest,
    TableChanges,
    TableEntry,
    UnknownFormatError,
)
from airflow_hive_federation.replication.format.tables import (
    PartitionLine,
    TableDocument,
)
from tests.support import dump_documents as dumps

VALUES: Mapping[str, tuple[st.SearchStrategy[Any], Callable[[object], Any]]] = {
    "manifest of a bootstrap": (dumps.bootstraps, Manifest.from_json),
    "manifest of an increment": (dumps.increments, Manifest.from_json),
    "acknowledgement": (st.builds(FinishedLoad, database=dumps.names), FinishedLoad.from_json),
    "table": (dumps.documents, TableDocument.from_json),
    "partition": (
        st.builds(PartitionLine.of, dumps.partitions, dumps.wire_partitions),
        PartitionLine.from_json,
    ),
    "file": (dumps.files(), VisibleFile.from_json),
    "digest": (st.builds(CopiedFile, uri=dumps.locations, digest=dumps.digests), CopiedFile.from_json),
    "placed time": (
        st.builds(PlacedTime, uri=dumps.locations, modified_ns=dumps.wholes),
        PlacedTime.from_json,
    ),
    "plan of a side": (dumps.sides, SidePlan.from_json),
    "rows": (dumps.rows | dumps.unreadable_rows, SideRows.from_json),
}
#: The fields without which a document is refused.
NEEDED = {
    "manifest of a bootstrap": {"kind", "policy", "event_id", "lease", "tables", "files"},
    "manifest of an increment": {
        "kind",
        "policy",
        "event_id",
        "lease",
        "tables",
        "files",
        "from_id",
        "previous",
    },
    "acknowledgement": {"database"},
    "table": {"table", "kind", "write_ids"},
    "partition": {"name", "partition"},
    "file": {"directory", "partition", "path", "target_path", "size_bytes", "modified_ns"},
    "digest": {"uri", "digest"},
    "placed time": {"uri", "modified_ns"},
    "plan of a side": {"side", "kind", "table", "write_ids", "storages", "directories"},
    "rows": {"table", "side", "rows"},
}


@pytest.mark.parametrize(
    ("kind", "field"), [(kind, name) for kind in NEEDED for name in sorted(NEEDED[kind])]
)
@settings(max_examples=3)
@given(data=st.data())
def test_a_document_without_a_field_that_it_needs_is_refused(
    kind: str, field: str, data: st.DataObject
) -> None:
    values, read = VALUES[kind]
    document = json.loads(json.dumps(data.draw(values).to_json()))
    del document[field]
    with pytest.raises(ValueError, match=f"it has no '{field}'"):
        read(document)


@pytest.mark.parametrize("version", [0, 3, "1", None, 1.5])
def test_a_manifest_of_another_version_is_refused(version: object) -> None:
    document = {"format": version, "kind": "BOOTSTRAP"}
    with pytest.raises(UnknownFormatError, match=f"format {version}"):
        Manifest.from_json(document)


def test_a_file_with_a_field_of_another_version_is_refused() -> None:
    file = VisibleFile(
        directory="file:/t", partition="", path="a", target_path="a", size_bytes=1, modified_ns=1
    )
    with pytest.raises(ValueError, match=r"unknown fields \['more'\]"):
        VisibleFile.from_json({**file.to_json(), "more": 1})


def test_an_unchanged_table_keeps_what_its_dump_wrote() -> None:
    """A later increment repeats the entry of a table, with the dump that describes it."""
    bootstrap = TableEntry(name="t", kind=TableKind.MANAGED, work=TableWork.NOTHING, dump="file:/d/1-2")
    assert bootstrap.to_json().keys().isdisjoint({"seed", "writes", "renewed", "gone"})
    increment = TableEntry(name="t", kind=TableKind.MANAGED, recorded_changes=TableChanges(gone=("p=1",)))
    assert increment.to_json()["gone"] == ["p=1"]
    assert TableEntry.from_json(increment.to_json()).changes == TableChanges(gone=("p=1",))
    assert TableEntry.from_json(bootstrap.to_json()).changes == TableChanges()
