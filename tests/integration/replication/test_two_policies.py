"""Two policies of one target: the external tables of one are never written over those of the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import LocationConflictError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.cycle_plan import plan_cycle
from airflow_hive_federation.replication.failover import let_go
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.external_claims import EXTERNAL_CLAIMS
from airflow_hive_federation.replication.replica.external_roots import read_roots
from tests.support.incrementing import Cycles, cycles
from tests.support.small_source import connected, make_table

NAMES = ("one_of_two", "two_of_two")
NO_SQL = cast("Any", (None, None))


@pytest.fixture
def pair(
    source: EmbeddedMetastore, target: EmbeddedMetastore, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[list[Cycles]]:
    """Two policies with one external base."""
    suffix = request.node.name.split("_")[2]
    with ExitStack() as held:
        made = []
        for name in NAMES:
            database = f"{name}_{suffix}"
            with connected(source) as client:
                client.create_database(types.Database(name=database, parameters={}))
            base = f"file:{tmp_path}/base"
            made.append(
                held.enter_context(
                    cycles(source, target, NO_SQL, tmp_path, source_database=database, external_base=base)
                )
            )
        yield made


def add(site: Cycles, table: str, directory: Path, file: str) -> None:
    """An external table, and a file in its directory that may be there for another one already."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / file).write_text(file, encoding="utf-8")
    with site.source.client() as client:
        make_table(client, site.policy.source_database, table, location=f"file:{directory}")


def drop(site: Cycles, table: str) -> None:
    with site.source.client() as client:
        client.drop_table(site.policy.source_database, table, delete_data=False)


def parameters(site: Cycles) -> dict[str, str]:
    with site.target.client() as client:
        return dict(client.get_database(site.policy.target_database).parameters or {})


def roots(site: Cycles) -> tuple[str, ...]:
    recorded = read_roots(site.policy.target_database, parameters(site))
    assert recorded.checked or not recorded.uris
    return recorded.uris


def copied(directory: Path) -> list[str]:
    files = (path.relative_to(directory) for path in directory.rglob("*") if path.is_file())
    return sorted(str(path) for path in files if path.parts[0] != EXTERNAL_CLAIMS)


def test_a_bootstrap_over_anothers_directory_is_refused(pair: list[Cycles], tmp_path: Path) -> None:
    first, second = pair
    lake, base = tmp_path / "lake", Path(f"{tmp_path}/base{tmp_path}/lake")
    add(first, "t", lake / "events", "a")
    add(second, "own", lake / "own", "o")
    add(second, "inner", lake / "events" / "inner", "b")
    first.bootstrap()
    assert roots(first) == (f"file:{base}/events",)
    # The plan shows it before there is a database.
    for attempt in (lambda: plan_cycle(second.source, second.target, second.policy), second.bootstrap):
        with pytest.raises(LocationConflictError, match=f"database {first.policy.target_database} of policy"):
            attempt()
    assert roots(second) == ()
    assert not (base / "own").exists()
    # Each by a base of its own.
    apart = replace(second.policy, external_base=f"file:{tmp_path}/apart")
    assert len(plan_cycle(second.source, second.target, apart).tables) == 2
    replace(second, policy=apart).bootstrap()
    assert copied(base) == ["events/a", "events/inner/b"]
    assert copied(tmp_path / "apart") == [f"{str(lake)[1:]}/events/inner/b", f"{str(lake)[1:]}/own/o"]


def test_an_increment_over_anothers_directory_is_refused(pair: list[Cycles], tmp_path: Path) -> None:
    first, second = pair
    lake, base = tmp_path / "lake", Path(f"{tmp_path}/base{tmp_path}/lake")
    add(first, "t", lake / "events", "a")
    first.bootstrap()
    add(second, "own", lake / "own", "o")
    second.bootstrap()
    add(second, "late", lake, "b")
    dump = second.dump()
    for attempt in (
        lambda: plan_cycle(second.source, second.target, second.policy),
        lambda: second.load(dump.dump),
    ):
        with pytest.raises(LocationConflictError, match=f"database {first.policy.target_database} of policy"):
            attempt()
        assert roots(second) == (f"file:{base}/own",)
    assert not list(Path(dump.dump.removeprefix("file:")).glob("load/copy_plan*"))
    # The first one gives its directory up; the next run of the second one goes on.
    drop(first, "t")
    first.cycle()
    assert roots(first) == ()
    second.load(dump.dump)
    assert roots(second) == (f"file:{base}",)
    assert copied(base) == ["b", "events/a", "own/o"]


def test_a_target_of_another_metastore_keeps_its_directories(pair: list[Cycles], tmp_path: Path) -> None:
    site = pair[0]
    lake, base = tmp_path / "lake", Path(f"{tmp_path}/base{tmp_path}/lake")
    add(site, "own", lake / "own", "o")
    site.bootstrap()
    (claim,) = (tmp_path / "base" / EXTERNAL_CLAIMS).iterdir()
    values = json.loads(claim.read_text(encoding="utf-8"))
    assert (values["database"], values["roots"]) == (site.policy.target_database, [f"file:{base}/own"])
    theirs = {**values, "metastore": "other", "roots": [f"file:{base}/events"]}
    (claim.parent / "other@bazaar.json").write_text(json.dumps(theirs), encoding="utf-8")
    add(site, "late", lake / "events" / "late", "l")
    for attempt in (lambda: plan_cycle(site.source, site.target, site.policy), site.cycle):
        with pytest.raises(
            LocationConflictError, match=r"another metastore \(id other\) would share or nest"
        ):
            attempt()
    assert copied(base) == ["own/o"]
    drop(site, "late")
    add(site, "late", lake / "other", "l")
    site.cycle()
    assert copied(base) == ["other/l", "own/o"]
    drop(site, "own")
    site.cycle()
    assert json.loads(claim.read_text(encoding="utf-8"))["roots"] == [f"file:{base}/other"]


def test_a_claim_of_a_run_that_was_killed_is_compared_anew(
    pair: list[Cycles], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between recording directories and comparing them, a load does not take them for its own."""
    first, second = pair
    for site in pair:
        site.bootstrap()
    for site in pair:
        add(site, "t", tmp_path / "lake", "a")
    module = "airflow_hive_federation.replication.replica.database.check_other_roots"
    with monkeypatch.context() as patch:
        patch.setattr(module, killed)
        with pytest.raises(KeyboardInterrupt):
            first.cycle()
    assert not read_roots(first.policy.target_database, parameters(first)).checked
    # What is claimed is respected before it is compared.
    with pytest.raises(LocationConflictError, match=first.policy.target_database):
        second.cycle()
    assert roots(second) == ()
    first.cycle()
    with pytest.raises(LocationConflictError, match=first.policy.target_database):
        second.cycle()


def killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_database_that_was_let_go_keeps_its_directories(pair: list[Cycles], tmp_path: Path) -> None:
    first, second = pair
    for site in pair:
        add(site, "t", tmp_path / "lake", "a")
    first.bootstrap()
    with first.target.client() as client:
        let_go(client, first.policy)
    assert markers.POLICY not in parameters(first)
    with pytest.raises(LocationConflictError, match=f"tables of database {first.policy.target_database} "):
        second.bootstrap()
