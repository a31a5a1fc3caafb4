"""Guards that hold a cycle back: its lock is lost, its dump overtaken, or others wrote its target.

The cycle, its lock, its dumps and its fences are the real ones; the metastore is a model, and in the place of
the test chooses the load.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.errors import (
    ConfigurationError,
    CycleLostError,
    CycleRunningError,
    FailoverError,
    LocationConflictError,
    NoSuchObjectError,
    TargetChangedError,
    UnsupportedMethodError,
)
from airflow_hive_federation.metastore import MetastoreClient, MetastorePool, MetastoreSettings
from airflow_hive_federation.progress.observers import unobserved
from airflow_hive_federation.replication import cycle, take_over
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.dumped_policy import DumpedPolicy
from airflow_hive_federation.replication.format.kinds import DumpKind
from airflow_hive_federation.replication.load.summary import LoadSummary
from airflow_hive_federation.replication.overtaken_loads import OvertakenError
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import cycle_lock, markers
from airflow_hive_federation.replication.replica.dumps_owner import claim_dumps, metastore_id
from airflow_hive_federation.replication.replica.foreign_writes import ForeignWrite
from airflow_hive_federation.replication.replica.position import TargetPosition
from airflow_hive_federation.storage import fence
from airflow_hive_federation.storage.fence import fence_of, raise_fence
from tests.support.dumps import manifest
from tests.support.metastore_model import Server


@dataclass
class Site:
    """A policy, its target, and what its loads do."""

    policy: ReplicationPolicy
    server: Server
    pool: MetastorePool
    now_s: float = 1000.0
    loads: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    #: Called in the place of a load, with its callbacks.
    during: Callable[[Mapping[str, Any]], None] = lambda _: None

    @property
    def dump(self) -> str:
        return f"{self.policy.directory}/7-8-9"

    def load(self, *_: object, **given: Any) -> LoadSummary:
        self.loads.append(self.dump)
        self.during(given)
        return LoadSummary(dump=self.dump, database="t", event_id=8, tables=0, partitions=0, functions=0)

    def run(self) -> LoadSummary:
        return cycle.load_dump(
            self.pool, self.pool, self.policy, self.dump, run_copy=never, observer=unobserved
        )

    def lose_the_lock(self) -> None:
        """As when this process was suspended, and another cycle has taken its place."""
        self.server.locks.clear()
        self.now_s += 60.0


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    server = Server(
        "target", "t", {markers.POLICY: "p", markers.LAST_ID: "7", markers.CHECKPOINT: "file:/dumps/p/6-7-8"}
    )
    policy = ReplicationPolicy(
        name="p", source_database="s", target_database="t", dump_root=f"file:{tmp_path}"
    )
    channel = SimpleNamespace(endpoint="target", exchange=server.exchange, close=lambda: None)
    monkeypatch.setattr(MetastoreClient, "_connected", lambda _: channel)
    with MetastorePool(MetastoreSettings(uris=("thrift://target:1",)), 4) as pool:
        made = Site(policy, server, pool)
        monkeypatch.setattr(cycle_lock, "boot_time_s", lambda: made.now_s)
        monkeypatch.setattr(cycle, "load_into_target", made.load)
        monkeypatch.setattr(
            cycle.retention, "forget_old_dumps", lambda *_, **__: made.forgotten.append(made.dump)
        )
        DumpDirectory(made.dump).finish_dump(
            manifest(
                kind=DumpKind.INCREMENT,
                event_id=8,
                previous="file:/dumps/p/6-7-8",
                policy=DumpedPolicy.of(policy),
            )
        )
        yield made


def never(*_: object) -> None:
    raise AssertionError("nothing is copied here")


def test_a_cycle_that_nothing_disturbs(site: Site) -> None:
    """The model lets a load come to its end, or the other tests would prove nothing."""

    def asking(given: Mapping[str, Any]) -> None:
        given["check"]()

    site.during = asking
    assert site.run().event_id == 8
    assert site.loads == site.forgotten == [site.dump]
    assert not site.server.locks


def test_a_cycle_that_has_lost_its_lock_takes_no_step(site: Site) -> None:
    steps: list[str] = []

    def lost(given: Mapping[str, Any]) -> None:
        site.lose_the_lock()
        with pytest.raises(CycleLostError):
            given["check"]()
        steps.append("refused")

    site.during = lost
    with pytest.raises(CycleLostError):
        site.run()
    assert steps == ["refused"]


def test_a_take_over_that_has_lost_its_lock_takes_no_step_of_a_load(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def losing(*_: object, **given: Any) -> None:
        # Files of later loads wait for transactions: they are removed before these are aborted.
        assert given["sweeps"] is False
        given["check"]()
        site.lose_the_lock()
        given["check"]()

    monkeypatch.setattr(take_over, "load_into_target", losing)
    monkeypatch.setattr(take_over, "loaded_dump", lambda *_: "file:/dumps/p/6-7-8")
    dump = DumpDirectory(site.dump)
    with cycle_lock.CycleLock(site.pool, site.policy) as lock, pytest.raises(CycleLostError):
        take_over._end_load(site.pool, lock, site.policy, dump, later=(), observer=unobserved)


def test_a_cycle_that_was_overtaken_at_its_end_fails_and_removes_no_dump(site: Site) -> None:
    site.during = lambda _: site.lose_the_lock()
    with pytest.raises(CycleLostError):
        site.run()
    assert site.loads == [site.dump]
    assert not site.forgotten


@pytest.mark.parametrize("lost", [True, False])
def test_a_cycle_that_fails_reports_the_loss_of_its_lock_before_the_failure(site: Site, lost: bool) -> None:
    """A cycle that wakes up beside its successor reads a target that is not as it left it."""
    failure = TargetChangedError("Target t stands elsewhere.", remedy="Dump anew.", differences=[])

    def failing(_: object) -> None:
        if lost:
            site.lose_the_lock()
        raise failure

    site.during = failing
    with pytest.raises(CycleLostError if lost else TargetChangedError) as caught:
        site.run()
    assert failure in (caught.value, caught.value.__cause__)


def test_copies_of_a_cycle_stop_when_the_next_one_begins(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence, "_LOOK_S", 0.0)
    plan = f"{site.dump}/load/copy_plan.jsonl"
    fences: list[Any] = []

    def copying(_: object) -> None:
        fences.append(fence_of(plan))
        fences[-1].check()

    site.during = copying
    site.run()
    first = fences[0]
    assert (first.uri, first.epoch > 0) == (f"{site.policy.directory}/_fences/t", True)
    raise_fence(first.uri, first.epoch + 1)
    with pytest.raises(CycleLostError, match="another cycle has begun"):
        fence_of(plan).check()
    site.run()
    assert fences[1].epoch == first.epoch + 2


def test_targets_that_a_policy_had_one_after_the_other_have_fences_of_their_own(site: Site) -> None:
    """Else a cycle of one could lower the fence of the other to the number of a copy that was given up."""
    fences = [
        cycle_lock.CycleLock(
            site.pool, ReplicationPolicy(**{**site.policy.to_json(), "target_database": table})
        )
        for table in ("t", "u")
    ]
    assert len({lock._fence_uri for lock in fences}) == 2


@pytest.mark.parametrize(
    "error",
    [
        TargetChangedError("Database t holds tables that the policy did not make: x."),
        FailoverError("A file has other bytes."),
        ConfigurationError("The policy has changed."),
        NoSuchObjectError("t.a is not there."),
    ],
)
def test_an_earlier_load_whose_error_can_be_remedied_ends_the_take_over(
    site: Site, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that load, the target would lack its transactions, or show a part of it."""
    with pytest.raises(type(error), match=str(error)):
        end_load_with(site, error, monkeypatch)


