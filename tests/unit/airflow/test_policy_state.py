"""Tasks publish the state of their policy, and never fail by it; the standalone Airflow does it for real."""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from airflow.sdk import DAG

from airflow_hive_federation.errors import MetastoreUnreachableError, StorageError, VerificationError
from airflow_hive_federation.hooks import published
from airflow_hive_federation.hooks.compat import AirflowException, AirflowFailException, mask_secret
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.hooks.page_links import DumpLink, PolicyLink
from airflow_hive_federation.hooks.policy_fields import rendered_policy
from airflow_hive_federation.hooks.probes import DrainProbe, ProbeAnswer
from airflow_hive_federation.hooks.published import FailuresPublished
from airflow_hive_federation.operators import failover as operators_failover
from airflow_hive_federation.operators.failover import FailoverStartOperator
from airflow_hive_federation.operators.policy_state import GroupStateOperator
from airflow_hive_federation.operators.replication import (
    BootstrapDumpOperator,
    IncrementalDumpOperator,
    ReplicationBranchOperator,
    ReplicationLoadOperator,
)
from airflow_hive_federation.operators.replication_group import (
    GroupBootstrapOperator,
    GroupDumpOperator,
    GroupLoadOperator,
    GroupVerifyOperator,
)
from airflow_hive_federation.progress.events import TransactionsAborted
from airflow_hive_federation.progress.observers import Observer
from airflow_hive_federation.provider import get_provider_info
from airflow_hive_federation.published import directory as state
from airflow_hive_federation.published.directory import REPLICATION, StateDirectory, policy_key
from airflow_hive_federation.published.documents import PolicyName, PublishedCycle, Publisher
from airflow_hive_federation.replication import failover
from airflow_hive_federation.replication.dump import bootstrap, drain
from airflow_hive_federation.replication.dump.bootstrap import DumpSummary
from airflow_hive_federation.replication.groups import announcing
from airflow_hive_federation.replication.groups import bootstrap as groups_bootstrap
from airflow_hive_federation.replication.groups import dump as groups_dump
from airflow_hive_federation.replication.groups import load as groups_load
from airflow_hive_federation.replication.groups import status as groups_status
from airflow_hive_federation.replication.groups.dump import GroupDump
from airflow_hive_federation.replication.groups.load import GroupLoadSummary
from airflow_hive_federation.replication.load.summary import LoadSummary
from airflow_hive_federation.replication.verify.report import TableReport, VerificationReport
from airflow_hive_federation.sensors.transactions import OpenTransactionsDrainSensor
from airflow_hive_federation.waiting import PollPolicy

Define = Callable[..., str]
POLICY = {"name": "shop", "source_database": "Shop", "dump_root": "/dumps", "target_database": "None"}
NAME = PolicyName(name="shop", source_database="shop", target_database="shop")
CONTEXT: Any = {"ti": SimpleNamespace(dag_id="d", run_id="r", task_id="g.increment", map_index=None)}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateDirectory:
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", str(tmp_path / "state"))
    return StateDirectory(f"file:{tmp_path / 'state'}")


def last(place: StateDirectory) -> PublishedCycle:
    cycles = place.read(REPLICATION, policy_key(NAME), state.CYCLES)
    assert cycles is not None
    return cycles.cycles[-1]


def increment(conn_id: str) -> IncrementalDumpOperator:
    return IncrementalDumpOperator(
        task_id="increment", policy=POLICY, source_conn_id=conn_id, target_conn_id=conn_id
    )


def test_a_failure_is_published_with_its_remedy(connection: Define, place: StateDirectory) -> None:
    conn_id = connection(host="127.0.0.1", port=1)
    with pytest.raises(AirflowException, match=r"127\.0\.0\.1:1"):
        increment(conn_id).execute(CONTEXT)
    failed = last(place)
    assert failed.error.startswith("MetastoreUnreachableError: ")
    assert "127.0.0.1:1" in failed.error
    assert failed.remedy
    assert failed.remedy not in failed.error
    assert failed.by == Publisher(dag_id="d", run_id="r", task_id="g.increment")


