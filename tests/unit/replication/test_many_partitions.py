"""A table's partitions are dumped, loaded and compared in pages: memory does not grow with them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.errors import TargetChangedError
from airflow_hive_federation.metastore.calls import partitions as partition_calls
from airflow_hive_federation.metastore.calls.partitions import PartitionCalls
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.replication.dump import contents
from airflow_hive_federation.replication.dump.contents import visible_files
from airflow_hive_federation.replication.dump.tables import write_files, write_partitions
from airflow_hive_federation.replication.format import directory as dump_directory
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import DataLocation
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.load import convergence
from airflow_hive_federation.replication.load.convergence import TableConvergence
from airflow_hive_federation.replication.metadata import statistics
from airflow_hive_federation.replication.metadata.table_locations import TableLocations
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.layout import TargetLayout
from tests.support.dumps import manifest

POLICY = ReplicationPolicy(name="p", source_database="d", dump_root="file:/nowhere")
SOURCE, TARGET = "file:/source/d.db/t", "file:/target/d.db/t"
WRITE_IDS = ValidWriteIds(table="d.t", high_watermark=1)
PAGE = 50
#: A partition's name takes some 500 bytes while names are divided into pages, and garbage that waits for the
#: collector some more; a partition as a whole takes thousands.
NAME_BYTES = 1_000


def storage(location: str) -> types.StorageDescriptor:
    columns = [types.FieldSchema(name=f"c{number}", type="string") for number in range(5)]
    return types.StorageDescriptor(
        cols=columns, location=location, serdeInfo=types.SerDeInfo(parameters={}), parameters={}
    )


def table() -> types.Table:
    keys = [types.FieldSchema(name="p", type="int")]
    parameters = {"transactional": "true", "transactional_properties": "default"}
    return types.Table(
        dbName="d", tableName="t", sd=storage(SOURCE), partitionKeys=keys, parameters=parameters
    )


class Metastore(PartitionCalls):
    """Has partitions ``p=0`` to ``p=<count - 1>``, each made when it is read."""

    def __init__(self, count: int, root: str = SOURCE) -> None:
        self._count, self._root = count, root
        self.added = self.altered = 0

    def get_table(self, *_: Any, **__: Any) -> types.Table:
        return table()

    def list_partition_names(self, *_: Any) -> list[str]:
        return [f"p={number}" for number in range(self._count)]

    def find_partitions(self, _: str, __: str, where: str) -> list[types.Partition]:
        low, high = (int(part.split("= ")[1]) for part in where.split(" and "))
        return [self._partition(number) for number in range(low, high + 1)]

    def call(self, method: str, *arguments: Any) -> Any:
        if method == "get_num_partitions_by_filter":
            return len(self.find_partitions(*arguments))
        if method == "get_partitions_statistics_req":
            return types.PartitionsStatsResult(partStats={})
        assert method == "get_partitions_by_names_req", method
        numbers = [int(name.removeprefix("p=")) for name in arguments[0].names]
        return types.GetPartitionsByNamesResult(partitions=[self._partition(number) for number in numbers])

    def add_partitions(self, partitions: Any, **_: Any) -> None:
        self.added += len(partitions)

    def alter_partitions(self, _: str, __: str, partitions: Sequence[Any], **___: Any) -> None:
        self.altered += len(partitions)

    def _database_name(self, database: str) -> str:
        return database

    def _processor(self) -> dict[str, Any]:
        return {}

    def _catalog(self) -> str:
        return "hive"

    def _partition(self, number: int) -> types.Partition:
        return types.Partition(
            dbName="d",
            tableName="t",
            values=[str(number)],
            sd=storage(f"{self._root}/p={number}"),
            parameters={"numFiles": "1", "COLUMN_STATS_ACCURATE": '{"BASIC_STATS":"true"}'},
            writeId=1,
        )


def dumped(root: Path, count: int) -> DumpDirectory:
    """A dump of so many partitions with a file each."""
    directory = DumpDirectory(f"file:{root}/{count}")
    places = write_partitions(directory, table(), statistics.iter_partitions(Metastore(count), table()))  # type: ignore[arg-type]
    assert places.partitions == count
    files = visible_files(table(), places, WRITE_IDS, ValidTxns(high_watermark=1))
    assert write_files(directory, "t", files).files == count
    directory.write_functions([])
    directory.finish_dump(manifest())
    return directory


def document() -> TableDocument:
    return TableDocument(table=table(), kind=TableKind.FULL_ACID, write_ids=WRITE_IDS)


def loaded(directory: DumpDirectory, count: int) -> None:
    target = Metastore(0)
    layout = TargetLayout(policy=POLICY, managed=TARGET.removesuffix("/t"))
    convergence = TableConvergence(
        target,  # type: ignore[arg-type]
        layout,
        directory,
        document=document(),
        parameters={},
        tables={"t"},
    )
    assert convergence._create_partitions() == target.added == count


def compared(directory: DumpDirectory, count: int) -> None:
    """As an increment does with a table of which nothing but statistics has changed."""
    target = Metastore(count, TARGET)
    layout = TargetLayout(policy=POLICY, managed=TARGET.removesuffix("/t"))
    convergence = TableConvergence(
        target,  # type: ignore[arg-type]
        layout,
        directory,
        document=document(),
        parameters={},
        tables={"t"},
    )
    assert convergence._stale_partitions() == set()
    convergence._shape_partitions()
    convergence._describe_partitions(WRITE_IDS.text())
    assert (target.added, target.altered) == (0, 0)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_file_each(uris: Sequence[str], **_: Any) -> dict[str, list[FileEntry]]:
        return {
            uri: [FileEntry(path="delta_0000001_0000001_0000/bucket_00000", size_bytes=1)] for uri in uris
        }

    for module in (partition_calls, convergence):
        monkeypatch.setattr(module, "page_size", lambda *_, **__: PAGE)
    monkeypatch.setattr(contents, "_PLACES_AT_A_TIME", PAGE)
    monkeypatch.setattr(dump_directory, "_LINES_AT_A_TIME", PAGE)
    monkeypatch.setattr(contents, "list_many", one_file_each)


def peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def steps(root: Path, count: int) -> Iterator[int]:
    """Most bytes in memory while so many partitions are dumped, loaded, compared."""
    yield peak(lambda: dumped(root, count))
    directory = DumpDirectory(f"file:{root}/{count}")
    yield peak(lambda: loaded(directory, count))
    yield peak(lambda: compared(directory, count))


def test_a_table_of_many_partitions_takes_little_more_memory_than_one_of_few(tmp_path: Path) -> None:
    # A module keeps some memory for good from its first use on, which belongs to no partition.
    for _ in steps(tmp_path, PAGE + 1):
        pass
    few, many = 2 * PAGE, 6 * PAGE
    for before, after in zip(steps(tmp_path, few), steps(tmp_path, many), strict=True):
        assert (after - before) / (many - few) < NAME_BYTES, (before, after)


def test_a_partition_that_is_dropped_during_a_load_is_named(tmp_path: Path) -> None:
    layout = TargetLayout(policy=POLICY, managed=TARGET.removesuffix("/t"))
    convergence = TableConvergence(
        Metastore(PAGE, TARGET),  # type: ignore[arg-type]
        layout,
        dumped(tmp_path, PAGE + 1),
        document=document(),
        parameters={},
        tables={"t"},
    )
    with pytest.raises(TargetChangedError, match=rf"Partition p={PAGE} of d\.t"):
        convergence._describe_partitions(WRITE_IDS.text())


def test_places_are_those_of_the_partitions() -> None:
    locations = {
        "1": f"{SOURCE}/p=1",
        "a/ü": f"{SOURCE}/p=a%2Fü",
        "2": "file:/elsewhere",
        "3": f"{SOURCE}/three",
    }
    places = TableLocations(
        table(),
        (
            types.Partition(values=[value], sd=types.StorageDescriptor(location=location))
            for value, location in locations.items()
        ),
    )
    assert list(places) == [
        DataLocation(partition="p=1", location=f"{SOURCE}/p=1"),
        DataLocation(partition="p=a%2Fü", location=f"{SOURCE}/p=a%2Fü"),
        DataLocation(partition="p=2", location="file:/elsewhere"),
        DataLocation(partition="p=3", location=f"{SOURCE}/three"),
    ]
    assert [place.partition for place in places.outside()] == ["p=2"]
    assert not places.apart
    assert list(places.names()) == [place.partition for place in places]


def test_a_table_without_partitions_has_its_own_place() -> None:
    table = types.Table(sd=types.StorageDescriptor(location=SOURCE), partitionKeys=[])
    assert list(TableLocations(table)) == [DataLocation(partition="", location=SOURCE)]
    assert TableLocations(table).apart
    assert list(TableLocations(types.Table(partitionKeys=[]))) == []
