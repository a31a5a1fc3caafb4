"""A consistency group's decisions: its fields, its members, the order of ends, and what its targets show."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hive_federation.cli.replicate import add_parser, run
from airflow_hive_federation.errors import (
    ConfigurationError,
    DumpCorruptError,
    GroupBusyError,
    GroupMembershipError,
    HiveFederationError,
    MetastoreUnreachableError,
    StorageFullError,
    TargetChangedError,
)
from airflow_hive_federation.hooks.group_fields import group_fields, rendered_group
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.model.events import TxnEnded
from airflow_hive_federation.model.results import result_json
from airflow_hive_federation.operators.lineage import REPLICATED
from airflow_hive_federation.operators.replication_group import (
    GroupBootstrapOperator,
    GroupLoadOperator,
    replicate_group,
)
from airflow_hive_federation.progress.cycle_events import TableCopied
from airflow_hive_federation.progress.observers import Observer
from airflow_hive_federation.replication.cycle import is_published, load_dump, load_idle
from airflow_hive_federation.replication.failover import start_failover, switch_roles
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.dumped_policy import DumpedPolicy
from airflow_hive_federation.replication.format.group_lines import ENDS, MEMBERS, GroupMember
from airflow_hive_federation.replication.format.kinds import DumpKind, TableKind, TableWork
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.replication.group_policy import ReplicationGroup, members_of, refuse_alone
from airflow_hive_federation.replication.groups import announcing
from airflow_hive_federation.replication.groups import take_over as group_take_over
from airflow_hive_federation.replication.groups.dump import GroupDump
from airflow_hive_federation.replication.groups.ends import ended_in, ends_of_group
from airflow_hive_federation.replication.groups.load import GroupLoadSummary, load_group
from airflow_hive_federation.replication.groups.membership import (
    MemberState,
    check_leaving,
    joining,
    mark_members,
    refuse_strangers,
)
from airflow_hive_federation.replication.groups.naming import member_named
from airflow_hive_federation.replication.groups.status import group_status
from airflow_hive_federation.replication.groups.take_over import take_over_group
from airflow_hive_federation.replication.groups.together import MemberLoad
from airflow_hive_federation.replication.load.replay import Replay
from airflow_hive_federation.replication.load.stages import Stage
from airflow_hive_federation.replication.load.summary import LoadSummary
from airflow_hive_federation.replication.overtaken_loads import OvertakenError
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.repair import repair_replica
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.cycle_history import BOOTSTRAP, IDLE, CycleRecord
from airflow_hive_federation.replication.replica.markers import TargetState, judge_target
from airflow_hive_federation.replication.status import ReplicationStatus
from airflow_hive_federation.replication.take_over import take_over
from tests.support.dumps import manifest

#: Stands for connections and functions that a refusal precedes.
NOTHING: Any = None
LOADED = LoadSummary(dump="", database="a", event_id=4, tables=0, partitions=0, functions=0)


def policy(name: str, **fields: Any) -> ReplicationPolicy:
    return ReplicationPolicy(**{"name": name, "source_database": name, "dump_root": "/dumps", **fields})


# -- fields ----------------------------------------------------------------------------------------------


def test_a_group_marks_its_policies() -> None:
    group = ReplicationGroup(name="shop", policies=[policy("b"), policy("a", group="shop")])
    assert [(member.name, member.group) for member in group.policies] == [("b", "shop"), ("a", "shop")]
    assert [member.name for member in group.named(["a"])] == ["a"]
    with pytest.raises(ConfigurationError, match="has no policy 'c'"):
        group.named(["c"])


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ([], "has no policies"),
        ([policy("a", group="other")], "names another group, 'other'"),
        ([policy("a"), policy("a", source_database="b")], "have the name a"),
        ([policy("a"), policy("b", source_database="a", target_database="b")], "have the source_database a"),
        ([policy("a"), policy("b", target_database="a")], "have the target_database a"),
    ],
)
def test_impossible_groups(policies: list[ReplicationPolicy], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ReplicationGroup(name="shop", policies=policies)


def test_a_group_needs_a_name_as_policies_do() -> None:
    with pytest.raises(ConfigurationError, match="cannot name a consistency group"):
        ReplicationGroup(name="a b", policies=[policy("a")])


@pytest.mark.parametrize(
    ("given_policies", "defaults", "message"),
    [
        ("orders", {}, "policies is 'orders'"),
        (["orders"], {}, "'orders' is no policy"),
        ([{"source_database": "a", "dumproot": "/"}], {}, "has the field 'dumproot'"),
        ([{"source_database": "a", "group": "x"}], {}, "has the field 'group'"),
        ([{"source_database": "a"}], {"target_database": "x"}, "has the field 'target_database'"),
    ],
)
def test_impossible_members(given_policies: Any, defaults: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        members_of("shop", given_policies, defaults)


def test_fields_of_operators_are_the_group() -> None:
    given_group = {
        "name": "shop",
        "dump_root": "/dumps",
        "policies": [{"source_database": "a"}, {"source_database": "b", "name": "second"}],
    }
    group = rendered_group(group_fields(given_group), {})
    assert group == ReplicationGroup(
        name="shop", policies=[policy("a"), policy("second", source_database="b")]
    )
    assert rendered_group(group_fields(group_fields(group)), {}) == group
    with pytest.raises(ConfigurationError, match="needs a name and policies"):
        group_fields({"name": "shop"})


def test_the_task_group() -> None:
    from airflow.sdk import DAG

    group = {"name": "web.shop", "dump_root": "/dumps", "policies": [{"source_database": "a"}]}
    with DAG(dag_id="d", schedule=None) as dag:
        replicate_group(group, source_conn_id="s", target_conn_id="t", verify_whole=True)
    order = [f"replicate_web_shop.{task}" for task in ("bootstrap", "dump", "load", "verify")]
    assert [task.task_id for task in dag.tasks] == order
    assert dag.get_task(order[-1]).whole
    for task, following in pairwise(order):
        assert following in dag.get_task(task).downstream_task_ids


@pytest.mark.parametrize(
    ("operator", "arguments", "loading"),
    [
        (GroupBootstrapOperator, {}, "bootstrap.bootstrap_group"),
        (
            GroupLoadOperator,
            {"dump": {"group": "shop", "dump": "", "event_id": 4, "members": []}},
            "load.load_group",
        ),
    ],
)
def test_changed_tables_of_all_members_update_their_assets(
    operator: Any, arguments: dict[str, Any], loading: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = ReplicationGroup(
        name="shop",
        policies=[policy("a", target_database="copy", dump_root=f"file:{tmp_path}"), policy("b")],
    )
    task = operator(task_id="load", group=group, source_conn_id="s", target_conn_id="t", **arguments)
    assert task.outlets == [REPLICATED]
    directory = DumpDirectory(f"{group.policies[0].directory}/1-2-3")
    changed = TableEntry(name="t", kind=TableKind.MANAGED, work=TableWork.CONTINUE)
    directory.finish_dump(manifest(changed, kind=DumpKind.INCREMENT))
    numbers = {"event_id": 4, "tables": 1, "partitions": 0, "functions": 0}
    loads = [
        LoadSummary(dump=directory.uri, database="copy", skipped={"v": "it is a view"}, **numbers),
        LoadSummary(dump="file:/nowhere", database="b", idle=True, **numbers),
    ]
    updated: list[tuple[str, Any]] = []
    alias = SimpleNamespace(add=lambda asset, extra: updated.append((asset.uri, extra)))

    class Events:
        def __getitem__(self, _: object) -> Any:
            return alias

    ends = [
        SimpleNamespace(settings=MetastoreSettings(uris=(uri,)), pool=lambda *_: nullcontext())
        for uri in ("thrift://one:9083", "thrift://two:9083")
    ]
    monkeypatch.setattr(task, "ends", lambda: (*ends, group))
    # Publications have tests of their own.
    monkeypatch.setattr(task, "publish_cycles", lambda *_: None)
    summary = GroupLoadSummary(group="shop", event_id=4, members=loads)

    def load(*_: object, observer: Observer, **__: object) -> GroupLoadSummary:
        observer(TableCopied(table="copy.t", files=1, size_bytes=5))
        observer(TableCopied(table="other.t", files=1, size_bytes=7))
        return summary

    monkeypatch.setattr(f"airflow_hive_federation.replication.groups.{loading}", load)
    assert task.execute({"outlet_events": Events()})["members"][0]["database"] == "copy"
    assert updated == [
        ("hive://two:9083/copy/t", {"event_id": 4, "policy": "a", "source": "a"}),
    ]
    assert [(dataset.database, dataset.table) for dataset in task.lineage.inputs] == [("a", "t")]
    (output,) = task.lineage.outputs
    # The dump is an increment's: only its load knows the bytes.
    known_bytes = 5 if loading.startswith("load.") else None
    assert (output.database, output.table, output.size_bytes) == ("copy", "t", known_bytes)
    assert task.lineage.skipped == {"a.v": "it is a view"}


def test_a_bootstrap_that_no_run_has_announced_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A try was killed between the publications of a and b; c is at an increment, d came from elsewhere."""
    fields = {"dump_root": f"file:{tmp_path}"}
    group = ReplicationGroup(name="shop", policies=[policy(name, **fields) for name in "abcd"])
    dumps = {member.name: DumpDirectory(f"{member.directory}/1-2-3") for member in group.policies}
    for member in group.policies:
        dumped_by = replace(member, group="") if member.name == "d" else member
        kind = DumpKind.INCREMENT if member.name == "c" else DumpKind.BOOTSTRAP
        dumps[member.name].finish_dump(manifest(kind=kind, policy=DumpedPolicy.of(dumped_by)))
    monkeypatch.setattr(announcing, "loaded_dump", lambda _, member: dumps[member.name].uri)
    target: Any = SimpleNamespace(client=nullcontext)
    numbers = {"event_id": 4, "tables": 0, "partitions": 0, "functions": 0}
    own = LoadSummary(dump=dumps["b"].uri, database="b", **numbers)

    def announced(run: str, *loads: LoadSummary) -> list[str]:
        found = announcing.bootstraps_to_announce(target, group, loads, run)
        announcing.note_announced(group, found, run)
        return [load.database for load in found]

    assert announced("first", own) == ["a", "b"]
    # The task was killed again, before Airflow had taken its result; then a later run comes.
    assert announced("first") == ["a", "b"]
    assert announced("second") == []