def test_a_failure_of_a_group_is_that_of_each_member(connection: Define, place: StateDirectory) -> None:
    conn_id = connection(host="127.0.0.1", port=1)
    members = [{"name": name, "source_database": name} for name in ("shop", "stock")]
    group = {"name": "g", "policies": members, "dump_root": "/dumps"}
    dump = GroupDumpOperator(task_id="dump", group=group, source_conn_id=conn_id, target_conn_id=conn_id)
    with pytest.raises(AirflowException, match=r"127\.0\.0\.1:1"):
        dump.execute(CONTEXT)
    names = set()
    for key in place.keys(REPLICATION):
        cycles = place.read(REPLICATION, key, state.CYCLES)
        assert cycles is not None
        assert cycles.cycles[-1].error.startswith("MetastoreUnreachableError: ")
        names.add(cycles.policy.source_database)
    assert names == {"shop", "stock"}


def test_a_published_error_holds_no_secret(connection: Define, place: StateDirectory) -> None:
    # Airflow masks either of two secrets of which one begins the other: no other test has one like this.
    mask_secret("quixotic-zephyr-77")
    policy = {**POLICY, "preserve": "quixotic-zephyr-77"}
    dump = IncrementalDumpOperator(
        task_id="i",
        policy=policy,
        source_conn_id=connection(host="127.0.0.1", port=1),
        target_conn_id="hive",
    )
    with pytest.raises(AirflowException, match="preserve"):
        dump.execute(CONTEXT)
    assert "preserve is '***'" in last(place).error


def test_a_problem_of_the_policy_is_published(connection: Define, place: StateDirectory) -> None:
    conn_id = connection(host="127.0.0.1", port=1)
    decide = ReplicationBranchOperator(
        task_id="decide",
        policy=POLICY,
        target_conn_id=conn_id,
        bootstrap_task_id="b",
        increment_task_id="i",
        problem="ConfigurationError: It has the colour red. Remedy: Take it away.",
    )
    with pytest.raises(AirflowFailException, match="colour"):
        decide.choose_branch(CONTEXT)
    assert (last(place).error, last(place).remedy) == (
        "ConfigurationError: It has the colour red.",
        "Take it away.",
    )


@pytest.mark.parametrize("named", [True, False])
def test_differences_are_no_failed_cycle(place: StateDirectory, named: bool) -> None:
    """The verification has published them; whether Airflow's error names its cause or not."""

    def differ() -> None:
        try:
            raise VerificationError("Replica shop differs.", remedy="Repair it.")
        except VerificationError as found:
            raise AirflowFailException(f"VerificationError: {found}") from (found if named else None)

    failures = FailuresPublished(lambda: [POLICY], CONTEXT, logging.getLogger("publication"))
    with pytest.raises(AirflowFailException), failures:
        differ()
    assert place.keys(REPLICATION) == []


def test_a_skipped_task_is_no_failure(connection: Define, place: StateDirectory) -> None:
    conn_id = connection(host="127.0.0.1", port=1)
    load = ReplicationLoadOperator(
        task_id="load", policy=POLICY, source_conn_id=conn_id, target_conn_id=conn_id, dump=[None]
    )
    with pytest.raises(AirflowException, match="nothing is loaded"):
        load.execute(CONTEXT)
    assert place.keys(REPLICATION) == []


def test_a_publication_that_fails_is_one_warning(
    connection: Define,
    place: StateDirectory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "state").write_text("no directory", encoding="utf-8")
    monkeypatch.setattr(published, "_warned", set())
    log = logging.getLogger("publication")
    for _ in range(3):
        with published.publication(log):
            published.state_directory().write(
                REPLICATION, "k", state.CYCLES, state.documents.PolicyCycles(policy=NAME, published_s=1.0)
            )
    (line,) = caplog.messages
    assert line.startswith("The state for Airflow's page Hive federation was not published. StorageError: ")
    assert "Remedy: " in line
    # The task ends with its own error.
    with pytest.raises(AirflowException, match="MetastoreUnreachableError"):
        increment(connection(host="127.0.0.1", port=1)).execute(CONTEXT)
    with pytest.raises(StorageError):
        place.keys(REPLICATION)


