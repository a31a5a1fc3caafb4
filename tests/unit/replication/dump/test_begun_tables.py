"""The tables that killed loads have changed beyond the dump that describes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_hive_federation.replication.dump.begun_tables import BegunTables
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import DumpKind, TableKind, TableWork
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.replication.format.unfinished import COPY_PLAN, UnfinishedLoads
from airflow_hive_federation.replication.replica.position import TableState, TargetPosition
from airflow_hive_federation.replication.replica.table_index import TableIndex
from tests.support.dumps import POLICY, manifest

PUBLISHED = 5
ENTRY = TableEntry(name="t", kind=TableKind.FULL_ACID, reached=3)


class Case:
    """A target that was loaded at event 5, and a load that was killed afterwards."""

    def __init__(self, root: Path, kind: TableKind = TableKind.FULL_ACID) -> None:
        self.policy = replace(POLICY, dump_root=f"file:{root}")
        self.entry = ENTRY if kind.transactional else TableEntry(name="t", kind=kind)
        self.home = DumpDirectory(f"{self.policy.directory}/5-0")
        self.home.finish_dump(manifest(self.entry, event_id=PUBLISHED))

    def kill(self, work: TableWork, *, previous: str | None = None) -> None:
        killed = DumpDirectory(f"{self.policy.directory}/5-6-1")
        entry = replace(self.entry, work=work)
        previous = previous or self.home.uri
        killed.finish_dump(manifest(entry, kind=DumpKind.INCREMENT, event_id=6, previous=previous))
        killed.add_lines(COPY_PLAN, [])

    def begun(self, state: TableState | None, name: str = "t") -> bool:
        tables = {name: state} if state else {}
        position = TargetPosition(last_id=PUBLISHED, dump=self.home.uri, tables=tables)
        unfinished = UnfinishedLoads(policy=self.policy, loaded=position.dump)
        return name in BegunTables(unfinished, position, TableIndex(self.home), PUBLISHED)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_a_table_with_later_write_ids_was_brought_forward(case: Case) -> None:
    assert not case.begun(TableState(loaded_id=1, high_watermark=3))
    assert case.begun(TableState(loaded_id=1, high_watermark=4))


def test_a_table_that_no_dump_describes_was_made_by_a_killed_load(case: Case) -> None:
    assert case.begun(TableState(loaded_id=6), "new")
    assert not case.begun(None, "new")


@pytest.mark.parametrize("work", [TableWork.CREATE, TableWork.REPLACE])
def test_a_table_that_a_killed_load_made_in_place_of_another_may_lack_partitions(
    case: Case, work: TableWork
) -> None:
    case.kill(work)
    assert case.begun(TableState(loaded_id=6, high_watermark=3))
    # This one was there before, and the killed load has not come to it.
    assert not case.begun(TableState(loaded_id=1, high_watermark=3))


def test_a_table_that_a_killed_load_continued_or_an_earlier_one_made_is_described(case: Case) -> None:
    case.kill(TableWork.CONTINUE)
    assert not case.begun(TableState(loaded_id=5, high_watermark=3))
    case.kill(TableWork.CREATE, previous="file:/other")
    assert not case.begun(TableState(loaded_id=5, high_watermark=3))


@pytest.mark.parametrize("kind", [TableKind.EXTERNAL, TableKind.MANAGED, TableKind.VIEW])
def test_a_table_without_write_ids_counts_if_a_killed_load_was_about_to_change_it(
    kind: TableKind, tmp_path: Path
) -> None:
    """Its source may have taken the change back, and neither events nor files would name it."""
    case, older = Case(tmp_path, kind), TableState(loaded_id=1)
    assert not case.begun(older)
    case.kill(TableWork.NOTHING)
    assert not case.begun(older)
    case.kill(TableWork.CONTINUE, previous="file:/other")
    assert not case.begun(older)
    case.kill(TableWork.CONTINUE)
    assert case.begun(older)