def test_a_dump_survives_xcom() -> None:
    member = GroupMember(group="shop", policy="a", dump="file:/dumps/a/1", event_id=4, idle=False)
    dump = GroupDump(group="shop", dump="file:/dumps/a/1", event_id=4, members=[member])
    assert GroupDump.from_json(json.loads(json.dumps(result_json(dump)))) == dump
    for bad in (None, {}, {**result_json(dump), "more": 1}, {**result_json(dump), "members": [{}]}):
        with pytest.raises(ConfigurationError, match="not the result of a group's dump"):
            GroupDump.from_json(bad)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"a": {}, "c": {}}, GroupMembershipError, "has other policies than the group: a, c"),
        ({"a": {}, "b": {}, "c": {}}, GroupMembershipError, "has other policies than the group: a, b, c"),
        ({"a": {}, "b": {"group": "other"}}, GroupMembershipError, "has other policies"),
        ({"a": {}, "b": {"dump": "file:/elsewhere/b/1-2-3"}}, DumpCorruptError, "names file:/elsewhere"),
    ],
)
def test_a_load_refuses_the_record_of_another_group(
    tmp_path: Path, fields: dict[str, dict[str, str]], error: type[HiveFederationError], message: str
) -> None:
    policies = [policy(name, dump_root=f"file:{tmp_path}") for name in ("a", "b")]
    lines = [
        {
            "group": "shop",
            "policy": name,
            "dump": f"file:{tmp_path}/{name}/1-2-3",
            "event_id": 4,
            "idle": False,
        }
        | others
        for name, others in fields.items()
    ]
    directory = DumpDirectory(f"{policies[0].directory}/1-2-3")
    directory.add_lines(ENDS, [])
    directory.add_lines(MEMBERS, lines)
    dump = GroupDump(group="shop", dump=directory.uri, event_id=4, members=())
    group = ReplicationGroup(name="shop", policies=policies)
    with pytest.raises(error, match=message):
        load_group(NOTHING, NOTHING, group, dump, run_copy=NOTHING)


