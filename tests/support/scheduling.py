"""Lets the last of three or more workers of pytest-xdist run unit tests only, in the time that others leave.

Tests between servers wait for some of their time: for a scheduler's next look, for a lock that must end. A
worker for all tests in that time would start servers of its own. ``tests/conftest.py`` imports the hooks.
"""

from __future__ import annotations

import os

import pytest
from xdist.remote import Producer
from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.workermanage import WorkerController

#: Of the tests without servers, which come last.
_UNIT = "tests/unit/"
#: Fewer workers are all for all tests.
_FEWEST = 3
#: Added to the ``nice`` of that worker: the others get most of a busy processor.
_NICE = 5


class FileScheduling(LoadFileScheduling):
    """Distributes files in their order; the last worker gets those of unit tests, from the end."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        if self._is_filler(node):
            if not self._unit_files_are_left():
                return
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if self._is_filler(node) and not self._unit_files_are_left() and not node.shutting_down:
            # It runs what it has, and ends.
            node.shutdown()
            return
        super()._reschedule(node)

    def _unit_files_are_left(self) -> bool:
        return bool(self.workqueue) and next(reversed(self.workqueue)).startswith(_UNIT)

    def _is_filler(self, node: WorkerController) -> bool:
        return _is_filler(node.workerinput["workerid"], int(node.workerinput["workercount"]))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling | None:
    return FileScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_sessionstart(session: pytest.Session) -> None:
    worker = getattr(session.config, "workerinput", None)
    if worker is not None and _is_filler(worker["workerid"], int(worker["workercount"])):
        os.nice(_NICE)


def _is_filler(worker: str, count: int) -> bool:
    return count >= _FEWEST and worker == f"gw{count - 1}"
