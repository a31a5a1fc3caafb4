"""The partitions that an increment describes, and the tables that it describes as a whole."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model import events as ev
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.replication.dump.changed_partitions import ChangedPartitions, PartitionReader
from airflow_hive_federation.replication.dump.contents import visible_files
from airflow_hive_federation.replication.dump.directory_digests import (
    DirectoryDigests,
    directory_digest,
)
from airflow_hive_federation.replication.dump.event_fold import EventFold
from airflow_hive_federation.replication.dump.evidence import Evidence
from airflow_hive_federation.replication.dump.increment_plan import TablePlan
from airflow_hive_federation.replication.dump.source import ReplicatedSource
from airflow_hive_federation.replication.dump.tables import write_files, write_partitions
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableKind, TableWork
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.storage.listing import list_files
from tests.support.dumps import manifest

COUNT = 10
TRANSACTIONS = ValidTxns(high_watermark=100)
ENTRY = TableEntry(name="t", kind=TableKind.FULL_ACID)


def wire_table(root: Path, **parameters: str) -> types.Table:
    return types.Table(
        dbName="d",
        tableName="t",
        sd=types.StorageDescriptor(location=f"file:{root}/t"),
        partitionKeys=[types.FieldSchema(name="p", type="string")],
        parameters=parameters or {"transactional": "true", "transactional_properties": "default"},
    )


class Source:
    """A table of ten partitions with a file each, its dump, and a cycle after it."""

    def __init__(self, root: Path) -> None:
        self.root, self.table = root, wire_table(root)
        self.places = {str(number): f"file:{root}/t/p={number}" for number in range(COUNT)}
        for value in self.places:
            self.write(value, 1)
        self.dump("home")
        self.plan = TablePlan(
            work=TableWork.CONTINUE, write_ids=self.write_ids(2), reached=2, partitions=frozenset()
        )
        self.folded = EventFold(from_id=1, to_id=2, writes={"t": [(7, 2)]}, ends=[(7, 1)])
        self.begun: dict[str, frozenset[str] | None] = {}
        self.entry = ENTRY

    def dump(self, name: str) -> None:
        """Dump the table while the transaction of write id 2 is open."""
        self.home = DumpDirectory(f"file:{self.root}/{name}")
        places = write_partitions(self.home, self.table, self.partitions())
        digests = DirectoryDigests(self.write_ids(1), TRANSACTIONS)
        files = visible_files(self.table, places, self.write_ids(1), TRANSACTIONS, digests=digests)
        totals = write_files(self.home, "t", files, places=places, digests=digests)
        self.home.write_totals("t", totals.partitions)
        self.home.finish_dump(manifest(ENTRY))

    @staticmethod
    def write_ids(high: int) -> ValidWriteIds:
        return ValidWriteIds(table="d.t", high_watermark=high)

    def write(self, value: str, write_id: int) -> None:
        delta = self.root / f"t/p={value}/delta_{write_id:07}_{write_id:07}_0000"
        delta.mkdir(parents=True)
        (delta / "bucket_00000").write_text("x")

    def partitions(self) -> Iterator[types.Partition]:
        for value, location in self.places.items():
            yield types.Partition(
                dbName="d", tableName="t", values=[value], sd=types.StorageDescriptor(location=location)
            )

    # -- as a client -----------------------------------------------------------------------------------

    def iter_partitions(self, _: str, __: str, *, names: Sequence[str], **___: Any) -> Iterator[Any]:
        return (one for one in self.partitions() if f"p={one.values[0]}" in names)  # type: ignore[index]

    def read(self) -> ChangedPartitions | None:
        policy = ReplicationPolicy(
            name="p", source_database="d", dump_root="file:/nowhere", allowed_source_roots=["file:/"]
        )
        pool: Any = None
        reader = PartitionReader(
            source=ReplicatedSource(pool, policy),
            folded=self.folded,
            transactions=TRANSACTIONS,
            begun=self.begun,
            kept={},
        )
        client = cast("MetastoreClient", self)
        return reader.read(client, self.table, self.plan, self.entry, self.home)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    made = Source(tmp_path)
    made.write("3", 2)
    return made


def concerned(source: Source) -> set[str]:
    changed = source.read()
    assert changed is not None
    return set(changed.concerned)


def test_the_partition_of_a_commit_is_described(source: Source) -> None:
    changed = source.read()
    assert changed is not None
    assert [line.name for line in changed.lines] == ["p=3"]
    assert {file.path.partition("/")[0] for file in changed.files} == {
        "delta_0000001_0000001_0000",
        "delta_0000002_0000002_0000",
    }
    assert (len(changed.totals), changed.totals["p=3"].files, changed.totals["p=4"].files) == (COUNT, 2, 1)
    assert changed.rest == (source.home.uri,)
    assert not changed.losses


def test_partitions_of_events_of_open_transactions_and_of_killed_loads_are_described(source: Source) -> None:
    source.plan = replace(source.plan, partitions=frozenset({"p=1"}))
    source.entry = replace(ENTRY, unsettled=("p=2",))
    source.begun["t"] = frozenset({"p=4"})
    assert concerned(source) == {"p=1", "p=2", "p=3", "p=4"}


def test_a_partition_with_files_of_a_transaction_that_was_open_is_described(source: Source) -> None:
    source.write("7", 2)
    source.dump("later")
    changed = source.read()
    assert changed is not None
    assert changed.concerned == {"p=3", "p=7"}
    assert {file.path.partition("/")[0] for file in changed.files if file.partition == "p=7"} == {
        "delta_0000001_0000001_0000",
        "delta_0000002_0000002_0000",
    }


def test_a_described_partition_has_a_digest_unless_a_transaction_is_open(source: Source) -> None:
    changed = source.read()
    assert changed is not None
    listing = list_files(source.places["3"], empty_directories=True)
    assert changed.totals["p=3"].digest == directory_digest(listing)
    source.write("3", 3)
    changed = source.read()
    assert changed is not None
    assert changed.totals["p=3"].digest == ""


def test_a_partition_outside_of_its_default_directory_is_compared_where_it_lies(source: Source) -> None:
    shutil.rmtree(source.root / "t/p=5")
    source.places["5"] = f"file:{source.root}/apart"
    source.dump("later")
    assert concerned(source) == {"p=3"}
    (source.root / "apart/delta_0000002_0000002_0000").mkdir(parents=True)
    assert source.read() is None


def test_nothing_is_listed_without_a_commit(source: Source) -> None:
    source.folded = EventFold(from_id=1, to_id=2, writes={"t": [(7, 2)]}, ends=[(7, 0)])
    assert concerned(source) == set()


def forget_totals(source: Source) -> None:
    shutil.rmtree(source.root / "home")
    source.home = DumpDirectory(source.home.uri)
    source.home.finish_dump(manifest(ENTRY))


def totals_of_an_earlier_version(source: Source) -> None:
    forget_totals(source)
    lines = [[f"p={value}", 1, 1] for value in source.places]
    source.home.write_lines("partition_totals/t.jsonl", lines)
    source.home.finish_dump(manifest(ENTRY))


def whole_plan(source: Source) -> None:
    source.plan = replace(source.plan, partitions=None)


def killed_as_a_whole(source: Source) -> None:
    source.begun["t"] = None


def not_transactional(source: Source) -> None:
    source.table = wire_table(source.root, a="b")


def most_partitions(source: Source) -> None:
    source.plan = replace(source.plan, partitions=frozenset(f"p={number}" for number in range(6)))


def new_without_directory(source: Source) -> None:
    """A dump of the whole table refuses it."""
    source.folded = EventFold(from_id=1, to_id=2)
    source.plan = replace(source.plan, partitions=frozenset({"p=new"}))
    source.places["new"] = f"file:{source.root}/t/p=new"


def new_by_another_name(source: Source) -> None:
    """The name that an event gives a new partition is not the one by which the metastore finds it."""
    source.plan = replace(source.plan, partitions=frozenset({"p=new"}))
    source.places["NEW"] = f"file:{source.root}/t/p=NEW"
    source.write("NEW", 2)


def most_files(source: Source) -> None:
    for number in (0, 1, 2, 4, 5):
        source.write(str(number), 2)


def moved(source: Source) -> None:
    (source.root / "t/p=3").rename(source.root / "t/moved")
    source.places["3"] = f"file:{source.root}/t/moved"


def emptied(source: Source) -> None:
    for delta in (source.root / "t/p=3").iterdir():
        shutil.rmtree(delta)


def without_directory(source: Source) -> None:
    shutil.rmtree(source.root / "t/p=3")


def gone_with_its_directory(source: Source) -> None:
    """Another partition has the directory, too, and no event names that one."""
    source.places["4"] = source.places["3"]
    source.dump("shared")
    source.folded = EventFold(from_id=1, to_id=2)
    source.plan = replace(source.plan, partitions=frozenset({"p=3"}))
    del source.places["3"]
    shutil.rmtree(source.root / "t/p=3")


@pytest.mark.parametrize(
    "case",
    [
        forget_totals,
        totals_of_an_earlier_version,
        whole_plan,
        killed_as_a_whole,
        not_transactional,
        most_partitions,
        most_files,
        moved,
        emptied,
        without_directory,
        new_without_directory,
        new_by_another_name,
        gone_with_its_directory,
    ],
)
def test_other_tables_are_described_as_a_whole(source: Source, case: Any) -> None:
    case(source)
    assert source.read() is None


def test_a_new_partition_without_files_is_described(source: Source) -> None:
    source.folded = EventFold(from_id=1, to_id=2)
    source.plan = replace(source.plan, partitions=frozenset({"p=new"}))
    source.places["new"] = f"file:{source.root}/t/p=new"
    (source.root / "t/p=new").mkdir()
    changed = source.read()
    assert changed is not None
    assert (set(changed.totals) >= {"p=new"}, changed.before, len(changed.totals)) == (True, [], COUNT + 1)


def test_a_partition_that_the_source_hides_is_a_loss_unless_an_event_drops_it(source: Source) -> None:
    del source.places["3"]
    changed = source.read()
    assert changed is not None
    assert (changed.losses.partitions, changed.losses.of_partitions) == (("p=3",), COUNT)
    evidence = Evidence("d")
    dropped = ev.PartitionsChanged(
        event_id=1, event_type="DROP_PARTITION", database="d", table="t", gone=("p=3",)
    )
    evidence.add(dropped)
    source.folded = replace(source.folded, evidence=evidence)
    changed = source.read()
    assert changed is not None
    assert not changed.losses
    assert "p=3" not in changed.totals


def test_a_partition_that_events_add_and_drop_is_described_as_gone(source: Source) -> None:
    source.plan = replace(source.plan, partitions=frozenset({"p=passing"}))
    evidence = Evidence("d")
    evidence.add(
        ev.PartitionsChanged(
            event_id=1, event_type="DROP_PARTITION", database="d", table="t", gone=("p=passing",)
        )
    )
    source.folded = replace(source.folded, evidence=evidence)
    changed = source.read()
    assert changed is not None
    assert (changed.concerned, changed.before) == ({"p=3", "p=passing"}, ["p=3"])
    assert not changed.losses
