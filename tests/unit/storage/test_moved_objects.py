"""A directory of an object store is moved object by object, and a move that ends in the middle loses none."""

from __future__ import annotations

import threading

import pytest

from airflow_hive_federation.storage.publishing import rename

PATHS = ("bucket_00000", "bucket_00001", "sub/bucket_00002")
MOVED = {f"b/t/base_5/{path}": path for path in PATHS}
ELSEWHERE = {"b/t/.stage/base_50/f": "other"}


class StoppedError(Exception):
    """The process was killed, or its cycle has lost its lock."""


class Store:
    """A double of an object store's driver that stops after so many copies and removals."""

    protocol = ("s3", "s3a")

    def __init__(self, stops_after: int) -> None:
        self.objects = {f"b/t/.stage/base_5/{path}": path for path in PATHS} | ELSEWHERE
        self.left = stops_after
        self._lock = threading.Lock()

    def find(self, path: str) -> list[str]:
        return sorted(key for key in self.objects if key.startswith(f"{path}/"))

    def cp_file(self, source: str, target: str) -> None:
        self._count()
        self.objects[target] = self.objects[source]

    def rm_file(self, path: str) -> None:
        self._count()
        assert MOVED.items() <= self.objects.items()
        del self.objects[path]

    def check(self) -> None:
        """Raise as a cycle that has lost its lock."""
        if not self.left:
            raise StoppedError

    def _count(self) -> None:
        with self._lock:
            if not self.left:
                raise StoppedError
            self.left -= 1


@pytest.mark.parametrize("stops_after", range(2 * len(PATHS)))
def test_a_killed_move_is_repeated(stops_after: int) -> None:
    store = Store(stops_after)
    with pytest.raises(StoppedError):
        rename(store, "b/t/.stage/base_5", "b/t/base_5")
    store.left = 100
    rename(store, "b/t/.stage/base_5", "b/t/base_5")
    assert store.objects == MOVED | ELSEWHERE
    with pytest.raises(FileNotFoundError):
        rename(store, "b/t/.stage/base_5", "b/t/base_5")


@pytest.mark.parametrize("ends_after", range(2 * len(PATHS)))
def test_a_move_of_a_cycle_that_has_lost_its_lock(ends_after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its successor may have dropped the table meanwhile."""
    store = Store(ends_after)
    monkeypatch.setattr(store, "_count", lambda: setattr(store, "left", store.left - 1))
    # One object at a time, or others would be on their way already.
    monkeypatch.setattr("airflow_hive_federation.storage.publishing._THREADS", 1)
    with pytest.raises(StoppedError):
        rename(store, "b/t/.stage/base_5", "b/t/base_5", check=store.check)
    assert store.left == 0
