"""The tables that a verification compares: those changed since one last found the replica equal."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import DumpKind, TableKind, TableWork
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.replication.verify.report import ReadFailure, VerificationReport, write_report
from airflow_hive_federation.replication.verify.unverified import tables_to_compare
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
    assert cycles.to_compare() == {"first", "second", "third"}
    write_report(first, EQUAL)
    assert cycles.to_compare() == {"second", "third"}
    write_report(second, EQUAL)
    assert cycles.to_compare() == {"third"}
    # A verification that is asked for again compares the last cycle's tables again.
    write_report(third, EQUAL)
    assert cycles.to_compare() == {"third"}


def test_an_idle_cycle_compares_the_tables_that_no_verification_has_found_equal(cycles: Cycles) -> None:
    _, first, _, third = cycles.dumps
    write_report(first, EQUAL)
    assert cycles.to_compare(idle=True) == {"second", "third"}
    write_report(third, EQUAL)
    assert cycles.to_compare(idle=True) == set()


def test_all_tables_are_compared_if_a_dump_that_was_not_found_equal_is_gone(cycles: Cycles) -> None:
    shutil.rmtree(cycles.root / "second")
    assert cycles.to_compare() is None


def test_all_tables_are_compared_after_a_bootstrap(cycles: Cycles) -> None:
    assert tables_to_compare(cycles.dumps[0].uri) is None
    write_report(cycles.dumps[0], EQUAL)
    assert tables_to_compare(cycles.dumps[0].uri, idle=True) == set()
