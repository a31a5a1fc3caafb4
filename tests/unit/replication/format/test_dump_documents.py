"""Each document of a dump is refused where a name or path in it leads elsewhere, or has another type."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.errors import ConfigurationError, DumpCorruptError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import DataLocation, VisibleFile
from airflow_hive_federation.replication.format.kinds import DumpKind, TableKind, TableWork
from airflow_hive_federation.replication.format.manifest import TableChanges, TableEntry
from airflow_hive_federation.replication.format.tables import EndedTransaction, PartitionLine, TableDocument
from airflow_hive_federation.replication.load.whole_dump import check_dump
from airflow_hive_federation.replication.metadata import external_tables
from airflow_hive_federation.replication.metadata.external_tables import ExternalEntry
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.layout import TargetLayout
from airflow_hive_federation.storage.plan_files import read_plan, write_plan
from airflow_hive_federation.storage.snapshot_paths import SnapshotPath
from airflow_hive_federation.storage.sources import SourceRoots
from tests.support.dumps import manifest
from tests.support.tampering import DEEP, Edit, at, tamper

OUT = "../../../outside"
TABLE, PARTITION, FILE = "tables/t.json", "partitions/t.jsonl", "files/t.jsonl"
DIGEST = "0" * 64
#: URIs that are not those of the table's directory in a snapshot.
OTHER_SNAPSHOTS = (
    "hdfs://nn/d/t",
    "hdfs://nn/d/.snapshot/s-1",
    "hdfs://nn/d/.snapshot/s-1/u",
    "hdfs://nn/d/.snapshot",
    "hdfs://other/d/.snapshot/s-1/t",
    "file:/d/.snapshot/s-1/t",
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An increment's dump with one of each document: it has all that a bootstrap's has, and more."""
    path = tmp_path_factory.mktemp("written") / "dump"
    directory = DumpDirectory(f"file:{path}")
    directory.write_database(types.Database(name="d"))
    jar = types.ResourceUri(resourceType=1, uri="hdfs://nn/udf.jar")
    directory.write_functions([types.Function(functionName="f", dbName="d", resourceUris=[jar])])
    table = types.Table(
        dbName="d",
        tableName="t",
        sd=types.StorageDescriptor(location="hdfs://nn/d/t"),
        partitionKeys=[types.FieldSchema(name="p", type="string")],
    )
    directory.write_table(
        TableDocument(
            table=table,
            kind=TableKind.EXTERNAL,
            places=(DataLocation(partition="", location="hdfs://nn/d/t"),),
            snapshots={"hdfs://nn/d/t": SnapshotPath(root="hdfs://nn/d", name="s-1", path="t")},
        )
    )
    partition = types.Partition(values=["1"], sd=types.StorageDescriptor(location="hdfs://nn/d/t/p=1"))
    directory.write_partitions("t", [PartitionLine.of("p=1", partition)])
    inside = "p=1/a"
    file = VisibleFile(
        directory="hdfs://nn/d/t", partition="", path=inside, target_path=inside, size_bytes=1, modified_ns=1
    )
    directory.write_files("t", [file])
    directory.write_writes("t", [(1, 1)])
    directory.write_ends([EndedTransaction(1, True, 1)])
    entry = ExternalEntry(table="t", location="hdfs://nn/d/t")
    directory.write_text(external_tables.FILE_NAME, external_tables.to_text([entry]))
    external = TableEntry(
        name="t",
        kind=TableKind.EXTERNAL,
        partitions=1,
        files=1,
        size_bytes=1,
        work=TableWork.CONTINUE,
        recorded_changes=TableChanges(writes=1),
    )
    directory.finish_dump(
        manifest(
            external, kind=DumpKind.INCREMENT, from_id=1, event_id=2, previous=f"file:{path.parent}/before"
        )
    )
    check_dump(DumpDirectory(directory.uri), SourceRoots())
    return path


@pytest.fixture
def dump(written: Path, tmp_path: Path) -> Path:
    """A dump of the test's own, which it may change."""
    return Path(shutil.copytree(written, tmp_path / "dump"))


def names(document: str, *path: str | int) -> list[tuple[str, Edit]]:
    """Texts that no name may be."""
    return [
        (document, at(*path, value=value))
        for value in ("..", OUT, "/etc", "a\0b", "a\nb", "", 7, None, ["a"], {"a": 1})
    ]


def paths(document: str, *path: str | int) -> list[tuple[str, Edit]]:
    """Texts that no path inside a directory may be."""
    return [
        (document, at(*path, value=value)) for value in ("..", OUT, "a/../../b", "/etc/passwd", "a\0b", "", 7)
    ]