# -- members ---------------------------------------------------------------------------------------------


def member(name: str = "a", **fields: Any) -> MemberState:
    return MemberState(**{"policy": name, "published": True, "marked": "shop", **fields})


def test_members_join_without_open_transactions() -> None:
    states = [member("a"), member("b", marked=""), member("c", published=False, marked="")]
    assert joining("shop", states) == ["b"]
    # Those who are in it may have both.
    assert joining("shop", [member(open_transactions=(4,), begun=("file:/d",))]) == []
    with pytest.raises(GroupBusyError, match=r"'b' cannot join .* transactions 4, 7 of the source are open"):
        joining("shop", [member("b", marked="", open_transactions=(4, 7))])
    with pytest.raises(GroupBusyError, match=r"'b' cannot join .* a load has begun"):
        joining("shop", [member("b", marked="", begun=("file:/d",))])


def test_members_leave_without_open_transactions() -> None:
    assert check_leaving("shop", member())
    assert not check_leaving("shop", member(marked="", open_transactions=(4,)))
    assert check_leaving("shop", member(published=False))
    with pytest.raises(GroupBusyError, match="cannot leave") as caught:
        check_leaving("shop", member(open_transactions=(4,)))
    assert caught.value.retryable
    assert caught.value.transactions == [4]
    with pytest.raises(GroupBusyError, match="cannot leave"):
        check_leaving("shop", member(begun=("file:/d",)))


