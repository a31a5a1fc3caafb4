"""Of two cycles of one target, one works and the other fails; a killed cycle blocks none."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import CycleLostError, CycleRunningError
from airflow_hive_federation.metastore import MetastoreClient, MetastorePool, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.progress.events import Event, LockRemoved
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import cycle_lock, markers
from airflow_hive_federation.replication.replica.cycle_lock import CycleLock, holder_of
from airflow_hive_federation.storage.fence import read_fence
from tests.support.small_source import connected

DATABASE = "locked_copy"
POLICY = ReplicationPolicy(
    name="locked", source_database="locked", target_database=DATABASE, dump_root="file:/nowhere"
)


@contextmanager
def pool(metastore: EmbeddedMetastore) -> Iterator[MetastorePool]:
    with MetastorePool(MetastoreSettings(uris=(metastore.uri,)), 2) as made:
        yield made


def locked(made: MetastorePool, **named: Any) -> CycleLock:
    return CycleLock(made, POLICY, fences=False, **named)


def locks(client: MetastoreClient) -> list[Any]:
    """The locks of this file's target; other tests may have left theirs."""
    locks = client.show_locks(database=cycle_lock.LOCK_DATABASE)
    return [lock for lock in locks if lock.tablename == DATABASE]


def hold(uri: str) -> None:
    """A process that takes the lock, prints a line and stays."""
    # Others see soon that it lives.
    cycle_lock._BEAT_S = 0.5
    with MetastorePool(MetastoreSettings(uris=(uri,)), 2) as made, locked(made):
        print("held", flush=True)
        time.sleep(600)


@contextmanager
def holder(target: EmbeddedMetastore) -> Iterator[subprocess.Popen[str]]:
    code = f"from tests.integration.replication.test_cycle_lock import hold; hold({target.uri!r})"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_one_works_and_the_other_fails_until_the_first_is_killed(
    target: EmbeddedMetastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Event] = []
    with pool(target) as made:
        with holder(target) as first:
            with (
                pytest.raises(CycleRunningError, match=rf"{DATABASE}: policy locked, process {first.pid} of"),
                locked(made, observer=events.append),
            ):
                pass
            # The refused one has left nothing in the queue.
            with connected(target) as client:
                assert len(locks(client)) == 1
            first.kill()
        # Its process is known to be gone, on this machine.
        monkeypatch.setattr(cycle_lock, "_BEAT_S", 0.5)
        with locked(made, silence_s=600.0):
            pass
        with connected(target) as client:
            assert holder_of(client, DATABASE) is None

        # As from another machine: only its silence shows its end.
        with holder(target) as second:
            second.kill()
        monkeypatch.setattr(cycle_lock, "_is_dead_here", lambda _: False)
        with locked(made, silence_s=2.0, observer=events.append) as lock:
            lock.check()
        assert isinstance(events[-1], LockRemoved)
        assert str(second.pid) in events[-1].holder


def test_a_cycle_whose_lock_was_taken_over_stops(target: EmbeddedMetastore, tmp_path: Path) -> None:
    policy = replace(POLICY, dump_root=f"file:{tmp_path}")
    database = types.Database(name=DATABASE, parameters={markers.POLICY: policy.name})
    with pool(target) as made, connected(target) as client:
        client.create_database(database)
        with CycleLock(made, policy) as lock, lock.target.client() as guarded:
            guarded.alter_database(DATABASE, client.get_database(DATABASE))
            assert parameters(client)[markers.EPOCH] == str(lock.epoch)
            assert read_fence(f"file:{tmp_path}/locked/_fences/{DATABASE}") == lock.epoch
            client.unlock(holder_of(client, DATABASE).lockid)
            with CycleLock(made, policy) as successor:
                assert successor.epoch > lock.epoch
                assert parameters(client)[markers.EPOCH] == str(successor.epoch)
                altered: Any = client.get_database(DATABASE)
                altered.parameters = {"overwritten": "by the predecessor"}
                with pytest.raises(CycleLostError, match="has lost its lock") as caught:
                    guarded.alter_database(DATABASE, altered)
                assert caught.value.reason == "refused"
                for lost in (lock.check, lock.prove):
                    with pytest.raises(CycleLostError):
                        lost()
                assert "overwritten" not in parameters(client)
                assert read_fence(f"file:{tmp_path}/locked/_fences/{DATABASE}") == successor.epoch
        client.drop_database(DATABASE, delete_data=True)


