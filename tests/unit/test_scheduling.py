"""Tests the distribution of the suite's files among the workers of pytest-xdist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.scheduling import FileScheduling

FILES = ("integration/test_a", "integration/test_b", "integration/test_c", "unit/test_d", "unit/test_e")
TESTS = [f"tests/{file}.py::test_{number}" for file in FILES for number in range(3)]


@dataclass(eq=False)
class Worker:
    """A worker that runs nothing: the test reports what it has run."""

    workerinput: dict[str, Any]
    got: list[str] = field(default_factory=list)
    shutting_down: bool = False

    @property
    def gateway(self) -> SimpleNamespace:
        return SimpleNamespace(id=self.workerinput["workerid"])

    def send_runtest_some(self, indices: list[int]) -> None:
        self.got += [TESTS[index] for index in indices]

    def shutdown(self) -> None:
        self.shutting_down = True


def start(
    config: pytest.Config, count: int, tests: Sequence[str] = TESTS
) -> tuple[FileScheduling, list[Worker]]:
    workers = [Worker({"workerid": f"gw{number}", "workercount": count}) for number in range(count)]
    scheduling = FileScheduling(config)
    scheduling.numnodes = count
    for worker in workers:
        scheduling.add_node(worker)  # type: ignore[arg-type]
        scheduling.add_node_collection(worker, tests)  # type: ignore[arg-type]
    scheduling.schedule()
    return scheduling, workers


def run_all(scheduling: FileScheduling, workers: list[Worker], *, but: str = "none") -> None:
    done: set[str] = set()
    while left := [
        (worker, test)
        for worker in workers
        for test in worker.got
        if test not in done and worker.workerinput["workerid"] != but
    ]:
        worker, test = left[0]
        done.add(test)
        scheduling.mark_test_complete(worker, TESTS.index(test))  # type: ignore[arg-type]


@pytest.fixture
def config(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> pytest.Config:
    monkeypatch.setattr(pytestconfig.option, "loadscopereorder", False, raising=False)
    monkeypatch.setattr(pytestconfig.option, "maxschedchunk", None, raising=False)
    monkeypatch.setattr(pytestconfig.option, "tx", ["3*popen"], raising=False)
    return pytestconfig


def test_the_third_worker_runs_unit_tests_and_ends_before_the_others(config: pytest.Config) -> None:
    scheduling, (first, second, filler) = start(config, 3)
    run_all(scheduling, [filler])
    assert filler.shutting_down
    assert {test.split("/")[1] for test in filler.got} == {"unit"}
    assert len(filler.got) == 6
    run_all(scheduling, [first, second])
    assert sorted(first.got + second.got + filler.got) == TESTS


def test_the_others_take_the_unit_tests_that_it_leaves(config: pytest.Config) -> None:
    scheduling, workers = start(config, 3)
    run_all(scheduling, workers, but="gw2")
    assert sorted(test for worker in workers for test in worker.got) == TESTS
    assert workers[2].got
    assert {test.split("/")[1] for test in workers[2].got} == {"unit"}


def test_it_runs_nothing_between_servers(config: pytest.Config) -> None:
    between_servers = TESTS[:9]
    scheduling, workers = start(config, 3, between_servers)
    assert (workers[2].got, workers[2].shutting_down) == ([], True)
    run_all(scheduling, workers[:2])
    assert sorted(workers[0].got + workers[1].got) == between_servers


def test_two_workers_run_all_tests_in_order(config: pytest.Config) -> None:
    scheduling, workers = start(config, 2)
    assert [worker.got[0] for worker in workers] == [TESTS[0], TESTS[3]]
    run_all(scheduling, workers)
    assert sorted(test for worker in workers for test in worker.got) == TESTS
