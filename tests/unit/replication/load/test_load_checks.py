"""A load checks its lock before each file that it moves or removes, and creates tables side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from airflow_hive_federation.errors import (
    CycleLostError,
    DumpIncompleteError,
    FileVanishedError,
    TargetChangedError,
)
from airflow_hive_federation.metastore import MetastoreClient, MetastorePool, MetastoreSettings
from airflow_hive_federation.metastore.idl.types import SQLAllTableConstraints
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.progress.events import Event
from airflow_hive_federation.progress.kinds import Step
from airflow_hive_federation.progress.observers import unobserved
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import DumpKind, TableKind
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.replication.load import first_load, given_up, load, placing
from airflow_hive_federation.replication.load.copying import TableCopy
from airflow_hive_federation.replication.load.first_load import FirstLoad
from airflow_hive_federation.replication.load.replay import OpenedTransactions
from airflow_hive_federation.replication.load.stages import Stage, to_end
from airflow_hive_federation.replication.load.summary import LoadSummary
from airflow_hive_federation.replication.load.target_load import TargetLoad
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.layout import STAGE, TargetLayout
from airflow_hive_federation.storage.plan_files import write_plan
from tests.support.dumps import manifest


def lost() -> None:
    raise CycleLostError("The lock is lost.", policy="p", holder="", reason="refused")


def quiet(*_: object) -> None:
    """Says nothing."""


@pytest.fixture
def policy(tmp_path: Path) -> ReplicationPolicy:
    return ReplicationPolicy(name="p", source_database="d", dump_root=f"file:{tmp_path}/dumps")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "t" / STAGE / "delta_0000007_0000007" / "bucket_00000"
    made.parent.mkdir(parents=True)
    made.touch()
    return made


def increments(policy: ReplicationPolicy, copy: TableCopy) -> Any:
    """A load of an increment at the point where its copies are planned; it is about nothing else."""
    load: Any = object.__new__(TargetLoad)
    load._client, load._policy, load._database = None, policy, "d"
    load._directory = DumpDirectory(f"{policy.directory}/7-8-9")
    load._manifest = manifest(kind=DumpKind.INCREMENT)
    load._concerned, load._unfinished = [], None
    load._entries, load._given_up = {}, ()
    load._copies = {"t": copy}
    load._places = SimpleNamespace(spare_shared=quiet, each_once=iter)
    load._copy_items = lambda: ()
    load._prepare = lambda: None
    load._observer = load._step = quiet
    load._layout = TargetLayout(policy=policy, managed=policy.dump_root)
    load._check = lost
    return load


def test_what_waits_in_hidden_places_stays_there(policy: ReplicationPolicy, file: Path) -> None:
    copy = TableCopy(staged={f"file:{file.parent}": f"file:{file.parents[2]}/{file.parent.name}"})
    with pytest.raises(CycleLostError):
        increments(policy, copy).copy(lambda *_: None)
    assert file.exists()


def test_nothing_is_placed_when_readers_are_back(
    policy: ReplicationPolicy, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = TableCopy(staged={f"file:{file.parent}": f"file:{file.parents[2]}/{file.parent.name}"})
    monkeypatch.setattr(placing, "appears_by_files", lambda _copy: True)
    monkeypatch.setattr(placing.ReadersKeptOut, "of", lambda *_: nullcontext(lost))
    load = increments(policy, copy)
    load._check = lambda: None
    with pytest.raises(CycleLostError):
        load.copy(lambda *_: None)
    assert file.exists()


def test_files_that_the_source_has_no_more_stay(policy: ReplicationPolicy, file: Path) -> None:
    with pytest.raises(CycleLostError):
        increments(policy, TableCopy(extraneous=[f"file:{file}"])).drop()
    assert file.exists()


def test_readers_that_a_killed_load_kept_out_come_in_after_the_last_change(
    policy: ReplicationPolicy, file: Path
) -> None:
    load, found = increments(policy, TableCopy(extraneous=[f"file:{file}"])), []
    load._check = quiet
    load._placing = SimpleNamespace(let_readers_in=lambda _: found.append(file.exists()))
    load.drop()
    assert found == [False]


def test_what_an_earlier_bootstrap_has_left_stays(policy: ReplicationPolicy, file: Path) -> None:
    item = CopyItem(source="file:/far/f", target=f"file:{file}", size_bytes=0)
    write_plan(f"{policy.directory}/5-6/load/copy_plan.jsonl", [item])
    directory = DumpDirectory(f"{policy.directory}/7-8")
    directory.write_functions([])
    directory.finish_dump(manifest(event_id=7, lease=8))
    write_plan(f"{directory.uri}/load/copy_plan.jsonl", [])
    places: Any = SimpleNamespace(owns=lambda _: True)

    def remove(check: Callable[[], None]) -> None:
        plan = f"{directory.uri}/load/copy_plan.jsonl"
        given_up.remove_given_up(policy, plan, places, observer=unobserved, check=check)

    with pytest.raises(CycleLostError):
        remove(lost)
    assert file.exists()
    remove(lambda: None)
    assert not file.exists()


def test_a_base_that_an_earlier_bootstrap_has_left_leaves_no_empty_directory(
    policy: ReplicationPolicy, tmp_path: Path
) -> None:
    """To some readers it would hide the rows of all deltas up to its write id."""
    file = tmp_path / "t" / "base_0000005" / "bucket_00000"
    file.parent.mkdir(parents=True)
    file.touch()
    item = CopyItem(source="file:/far/f", target=f"file:{file}", size_bytes=0)
    write_plan(f"{policy.directory}/5-6/load/copy_plan.jsonl", [item])
    plan = f"{policy.directory}/7-8/load/copy_plan.jsonl"
    write_plan(plan, [])
    places: Any = SimpleNamespace(owns=lambda _: True)
    given_up.remove_given_up(policy, plan, places, observer=unobserved, check=quiet)
    assert list((tmp_path / "t").iterdir()) == []


@pytest.mark.parametrize("kind", DumpKind)
def test_no_step_begins_without_the_lock(
    policy: ReplicationPolicy, kind: DumpKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = DumpDirectory(f"{policy.directory}/7-8")
    directory.finish_dump(manifest(kind=kind, event_id=8, previous="file:/dumps/p/6-7-8"))
    chosen = "FirstLoad" if kind is DumpKind.BOOTSTRAP else "TargetLoad"
    monkeypatch.setattr(load, chosen, lambda *_, step, **__: step(Step.PUBLISH))
    unused = SimpleNamespace(client=nullcontext)
    events: list[Event] = []
    with pytest.raises(CycleLostError):
        load.load_into_target(
            unused, unused, policy, directory.uri, run_copy=quiet, observer=events.append, check=lost
        )
    assert events == []


@pytest.mark.parametrize(
    ("given", "swept"),
    [({}, True), ({"sweeps": False}, False), ({"opened": OpenedTransactions()}, False)],
)
def test_a_load_aborts_dangling_transactions_unless_its_caller_does(
    policy: ReplicationPolicy, given: dict[str, Any], swept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group does for all members, and a take-over does after it has removed the files that wait."""
    directory = DumpDirectory(f"{policy.directory}/7-8")
    directory.finish_dump(manifest(kind=DumpKind.INCREMENT, event_id=8, previous="file:/dumps/p/6-7-8"))
    made: Any = MagicMock(spec=TargetLoad, published_event=lambda: None, lease=0)
    made.summary.return_value = LoadSummary(
        dump=directory.uri, database="d", event_id=8, tables=0, partitions=0, functions=0
    )
    monkeypatch.setattr(load, "TargetLoad", lambda *_, **__: made)
    monkeypatch.setattr(load, "LeaseKeeper", lambda *_: nullcontext())
    monkeypatch.setattr(load, "end_lease", quiet)
    unused: Any = SimpleNamespace(client=nullcontext)
    to_end(load.staged_load(unused, unused, policy, directory.uri, run_copy=quiet, observer=quiet, **given))
    assert made.publish.called
    assert made.sweep.called is swept


