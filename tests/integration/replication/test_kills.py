"""Killed at any step, a load or a dump is repeated and ends in the same state.

The killed process ends by ``os._exit`` at the step: nothing of it is cleaned up, as after ``kill -9``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.load.replay import Replay
from tests.support.forked_workers import Run, forking
from tests.support.kills import Case, twice
from tests.support.small_source import DATABASE, commit_files, connected


@pytest.fixture(scope="module")
def worker() -> Iterator[Run]:
    with forking("tests.support.kills") as run:
        yield run


def test_a_load_killed_at_each_of_its_steps_ends_in_the_same_state(
    small_source: EmbeddedMetastore, target: EmbeddedMetastore, tmp_path: Path, worker: Run
) -> None:
    steps: list[str] = []
    reference = Case(small_source, target, tmp_path / "reference")
    reference.load(steps)
    expected = reference.state()
    assert {"reserve", "copy_plan", "copy", "functions", "create acid", "partitions acid", "publish"} <= set(
        steps
    )
    for number, names in enumerate(twice(steps)):
        reference.drop()
        case = Case(small_source, target, tmp_path / str(number))
        case.dump()
        for name in names:
            case.kill(worker, "load", name)
        case.load()
        assert case.state() == expected, f"killed before {names}"
    reference.drop()


def test_a_load_that_was_given_up_leaves_nothing_to_the_next_dump(
    small_source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    tmp_path: Path,
    worker: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The source has moved on when the next cycle dumps anew: new write ids, and a new column."""
    case = Case(small_source, target, tmp_path)
    for number, step in enumerate(("create acid", "partitions acid", "create seen", "publish")):
        case.drop()
        case.begin_anew()
        case.dump()
        case.kill(worker, "load", step)
        change(small_source, number)
        case.begin_anew()
        if step == "publish":
            # It is killed once more, before the target's transactions with the new write ids end.
            with monkeypatch.context() as patched:
                patched.setattr(Replay, "end", stop)
                with pytest.raises(Stopped):
                    case.load()
        case.load()
        found = case.state()
        case.drop()
        Case(small_source, target, tmp_path / step).load()
        assert found == case.state(), f"killed before {step!r}"
    case.drop()


class Stopped(Exception):  # noqa: N818 - the end of a process is no error
    """Stands for the end of the process."""


def stop(*_: object) -> None:
    raise Stopped


def change(source: EmbeddedMetastore, number: int) -> None:
    """Commit twice, and add a column to another table."""
    with connected(source) as client:
        for _ in range(2):
            commit_files(client, DATABASE, "acid")
        table = client.get_table(DATABASE, "ext")
        table.sd.cols.append(types.FieldSchema(name=f"added_{number}", type="int"))
        client.alter_table(DATABASE, "ext", table)


def test_a_dump_killed_at_each_of_its_steps_is_written_all_the_same(
    small_source: EmbeddedMetastore, target: EmbeddedMetastore, tmp_path: Path, worker: Run
) -> None:
    reference = Case(small_source, target, tmp_path / "reference")
    expected = dump_files(reference.dump())
    for step in range(3):  # a step for each table
        case = Case(small_source, target, tmp_path / str(step))
        case.kill(worker, "dump", str(step))
        assert not (tmp_path / str(step) / DATABASE / case.start.dump_name / "_finished_dump").exists()
        assert dump_files(case.dump()) == expected


def dump_files(dump: str) -> dict[str, bytes]:
    root = Path(dump.removeprefix("file:"))
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name not in {"_begun.json", "_manifest.json", "_finished_dump"}
    }
