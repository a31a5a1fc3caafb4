"""A load finds the remains of others where the target has neither the table nor the partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.errors import CompactionRunningError, CycleLostError, TargetChangedError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyOutcome
from airflow_hive_federation.progress.kinds import Step
from airflow_hive_federation.progress.observers import unobserved
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.format.kinds import DumpKind, TableKind, TableWork
from airflow_hive_federation.replication.format.manifest import FinishedLoad, RepairPlan, TableEntry
from airflow_hive_federation.replication.format.tables import PartitionLine, TableDocument
from airflow_hive_federation.replication.format.unfinished import COPY_PLAN
from airflow_hive_federation.replication.load.copying import plan_copy
from airflow_hive_federation.replication.load.remains import Remains, TableRemains
from airflow_hive_federation.replication.load.target_files import content_there
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.foreign_writes import refuse_foreign_writes
from airflow_hive_federation.replication.replica.layout import TargetLayout
from airflow_hive_federation.storage import listing
from airflow_hive_federation.storage.filesystem import canonical
from airflow_hive_federation.storage.plan_files import write_plan, write_records
from tests.support.dumps import manifest

ONE, TWO, BASE = "delta_0000001_0000001_0000", "delta_0000002_0000002_0000", "base_0000002"
COMPACTED = "base_0000002_v0000009"
TABLE = types.Table(
    dbName="d",
    tableName="t",
    tableType="MANAGED_TABLE",
    parameters={"transactional": "true"},
    sd=types.StorageDescriptor(location="file:/src/t"),
)
DOCUMENT = TableDocument(table=TABLE, kind=TableKind.FULL_ACID)
PARTITIONED = replace(
    DOCUMENT,
    table=types.Table(**{**vars(TABLE), "partitionKeys": [types.FieldSchema(name="p", type="string")]}),
)


class Metastore:
    """The target's tables, and the partitions of ``t``, by name."""

    def __init__(self, **tables: str) -> None:
        self.tables = tables
        self.partitions: dict[str, str] = {}
        self.open_txns: list[int] = []

    def get_open_txns(self) -> types.GetOpenTxnsResponse:
        """Transactions 1 to 99, of which none was aborted."""
        return types.GetOpenTxnsResponse(
            txn_high_water_mark=99, open_txns=self.open_txns, abortedBits=b"", min_open_txn=None
        )

    def get_tables(self, _database: str, names: Sequence[str]) -> list[types.Table]:
        return [
            types.Table(tableName=name, sd=types.StorageDescriptor(location=self.tables[name]))
            for name in names
            if name in self.tables
        ]

    def list_tables(self, _database: str) -> list[str]:
        return list(self.tables)

    def get_partitions_of(self, *_: object) -> list[types.Partition]:
        return list(self.iter_partitions())

    def iter_partitions(self, *_: object) -> Iterator[types.Partition]:
        for name, place in self.partitions.items():
            storage = types.StorageDescriptor(location=place)
            yield types.Partition(values=[name.partition("=")[2]], sd=storage)


class Site:
    """A target's warehouse, and dumps of one policy."""

    def __init__(self, root: Path, **fields: Any) -> None:
        self.policy = ReplicationPolicy(
            name="p", source_database="d", target_database="c", dump_root=f"file:{root}/dumps", **fields
        )
        self.layout = TargetLayout(policy=self.policy, managed=f"file:{root}/w")
        self.warehouse = root / "w"
        self.metastore: Any = Metastore()

    def dump(
        self,
        name: str,
        *files: VisibleFile,
        begun: bool = True,
        loaded: bool = False,
        document: TableDocument = DOCUMENT,
        reached: int = 0,
        **fields: Any,
    ) -> DumpDirectory:
        """A dump of table ``t``, whose load has perhaps copied all files, and perhaps was published."""
        made = DumpDirectory(f"{self.policy.directory}/{name}")
        made.write_table(document)
        if document.partition_keys:
            names = sorted({file.partition for file in files})
            lines = [PartitionLine.of(each, self._partition(each)) for each in names]
            made.write_partitions("t", lines)
        made.write_files("t", files)
        entry = TableEntry(name="t", kind=document.kind, work=TableWork.CREATE, reached=reached)
        made.finish_dump(manifest(entry, kind=DumpKind.INCREMENT, **fields))
        if loaded:
            made.finish_load(FinishedLoad(database="c"))
        if begun:
            items = [self.layout.item(document, file) for file in files]
            write_plan(f"{made.uri}/{COPY_PLAN}", items)
            outcomes = [
                CopyOutcome(target=item.target, size_bytes=item.size_bytes, digest="0" * 64, copied=True)
                for item in items
            ]
            write_records(f"{made.uri}/load/outcomes/run.jsonl", outcomes)
        return DumpDirectory(made.uri)

    def _partition(self, name: str) -> types.Partition:
        storage = types.StorageDescriptor(location=f"file:/src/t/{name}")
        return types.Partition(values=[name.partition("=")[2]], sd=storage, parameters={})

    def place(self, path: str, size_bytes: int = 3) -> str:
        file = self.warehouse / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * size_bytes)
        return canonical(f"file:{file}")

    def find(self, dump: DumpDirectory, document: TableDocument = DOCUMENT) -> tuple[Remains, TableRemains]:
        remains = Remains(self.metastore, dump, self.layout)
        there = content_there(dump, self.layout, document, None, total=0)
        return remains, remains.find(document, there, None)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def visible(path: str, *, partition: str = "", modified_ns: int = 7) -> VisibleFile:
    file = f"{path}/bucket_00000"
    place = f"file:/src/t/{partition}" if partition else "file:/src/t"
    return VisibleFile(
        directory=place,
        partition=partition,
        path=file,
        target_path=file,
        size_bytes=3,
        modified_ns=modified_ns,
    )