def test_the_store_of_the_state_has_the_options_of_a_connection(
    connection: Define, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", "s3://bucket/state")
    conn_id = connection("store", extra={"secret_storage_options": {"key": "k", "secret": "hidden-123"}})
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_CONN_ID", conn_id)
    place = published.state_directory()
    assert place._options == {"key": "k", "secret": "hidden-123"}
    assert "hidden-123" not in repr(place)
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_CONN_ID", "nobody")
    with published.publication(logging.getLogger("publication")):
        published.state_directory()


def test_the_state_lies_in_airflows_home_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    assert published.state_directory().uri == str(tmp_path / "hive_federation_state")


def test_every_task_of_a_policy_links_to_it(connection: Define, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://example.com/airflow/")
    with DAG("d", schedule=None):
        dump = BootstrapDumpOperator(task_id="dump", policy=POLICY, source_conn_id="a")
    link, to_dump = dump.operator_extra_links
    assert isinstance(link, PolicyLink)
    expected = f"https://example.com/airflow/plugin/hive-federation?policy={policy_key(NAME)}"
    assert link.get_link(dump, ti_key=None) == expected
    assert link.get_link(increment("a"), ti_key=None) == expected
    drain_alone = OpenTransactionsDrainSensor(task_id="drain", source_conn_id="a", database="shop")
    assert link.get_link(drain_alone, ti_key=None) == (
        "https://example.com/airflow/plugin/hive-federation?tab=replication"
    )
    assert to_dump.get_link(dump, ti_key=None) == ""
    dump.note_dump("s3://bucket/dumps/1", rendered_policy(POLICY, {"key": "k", "secret": "hidden-456"}))
    address = to_dump.get_link(dump, ti_key=None)
    assert address == "https://console.aws.amazon.com/s3/buckets/bucket?prefix=dumps%2F1%2F"
    dump.note_dump("file:/dumps/1", rendered_policy(POLICY, {}))
    assert to_dump.get_link(dump, ti_key=None) == ""


def test_the_connection_of_a_drain_may_depend_on_its_policy() -> None:
    """Airflow renders the fields in their order, as it does those of the operators of a policy."""
    drained = OpenTransactionsDrainSensor(
        task_id="drain",
        policy={**POLICY, "name": "{{ name }}"},
        source_conn_id="{{ 'far' if 'dead' in task.policy.name else 'near' }}",
        database="shop",
    )
    context: Any = {"task": drained, "name": "dead_end"}
    drained.render_template_fields(context)
    assert (drained.policy or {})["name"] == "dead_end"
    assert drained.source_conn_id == "far"


def test_all_links_of_operators_and_sensors_are_registered() -> None:
    """Airflow shows no link of a provider that is not in the provider's list."""
    info: dict[str, Any] = get_provider_info()
    listed = info["extra-links"]
    modules = [name for group in ("operators", "sensors") for name in info[group][0]["python-modules"]]
    found = {
        f"{type(link).__module__}.{type(link).__qualname__}"
        for module in map(importlib.import_module, modules)
        for kind in vars(module).values()
        if isinstance(kind, type)
        for link in getattr(kind, "operator_extra_links", ())
        if type(link).__module__.startswith("airflow_hive_federation.")
    }
    assert found == set(listed)


def test_a_drain_publishes_its_wait_and_its_failure(
    connection: Define, place: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    conn_id = connection(host="127.0.0.1", port=1)

    def sensor(**fields: Any) -> OpenTransactionsDrainSensor:
        return OpenTransactionsDrainSensor(
            task_id="drain", source_conn_id=conn_id, database="shop", deferrable=False, **fields
        )

    with pytest.raises(AirflowException):
        sensor().execute(CONTEXT)
    assert not place.keys(REPLICATION)
    drained = sensor(policy=POLICY)
    for tries in (1, 2):
        with pytest.raises(AirflowException):
            drained.execute(CONTEXT)
        assert last(place).error.startswith("MetastoreUnreachableError: ")
        assert last(place).cycles == tries

    def running() -> str:
        position = place.read(REPLICATION, policy_key(NAME), state.POSITION)
        return position.running if position else ""

    waits: list[str] = []

    def still_open(*_: object) -> list[int]:
        waits.append(running())
        return [5] if len(waits) < 3 else []

    monkeypatch.setattr(
        HiveMetastoreHook, "client", lambda _: contextlib.nullcontext(SimpleNamespace(get_open_txns=None))
    )
    start = drain.DrainStart(database="shop", event_id=7, transactions=(5,), moment_ms=1)
    monkeypatch.setattr(drain, "begin_drain", lambda *_: start)
    monkeypatch.setattr(drain, "still_open", still_open)
    assert sensor(policy=POLICY, poke_interval=0.01).execute(CONTEXT)["aborted"] == []  # type: ignore[index]
    assert waits[0] == ""
    assert "shop" in waits[1]
    assert waits[1] == waits[2]
    assert running() == ""
    position = place.read(REPLICATION, policy_key(NAME), state.POSITION)
    assert position is not None
    assert (position.state, position.by.task_id) == ("absent", "g.increment")


@pytest.fixture
def waits(place: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A source whose transaction 5 is open at two looks; the published waits before each look."""
    seen: list[str] = []

    def still_open(*_: object) -> tuple[int, ...]:
        seen.append(waiting(place))
        return (5,) if len(seen) < 3 else ()

    monkeypatch.setattr(drain, "still_open", still_open)
    monkeypatch.setattr(drain, "DRAIN_POLL", PollPolicy(first_s=0.0, longest_s=0.0))
    monkeypatch.setattr(drain, "begin_drain", lambda _, database: started(database))
    monkeypatch.setattr(HiveMetastoreHook, "pool", lambda *_: contextlib.nullcontext(POOL))
    monkeypatch.setattr(HiveMetastoreHook, "client", POOL.client)
    return seen


POOL: Any = SimpleNamespace(client=lambda *_: contextlib.nullcontext(SimpleNamespace(get_open_txns=None)))


def started(database: str) -> drain.DrainStart:
    return drain.DrainStart(database=database, event_id=7, transactions=(5,), moment_ms=1)


def waiting(place: StateDirectory, name: str = "shop") -> str:
    key = policy_key(PolicyName(name=name, source_database=name, target_database=name))
    position = place.read(REPLICATION, key, state.POSITION)
    return position.running if position else ""


def assert_published(waits: list[str], place: StateDirectory) -> None:
    assert (len(waits), waits[0], waits[1]) == (3, "", waits[2])
    assert "shop" in waits[1]
    assert waiting(place) == ""


def test_a_dump_that_waits_itself_publishes_the_wait(
    connection: Define, place: StateDirectory, waits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = dict.fromkeys(("tables", "partitions", "files", "size_bytes", "lease"), 0)
    summary = DumpSummary(dump="file:/dumps/1", event_id=7, **sizes)
    monkeypatch.setattr(bootstrap, "dump_bootstrap", lambda *_, **__: summary)
    conn_id = connection(host="127.0.0.1", port=1)
    BootstrapDumpOperator(task_id="dump", policy=POLICY, source_conn_id=conn_id).execute(CONTEXT)
    assert_published(waits, place)


@pytest.mark.parametrize("in_time", [True, False])
def test_the_start_of_a_failover_publishes_its_wait(
    in_time: bool,
    connection: Define,
    place: StateDirectory,
    waits: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failover, "mark_source", lambda *_, **__: started("shop"))
    monkeypatch.setattr(operators_failover, "DRAIN_POLL", PollPolicy(first_s=0.0, longest_s=0.0))
    ended: list[str] = []
    monkeypatch.setattr(failover, "end_start", lambda *_, **__: ended.append(waiting(place)))
    conn_id = connection(host="127.0.0.1", port=1)
    policy = {**POLICY, "open_txn_timeout_s": "1m" if in_time else "0s"}
    FailoverStartOperator(
        task_id="start", policy=policy, source_conn_id=conn_id, target_conn_id=conn_id, deferrable=False
    ).execute(CONTEXT)
    if in_time:
        assert_published(waits, place)
    else:
        assert "shop" in ended[0]
        assert waiting(place) == ""


def test_a_start_that_left_its_slot_ends_the_published_wait(
    connection: Define, place: StateDirectory
) -> None:
    conn_id = connection(host="127.0.0.1", port=1)
    probe = DrainProbe(
        source_conn_id=conn_id,
        start=started("shop").to_json(),
        policy=POLICY,
        by=asdict(published.publisher_of(CONTEXT)),
    )
    published.publish_wait(POLICY, "Waits for shop.", dict(probe.by or {}), logging.getLogger())
    assert waiting(place) == "Waits for shop."
    answer = ProbeAnswer(ready=True, state=drain.state_of(started("shop"), ()), value=probe.start)
    FailoverStartOperator(
        task_id="start", policy=POLICY, source_conn_id=conn_id, target_conn_id=conn_id
    ).execute_complete(CONTEXT, answer.to_json())
    assert waiting(place) == ""


def test_a_group_publishes_the_wait_of_its_bootstrap_for_each_member(
    place: StateDirectory, waits: list[str]
) -> None:
    group = {
        "name": "shop",
        "dump_root": "/dumps",
        "policies": [{"name": n, "source_database": n} for n in "ab"],
    }
    operator = GroupBootstrapOperator(task_id="b", group=group, source_conn_id="s", target_conn_id="t")
    observer = operator.wait_observer(CONTEXT)
    observer(drain.state_of(started("shop"), (5,)))
    assert "shop" in waiting(place, "a")
    assert waiting(place, "b") == waiting(place, "a")
    observer(TransactionsAborted(database="shop", transactions=(5,)))
    assert (waiting(place, "a"), waiting(place, "b")) == ("", "")


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.usefixtures("waits")
def test_a_whole_verification_of_a_group_forgets_dropped_tables(
    whole: bool, connection: Define, place: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = {"name": "g", "dump_root": "/dumps", "policies": [{"name": "shop", "source_database": "shop"}]}
    found = {
        name: TableReport(
            name=name, kind="acid", source_rows=1, target_rows=1, files=1, size_bytes=1, digest_equal=True
        )
        for name in ("dropped", "kept")
    }
    conn_id = connection(host="127.0.0.1", port=1)
    verify = GroupVerifyOperator(
        task_id="verify", group=group, source_conn_id=conn_id, target_conn_id=conn_id, whole=whole
    )
    monkeypatch.setattr(groups_status, "recorded_dump", lambda *_: "file:/dumps/1")
    for names in (("dropped", "kept"), ("kept",)):
        report = VerificationReport(database="shop", event_id=7, tables=[found[name] for name in names])
        monkeypatch.setattr(groups_status, "verify_group", lambda *_, report=report, **__: [report])
        verify.execute(CONTEXT)
    verified = place.read(REPLICATION, policy_key(NAME), state.VERIFIED)
    assert verified is not None
    assert [table.name for table in verified.tables] == (["kept"] if whole else ["dropped", "kept"])


def ended() -> dict[str, object]:
    """The event of a trigger whose wait has ended well."""
    start = started("shop")
    return ProbeAnswer(ready=True, state=drain.state_of(start, ()), value=start.to_json()).to_json()


@pytest.mark.parametrize(
    ("method", "arguments", "error"),
    [
        (
            "execute_complete",
            {"event": {"error": "SparkJobError: It ended. Remedy: Look.", "retryable": False}},
            ("SparkJobError: It ended.", "Look."),
        ),
        ("__fail__", {"error": "Trigger/execution timeout"}, ("Trigger/execution timeout", "")),
        ("execute_complete", {"event": ended()}, None),
    ],
)
@pytest.mark.parametrize("kind", ["load", "start"])
def test_the_failure_of_a_deferred_task_is_published_and_counted_once(
    method: str,
    arguments: dict[str, Any],
    error: tuple[str, str] | None,
    kind: str,
    connection: Define,
    place: StateDirectory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[tuple[str, int]] = []
    receiver = SimpleNamespace(incr=lambda *counter: counted.append(counter))
    monkeypatch.setattr("airflow_hive_federation.hooks.compat.airflow_metrics", lambda: receiver)
    conn_id = connection(host="127.0.0.1", port=1)
    ends: Any = {"policy": POLICY, "source_conn_id": conn_id, "target_conn_id": conn_id}
    left: dict[str, Any] = {"awaited": [], "borrowed": [], "deadline_s": None, "progress": {}}
    left["application_url"] = ""
    task: Any
    if kind == "load":
        task = ReplicationLoadOperator(task_id="load", dump="file:/dumps/p/1", **ends)
        arguments = {**arguments, "left": left} if method == "execute_complete" else arguments
    else:
        task = FailoverStartOperator(task_id="start", **ends)
    # Without an error of its trigger, the task fails when it is executed anew.
    if error is None:
        monkeypatch.setattr(type(task), "ends", lambda _: raises_unreachable())
    for tries in (1, 2):
        with pytest.raises(AirflowException):
            task.resume_execution(method, arguments, CONTEXT)
        failed = last(place)
        if error is None:
            assert failed.error.startswith("MetastoreUnreachableError: ")
        else:
            assert (failed.error, failed.remedy) == error
        assert (failed.cycles, len(counted)) == (tries, tries)


def raises_unreachable() -> NoReturn:
    raise MetastoreUnreachableError("Gone.")


@pytest.mark.usefixtures("waits")
def test_the_tasks_of_a_group_link_to_a_dump(
    connection: Define, place: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    conn_id = connection(host="127.0.0.1", port=1)
    group = {
        "name": "two",
        "dump_root": "s3://b/d",
        "policies": [{"name": n, "source_database": n} for n in "xy"],
    }
    ends: Any = {"group": group, "source_conn_id": conn_id, "target_conn_id": conn_id}
    dumped = GroupDump(group="two", dump="s3://b/d/x/1", event_id=7, members=[])
    load = LoadSummary(dump="s3://b/d/x/0", database="x", event_id=7, tables=1, partitions=0, functions=0)
    loaded = GroupLoadSummary(group="two", event_id=7, members=[load])
    monkeypatch.setattr(groups_dump, "dump_group", lambda *_, **__: dumped)
    monkeypatch.setattr(groups_load, "load_group", lambda *_, **__: loaded)
    monkeypatch.setattr(groups_status, "recorded_dump", lambda *_: "s3://b/d/x/2")

    def differs(*_: object, **__: object) -> NoReturn:
        raise VerificationError("The replica differs.")

    # The link is wanted most when the verification fails.
    monkeypatch.setattr(groups_status, "verify_group", differs)

    def bootstrapped(*_: object, observer: Observer, **__: object) -> GroupLoadSummary:
        observer(drain.state_of(started("two"), (5,)))
        return loaded

    monkeypatch.setattr(groups_bootstrap, "bootstrap_group", bootstrapped)
    monkeypatch.setattr(announcing, "bootstraps_to_announce", lambda _, __, loads, ___: loads)
    monkeypatch.setattr(announcing, "note_announced", lambda *_: None)
    for done in (GroupStateOperator.publish_cycles, GroupBootstrapOperator.note):
        monkeypatch.setattr(GroupBootstrapOperator, done.__name__, lambda *_, **__: None)
        monkeypatch.setattr(GroupLoadOperator, done.__name__, lambda *_, **__: None)
    for task, name in (
        (GroupDumpOperator(task_id="dump", **ends), "1"),
        (GroupLoadOperator(task_id="load", dump=asdict(dumped), **ends), "1"),
        (GroupVerifyOperator(task_id="verify", **ends), "2"),
        (GroupBootstrapOperator(task_id="bootstrap", **ends), "0"),
    ):
        (link,) = (each for each in task.operator_extra_links if isinstance(each, DumpLink))
        assert link.get_link(task, ti_key=None) == ""
        differing = pytest.raises(AirflowException, match="differs")
        with differing if task.task_id == "verify" else contextlib.nullcontext():
            task.execute(CONTEXT)
        assert link.get_link(task, ti_key=None).endswith(f"/b?prefix=d%2Fx%2F{name}%2F")
        assert bool(waiting(place, "y")) == (task.task_id == "bootstrap")