def test_no_member_is_left_out() -> None:
    refuse_strangers("shop", ["a", "b"], ["a"])
    with pytest.raises(GroupMembershipError, match="databases c, d belong to consistency group 'shop'"):
        refuse_strangers("shop", ["a", "b"], ["d", "a", "c"])


def test_two_new_groups_of_one_name_refuse_each_other() -> None:
    class Target:
        """The databases of a target, of which another process marks one meanwhile."""

        def __init__(self) -> None:
            self.databases = {name: SimpleNamespace(parameters={}) for name in ("a", "b", "c")}

        def list_databases(self) -> list[str]:
            return [*self.databases]

        def get_database(self, name: str) -> Any:
            return self.databases[name]

        def alter_database(self, name: str, _: Any) -> None:
            self.databases["c"].parameters["hive.federation.group"] = "shop"

    target: Any = Target()
    group = ReplicationGroup(name="shop", policies=[policy("a"), policy("b")])
    mark_members(target, group, [])
    with pytest.raises(GroupMembershipError, match="databases c belong to consistency group 'shop'"):
        mark_members(target, group, ["b"])
    assert "hive.federation.group" not in target.databases["a"].parameters
    assert target.databases["b"].parameters["hive.federation.group"] == "shop"


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"a": "shop", "b": "shop", "c": "shop"}, "databases c belong to consistency group 'shop'"),
        ({"a": "shop", "b": ""}, "databases b have not joined consistency group 'shop'"),
        # The first one is let go already.
        ({"a": None, "b": "shop", "c": "shop"}, "databases c belong to consistency group 'shop'"),
    ],
)
def test_a_take_over_ends_the_transactions_of_whole_groups_only(
    groups: dict[str, str | None], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Target:
        """Databases of a target, by the groups whose names they carry; ``None`` if they are let go."""

        def list_databases(self) -> list[str]:
            return [*groups]

        def get_database(self, name: str) -> Any:
            group = groups[name]
            own = {
                markers.POLICY: name,
                markers.LAST_ID: "4",
                markers.CHECKPOINT: "/dumps/x/1",
                markers.GROUP: group,
            }
            return SimpleNamespace(parameters={} if group is None else own)

        def list_tables(self, _: str) -> list[str]:
            return ["t"]

    @contextmanager
    def lost() -> Iterator[Any]:
        raise MetastoreUnreachableError("The source is lost.")
        yield

    source: Any = SimpleNamespace(client=lost)
    target: Any = SimpleNamespace(client=lambda: nullcontext(Target()))
    group = ReplicationGroup(name="shop", policies=[policy("a"), policy("b")])
    with pytest.raises(GroupMembershipError, match=message):
        take_over_group(source, target, group)
    skipped = [name for name, marked in groups.items() if marked is None]
    assert [record.args for record in caplog.records] == [(name,) for name in skipped]


def test_a_policy_alone_keeps_off_a_member() -> None:
    def judged(parameters: dict[str, str], group: str) -> TargetState:
        return judge_target("db", parameters, policy="p", adopt=False, empty=False, group=group).state

    marked = {"hive.federation.policy": "p", "repl.last.id": "4", "hive.federation.group": "shop"}
    assert judged(marked, "shop") is TargetState.LOADED
    for group in ("", "other"):
        with pytest.raises(GroupMembershipError, match="belongs to consistency group 'shop'") as caught:
            judged(marked, group)
        assert caught.value.group == "shop"
    with pytest.raises(
        GroupMembershipError, match="'p' belongs to consistency group 'shop', and cannot load"
    ):
        refuse_alone(policy("p", group="shop"), "load")
    refuse_alone(policy("p"), "load")


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda alone: is_published(NOTHING, alone), id="run a cycle"),
        pytest.param(lambda alone: load_dump(NOTHING, NOTHING, alone, "/d", run_copy=NOTHING), id="load"),
        pytest.param(lambda alone: load_idle(NOTHING, alone, 4), id="load nothing"),
        pytest.param(
            lambda alone: repair_replica(NOTHING, NOTHING, alone, run_copy=NOTHING, run_verify=NOTHING),
            id="repair",
        ),
        pytest.param(lambda alone: start_failover(NOTHING, NOTHING, alone), id="fail over"),
        pytest.param(lambda alone: switch_roles(NOTHING, NOTHING, alone), id="switch"),
        pytest.param(lambda alone: take_over(NOTHING, NOTHING, alone), id="take over"),
    ],
)
def test_a_member_does_nothing_alone(act: Callable[[ReplicationPolicy], object]) -> None:
    with pytest.raises(GroupMembershipError, match=r"'p' belongs to .* 'shop', and cannot .* alone"):
        act(policy("p", group="shop"))


