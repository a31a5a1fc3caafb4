"""A load finds the remains of others where the target has neither the table nor the partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.errors import CycleLostError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyOutcome
from airflow_hive_federation.progress.kinds import Step
from airflow_hive_federation.progress.observers import unobserved
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.format.kinds import DumpKind, TableKind, TableWork
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.replication.format.tables import PartitionLine, TableDocument
from airflow_hive_federation.replication.format.unfinished import COPY_PLAN
from airflow_hive_federation.replication.load.copying import files_there, plan_copy
from airflow_hive_federation.replication.load.remains import Remains, TableRemains
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.layout import TargetLayout
from airflow_hive_federation.storage.filesystem import canonical
from airflow_hive_federation.storage.plan_files import write_plan, write_records
from tests.support.dumps import manifest

ONE, TWO, BASE = "delta_0000001_0000001_0000", "delta_0000002_0000002_0000", "base_0000002"
TABLE = types.Table(
    dbName="d",
    tableName="t",
    tableType="MANAGED_TABLE",
    parameters={"transactional": "true"},
    sd=types.StorageDescriptor(location="file:/src/t"),
)
DOCUMENT = TableDocument(table=TABLE, kind=TableKind.FULL_ACID)


class Metastore:
    """The target's tables, and the partitions of ``t``, by name."""

    def __init__(self, **tables: str) -> None:
        self.tables = tables
        self.partitions: dict[str, str] = {}

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
        self, name: str, *files: VisibleFile, begun: bool = True, document: TableDocument = DOCUMENT
    ) -> DumpDirectory:
        """A dump of table ``t``, whose load has perhaps copied all files."""
        made = DumpDirectory(f"{self.policy.directory}/{name}")
        made.write_table(document)
        if document.partition_keys:
            names = sorted({file.partition for file in files})
            lines = [PartitionLine.of(each, self._partition(each)) for each in names]
            made.write_partitions("t", lines)
        made.write_files("t", files)
        entry = TableEntry(name="t", kind=document.kind, work=TableWork.CREATE, partitions=0)
        made.finish_dump(manifest(entry, kind=DumpKind.INCREMENT))
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
        return remains, remains.find(document, files_there(self.layout, document), None)


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
    keys = [types.FieldSchema(name="p", type="string")]
    table = types.Table(**{**vars(TABLE), "partitionKeys": keys})
    document = replace(DOCUMENT, table=table)
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