def test_a_higher_epoch_of_the_target_ends_a_cycle(target: EmbeddedMetastore, tmp_path: Path) -> None:
    """The lock alone does not show it: the metastore of the locks was restored, for instance."""
    policy = replace(POLICY, dump_root=f"file:{tmp_path}")
    with pool(target) as made, connected(target) as client:
        client.create_database(types.Database(name=DATABASE, parameters={markers.POLICY: policy.name}))
        with CycleLock(made, policy) as lock:
            altered: Any = client.get_database(DATABASE)
            altered.parameters = {**altered.parameters, markers.EPOCH: str(lock.epoch + 5)}
            client.alter_database(DATABASE, altered)
            with pytest.raises(CycleLostError, match="is at epoch"):
                lock.prove()
        with CycleLock(made, policy) as after:
            assert after.epoch == lock.epoch + 6
        client.drop_database(DATABASE, delete_data=True)


def test_a_database_of_others_gets_no_epoch(target: EmbeddedMetastore, tmp_path: Path) -> None:
    policy = replace(POLICY, dump_root=f"file:{tmp_path}")
    with pool(target) as made, connected(target) as client:
        client.create_database(types.Database(name=DATABASE, parameters={markers.POLICY: "another"}))
        before = client.get_current_notification_event_id()
        with CycleLock(made, policy) as lock:
            lock.prove()
        assert client.get_current_notification_event_id() == before
        client.drop_database(DATABASE, delete_data=True)


def parameters(client: MetastoreClient) -> dict[str, str]:
    return dict(client.get_database(DATABASE).parameters or {})


def test_of_many_at_once_one_gets_it(target: EmbeddedMetastore) -> None:
    outcomes: list[str] = []
    together, done = threading.Barrier(4), threading.Event()

    def attempt() -> None:
        with pool(target) as made:
            together.wait()
            try:
                with locked(made):
                    outcomes.append("held")
                    done.wait(60)
            except CycleRunningError:
                outcomes.append("refused")
                if outcomes.count("refused") == 3:
                    done.set()

    threads = [threading.Thread(target=attempt) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["held", "refused", "refused", "refused"]


def test_a_request_left_waiting_by_a_killed_process_is_removed(
    target: EmbeddedMetastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    component = types.LockComponent(
        type=types.LockType.EXCLUSIVE,
        level=types.LockLevel.TABLE,
        dbname=cycle_lock.LOCK_DATABASE,
        tablename=DATABASE,
        operationType=types.DataOperationType.NO_TXN,
        isTransactional=False,
    )
    with connected(target) as client:
        held = client.lock([component])
        left = client.lock([component])
        client.unlock(held.lockid or 0)
        assert (held.state, left.state) == (types.LockState.ACQUIRED, types.LockState.WAITING)
    asked: list[str] = []
    take = CycleLock._take

    def counted(self: CycleLock, client: MetastoreClient) -> bool:
        asked.append("")
        return take(self, client)

    monkeypatch.setattr(CycleLock, "_take", counted)
    with pool(target) as made, locked(made, silence_s=2.0) as lock:
        lock.check()
    assert len(asked) == 2  # before it was looked at, and after
    with connected(target) as client:
        assert not locks(client)


def test_readers_of_the_target_do_not_notice(target: EmbeddedMetastore) -> None:
    with pool(target) as made, locked(made), connected(target) as client:
        component = types.LockComponent(
            type=types.LockType.SHARED_READ,
            level=types.LockLevel.DB,
            dbname=DATABASE,
            operationType=types.DataOperationType.SELECT,
        )
        answer = client.lock([component])
        assert answer.state == types.LockState.ACQUIRED
        client.unlock(answer.lockid or 0)