def test_an_error_names_its_member() -> None:
    with pytest.raises(StorageFullError) as caught, member_named(policy("p", group="shop")):
        raise StorageFullError("The store is full.", remedy="Make room.", path="/x")
    assert str(caught.value) == (
        "Member 'p' of consistency group 'shop': The store is full. Remedy: Make room."
    )
    assert caught.value.path == "/x"


# -- order -----------------------------------------------------------------------------------------------


def test_ends_have_the_sources_order() -> None:
    assert ends_of_group([7, 5, 9, 4], [[7, 9], [5, 9]], ()) == [7, 5, 9]
    # 3 has no event: events are lost, and it comes first.
    assert ends_of_group([7, 5], [[3, 7], [5]], ()) == [3, 7, 5]
    # 8 is over for one database, whose table was dropped, and open in the other one.
    assert ends_of_group([7], [[8, 7], []], {8}) == [7]


@given(st.permutations(range(1, 9)), st.lists(st.sets(st.integers(1, 8)), min_size=1, max_size=3))
def test_every_members_order_is_the_groups(order: list[int], members: list[set[int]]) -> None:
    ends = [[txn for txn in order if txn in own] for own in members]
    ended = ends_of_group(order, ends, ())
    assert ended == [txn for txn in order if any(txn in own for own in members)]
    for own in ends:
        assert [txn for txn in ended if txn in own] == own


def test_ends_of_events() -> None:
    events = [
        TxnEnded(event_id=number, event_type="COMMIT_TXN", txn_id=txn, committed=True)
        for number, txn in enumerate([6, 4, 5])
    ]
    assert list(ended_in(events, {5, 6})) == [6, 5]


def test_members_share_the_names_of_their_transactions() -> None:
    group = ReplicationGroup(name="shop", policies=[policy("a"), policy("b")])
    names = {(replay._repl_policy, replay._host) for replay in map(_replay, group.policies)}
    assert len(names) == 1
    others = [policy("a"), policy("shop"), policy("x", group="other")]
    assert names.isdisjoint((replay._repl_policy, replay._host) for replay in map(_replay, others))


def _replay(member_policy: ReplicationPolicy) -> Replay:
    return Replay(None, member_policy)  # type: ignore[arg-type]


