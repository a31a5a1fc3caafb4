"""A load records the times of the files that it has placed, and is not published without one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.errors import FileVanishedError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import DataLocation, VisibleFile
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.load.survey import note_placed
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.layout import TargetLayout
from tests.support.dumps import manifest


@pytest.mark.parametrize("kind", [TableKind.EXTERNAL, TableKind.MANAGED])
def test_a_file_that_was_copied_and_is_gone_stops_the_load(kind: TableKind, tmp_path: Path) -> None:
    source = "hdfs://nn/lake/t"
    storage = types.StorageDescriptor(location=source)
    table = types.Table(dbName="d", tableName="t", sd=storage, parameters={}, partitionKeys=[])
    places = (DataLocation(partition="", location=source),) if kind is TableKind.EXTERNAL else ()
    document = TableDocument(table=table, kind=kind, places=places)
    directory = DumpDirectory(f"file:{tmp_path}/dump")
    directory.write_table(document)
    directory.write_files(
        "t",
        [
            VisibleFile(
                directory=source, partition="", path=path, target_path=path, size_bytes=3, modified_ns=1
            )
            for path in ("a", "sub/b")
        ],
    )
    directory.finish_dump(manifest())
    policy = ReplicationPolicy(
        name="p", source_database="d", dump_root=f"file:{tmp_path}", external_base=f"file:{tmp_path}/ext"
    )
    layout = TargetLayout(policy=policy, managed=f"file:{tmp_path}/managed")
    root = Path(layout.directory(document, source, "").removeprefix("file:"))
    (root / "sub").mkdir(parents=True)
    for path in ("a", "sub/b"):
        (root / path).write_text("abc", encoding="utf-8")
    note_placed(DumpDirectory(directory.uri), layout, document)
    assert set(DumpDirectory(directory.uri).placed_times("t")) == {f"file:{root}/a", f"file:{root}/sub/b"}
    (root / "sub" / "b").unlink()
    with pytest.raises(FileVanishedError, match="sub/b of table t was copied, and is gone") as error:
        note_placed(DumpDirectory(directory.uri), layout, document)
    assert error.value.facts["path"] == f"file:{root}/sub/b"
