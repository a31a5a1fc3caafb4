"""Hook, sensor, trigger and operators against real metastores, one by one."""

from __future__ import annotations

import asyncio
import json
import queue
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.demo.data import open_a_transaction
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.hooks.compat import AirflowException, AirflowFailException, TaskDeferred
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.hooks.probes import DrainProbe, ProbeAnswer
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.operators.replication import BootstrapDumpOperator, ReplicationLoadOperator
from airflow_hive_federation.sensors.transactions import OpenTransactionsDrainSensor
from airflow_hive_federation.triggers.waiting import ProbeTrigger
from tests.support.small_source import connected, make_table

DATABASE = "tower"


@pytest.fixture(scope="module")
def tower(source: EmbeddedMetastore) -> EmbeddedMetastore:
    with connected(source) as client:
        client.create_database(types.Database(name=DATABASE, parameters={}))
        make_table(client, DATABASE, "landings", partitioned=True)
    return source


@pytest.fixture(autouse=True)
def connections(tower: EmbeddedMetastore, target: EmbeddedMetastore, monkeypatch: pytest.MonkeyPatch) -> None:
    for conn_id, metastore in (("SOURCE", tower), ("TARGET", target)):
        value = {"conn_type": "hive_federation", "host": "127.0.0.1", "port": metastore.port}
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id}", json.dumps(value))


@pytest.fixture
def open_txn(tower: EmbeddedMetastore) -> Iterator[int]:
    with connected(tower) as client:
        txn_id = open_a_transaction(client, database=DATABASE, table="landings")
        yield txn_id
        if txn_id in still_open(tower):
            client.abort_txns([txn_id])


def still_open(metastore: EmbeddedMetastore) -> set[int]:
    from airflow_hive_federation.replication.dump.drain import open_transactions

    with connected(metastore) as client:
        return set(open_transactions(client.get_open_txns()))


def sensor(**settings: Any) -> OpenTransactionsDrainSensor:
    return OpenTransactionsDrainSensor(
        task_id="drain", source_conn_id="source", database=DATABASE.upper(), **settings
    )


def deferred(**settings: Any) -> ProbeTrigger:
    """The trigger that the sensor defers to."""
    with pytest.raises(TaskDeferred) as caught:
        sensor(**settings).execute({})  # type: ignore[arg-type]
    assert caught.value.method_name == "execute_complete"
    assert isinstance(caught.value.trigger, ProbeTrigger)
    return caught.value.trigger


class Asking:
    """Counts the probes of a trigger, and lets a test wait for the next one.

    :param monkeypatch: puts the counting in place.
    :param trigger: probes in threads of its own.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, trigger: ProbeTrigger) -> None:
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        assert trigger.kind == DrainProbe.kind
        ask = DrainProbe.__call__

        def counted(probe: DrainProbe) -> ProbeAnswer:
            try:
                answer = ask(probe)
            except HiveFederationError:
                self._answers.put("failed")
                raise
            self._answers.put("ended" if answer else "open")
            return answer

        monkeypatch.setattr(DrainProbe, "__call__", counted)

    def until(self, answer: str) -> None:
        """Wait until the trigger has been answered so, whatever it was answered before."""
        while self._answers.get(timeout=120) != answer:
            pass


def event_of(trigger: ProbeTrigger, meanwhile: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Return the trigger's event, while an action runs in a thread beside it."""

    async def run() -> dict[str, Any]:
        events = trigger.run()
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.to_thread(meanwhile)
        return dict((await waiting).payload)

    return asyncio.run(run())


def test_without_open_transactions_nothing_is_deferred() -> None:
    result = sensor().execute({})  # type: ignore[arg-type]
    assert (result["database"], result["transactions"], result["aborted"]) == (DATABASE, [], [])
    assert result["event_id"] > 0