def locations(document: str, *path: str | int) -> list[tuple[str, Edit]]:
    """Texts that no location may be."""
    wrong = ("hdfs://nn/d/../../x", "file:/..", "hdfs://nn/a\0b", "file://elsewhere/x", "relative", 7, ["a"])
    return [(document, at(*path, value=value)) for value in wrong]


TAMPERED = [
    *names("database.json", "name")[:-6],
    ("database.json", at("ownerName", value=7)),
    ("database.json", at("no_such_field", value=7)),
    *names("functions.jsonl", "functionName"),
    *locations("functions.jsonl", "resourceUris", 0, "uri"),
    ("functions.jsonl", at("resourceUris", 0, "uri", value="hdfs://nn/udfs/..")),
    ("functions.jsonl", at("resourceUris", 0, "uri", value="hdfs://nn/udfs/")),
    *names(TABLE, "table", "tableName"),
    *locations(TABLE, "table", "sd", "location"),
    *locations(TABLE, "places", 0, 1),
    *locations(TABLE, "snapshots", 0, 0),
    *locations(TABLE, "snapshots", 0, 1),
    *((TABLE, at("snapshots", 0, 1, value=value)) for value in OTHER_SNAPSHOTS),
    (TABLE, at("table", "tableName", value="u")),
    (TABLE, at("places", 0, 0, value="..")),
    (TABLE, at("kind", value="full_acid")),
    (TABLE, at("kind", value="none")),
    (TABLE, at("kind", value=["external"])),
    (TABLE, at("write_ids", value="d.t:many")),
    (TABLE, at("constraints", value=[])),
    (TABLE, lambda document: {key: value for key, value in document.items() if key != "kind"}),
    (TABLE, at("table", "sd", "cols", value=[{"name": 7}])),
    (TABLE, at("table", "partitionKeys", value=7)),
    *names(PARTITION, "name"),
    *locations(PARTITION, "partition", "sd", "location"),
    (PARTITION, at("name", value="p=1/..")),
    (PARTITION, at("name", value="p=2")),
    (PARTITION, at("partition", "values", value=["1", "2"])),
    (PARTITION, at("partition", "values", value="1")),
    (PARTITION, at("partition", "createTime", value="now")),
    (PARTITION, at("partition", "sd", value={})),
    (PARTITION, at("partition", "sd", "location", value="")),
    *locations(FILE, "directory"),
    *paths(FILE, "path"),
    *paths(FILE, "target_path"),
    (FILE, at("target_path", value="p=2/a")),
    (FILE, at("partition", value="..")),
    (FILE, at("kept", value="hdfs://nn/cm/../x")),
    (FILE, at("side_file", value=OUT)),
    (FILE, at("renamed_from", value=OUT)),
    (FILE, at("size_bytes", value=-1)),
    (FILE, at("size_bytes", value="1")),
    (FILE, at("size_bytes", value=True)),
    (FILE, at("filtered", value=1)),
    (FILE, at("more", value=1)),
    ("writes/t.jsonl", lambda _: [1, "2"]),
    ("writes/t.jsonl", lambda _: [1]),
    ("ends.jsonl", lambda _: [1, 1, 1]),
    ("ends.jsonl", lambda _: {"1": 1}),
    *names("_manifest.json", "tables", 0, "name"),
    *locations("_manifest.json", "tables", 0, "dump"),
    *locations("_manifest.json", "previous"),
    ("_manifest.json", at("begun", value=["file:/a/../b"])),
    ("_manifest.json", at("tables", 0, "work", value="none")),
    ("_manifest.json", at("tables", 0, "gone", value=[".."])),
    ("_manifest.json", at("tables", 0, "renewed", value="p=1")),
    ("_manifest.json", at("tables", value={})),
    ("_manifest.json", at("dropped", value=[OUT])),
    ("_manifest.json", at("functions_gone", value=["a/b"])),
    ("_manifest.json", at("open_writes", value=[[1, {"..": 1}]])),
    ("_manifest.json", at("mend", value={"files": ["file:/a/../b"]})),
    ("_manifest.json", at("open_writes", value=[7])),
    ("_manifest.json", at("open_writes", value=[[1]])),
    ("_manifest.json", lambda document: {key: value for key, value in document.items() if key != "files"}),
    ("_manifest.json", at("event_id", value="2")),
    ("_manifest.json", at("files", value={OUT: DIGEST})),
    ("_manifest.json", at("files", value={TABLE: "x"})),
    *((name, lambda _: DEEP) for name in ("database.json", TABLE, PARTITION, FILE, "ends.jsonl")),
    ("_manifest.json", lambda _: DEEP),
    *((name, lambda _: [1]) for name in ("database.json", TABLE, PARTITION, FILE, "_manifest.json")),
    *((name, lambda _: None) for name in ("database.json", TABLE, PARTITION, FILE, "_manifest.json")),
]


