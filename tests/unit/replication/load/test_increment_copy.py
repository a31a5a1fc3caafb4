"""An increment copies files and places those that it copied to hidden places."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.errors import TargetChangedError, TransactionAbortedError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyItem, FileEntry
from airflow_hive_federation.model.write_ids import ValidTxns
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import DataLocation, VisibleFile
from airflow_hive_federation.replication.format.kinds import DumpKind, TableKind
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.format.unfinished import COPY_PLAN, UnfinishedLoads
from airflow_hive_federation.replication.load.copying import (
    EarlierCopies,
    TableCopy,
    _is_covered,
    move_renamed,
    plan_copy,
)
from airflow_hive_federation.replication.load.own_compactions import directories_of, divided
from airflow_hive_federation.replication.load.placing import place_staged
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.layout import STAGE, TargetLayout
from airflow_hive_federation.storage.plan_files import write_plan
from tests.support.dumps import manifest


def test_all_directories_of_a_partition_are_placed(tmp_path: Path) -> None:
    names = ("delta_0000001_0000001_0000", "delta_0000002_0000002_0000", "base_0000003")
    copy = TableCopy()
    for name in names:
        staged = tmp_path / "p=x" / STAGE / name
        staged.mkdir(parents=True)
        (staged / "bucket_00000").write_text(name, encoding="utf-8")
        copy.staged[f"file:{staged}"] = f"file:{tmp_path}/p=x/{name}"
    for _ in range(2):  # again, as after a kill
        place_staged(copy)
        assert sorted(path.name for path in (tmp_path / "p=x").iterdir()) == sorted(names)
        assert (tmp_path / "p=x" / names[1] / "bucket_00000").read_text(encoding="utf-8") == names[1]


@pytest.mark.parametrize(
    ("change", "moved"),
    [
        ("nothing", True),
        ("it is not there", False),
        ("the new name is there", False),
        ("another table has it", False),
        ("no digest is known", False),
        ("an object store", False),
    ],
)
def test_a_file_that_was_renamed_on_the_source_is_renamed(change: str, moved: bool, tmp_path: Path) -> None:
    source, base = "hdfs://nn/lake/t", "s3://b/ext" if change == "an object store" else "hdfs://far/ext"
    storage = types.StorageDescriptor(location=source)
    table = types.Table(dbName="d", tableName="t", sd=storage, parameters={"EXTERNAL": "TRUE"})
    place = DataLocation(partition="", location=source)
    document = TableDocument(table=table, kind=TableKind.EXTERNAL, places=(place,))
    directory = DumpDirectory(f"file:{tmp_path}/dump")
    directory.write_table(document)
    file = VisibleFile(
        directory=source,
        partition="",
        path="b",
        target_path="b",
        size_bytes=3,
        modified_ns=1,
        renamed_from="a",
    )
    directory.write_files("t", [file])
    directory.finish_dump(manifest())
    policy = ReplicationPolicy(
        name="p", source_database="d", dump_root=f"file:{tmp_path}", external_base=base
    )
    present = [] if change == "it is not there" else ["a"]
    present += ["b"] if change == "the new name is there" else []
    copied = f"{base}/lake/t"
    copy = plan_copy(
        DumpDirectory(directory.uri),
        TargetLayout(policy=policy, managed="hdfs://far/w"),
        document,
        there={f"{copied}/{name}": FileEntry(path=name, size_bytes=3) for name in present},
        visible=None,
        before={},
    )
    if change == "another table has it":
        copy.extraneous = []
    earlier: Any = SimpleNamespace(
        digests=lambda _table: {} if change == "no digest is known" else {f"{copied}/a": "0" * 64}
    )
    move_renamed({"t": copy}, earlier)
    (item,) = copy.items
    expected = (f"{copied}/a", "0" * 64) if moved else (None, None)
    assert (item.source, item.moved_from, item.digest) == (f"{source}/b", *expected)


def test_a_file_that_a_killed_load_has_written_over_is_copied_again(tmp_path: Path) -> None:
    """Its source has the former file back, of the same size, and copied last."""
    source, base = "hdfs://nn/lake/t", "hdfs://far/ext"
    storage = types.StorageDescriptor(location=source)
    table = types.Table(dbName="d", tableName="t", sd=storage, parameters={"EXTERNAL": "TRUE"})
    place = DataLocation(partition="", location=source)
    document = TableDocument(table=table, kind=TableKind.EXTERNAL, places=(place,))
    policy = ReplicationPolicy(
        name="p", source_database="d", dump_root=f"file:{tmp_path}", external_base=base
    )
    directory = DumpDirectory(f"{policy.directory}/1-0")
    directory.write_table(document)
    files = [
        VisibleFile(directory=source, partition="", path=name, target_path=name, size_bytes=3, modified_ns=1)
        for name in ("a", "b")
    ]
    directory.write_files("t", files)
    directory.finish_dump(manifest(TableEntry(name="t", kind=TableKind.EXTERNAL)))
    killed = DumpDirectory(f"{policy.directory}/1-2-3")
    killed.finish_dump(manifest(kind=DumpKind.INCREMENT, previous=directory.uri))
    target = f"{base}/lake/t/b"
    write_plan(f"{killed.uri}/{COPY_PLAN}", [CopyItem(source=f"{source}/b", target=target, size_bytes=3)])
    unfinished = UnfinishedLoads(policy=policy, loaded=directory.uri)

    def copied(earlier: EarlierCopies) -> list[str]:
        copy = plan_copy(
            DumpDirectory(directory.uri),
            TargetLayout(policy=policy, managed="hdfs://far/w"),
            document,
            there={f"{base}/lake/t/{name}": FileEntry(path=name, size_bytes=3) for name in ("a", "b")},
            visible=None,
            before=earlier.files(document),
            repaired=earlier.overwritten(document),
        )
        assert copy.extraneous == []
        return [item.target for item in copy.items]

    assert copied(EarlierCopies(directory.uri)) == []
    earlier = EarlierCopies(directory.uri, unfinished=unfinished)
    assert copied(earlier) == [target]
    assert earlier.overwritten(replace(document, kind=TableKind.FULL_ACID)) == frozenset()


def test_a_killed_placing_goes_on(tmp_path: Path) -> None:
    done, left = tmp_path / "delta_0000001_0000001", tmp_path / STAGE / "delta_0000002_0000002"
    done.mkdir()
    left.mkdir(parents=True)
    copy = TableCopy(
        staged={
            f"file:{tmp_path}/{STAGE}/{done.name}": f"file:{done}",
            f"file:{left}": f"file:{tmp_path}/{left.name}",
        }
    )
    place_staged(copy)
    assert sorted(path.name for path in tmp_path.iterdir()) == [done.name, left.name]


def test_a_directory_is_not_begun_when_readers_are_back(tmp_path: Path) -> None:
    staged = [tmp_path / STAGE / f"base_000000{number}" for number in (1, 2)]
    for directory in staged:
        directory.mkdir(parents=True)
    copy = TableCopy(staged={f"file:{place}": f"file:{tmp_path}/{place.name}" for place in staged})
    answers = iter([None, TransactionAbortedError("The lock has timed out.")])

    def check_lock() -> None:
        if (error := next(answers)) is not None:
            raise error

    with pytest.raises(TransactionAbortedError):
        place_staged(copy, check_lock=check_lock)
    assert [place.exists() for place in staged] == [False, True]


HOME = "file:/w/t/p=1"


@pytest.mark.parametrize(
    ("wanted", "there", "covered"),
    [
        ("delta_0000003_0000003_0000", ["base_0000005_v0000077"], True),
        ("delete_delta_0000003_0000003_0000", ["base_0000005"], True),
        ("delta_0000003_0000003_0000", ["delta_0000001_0000005_v0000077"], True),
        ("delete_delta_0000003_0000003_0000", ["delta_0000001_0000005_v0000077"], False),
        ("base_0000005", ["base_0000005_v0000077"], True),
        # Another statement of the same transaction.
        ("delta_0000003_0000003_0001", ["delta_0000003_0000003_0000"], False),
        # There already: its files are looked at one by one.
        ("base_0000005", ["base_0000005", "base_0000005_v0000077"], False),
        # Of write ids that may be open there yet.
        ("delta_0000006_0000006_0000", ["base_0000007"], False),
        ("delta_0000003_0000003_0000", ["base_0000007"], False),
        ("delta_0000003_0000003_0000", [], False),
        ("000000_0", ["base_0000005"], False),
    ],
)
def test_rows_that_the_target_has_in_directories_of_its_own(
    wanted: str, there: list[str], covered: bool
) -> None:
    files = [f"{HOME}/{name}/bucket_00000" for name in there] + ["file:/w/t/p=2/base_0000005/bucket_00000"]
    assert _is_covered(f"{HOME}/{wanted}/bucket_00000", 5, directories_of(files)) is covered


def planned(
    tmp_path: Path, root: str, wanted: list[str], there: list[str], *, complete: int = 0, **options: Any
) -> TableCopy:
    """Plan the copy of an insert-only table below ``root``, whose readers see write ids up to 9."""
    policy = ReplicationPolicy(name="p", source_database="d", dump_root=f"file:{tmp_path}/dumps")
    source = "file:/source/t"
    dump = DumpDirectory(f"file:{tmp_path}/dumps/p/2-3-4")
    document = TableDocument(
        table=types.Table(tableName="t", sd=types.StorageDescriptor(location=source)),
        kind=TableKind.INSERT_ONLY,
        places=(DataLocation(partition="", location=source),),
    )
    dump.write_table(document)
    dump.write_files(
        "t",
        (
            VisibleFile(
                directory=source, partition="", path=path, target_path=path, size_bytes=1, modified_ns=0
            )
            for path in wanted
        ),
    )
    dump.finish_dump(manifest(TableEntry(name="t", kind=TableKind.INSERT_ONLY)))
    entries = {f"{root}/t/{path}": FileEntry(path=path, size_bytes=1) for path in there}
    layout = TargetLayout(policy=policy, managed=root)
    return plan_copy(
        dump, layout, dump.table("t"), there=entries, visible=9, before={}, complete=complete, **options
    )


BASE_8_OF_TARGET, DELTA_4_TO_8_OF_TARGET = "base_0000008_v0000077", "delta_0000004_0000008_v0000077"


@pytest.mark.parametrize(
    ("wanted", "there", "copied"),
    [
        # A slow compaction of the source ends after one of the target: all of its rows are there.
        (["base_0000006"], [DELTA_4_TO_8_OF_TARGET], []),
        (["delta_0000002_0000006"], [DELTA_4_TO_8_OF_TARGET], []),
        # One of the two replaces the other.
        (["base_0000009"], [DELTA_4_TO_8_OF_TARGET], ["base_0000009"]),
        (["delta_0000003_0000011"], [DELTA_4_TO_8_OF_TARGET], ["delta_0000003_0000011"]),
        (["delta_0000009_0000011"], [BASE_8_OF_TARGET], ["delta_0000009_0000011"]),
        # Deletes are applied once, however often they are read.
        (["delete_delta_0000006_0000011"], [BASE_8_OF_TARGET], ["delete_delta_0000006_0000011"]),
        # The source has both: a compaction inside a streaming batch.
        (["base_0000005", "delta_0000004_0000008"], ["base_0000005"], ["delta_0000004_0000008"]),
    ],
)
def test_rows_that_the_target_has_in_results_of_its_own_compactions(
    wanted: list[str], there: list[str], copied: list[str], tmp_path: Path
) -> None:
    files = ([f"{name}/HIVE_UNION_SUBDIR_1/000000_0" for name in names] for names in (wanted, there))
    copy = planned(tmp_path, "file:/w", *files, complete=9)
    assert [name for name in wanted if any(f"/{name}/" in item.target for item in copy.items)] == copied
    assert {home.rpartition("/")[2] for home in copy.staged.values()} <= set(copied)


@pytest.mark.parametrize("own", [BASE_8_OF_TARGET, DELTA_4_TO_8_OF_TARGET])
def test_a_part_of_the_rows_in_results_of_the_targets_compactions_ends_the_cycle(
    own: str, tmp_path: Path
) -> None:
    """Readers would see the rows of 6 to 8 twice."""
    with pytest.raises(TargetChangedError, match=r"would show rows twice.*delta_0000006_0000011") as caught:
        planned(tmp_path, "file:/w", ["delta_0000006_0000011/000000_0"], [f"{own}/000000_0"], complete=9)
    assert caught.value.differences == [f"file:/w/t/{own}"]
    assert "major compaction" in (caught.value.remedy or "")


def test_a_partition_whose_name_begins_as_that_of_a_delta() -> None:
    """Its column has that name."""
    home = "file:/w/t/delta_t=1/base_x=2"
    assert divided(f"{home}/delta_0000001_0000001/bucket_00000") == (
        home,
        "delta_0000001_0000001/bucket_00000",
    )


def test_nobody_reads_the_result_of_a_compaction_that_is_not_committed(tmp_path: Path) -> None:
    merged = "delta_0000006_0000011"
    copy = planned(
        tmp_path,
        "file:/w",
        [f"{merged}/000000_0"],
        [f"{BASE_8_OF_TARGET}/000000_0"],
        complete=9,
        transactions=lambda: ValidTxns(high_watermark=90, aborted_ids=(77,)),
    )
    assert list(copy.staged.values()) == [f"file:/w/t/{merged}"]


@pytest.mark.parametrize(
    ("wanted", "there", "complete", "contested"),
    [
        (["delta_0000003_0000011"], ["delta_0000003_0000003"], 9, {"delta_0000003_0000011"}),
        # A slow compaction of the source, while the target may merge beyond its result.
        (["base_0000005"], ["delta_0000003_0000003"], 9, {"base_0000005"}),
        # The target's results replace nothing of it.
        (["base_0000011"], ["delta_0000003_0000003"], 9, set()),
        (["delete_delta_0000003_0000011"], ["delta_0000003_0000003"], 9, set()),
        (["delta_0000010_0000010"], ["delta_0000003_0000003"], 9, set()),
    ],
)
def test_partitions_in_which_a_compaction_of_the_target_is_in_the_way(
    wanted: list[str], there: list[str], complete: int, contested: set[str], tmp_path: Path
) -> None:
    files = ([f"{name}/000000_0" for name in names] for names in (wanted, there))
    copy = planned(tmp_path, "file:/w", *files, complete=complete)
    found = {home: set(of_source.placed) for home, of_source in copy.contested.items()}
    assert found == ({"file:/w/t": contested} if contested else {})


@pytest.mark.parametrize("resumed", [False, True])
def test_a_killed_load_may_have_placed_beside_a_compaction_of_the_target(
    resumed: bool, tmp_path: Path
) -> None:
    """Before it could look for results that overlap."""
    merged = "delta_0000006_0000011/000000_0"

    def plan(*own: str) -> TableCopy:
        return planned(tmp_path, "file:/w", [merged], [merged, *own], complete=9, resumed=resumed)

    assert plan().contested == {}
    # One of the two replaces the other.
    wide = plan("base_0000011_v0000077/000000_0")
    assert list(wide.contested) == (["file:/w/t"] if resumed else [])
    if resumed:
        with pytest.raises(TargetChangedError, match="would show rows twice"):
            plan(f"{BASE_8_OF_TARGET}/000000_0")


@pytest.mark.parametrize("root", ["file:/w", "s3://b/w"])
def test_a_directory_in_a_directory_is_moved_with_the_outer_one(tmp_path: Path, root: str) -> None:
    """``UNION ALL`` makes such directories."""
    wanted = [f"base_0000009/HIVE_UNION_SUBDIR_{number}/000000_0" for number in (1, 2)]
    copy = planned(tmp_path, root, wanted, [])
    assert copy.staged == {f"{root}/t/{STAGE}/base_0000009": f"{root}/t/base_0000009"}
    assert [item.target for item in copy.items] == [f"{root}/t/{STAGE}/{path}" for path in wanted]
    # A directory that is there already cannot be replaced by another one.
    copy = planned(tmp_path, root, wanted, wanted[:1])
    assert (copy.staged, [item.target for item in copy.items]) == ({}, [f"{root}/t/{wanted[1]}"])


@pytest.mark.parametrize(("root", "goes_on"), [("file:/w", False), ("s3://b/w", True)])
def test_a_run_that_was_killed_while_it_moved_objects(tmp_path: Path, root: str, goes_on: bool) -> None:
    """The next one moves the rest, copies nothing again, and leaves nothing in the hidden place."""
    wanted = [f"base_0000009/00000{number}_0" for number in range(3)]
    copy = planned(tmp_path, root, wanted, [wanted[0], *(f"{STAGE}/{path}" for path in wanted)])
    staged = {f"{root}/t/{STAGE}/base_0000009": f"{root}/t/base_0000009"} if goes_on else {}
    assert copy.staged == staged
    places = [f"{STAGE}/{path}" if goes_on else path for path in wanted[1:]]
    assert [item.target for item in copy.items] == [f"{root}/t/{path}" for path in places]
    # It was killed while it removed the hidden files; the directory is whole.
    copy = planned(tmp_path, root, wanted, [*wanted, f"{STAGE}/{wanted[2]}"])
    assert (copy.staged, copy.items) == (staged, [])