def removed(remains: Remains) -> list[str]:
    steps: list[str] = []

    def step(kind: Step, of: object = "") -> None:
        steps.append(f"{kind.value} {of}")

    remains.remove(step, observer=unobserved, check=lambda: None)  # type: ignore[arg-type]
    return steps


def test_files_that_killed_loads_placed_for_a_table_to_come_are_removed(site: Site) -> None:
    site.dump("1-2-3", visible(ONE, modified_ns=1), visible(TWO), visible(BASE))
    one, two, base = (site.place(f"t/{name}/bucket_00000") for name in (ONE, TWO, BASE))
    # The copy was killed before a first file.
    (site.warehouse / "t" / "base_0000009").mkdir()
    dump = site.dump("1-2-4", visible(ONE, modified_ns=9), begun=False)
    remains, found = site.find(dump)
    assert (found.surplus, found.foreign) == (tuple(sorted((two, base))), ())
    # The present file has the name and size of the former one, and another time.
    assert found.there == {}
    copy = plan_copy(
        dump, site.layout, DOCUMENT, there=found.there, visible=None, before={}, unread=found.unread
    )
    assert [canonical(item.target) for item in copy.items] == [one]
    assert removed(remains) == ["remove files t"]
    assert [path.name for path in (site.warehouse / "t").iterdir()] == [ONE]
    assert removed(site.find(dump)[0]) == []


def test_a_file_that_a_killed_load_copied_from_the_same_one_is_not_copied_again(site: Site) -> None:
    site.dump("1-2-3", visible(ONE))
    one = site.place(f"t/{ONE}/bucket_00000")
    dump = site.dump("1-2-4", visible(ONE), begun=False)
    assert set(site.find(dump)[1].there) == {one}
    # Another load has had another file in its place.
    site.dump("1-2-2", visible(ONE, modified_ns=6))
    assert set(site.find(dump)[1].there) == set()


def test_files_of_others_are_named_and_stay(site: Site) -> None:
    site.dump("1-2-3", visible(ONE))
    one, two = (site.place(f"t/{name}/bucket_00000", size_bytes=4) for name in (ONE, TWO))
    site.place("t/_notes")
    remains, found = site.find(site.dump("1-2-4", visible(BASE), begun=False))
    assert found.surplus == ()
    assert len(found.foreign) == 2
    assert all(uri in str(found.foreign) for uri in (one, two))
    assert removed(remains) == []


def test_files_of_a_table_that_the_target_has_are_no_remains(site: Site) -> None:
    site.dump("1-2-3", visible(ONE))
    site.place(f"t/{ONE}/bucket_00000")
    site.metastore = Metastore(t=f"file:{site.warehouse}/t")
    dump = site.dump("1-2-4", visible(TWO), begun=False)
    _, found = site.find(dump)
    assert (found.unread, found.surplus, len(found.there)) == (frozenset(), (), 1)


def test_a_table_of_an_adopted_database_may_have_the_directory(tmp_path: Path) -> None:
    site = Site(tmp_path, into_existing=True)
    site.dump("1-2-3", visible(ONE))
    site.place(f"t/{ONE}/bucket_00000")
    dump = site.dump("1-2-4", visible(TWO), begun=False)
    assert len(site.find(dump)[1].surplus) == 1
    site.metastore = Metastore(users=f"file:{site.warehouse}/t/{ONE}")
    _, found = site.find(dump)
    assert (found.surplus, len(found.there)) == ((), 1)


