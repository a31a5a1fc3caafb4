"""The target's directories of a table are listed with few listings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.replication.format.tables import PartitionLine, TableDocument
from airflow_hive_federation.replication.load.target_files import content_there
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.layout import TargetLayout
from airflow_hive_federation.storage import listing
from airflow_hive_federation.storage.filesystem import canonical
from tests.support.dumps import manifest

DOCUMENT = TableDocument(
    table=types.Table(
        dbName="d",
        tableName="t",
        partitionKeys=[types.FieldSchema(name="p", type="string")],
        parameters={"transactional": "true"},
        sd=types.StorageDescriptor(location="file:/src/t"),
    ),
    kind=TableKind.FULL_ACID,
)
PARTITIONS = 20


@pytest.fixture
def layout(tmp_path: Path) -> TargetLayout:
    """The partitions of a table on the target have a delta with one file, and an empty base."""
    policy = ReplicationPolicy(name="p", source_database="d", dump_root=f"file:{tmp_path}/dumps")
    for number in range(PARTITIONS):
        place(tmp_path / "w" / "t" / f"p={number}")
    return TargetLayout(policy=policy, managed=f"file:{tmp_path}/w")


def place(directory: Path) -> None:
    delta = directory / "delta_0000001_0000001_0000"
    delta.mkdir(parents=True)
    (delta / "bucket_00000").touch()
    (directory / "base_0000002").mkdir()


@pytest.fixture
def dump(tmp_path: Path) -> DumpDirectory:
    made = DumpDirectory(f"file:{tmp_path}/dumps/p/1-2-3")
    made.write_table(DOCUMENT)
    made.write_partitions("t", [line(number) for number in range(PARTITIONS)])
    made.finish_dump(manifest(TableEntry(name="t", kind=DOCUMENT.kind, partitions=PARTITIONS)))
    return made


def line(number: int) -> PartitionLine:
    storage = types.StorageDescriptor(location=f"file:/src/t/p={number}")
    return PartitionLine.of(f"p={number}", types.Partition(values=[str(number)], sd=storage, parameters={}))


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The directories that were listed, each with all below it."""
    uris: list[str] = []
    list_local = listing._list_local

    def noting(uri: str, root: str) -> list[Any]:
        uris.append(uri)
        return list_local(uri, root)

    monkeypatch.setattr(listing, "_list_local", noting)
    return uris


@pytest.mark.parametrize(("count", "listings"), [(1, 1), (10, 10), (11, 1), (20, 1)])
def test_partitions_are_listed_one_by_one_or_by_one_listing(
    layout: TargetLayout, dump: DumpDirectory, listed: list[str], count: int, listings: int
) -> None:
    whole = content_there(dump, layout, DOCUMENT, None, total=PARTITIONS)
    assert (len(whole.files), len(whole.empty), listed) == (20, 20, [f"{layout.managed}/t"])
    listed.clear()
    names = {f"p={number}" for number in range(count)}
    part = content_there(dump, layout, DOCUMENT, names, total=PARTITIONS)
    assert len(listed) == listings
    places = tuple(f"{canonical(layout.managed)}/t/{name}/" for name in names)
    assert part.files == {uri: entry for uri, entry in whole.files.items() if uri.startswith(places)}
    assert sorted(part.empty) == sorted(uri for uri in whole.empty if uri.startswith(places))


def test_a_partition_outside_of_the_table_has_a_listing_of_its_own(
    layout: TargetLayout, dump: DumpDirectory, listed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Today, no layout puts a managed partition there."""
    elsewhere = canonical(f"{layout.managed}/elsewhere")
    directory = TargetLayout.directory

    def moved(self: TargetLayout, document: TableDocument, location: str, partition: str) -> str:
        return elsewhere if partition == "p=1" else directory(self, document, location, partition)

    monkeypatch.setattr(TargetLayout, "directory", moved)
    place(Path(elsewhere.removeprefix("file:")))
    part = content_there(dump, layout, DOCUMENT, {"p=0", "p=1"}, total=2)
    assert listed == [canonical(f"{layout.managed}/t"), elsewhere]
    assert sorted(uri.rpartition("/delta")[0] for uri in part.files) == sorted(
        [elsewhere, canonical(f"{layout.managed}/t/p=0")]
    )