def test_an_earlier_load_that_a_later_one_has_overtaken_is_left_out(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    end_load_with(site, OvertakenError("table t.a was dropped"), monkeypatch)
    (record,) = caplog.records
    assert "unfinished, because of a later one: table t.a was dropped" in record.getMessage()


def end_load_with(site: Site, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(take_over, "load_into_target", failing)
    monkeypatch.setattr(take_over, "nothing_more_to_copy", lambda *_: never)
    with cycle_lock.CycleLock(site.pool, site.policy) as lock:
        dump, later = DumpDirectory(site.dump), ["file:/dumps/p/8-9-10"]
        take_over._end_load(site.pool, lock, site.policy, dump, later=later, observer=unobserved)


def test_a_dump_that_was_overtaken_is_not_loaded(site: Site) -> None:
    site.server.parameters[markers.CHECKPOINT] = "file:/dumps/p/7-9-10"
    with pytest.raises(CycleRunningError, match="has published event 7 on target database t since dump"):
        site.run()
    assert not site.loads
    assert not site.server.locks


def test_a_policy_that_has_changed_since_the_dump_loads_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.policy = replace(site.policy, external_base="file:/elsewhere")
    with pytest.raises(ConfigurationError, match="was written: external_base"):
        site.run()
    monkeypatch.setattr(take_over, "load_into_target", never)
    monkeypatch.setattr(take_over, "loaded_dump", lambda *_: "file:/dumps/p/6-7-8")
    dump = DumpDirectory(site.dump)
    with (
        cycle_lock.CycleLock(site.pool, site.policy) as lock,
        pytest.raises(ConfigurationError, match="was written: external_base"),
    ):
        take_over._end_load(site.pool, lock, site.policy, dump, later=(), observer=unobserved)
    assert not site.loads


def test_write_ids_of_others_stop_a_dump(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = [ForeignWrite(table="a", what="write id 6, where the last cycle left 5")]
    position = TargetPosition(last_id=7, dump="file:/dumps/p/6-7-8", foreign=foreign)
    monkeypatch.setattr(cycle, "read_position", lambda *_, **__: position)
    monkeypatch.setattr(cycle, "dump_increment", never)
    with pytest.raises(TargetChangedError, match="a: write id 6"):
        cycle.dump_next_increment(site.pool, site.pool, site.policy)


def test_dumps_of_one_policy_are_those_of_one_metastore(site: Site) -> None:
    site.run()
    before = site.server.parameters
    site.server.uri = "another"
    with pytest.raises(
        LocationConflictError, match=r"database t of another metastore \(id target\)"
    ) as caught:
        site.run()
    assert caught.value.facts["paths"] == [site.policy.directory]
    assert site.loads == [site.dump]
    assert site.server.parameters == before
    assert not site.server.locks
    # The first one goes on, and the second one does when that is gone for good.
    site.server.uri = "target"
    site.run()
    claims = Path(site.policy.directory.removeprefix("file:")) / "_targets"
    (claims / "target.json").unlink()
    site.server.uri = "another"
    site.run()
    assert [path.name for path in claims.iterdir()] == ["another.json"]


def test_of_claims_that_meet_at_least_one_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that a killed cycle has left uncompared holds others back, but not who was there before."""
    claims = Path(site.policy.directory.removeprefix("file:")) / "_targets"
    with monkeypatch.context() as patch:
        patch.setattr("airflow_hive_federation.replication.replica.dumps_owner.list_directory", killed)
        with pytest.raises(KeyboardInterrupt):
            claim_dumps("one", site.policy)
    with pytest.raises(LocationConflictError, match="id one"):
        claim_dumps("two", site.policy)
    assert [path.name for path in claims.iterdir()] == ["one.json"]
    claim_dumps("one", site.policy)
    with monkeypatch.context() as patch:
        patch.setattr("airflow_hive_federation.replication.replica.dumps_owner.list_directory", killed)
        with pytest.raises(KeyboardInterrupt):
            claim_dumps("two", site.policy)
    claim_dumps("one", site.policy)
    with pytest.raises(LocationConflictError, match="id one"):
        claim_dumps("two", site.policy)
    # A damaged claim still has an owner, who writes it anew.
    (claims / "one.json").write_text("{", encoding="utf-8")
    with pytest.raises(LocationConflictError, match="id unknown"):
        claim_dumps("two", site.policy)
    claim_dumps("one", site.policy)


def test_only_the_owner_reads_the_claims_of_dumps(site: Site, tmp_path: Path) -> None:
    """But those in a root of functions are for all who have their jars there."""
    directory = Path(site.policy.directory.removeprefix("file:"))
    claims, jars = directory / "_targets", tmp_path / "jars"
    claims.mkdir(mode=0o755, parents=True)
    claim_dumps("one", replace(site.policy, functions_root=f"file:{jars}"))
    assert {stat.S_IMODE(path.stat().st_mode) for path in (claims, claims / "one.json")} == {0o700, 0o600}
    for open_to_all in (directory, jars, jars / "_targets", jars / "_targets/p"):
        assert open_to_all.stat().st_mode & 0o005 == 0o005
    assert (jars / "_targets/p/one.json").stat().st_mode & 0o004


def test_a_root_of_functions_is_that_of_one_metastore(site: Site, tmp_path: Path) -> None:
    """Of policies with one name and one ``functions_root``, each would overwrite the other's jars."""
    policies = [
        replace(site.policy, dump_root=f"file:{tmp_path}/{side}", functions_root=f"file:{tmp_path}/jars/")
        for side in ("here", "there")
    ]
    claim_dumps("one", policies[0])
    with pytest.raises(LocationConflictError, match=r"functions of policy 'p' .* \(id one\)") as caught:
        claim_dumps("two", policies[1])
    assert caught.value.facts["paths"] == [f"file:{tmp_path}/jars/p"]
    assert "functions_root" in caught.value.remedy
    claim_dumps("two", replace(policies[1], name="q"))


def killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_metastore_without_an_id_is_known_by_its_addresses() -> None:
    def unsupported(_: str) -> str:
        raise UnsupportedMethodError("get_metastore_db_uuid is not known")

    settings = MetastoreSettings(uris=("thrift://b:9083", "thrift://a:9083"))
    client: Any = SimpleNamespace(call=unsupported, settings=settings)
    assert metastore_id(client) == "thrift://a:9083,thrift://b:9083"