def test_only_the_directories_of_partitions_to_come_are_cleared(site: Site) -> None:
    document = PARTITIONED
    files = [visible(name, partition=f"p={p}") for name in (ONE, TWO) for p in "abc"]
    site.dump("1-2-3", *files, document=document)
    placed = {(p, name): site.place(f"t/p={p}/{name}/bucket_00000") for name in (ONE, TWO) for p in "abc"}
    site.metastore = Metastore(t=f"file:{site.warehouse}/t")
    # Another partition has the directory of ``c``.
    site.metastore.partitions = {
        "p=a": f"file:{site.warehouse}/t/p=a",
        "p=z": f"file:{site.warehouse}/t/p=c",
    }
    dump = site.dump(
        "1-2-4", *(visible(ONE, partition=f"p={p}") for p in "abc"), begun=False, document=document
    )
    remains, found = site.find(dump, document)
    assert found.surplus == (placed["b", TWO],)
    assert found.unread == {canonical(f"file:{site.warehouse}/t/p=b")}
    removed(remains)
    assert len(list(site.warehouse.rglob("bucket_00000"))) == 5


def test_nothing_is_removed_after_the_lock_is_lost(site: Site) -> None:
    site.dump("1-2-3", visible(TWO))
    two = Path(site.place(f"t/{TWO}/bucket_00000").removeprefix("file:"))
    remains, _ = site.find(site.dump("1-2-4", visible(ONE), begun=False))

    def lost() -> None:
        raise CycleLostError("The lock is lost.", policy="p", holder="", reason="refused")

    with pytest.raises(CycleLostError):
        remains.remove(lambda *_: None, observer=unobserved, check=lost)  # type: ignore[arg-type]
    assert two.exists()


# -- results of the target's compactor ------------------------------------------------------------------


@pytest.fixture
def dropped(site: Site) -> Site:
    """Loads have placed write ids 1 and 2, of four, in partition ``a`` of ``t``; the target has lost it."""
    files = [visible(name, partition="p=a") for name in (ONE, TWO)]
    site.dump("1-2-3", *files, document=PARTITIONED, loaded=True, reached=4)
    site.metastore = Metastore(t=f"file:{site.warehouse}/t")
    return site


def again(site: Site, partition: str = "p=a", **fields: Any) -> DumpDirectory:
    """The source has made the partition anew."""
    made = visible("delta_0000005_0000005_0000", partition=partition)
    return site.dump("1-2-9", made, document=PARTITIONED, begun=False, reached=5, **fields)


@pytest.mark.parametrize(
    "result", [COMPACTED, "delta_0000001_0000002_v0000009", "delete_delta_0000002_0000002_v0000009"]
)
def test_what_the_compactor_has_left_of_a_dropped_partition_is_removed(dropped: Site, result: str) -> None:
    bucket = dropped.place(f"t/p=a/{result}/bucket_00000")
    version = dropped.place(f"t/p=a/{result}/_orc_acid_version")
    notes = dropped.place("t/p=a/_notes")
    remains, found = dropped.find(again(dropped), PARTITIONED)
    assert (found.surplus, found.foreign) == (tuple(sorted((bucket, version))), ())
    # Nothing of it is suspect.
    assert set(remains.without("t", dict.fromkeys((bucket, notes)))) == {notes}  # type: ignore[arg-type]
    assert removed(remains) == ["remove files t"]
    assert [path.name for path in (dropped.warehouse / "t" / "p=a").iterdir()] == ["_notes"]
    assert removed(dropped.find(again(dropped), PARTITIONED)[0]) == []


def test_what_the_compactor_has_left_of_a_dropped_table_is_removed(site: Site) -> None:
    site.dump("1-2-3", visible(ONE), loaded=True, reached=2)
    # Of the rows that the compaction has merged, this one is the latest.
    site.dump("1-2-4", visible(TWO), loaded=True, reached=3)
    bucket = site.place("t/base_0000003_v0000009/bucket_00000")
    assert site.find(site.dump("1-2-9", visible(ONE, modified_ns=9), begun=False))[1].surplus == (bucket,)


