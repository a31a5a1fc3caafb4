"""Dumps that are removed, or lie below another ``dump_root``, leave no begun load behind that nobody sees."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from airflow_hive_federation.errors import ConfigurationError, StorageError
from airflow_hive_federation.replication.dump.retention import forget_old_dumps
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import DumpKind
from airflow_hive_federation.replication.format.manifest import FinishedLoad
from airflow_hive_federation.replication.format.unfinished import (
    COPY_PLAN,
    begun_loads,
    begun_uris,
    refuse_left_behind,
)
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.storage.publishing import write_atomically
from tests.support.dumps import POLICY, manifest


class KilledError(Exception):
    """The process was killed before this removal."""


@pytest.fixture
def policy(tmp_path: Path) -> ReplicationPolicy:
    return replace(POLICY, dump_root=f"file:{tmp_path}/dumps")


def loaded(policy: ReplicationPolicy, name: str, *, previous: str = "", whole: bool = True) -> DumpDirectory:
    """A dump whose load has begun, and ended if it is whole."""
    dump = DumpDirectory(f"{policy.directory}/{name}")
    kind = {"kind": DumpKind.INCREMENT, "previous": previous} if previous else {}
    dump.finish_dump(manifest(**kind))
    write_atomically(f"{dump.uri}/{COPY_PLAN}", [b""])
    if whole:
        dump.finish_load(FinishedLoad(database=policy.target_database))
    return dump


@contextmanager
def killed_after(removals: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kill the process when it has removed this number of files."""
    left = [removals]
    unlink = os.remove

    def counted(path: Any, *arguments: Any, **how: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KilledError
        unlink(path, *arguments, **how)

    with monkeypatch.context() as patched:
        for name in ("remove", "unlink"):
            patched.setattr(os, name, counted)
        yield


@pytest.mark.parametrize("removals", range(5))
def test_a_kill_amid_a_removal_leaves_no_begun_load_and_the_next_one_removes_the_rest(
    policy: ReplicationPolicy, removals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, current = loaded(policy, "1-2-1"), loaded(policy, "2-3-2")
    with killed_after(removals, monkeypatch):
        try:
            forget_old_dumps(policy, current, keep=0)
        except KilledError:
            assert removals < 4
    for dump in begun_loads(policy):
        dump.manifest()
    forget_old_dumps(policy, current, keep=0)
    assert not Path(old.uri.removeprefix("file:")).exists()


def test_a_process_that_was_suspended_spares_the_dumps_of_its_successor(policy: ReplicationPolicy) -> None:
    old, own, later = (loaded(policy, name) for name in ("1-2-1", "2-3-2", "5-6-5"))
    assert forget_old_dumps(policy, own, keep=0) == [old.uri]
    assert later.dump_finished


def test_a_load_of_a_copied_dump_under_another_name_spares_all_dumps(policy: ReplicationPolicy) -> None:
    old, own = (loaded(policy, name) for name in ("1-2-1", "of-monday"))
    assert forget_old_dumps(policy, own, keep=0) == []
    assert old.dump_finished


def test_another_dump_root_is_refused_while_a_load_is_cut_off(
    policy: ReplicationPolicy, tmp_path: Path
) -> None:
    last = loaded(policy, "1-1")
    moved = replace(policy, dump_root=f"file:{tmp_path}/others")
    refuse_left_behind(moved, last.uri)
    begun = loaded(policy, "1-2-2", previous=last.uri, whole=False)
    refuse_left_behind(policy, last.uri)
    refuse_left_behind(replace(policy, dump_root=f"file://{tmp_path}/dumps/"), last.uri)
    with pytest.raises(ConfigurationError, match="1-2-2 was cut off") as refused:
        refuse_left_behind(moved, last.uri)
    assert "Set dump_root back" in str(refused.value.remedy)
    refuse_left_behind(moved, begun.uri)


def test_a_mount_that_does_not_answer_hides_no_begun_load(
    policy: ReplicationPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = loaded(policy, "1-2-1")
    info = LocalFileSystem.info

    def broken(self: LocalFileSystem, path: Any, **how: Any) -> Any:
        if "1-2-1/" in os.fspath(path):
            raise OSError(5, "Input/output error")
        return info(self, path, **how)

    monkeypatch.setattr(LocalFileSystem, "info", broken)
    with pytest.raises(StorageError, match="Input/output error"):
        begun_uris(policy)
    with pytest.raises(StorageError, match="Input/output error"):
        dump.manifest()