def test_the_trigger_notices_the_end(
    tower: EmbeddedMetastore, open_txn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger = deferred()
    asking = Asking(monkeypatch, trigger)

    def commit() -> None:
        asking.until("open")
        with connected(tower) as client:
            client.commit_txn(open_txn)

    event = event_of(trigger, commit)
    assert event["ready"]
    result = sensor().execute_complete({}, event)  # type: ignore[arg-type]
    assert (result["transactions"], result["aborted"]) == ([open_txn], [])


def test_what_is_open_after_the_timeout_is_aborted_and_nothing_else(
    tower: EmbeddedMetastore, open_txn: int
) -> None:
    trigger = deferred(timeout="500ms")
    with connected(tower) as client:
        (later,) = client.open_txns(1)
        event = event_of(trigger)
        assert not event["ready"]
        result = sensor().execute_complete({}, event)  # type: ignore[arg-type]
        assert result["aborted"] == [open_txn]
        assert still_open(tower) & {open_txn, later} == {later}
        client.abort_txns([later])


def test_waiting_in_the_worker_does_the_same(open_txn: int) -> None:
    result = sensor(timeout=0.5, deferrable=False).execute({})  # type: ignore[arg-type]
    assert (result["transactions"], result["aborted"]) == ([open_txn], [open_txn])


def test_the_trigger_survives_a_restart_of_the_metastore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedMetastore.start("restarted", directory=tmp_path / "metastore") as metastore:
        value = {"conn_type": "hive_federation", "host": "127.0.0.1", "port": metastore.port}
        monkeypatch.setenv("AIRFLOW_CONN_SOURCE", json.dumps(value))
        with connected(metastore) as client:
            client.create_database(types.Database(name=DATABASE, parameters={}))
            make_table(client, DATABASE, "landings", partitioned=True)
            txn_id = open_a_transaction(client, database=DATABASE, table="landings")

        trigger = deferred()
        asking = Asking(monkeypatch, trigger)

        def restart_and_commit() -> None:
            asking.until("open")
            metastore.kill()
            asking.until("failed")
            metastore.restart()
            with connected(metastore) as again:
                again.commit_txn(txn_id)

        assert event_of(trigger, restart_and_commit)["ready"]


def test_a_database_that_is_not_there_fails_for_good() -> None:
    task = OpenTransactionsDrainSensor(task_id="drain", source_conn_id="source", database="nowhere")
    with pytest.raises(AirflowFailException, match=r"NoSuchObjectError: .*nowhere"):
        task.execute({})  # type: ignore[arg-type]


def test_the_dump_operator_waits_by_itself_and_its_xcom_is_plain(tmp_path: Path) -> None:
    policy = {"name": "tower", "source_database": DATABASE, "dump_root": f"file:{tmp_path}"}
    task = BootstrapDumpOperator(task_id="dump", policy=policy, source_conn_id="source")
    result = task.execute({})  # type: ignore[arg-type]
    assert json.loads(json.dumps(result)) == result
    assert result["tables"] == 1
    assert result["dump"].startswith(f"file:{tmp_path}/tower/")


def test_a_target_that_is_not_ours_fails_for_good(target: EmbeddedMetastore, tmp_path: Path) -> None:
    with connected(target) as client:
        client.create_database(types.Database(name="tower_of_others", parameters={}))
    policy = {
        "name": "tower",
        "source_database": DATABASE,
        "target_database": "tower_of_others",
        "dump_root": f"file:{tmp_path}",
    }
    dump = BootstrapDumpOperator(task_id="dump", policy=policy, source_conn_id="source").execute({})  # type: ignore[arg-type]
    load = ReplicationLoadOperator(
        task_id="load", policy=policy, source_conn_id="source", target_conn_id="target", dump=dump
    )
    with pytest.raises(AirflowException, match=r"TargetNotOursError: .*tower_of_others") as caught:
        load.execute({})  # type: ignore[arg-type]
    assert isinstance(caught.value, AirflowFailException)


def test_the_hook_gives_hmsclient_and_our_own(tower: EmbeddedMetastore) -> None:
    hook = HiveMetastoreHook("source")
    with hook.get_conn() as hms:
        assert DATABASE in hms.get_all_databases()
        assert hms.get_table(DATABASE, "landings").tableName == "landings"
    with hook.client() as client:
        assert client.get_table(DATABASE, "landings").tableName == "landings"
    works, text = hook.test_connection()
    assert works
    assert text.startswith("Hive metastore 4.")