@pytest.mark.parametrize(
    ("place", "named"),
    [
        ("t/p=a/base_0000002", "no compactor of Hive 4 names it so"),
        ("t/p=a/base_0000005_v0000009", "loads have given out four write ids"),
        ("t/p=a/base_0000002_v0000100", "the target has no such transaction"),
        ("t/p=a/delta_0000003_0000004_v0000009", "loads have placed none of these rows"),
        ("t/p=a/base_0000000_v0000009", "loads have placed later rows only"),
        ("t/p=a/delta_0000002_0000001_v0000009", "the name is none of Hive's"),
        ("t/p=b/base_0000002_v0000009", "no load has placed anything there"),
        ("t/p=a/other/base_0000002_v0000009", "no load has placed anything there"),
        ("t/p=a", "no compactor leaves a file there"),
    ],
)
def test_a_directory_that_only_looks_like_a_result_of_the_compactor_stays(
    dropped: Site, place: str, named: str
) -> None:
    bucket = dropped.place(f"{place}/bucket_00000")
    remains, found = dropped.find(again(dropped, place.split("/")[1]), PARTITIONED)
    assert found.surplus == (), named
    assert removed(remains) == []
    with pytest.raises(TargetChangedError) as refused:
        refuse_foreign_writes("c", "p", found.foreign)
    (difference,) = refused.value.differences
    assert difference.startswith(f"t: file {bucket} (3 bytes, modified ")
    assert difference.endswith(", of a table or partition that the target does not have")
    assert "No repair finds files" in str(refused.value)


def test_rows_of_a_load_that_was_not_published_explain_no_compaction(site: Site) -> None:
    """Nobody compacts a partition that no load has made."""
    site.metastore = Metastore(t=f"file:{site.warehouse}/t")
    site.dump("1-2-3", visible(ONE, partition="p=a"), document=PARTITIONED, reached=2)
    site.place(f"t/p=a/{COMPACTED}/bucket_00000")
    assert len(site.find(again(site), PARTITIONED)[1].foreign) == 1
    # Its acknowledgement is missing, but the target stands where it ended.
    dump = again(site, previous=f"{site.policy.directory}/1-2-3")
    assert site.find(dump, PARTITIONED)[1].foreign == ()


@pytest.mark.parametrize("has_file", [True, False])
def test_a_compaction_that_still_works_in_a_dropped_partition_is_waited_for(
    dropped: Site, has_file: bool
) -> None:
    bucket = Path(dropped.place(f"t/p=a/{COMPACTED}/bucket_00000").removeprefix("file:"))
    if not has_file:
        bucket.unlink()
    dropped.metastore.open_txns = [8, 9]
    with pytest.raises(CompactionRunningError, match=r"partition p=a of c\.t was dropped") as refused:
        dropped.find(again(dropped), PARTITIONED)
    assert refused.value.facts == {"table": "c.t", "partition": "p=a"}
    dropped.metastore.open_txns = [8]
    assert removed(dropped.find(again(dropped), PARTITIONED)[0]) == ["remove files t"]
    assert not bucket.parent.exists()


def test_a_repair_removes_files_of_others(dropped: Site) -> None:
    theirs = [
        dropped.place(f"t/p=a/{path}")
        for path in ("000000_0", "base_0000007/bucket_00000", "base_0000007/_orc_acid_version")
    ]
    dropped.place("t/p=a/_notes")
    # Files of the dump and of others are side by side.
    beside = dropped.place("t/p=a/delta_0000005_0000005_0000/bucket_00001")
    dropped.place("t/p=a/delta_0000005_0000005_0000/_orc_acid_version")
    _, found = dropped.find(again(dropped), PARTITIONED)
    assert (found.surplus, len(found.foreign)) == ((), 3)
    for tables in ({"u"}, {"t", "u"}):
        dump = again(dropped, repair_plan=RepairPlan(tables=frozenset(tables)))
        remains, found = dropped.find(dump, PARTITIONED)
        assert len(found.foreign) == (0 if "t" in tables else 3)
    assert found.surplus == tuple(sorted([*theirs, beside]))
    removed(remains)
    left = {path.name for path in (dropped.warehouse / "t" / "p=a").rglob("*")}
    assert left == {"_notes", "delta_0000005_0000005_0000", "_orc_acid_version"}


# -- cost -------------------------------------------------------------------------------------------------


def test_the_number_of_listings_does_not_grow_with_the_new_partitions(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load lists the directories once, for the files and for the empty directories."""
    listed: list[str] = []
    list_local = listing._list_local

    def counting(uri: str, root: str) -> list[Any]:
        listed.append(uri)
        return list_local(uri, root)

    monkeypatch.setattr(listing, "_list_local", counting)
    site.metastore = Metastore(t=f"file:{site.warehouse}/t")
    for number in range(30):
        (site.warehouse / "t" / f"p={number}" / BASE).mkdir(parents=True)
    files = [visible(ONE, partition=f"p={number}") for number in range(30)]
    remains, found = site.find(site.dump("1-2-4", *files, begun=False, document=PARTITIONED), PARTITIONED)
    assert len(found.empty) == 30
    assert listed == [f"file:{site.warehouse}/t"]
    removed(remains)
    assert not list(site.warehouse.rglob(BASE))
    assert len(listed) == 1