def test_tables_are_created_side_by_side_and_a_failure_is_about_its_table_alone() -> None:
    load: Any = object.__new__(FirstLoad)
    load._client, load._pool = "own", SimpleNamespace(client=lambda: nullcontext("pooled"), size=2)
    load._threads, load._database = 4, "d"
    load._observer = load._step = quiet
    load._concerned = [TableEntry(name=name, kind=TableKind.MANAGED) for name in "ab"]
    load._document = lambda _: SimpleNamespace(constraints=SQLAllTableConstraints())
    both = threading.Barrier(2)
    clients = set()

    def create(client: str) -> int:
        both.wait(timeout=60)
        clients.add(client)
        if client == "pooled":
            raise TargetChangedError("Table d.t was changed.", differences=[])
        return 0

    load._convergence = lambda _, client: SimpleNamespace(create=lambda _: create(client))
    with pytest.raises(TargetChangedError) as failed:
        load._shape_tables()
    assert clients == {"own", "pooled"}
    assert failed.value.__context__ is None


def test_tables_are_created_by_a_pool_of_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The load holds the connection itself: a second worker would wait for it until the load has failed."""
    submitted = threading.Semaphore(0)

    class Workers(ThreadPoolExecutor):
        def submit(self, *job: Any) -> Any:  # type: ignore[override]
            future = super().submit(*job)
            submitted.release()
            return future

    monkeypatch.setattr(first_load, "ThreadPoolExecutor", Workers)
    load: Any = object.__new__(FirstLoad)
    clients: list[MetastoreClient] = []

    def create(client: MetastoreClient) -> int:
        if not clients:
            # Each further worker has begun by then.
            assert all(submitted.acquire(timeout=60) for _ in load._concerned)
        clients.append(client)
        return 0

    settings = MetastoreSettings(uris=("thrift://target:1",))
    with MetastorePool(settings, 1, wait_timeout_s=0.0) as pool, pool.client() as own:
        load._client, load._pool, load._threads, load._database = own, pool, 4, "d"
        load._observer = load._step = quiet
        load._concerned = [TableEntry(name=name, kind=TableKind.MANAGED) for name in "abcd"]
        load._document = lambda _: SimpleNamespace(constraints=SQLAllTableConstraints())
        load._convergence = lambda _, client: SimpleNamespace(create=lambda _: create(client))
        load._shape_tables()
    assert clients == [own] * 4


@pytest.mark.parametrize("in_group", [False, True])
def test_compactions_are_kept_away_before_and_after_the_transactions_end(in_group: bool) -> None:
    calls: list[str] = []

    class Recorded:
        is_increment, lease = True, 7

        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *_: calls.append(name)

    unused: Any = SimpleNamespace()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "LeaseKeeper", lambda *_: nullcontext())
        for stage in load._carry_out(
            cast("Any", Recorded()), unused, quiet, in_group=in_group, sweeps=not in_group
        ):
            calls.append(stage.name)
            if in_group and stage is Stage.ALLOCATED:
                calls.append("end_transactions")
    around = calls[calls.index("allocate") : calls.index("drop") + 1]
    assert [name for name in around if name != Stage.ALLOCATED.name] == [
        "allocate",
        "keep_compactions_away",
        "end_transactions",
        "keep_compactions_away",
        "drop",
    ]


@pytest.mark.parametrize("kind", DumpKind)
def test_only_a_file_that_the_source_lost_makes_the_dump_out_of_date(
    policy: ReplicationPolicy, kind: DumpKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same load cannot find such a file again, but copies one that the target lost."""
    gone = FileVanishedError("A file is gone.", path="file:/t/f")
    copied = False

    class Copying:
        """A load of which the copy, or after it the record of the files, finds a file gone."""

        is_increment, lease = False, 7

        def __init__(self, *_: object, **__: object) -> None: ...

        def __getattr__(self, name: str) -> Callable[..., None]:
            return quiet

        def published_event(self) -> None: ...

        def copy(self, run_copy: Callable[[str, str], None]) -> None:
            run_copy("plan", "outcomes")

        def note_files(self) -> None:
            raise gone

    def run_copy(_plan: str, _outcomes: str) -> None:
        if not copied:
            raise gone

    directory = DumpDirectory(f"{policy.directory}/7-8-9")
    directory.finish_dump(manifest(kind=kind))
    monkeypatch.setattr(load, "LeaseKeeper", lambda *_: nullcontext())
    monkeypatch.setattr(load, "TargetLoad" if kind is DumpKind.INCREMENT else "FirstLoad", Copying)
    pool: Any = SimpleNamespace(client=nullcontext)

    def staged() -> None:
        load.load_into_target(pool, pool, policy, directory.uri, run_copy=run_copy)

    with pytest.raises(DumpIncompleteError, match=r"is out of date: A file is gone\.") as outdated:
        staged()
    assert not outdated.value.retryable
    assert outdated.value.facts == {"dump": directory.uri, "path": "file:/t/f"}
    assert "clear its first task" in outdated.value.remedy
    copied = True
    with pytest.raises(FileVanishedError) as lost_again:
        staged()
    assert lost_again.value is gone
    assert lost_again.value.retryable
