"""Guards of dumps, loads and failovers: each refuses, and the target stays as it was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import (
    CycleRunningError,
    DumpIncompleteError,
    FailoverError,
    FileVanishedError,
    TargetChangedError,
    TargetNotOursError,
    TransactionAbortedError,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.cycle import dump_next_increment, load_dump, load_idle
from airflow_hive_federation.replication.dump import bootstrap, increment
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain
from airflow_hive_federation.replication.failover import roll_back_failover, start_failover, switch_roles
from airflow_hive_federation.replication.format.manifest import RepairPlan
from airflow_hive_federation.replication.load.load import load_into_target
from airflow_hive_federation.replication.load.summary import CopyRunner
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.verify.verify import verify_replica
from tests.support.increment_site import DATABASE, Site
from tests.support.incrementing import run_copy
from tests.support.kills import pool
from tests.support.small_source import connected, make_small_source, make_table


@pytest.fixture
def site(source: EmbeddedMetastore, target: EmbeddedMetastore, tmp_path: Path) -> Iterator[Site]:
    make_small_source(source, DATABASE)
    site = Site(source, target, tmp_path / "dumps", tmp_path / "base")
    yield site
    for metastore in (source, target):
        with connected(metastore) as client:
            client.drop_database(DATABASE, delete_data=True, cascade=True, if_exists=True)
    site.external().unlink()
    site.external().parent.rmdir()


def marked(metastore: EmbeddedMetastore, parameters: dict[str, str | None]) -> None:
    """Set parameters of the database; ``None`` takes one away."""
    with connected(metastore) as client:
        database: Any = client.get_database(DATABASE)
        merged = {**(database.parameters or {}), **parameters}
        database.parameters = {name: value for name, value in merged.items() if value is not None}
        client.alter_database(DATABASE, database)


def mending(site: Site) -> str:
    """A dump from an event to the same event."""
    with pool(site.source.uri) as source_pool, pool(site.target.uri) as target_pool:
        repair_plan = RepairPlan(tables=frozenset({"ext"}))
        return dump_next_increment(source_pool, target_pool, site.policy, repair_plan=repair_plan).dump


def test_a_dump_that_does_not_go_on_from_where_the_target_stands(site: Site) -> None:
    site.bootstrap()
    first, second = mending(site), mending(site)
    site.load(first)
    before = site.last_id()
    with pool(site.source.uri) as source_pool, pool(site.target.uri) as target_pool:
        # Of the event that the target stands at, but of what it was before the first of the two.
        with pytest.raises(TargetChangedError, match=r"stands at event .* goes on from event"):
            load_into_target(source_pool, target_pool, site.policy, second, run_copy=run_copy)
        with pytest.raises(CycleRunningError, match="has published event"):
            load_dump(source_pool, target_pool, site.policy, second, run_copy=run_copy)
        # Of the dump that the target was loaded from, but of an event before the one it stands at.
        site.commit()
        third = site.dump()
        load_idle(target_pool, site.policy, third.event_id)
        assert site.last_id() == str(third.event_id) != before
        with pytest.raises(TargetChangedError, match=rf"stands at event {third.event_id} .* event {before} "):
            load_dump(source_pool, target_pool, site.policy, third.dump, run_copy=run_copy)
        with connected(site.target) as client:
            make_table(client, DATABASE, "theirs")
        with pytest.raises(CycleRunningError, match=f"was loaded from {first} meanwhile"):
            verify_replica(target_pool, site.policy, second, run_verify=lambda *_: None, tables=())
    assert site.high_watermarks() == [3, 2]


def test_a_target_that_is_not_published_has_no_increment(site: Site) -> None:
    with pytest.raises(TargetNotOursError, match=r"is absent for policy .* nothing"):
        site.dump()
    with connected(site.target) as client:
        client.create_database(types.Database(name=DATABASE))
    marked(site.target, {markers.POLICY: DATABASE})
    with pytest.raises(TargetNotOursError, match="is loading for policy"):
        site.dump()


def test_a_bootstrap_over_what_others_made(site: Site, tmp_path: Path) -> None:
    with connected(site.target) as client:
        client.create_database(types.Database(name=DATABASE))
        make_table(client, DATABASE, "theirs")
    marked(site.target, {markers.POLICY: DATABASE})
    with pytest.raises(TargetChangedError, match="did not make: theirs"):
        site.bootstrap()
    file = tmp_path / "base" / str(site.external().parent).lstrip("/") / "theirs"
    file.parent.mkdir(parents=True)
    file.write_text("theirs", encoding="utf-8")
    with connected(site.target) as client:
        client.drop_table(DATABASE, "theirs", delete_data=True)
    with pytest.raises(TargetChangedError, match=r"(?s)did not make:.*ext: file .*/theirs \(6 bytes"):
        site.bootstrap()
    assert file.read_text(encoding="utf-8") == "theirs"
    file.unlink()
    # A table with our mark and another definition: somebody has altered what a killed load had made.
    with connected(site.target) as client:
        make_table(client, DATABASE, "ext", location=f"file:{file.parent}")
        table: Any = client.get_table(DATABASE, "ext")
        table.parameters = {**table.parameters, markers.POLICY: DATABASE}
        table.sd.cols[0].name = "other"
        client.alter_table(DATABASE, "ext", table)
    with pytest.raises(TargetChangedError, match=r"(?s)Table rough\.ext was changed on the target.*other"):
        site.bootstrap()


def test_tables_of_others_stop_an_increment(site: Site) -> None:
    site.bootstrap()
    with connected(site.target) as client:
        make_table(client, DATABASE, "theirs")
    site.commit()
    with pytest.raises(TargetChangedError, match="did not make: theirs"):
        site.dump()
    assert site.high_watermarks() == [3, 2]


def test_a_failover_that_cannot_be(site: Site) -> None:
    site.bootstrap()
    back = site.policy.reversed("file:/").name
    with pool(site.source.uri) as source_pool, pool(site.target.uri) as target_pool:
        marked(site.source, {markers.POLICY: "another"})
        with pytest.raises(FailoverError, match="is a replica itself, of policy 'another'"):
            start_failover(source_pool, target_pool, site.policy)
        marked(site.source, {markers.POLICY: None})

        start_failover(source_pool, target_pool, site.policy)
        with connected(site.target) as client:
            table: Any = client.get_table(DATABASE, "ext")
            table.sd.cols[0].name = "other"
            client.alter_table(DATABASE, "ext", table)
        load_idle(target_pool, site.policy, site.dump().event_id)
        with pytest.raises(FailoverError, match=r"(?s)cannot be a replica of what the target has.*other"):
            switch_roles(source_pool, target_pool, site.policy)

        # As after a switch that was killed before it let the target go.
        marked(site.source, {markers.POLICY: back, markers.LAST_ID: "1"})
        with pytest.raises(FailoverError, match="nothing to roll back"):
            roll_back_failover(source_pool, target_pool, site.policy)
        marked(site.target, {markers.POLICY: "another"})
        with pytest.raises(TargetNotOursError, match="belongs to replication policy 'another'"):
            switch_roles(source_pool, target_pool, site.policy)
    with connected(site.target) as client:
        parameters: Any = client.get_database(DATABASE).parameters
    assert parameters[markers.READ_ONLY] == "true"


def test_a_bootstrap_is_loaded_once(site: Site) -> None:
    def dump() -> str:
        with connected(site.source) as client:
            start = begin_drain(client, DATABASE)
        with pool(site.source.uri) as source_pool:
            return dump_bootstrap(source_pool, site.policy, start).dump

    def load(uri: str, copy: CopyRunner = run_copy) -> None:
        with pool(site.source.uri) as source_pool, pool(site.target.uri) as target_pool:
            load_into_target(source_pool, target_pool, site.policy, uri, run_copy=copy)

    def vanished(_plan: str, _outcomes: str) -> None:
        raise FileVanishedError("File file:/far/f is gone.", path="file:/far/f")

    first = dump()
    with pytest.raises(DumpIncompleteError, match=r"is out of date: .* file:/far/f is gone") as stopped:
        load(first, vanished)
    assert stopped.value.facts["path"] == "file:/far/f"
    load(first)
    load(first)  # it is published: nothing changes
    with connected(site.source) as client:
        make_table(client, DATABASE, "later")
    with pytest.raises(TargetChangedError, match="A bootstrap is loaded once"):
        load(dump())
    with connected(site.target) as client:
        client.drop_table(DATABASE, "seen", delete_data=False)
    with pytest.raises(TargetChangedError, match="was changed on the target, by somebody else"):
        load(first)


@pytest.mark.parametrize("kind", [bootstrap, increment], ids=["bootstrap", "increment"])
def test_a_dump_during_which_the_source_let_go_of_its_files_is_not_finished(
    site: Site, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """The cleaner may have removed files before they were listed: no other check notices."""
    if kind is increment:
        site.bootstrap()
        site.commit()
    write = kind._Dump.write
    unfinished = []

    def ending_the_lease(dump: Any, threads: int) -> Any:
        written = write(dump, threads)
        unfinished.append(dump._directory)
        with connected(site.source) as client:
            transactions: Any = client.get_open_txns()
            client.abort_txns(transactions.open_txns)
        return written

    monkeypatch.setattr(kind._Dump, "write", ending_the_lease)
    with pytest.raises(TransactionAbortedError, match="Files may have been removed while they were listed"):
        site.dump() if kind is increment else site.bootstrap()
    assert [cycle.dump_finished for cycle in unfinished] == [False]
    monkeypatch.undo()
    site.dump() if kind is increment else site.bootstrap()


def test_a_policy_that_gets_another_target_leaves_the_former_one_its_files(site: Site) -> None:
    """Its dumps are of both; what was copied for one database is no rest of a load of the other."""
    site.bootstrap()
    before = copied(site.target)
    assert before
    moved = replace(
        site.policy, target_database=f"{DATABASE}_moved", external_base=f"{site.policy.external_base}_moved"
    )
    with connected(site.source) as client:
        client.drop_table(DATABASE, "acid", delete_data=False)
        start = begin_drain(client, DATABASE)
    try:
        with pool(site.source.uri) as source_pool, pool(site.target.uri) as target_pool:
            dump = dump_bootstrap(source_pool, moved, start).dump
            load_dump(source_pool, target_pool, moved, dump, run_copy=run_copy)
        assert copied(site.target) == before
    finally:
        with connected(site.target) as client:
            client.drop_database(moved.target_database, delete_data=True, cascade=True, if_exists=True)


def copied(target: EmbeddedMetastore) -> set[str]:
    """Files of the replica's managed tables."""
    root = target.warehouse / f"{DATABASE}.db"
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