@pytest.mark.parametrize("number", range(len(TAMPERED)), ids=lambda n: f"{n}-{TAMPERED[n][0]}")
def test_a_tampered_document_is_named(dump: Path, number: int) -> None:
    name, edit = TAMPERED[number]
    tamper(dump, name, edit)
    with pytest.raises(DumpCorruptError) as caught:
        check_dump(DumpDirectory(f"file:{dump}"), SourceRoots())
    assert caught.value.file == name
    assert caught.value.remedy
    if name.endswith(".jsonl"):
        assert "line 1" in str(caught.value)


@pytest.mark.parametrize(
    "line", ["t,!", "u,aGRmczovL25uL2Q=", "t,aGRmczovL25uLy4uL3g=", "t,cmVsYXRpdmU="], ids=range(4)
)
def test_a_tampered_list_of_external_directories_is_named(dump: Path, line: str) -> None:
    path = dump / external_tables.FILE_NAME
    path.write_text(f"{line}\n", encoding="utf-8")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    tamper(dump, "_manifest.json", at("files", path.name, value=digest))
    with pytest.raises(DumpCorruptError, match=path.name):
        check_dump(DumpDirectory(f"file:{dump}"), SourceRoots())


@pytest.mark.parametrize(
    ("name", "line", "read_record"),
    [
        ("digests", f'{{"uri": "file:/a/../b", "digest": "{DIGEST}"}}', DumpDirectory.digests),
        ("digests", '{"uri": "file:/a", "digest": 7}', DumpDirectory.digests),
        ("placed", '{"uri": "file:/a/../b", "modified_ns": 1}', DumpDirectory.placed_times),
        ("placed", '{"uri": "file:/a", "modified_ns": "1"}', DumpDirectory.placed_times),
    ],
)
def test_a_tampered_report_of_a_load_is_named(
    tmp_path: Path, name: str, line: str, read_record: Callable[[DumpDirectory, str], object]
) -> None:
    name = f"load/{name}/t.jsonl"
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(DumpCorruptError, match=f"{name}.*line 1"):
        read_record(DumpDirectory(f"file:{tmp_path}"), "t")


@pytest.mark.parametrize("text", [DEEP, b'{"database": ".."}', b'{"database": 7}', b"[1]", b"null"])
def test_a_tampered_acknowledgement_counts_for_nothing(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "_finished_load").write_bytes(text)
    assert not DumpDirectory(f"file:{tmp_path}").loaded_into


@pytest.mark.parametrize(
    "changes",
    [
        {"target": "file:/base/../outside"},
        {"source": "file:/base/.."},
        {"kept": "file:/base/../x"},
        {"target": "file:/a\0b"},
        {"target": 7},
        {"source": None},
        {"size_bytes": "1"},
        {"size_bytes": True},
        {"visible_write_ids": 7},
    ],
    ids=str,
)
def test_a_tampered_copy_plan_is_named(tmp_path: Path, changes: dict[str, Any]) -> None:
    uri = f"file:{tmp_path}/copy_plan.jsonl"
    write_plan(uri, [CopyItem(source="file:/s", target="file:/base/t", size_bytes=1)])
    assert len(list(read_plan(uri))) == 1
    tampered = CopyItem(**{"source": "file:/s", "target": "file:/base/t", "size_bytes": 1, **changes})
    write_plan(uri, [tampered])
    with pytest.raises(DumpCorruptError, match=r"copy_plan\.jsonl:1"):
        list(read_plan(uri))


def test_the_target_s_paths_lie_below_their_roots_whatever_was_checked_before() -> None:
    policy = ReplicationPolicy(
        name="p", source_database="d", dump_root="file:/dumps", external_base="file:/base"
    )
    layout = TargetLayout(policy=policy, managed="file:/warehouse/d.db")
    file = VisibleFile(
        directory="file:/d/t", partition="", path="a", target_path="", size_bytes=1, modified_ns=1
    )
    storage = types.StorageDescriptor(location="file:/d/t")
    document = TableDocument(table=types.Table(tableName="t", sd=storage), kind=TableKind.MANAGED)
    for name in ("", "..", "a/../..", "a\0b"):
        other = replace(document, table=types.Table(tableName=name, sd=storage))
        with pytest.raises(ConfigurationError):
            layout.directory(other, "file:/d/t", "")
    with pytest.raises(ConfigurationError):
        layout.file(document, file)
    with pytest.raises(ConfigurationError):
        layout.directory(document, "file:/elsewhere", "p=1/../../..")
    for function, uri in (
        ("..", "file:/a.jar"),
        ("f/g", "file:/a.jar"),
        ("f", "file:/.."),
        ("f", "file:/a/"),
    ):
        with pytest.raises(ConfigurationError):
            layout.resources(function, [uri])