@pytest.mark.parametrize("source_lost", [True, False])
def test_a_groups_load_aborts_dangling_transactions_unless_the_source_is_lost(
    source_lost: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of a member that does nothing in this load may wait for the transactions of a later one."""
    steps: list[str] = []
    group = ReplicationGroup(name="shop", policies=[policy("a", dump_root=f"file:{tmp_path}")])
    dump = f"{group.policies[0].directory}/1-2-3"
    line = GroupMember(group="shop", policy="a", dump=dump, event_id=4, idle=False)

    def ending() -> Iterator[Stage]:
        yield from (Stage.SURVEYED, Stage.COPIED, Stage.ALLOCATED, Stage.PREPARED)

    held = SimpleNamespace(
        target=SimpleNamespace(client=nullcontext), check=lambda: None, prove=lambda: None, locks={}
    )
    replay = SimpleNamespace(open=lambda *_: None, opened=None, sweep=lambda _: steps.append("sweep"))
    for name, stand_in in {
        "hold_group": lambda *_: nullcontext(held),
        "_members": lambda *_: ({"a": line}, []),
        "_manifest": lambda *_: SimpleNamespace(open_writes={}),
        "_check_members": lambda *_: None,
        "_missing": lambda *_: {},
        "_switch": lambda *_, **__: steps.append("switch"),
        "_load_of": lambda *_, **__: MemberLoad(group.policies[0], dump, ending()),
        "loaded_dump": lambda *_: "",
        "Replay": lambda *_: replay,
        "_finished": lambda *_, **__: steps.append("publish") or LOADED,
        "retention": SimpleNamespace(forget_old_dumps=lambda *_, **__: None),
    }.items():
        monkeypatch.setattr(f"airflow_hive_federation.replication.groups.load.{name}", stand_in)
    dumped = GroupDump(group="shop", dump=dump, event_id=4, members=[line])
    load_group(NOTHING, NOTHING, group, dumped, run_copy=NOTHING, source_lost=source_lost)
    assert steps == ["switch", *([] if source_lost else ["sweep"]), "publish"]


@pytest.mark.parametrize("error", [OvertakenError("t was dropped"), TargetChangedError("x is not ours")])
def test_a_groups_take_over_gives_up_only_a_load_that_a_later_one_has_overtaken(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = ReplicationGroup(name="shop", policies=[policy("a")])
    line = GroupMember(group="shop", policy="a", dump="file:/dumps/a/1", event_id=4, idle=False)
    held = SimpleNamespace(target=SimpleNamespace(client=nullcontext), check=lambda: None)

    def failing(*_: object, **__: object) -> None:
        raise error

    for name, stand_in in {
        "hold_group": lambda *_: nullcontext(held),
        "begun_since": lambda *_: ["file:/dumps/a/2"],
        "make_way": lambda *_, **__: 3,
        "nothing_more_to_copy": lambda *_: None,
        "load_group": failing,
    }.items():
        monkeypatch.setattr(group_take_over, name, stand_in)
    dumped = GroupDump(group="shop", dump=line.dump, event_id=4, members=[line])
    with (
        nullcontext()
        if isinstance(error, OvertakenError)
        else pytest.raises(TargetChangedError, match="ours")
    ):
        removed = group_take_over._end_load(
            NOTHING, NOTHING, group, dumped, unfinished={"a": ()}, observer=NOTHING
        )
        assert removed == {"a": 3}


# -- status ----------------------------------------------------------------------------------------------


def status(event_id: int | None, kind: str = IDLE) -> ReplicationStatus:
    cycles = [CycleRecord(kind=kind, event_id=event_id or 0, ended_s=0)]
    return ReplicationStatus(database="a", state="loaded", event_id=event_id, cycles=cycles)


@pytest.mark.parametrize(
    ("statuses", "one_moment", "event_id"),
    [
        ([status(4), status(4)], True, 4),
        ([status(5), status(4)], False, 4),
        ([status(4), status(None)], False, None),
        ([status(4, BOOTSTRAP), status(4, BOOTSTRAP)], False, 4),
    ],
)
def test_targets_of_one_moment(
    statuses: list[ReplicationStatus], one_moment: bool, event_id: int | None
) -> None:
    judged = group_status("shop", statuses)
    assert (judged.one_moment, judged.event_id) == (one_moment, event_id)
    assert json.loads(json.dumps(judged.to_json()))["one_moment"] is one_moment


# -- group files -----------------------------------------------------------------------------------------

FILE = """
name = "shop"
source = "thrift://127.0.0.1:1"
target = "thrift://127.0.0.1:1"
dump_root = "/dumps"
[[policies]]
source_database = "a"
"""


def act(tmp_path: Path, text: str, *words: str) -> None:
    import argparse

    path = tmp_path / "group.toml"
    path.write_text(text, encoding="utf-8")
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    run(parser.parse_args(["replicate", words[0], str(path), *words[1:]]))


@pytest.mark.parametrize(
    ("words", "text", "error", "message"),
    [
        (["repair"], FILE, GroupMembershipError, "'shop' cannot repair its targets as a whole"),
        (["failover"], FILE, GroupMembershipError, "'shop' cannot fail over as a whole"),
        (["verify", "file:/dumps/a/1-2-3"], FILE, ConfigurationError, "not with file:/dumps/a/1-2-3"),
        (["leave", "b"], FILE, ConfigurationError, "has no policy 'b'"),
        (["run"], FILE.replace('name = "shop"', ""), ConfigurationError, "name is None"),
        (["run"], FILE.replace('dump_root = "/dumps"', ""), ConfigurationError, "a policy has no dump_root"),
        (["leave"], FILE.split("[[", 1)[0], ConfigurationError, "'shop' has no policies"),
    ],
)
def test_group_files(
    tmp_path: Path, words: list[str], text: str, error: type[HiveFederationError], message: str
) -> None:
    with pytest.raises(error, match=message):
        act(tmp_path, text, *words)
