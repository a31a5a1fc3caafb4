"""Killed at any step, a load or a dump is repeated and ends in the same state.

The killed process ends by ``os._exit`` at the step: nothing of it is cleaned up, as after ``kill -9``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from tests.support.forked_workers import Run, forking
from tests.support.kills import Case
from tests.support.small_source import DATABASE


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
    for step in range(len(steps)):
        reference.drop()
        case = Case(small_source, target, tmp_path / str(step))
        case.dump()
        case.kill(worker, "load", step)
        case.load()
        assert case.state() == expected, f"killed before {steps[step]!r}"
    reference.drop()


def test_a_dump_killed_at_each_of_its_steps_is_written_all_the_same(
    small_source: EmbeddedMetastore, target: EmbeddedMetastore, tmp_path: Path, worker: Run
) -> None:
    reference = Case(small_source, target, tmp_path / "reference")
    expected = dump_files(reference.dump())
    for step in range(3):  # a step for each table
        case = Case(small_source, target, tmp_path / str(step))
        case.kill(worker, "dump", step)
        assert not (tmp_path / str(step) / DATABASE / case.start.dump_name / "_finished_dump").exists()
        assert dump_files(case.dump()) == expected


def dump_files(dump: str) -> dict[str, bytes]:
    root = Path(dump.removeprefix("file:"))
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name not in {"_begun.json", "_manifest.json", "_finished_dump"}
    }
