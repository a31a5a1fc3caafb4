"""The tables that a verification compares: those changed since one last found the replica equal."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from airflow_hive_federation.replication.dump.retention import forget_old_dumps
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import DumpKind, TableKind, TableWork
from airflow_hive_federation.replication.format.manifest import FinishedLoad, TableEntry
from airflow_hive_federation.replication.policy import KEPT_DUMPS, ReplicationPolicy
from airflow_hive_federation.replication.verify.report import (
    ReadFailure,
    VerificationReport,
    found_equal,
    write_report,
)
from airflow_hive_federation.replication.verify.unverified import is_due, keep_report, tables_to_compare
from tests.support.dumps import manifest

EQUAL = VerificationReport(database="d", event_id=1, tables=[])
UNREAD = VerificationReport(
    database="d",
    event_id=1,
    tables=[],
    failures=[ReadFailure(table="t", side="target", reason="damaged")],
)


class Cycles:
    """A bootstrap and three increments, of which each changed a table of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.dumps = [self._dump("bootstrap", kind=DumpKind.BOOTSTRAP)]
        for name in ("first", "second", "third"):
            previous = self.dumps[-1].uri
            self.dumps.append(self._dump(name, kind=DumpKind.INCREMENT, previous=previous))

    def _dump(self, name: str, **fields: object) -> DumpDirectory:
        directory = DumpDirectory((self.root / name).as_uri())
        tables = [
            TableEntry(name=name, kind=TableKind.MANAGED, work=TableWork.CONTINUE),
            TableEntry(name="same", kind=TableKind.MANAGED, work=TableWork.NOTHING, dump="file:/other"),
        ]
        directory.finish_dump(manifest(*tables, **fields))  # type: ignore[arg-type]
        return directory

    def to_compare(self, *, idle: bool = False) -> set[str] | None:
        return tables_to_compare(self.dumps[-1].uri, idle=idle)


@pytest.fixture
def cycles(tmp_path: Path) -> Cycles:
    return Cycles(tmp_path)


def test_the_changes_reach_back_to_the_latest_dump_that_was_found_equal(cycles: Cycles) -> None:
    bootstrap, first, second, third = cycles.dumps
    assert cycles.to_compare() is None
    write_report(bootstrap, EQUAL)
    assert cycles.to_compare() == {"first", "second", "third"}
    write_report(first, UNREAD)
    assert cycles.to_compare() == {"first", "second", "third", "t"}
    write_report(first, EQUAL)
    assert cycles.to_compare() == {"second", "third"}
    write_report(second, EQUAL)
    assert cycles.to_compare() == {"third"}
    # A verification that is asked for again compares the last cycle's tables again.
    write_report(third, EQUAL)
    assert cycles.to_compare() == {"third"}


def test_a_verification_is_due_after_some_cycles_and_while_the_sides_differ(cycles: Cycles) -> None:
    bootstrap, first, second, third = cycles.dumps

    def due(directory: DumpDirectory, every: int = 2) -> bool:
        return is_due(directory.uri, every=every)

    assert due(bootstrap, every=9)
    write_report(bootstrap, EQUAL)
    assert [due(directory) for directory in cycles.dumps] == [False, False, True, True]
    assert [due(directory, every=4) for directory in cycles.dumps] == [False, False, False, False]
    assert due(first, every=1)
    write_report(second, EQUAL)
    assert not due(third)
    write_report(second, UNREAD)
    assert due(third, every=9)
    write_report(second, EQUAL)
    # A verification that was killed leaves no report: the cycles since the last one count.
    write_report(third, UNREAD)
    assert due(third, every=9)


def test_the_dumps_of_all_cycles_of_one_verification_are_kept(tmp_path: Path) -> None:
    policy = ReplicationPolicy(
        name="shop", source_database="shop", dump_root=str(tmp_path), external_base=None
    )
    table = TableEntry(name="t", kind=TableKind.MANAGED, work=TableWork.CONTINUE)
    loaded = FinishedLoad(database="shop")

    def cycle(number: int, previous: str) -> str:
        directory = DumpDirectory(f"{policy.directory}/{number}-{number + 1}-1")
        directory.finish_dump(manifest(table, kind=DumpKind.INCREMENT, previous=previous))
        directory.finish_load(loaded)
        forget_old_dumps(policy, directory)
        return directory.uri

    last = cycle(0, "file:/nowhere")
    write_report(DumpDirectory(last), EQUAL)
    due = []
    for number in range(1, KEPT_DUMPS + 1):
        last = cycle(number, last)
        due.append(is_due(last, every=KEPT_DUMPS))
    assert due == [False] * (KEPT_DUMPS - 1) + [True]
    assert tables_to_compare(last) == {"t"}
    assert tables_to_compare(cycle(KEPT_DUMPS + 1, last)) is None


def test_an_idle_cycle_compares_the_tables_that_no_verification_has_found_equal(cycles: Cycles) -> None:
    _, first, _, third = cycles.dumps
    write_report(first, EQUAL)
    assert cycles.to_compare(idle=True) == {"second", "third"}
    write_report(third, EQUAL)
    assert cycles.to_compare(idle=True) == set()


def test_a_table_that_was_found_unequal_is_compared_until_it_is_equal(cycles: Cycles) -> None:
    """Without this, the next cycle that does not change it would pass the replica."""
    _, first, second, third = cycles.dumps
    write_report(first, EQUAL)
    # A verification of all tables has read one that was changed long before.
    write_report(second, UNREAD)
    assert cycles.to_compare() == {"second", "third", "t"}
    write_report(third, EQUAL)
    assert cycles.to_compare(idle=True) == set()


def test_all_tables_are_compared_if_a_dump_that_was_not_found_equal_is_gone(cycles: Cycles) -> None:
    shutil.rmtree(cycles.root / "second")
    assert cycles.to_compare() is None


def test_all_tables_are_compared_after_a_bootstrap(cycles: Cycles) -> None:
    assert tables_to_compare(cycles.dumps[0].uri) is None
    write_report(cycles.dumps[0], EQUAL)
    assert tables_to_compare(cycles.dumps[0].uri, idle=True) == set()


def test_a_repair_passes_no_table_that_it_has_not_compared(cycles: Cycles) -> None:
    bootstrap, first, second, third = cycles.dumps
    write_report(bootstrap, EQUAL)
    for compared in (["third"], ["second", "third"]):
        keep_report(third, EQUAL, compared)
        assert not found_equal(third)
    keep_report(third, UNREAD, ["third"])
    keep_report(third, EQUAL, ["third"])
    assert cycles.to_compare(idle=True) == {"first", "second", "third", "t"}
    keep_report(third, EQUAL, ["first", "second", "third", "same", "t"])
    assert found_equal(third)
    keep_report(third, UNREAD, ["third"])
    assert not found_equal(third)
    # Where the dumps do not reach back, only a verification of all tables counts.
    shutil.rmtree(cycles.root / "bootstrap")
    keep_report(first, EQUAL, ["first", "same"])
    assert not found_equal(first)
    keep_report(second, EQUAL, None)
    assert found_equal(second)


def test_a_dump_that_continues_from_itself(tmp_path: Path) -> None:
    directory = DumpDirectory((tmp_path / "round").as_uri())
    directory.finish_dump(manifest(kind=DumpKind.INCREMENT, previous=directory.uri))
    assert tables_to_compare(directory.uri) is None
