"""A consistency group: transactions that write to two databases appear in both replicas at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import (
    CycleRunningError,
    FailoverError,
    GroupBusyError,
    GroupMembershipError,
    StorageFullError,
)
from airflow_hive_federation.metastore import MetastoreClient, MetastorePool, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.progress.events import LockContended
from airflow_hive_federation.progress.observers import Observer, unobserved
from airflow_hive_federation.replication.cycle import dump_next_increment, is_published, load_dump, load_idle
from airflow_hive_federation.replication.failover import start_failover
from airflow_hive_federation.replication.group_policy import ReplicationGroup
from airflow_hive_federation.replication.groups.dump import dump_group
from airflow_hive_federation.replication.groups.load import load_group
from airflow_hive_federation.replication.groups.membership import leave_group, read_members
from airflow_hive_federation.replication.groups.status import plan_group, read_group_status
from airflow_hive_federation.replication.groups.take_over import take_over_group
from airflow_hive_federation.replication.load.replay import Replay
from airflow_hive_federation.replication.load.summary import CopyRunner
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.cycle_lock import CycleLock
from airflow_hive_federation.replication.take_over import TakeOverReport
from tests.support.groups import DATABASES, GroupSite, grouped
from tests.support.incrementing import run_copy
from tests.support.observing import at_steps

ORDERS, ITEMS = DATABASES


@pytest.fixture
def site(source: EmbeddedMetastore, target: EmbeddedMetastore, tmp_path: Path) -> Iterator[GroupSite]:
    with grouped(source.uri, target.uri, tmp_path) as made:
        yield made


def in_step(site: GroupSite) -> None:
    """The targets have the rows and files of the source, and one event."""
    assert site.visible() == site.source_visible()
    of_source, of_target = site.files()
    assert of_target == of_source
    assert len(set(site.events())) == 1
    assert read_group_status(site.source, site.target, site.group).one_moment


def test_transactions_of_two_databases_appear_at_once(site: GroupSite) -> None:
    site.commit()
    steps: list[str] = []
    site.cycle(at_steps(steps.append))
    in_step(site)
    # Each load keeps the source's files until all have copied theirs.
    kinds = [step.partition(" ")[0] for step in steps[: steps.index("publish")]]
    assert [step for step in kinds if step in {"survey", "copy", "table"}] == [
        *["survey"] * 2,
        *["copy"] * 2,
        *["table"] * 2,
    ]

    # In both databases write id n belongs to the same transaction, and the even ones are the second's alone.
    before = site.visible()
    late = site.begin([ORDERS])
    for _ in range(3):
        site.commit()
    site.commit([ITEMS])
    site.commit()
    plan = plan_group(site.source, site.target, site.group)
    assert [(member.kind, member.transactions) for member in plan.members] == [
        ("increment", 4),
        ("increment", 5),
    ]
    dumped = site.dump()
    assert len({member.event_id for member in dumped.members}) == 1
    seen: list[dict[str, tuple[int, ...]]] = []
    steps.clear()

    def look(step: str) -> None:
        steps.append(step)
        visible = site.visible()
        if not seen or visible != seen[-1]:
            seen.append(visible)

    # A member whose copy fails keeps both where they are.
    def failing(policy: ReplicationPolicy) -> CopyRunner:
        def fail(_plan: str, _outcomes: str) -> None:
            raise StorageFullError("The store is full.", path="/")

        return fail if policy.name == ITEMS else run_copy

    with pytest.raises(StorageFullError, match=f"Member '{ITEMS}' of consistency group 'group_shop'"):
        load_group(site.source, site.target, site.group, dumped, run_copy=failing)
    assert site.visible() == before
    site.load(dumped, at_steps(look))
    # `orders` has a write id of its own in front, so that its n is the n - 1 of `items`.
    first, *rest = seen
    assert first == before
    assert [(visible[f"{ORDERS}_copy"], visible[f"{ITEMS}_copy"]) for visible in rest] == [
        ((1, 3), (1, 2)),
        ((1, 3, 4), (1, 2, 3)),
        ((1, 3, 4, 5), (1, 2, 3, 4)),
        ((1, 3, 4, 5), (1, 2, 3, 4, 5)),
        ((1, 3, 4, 5, 6), (1, 2, 3, 4, 5, 6)),
    ]
    ends = [number for number, step in enumerate(steps) if re.fullmatch(r"end \d+", step)]
    assert len(ends) == 5
    assert steps.index("publish") > max(ends)

    # The open transaction writes to the other database after the cut, and another one is aborted.
    site.write(late, ITEMS)
    site.end(site.begin(), commit=False)
    site.end(late)
    seen.clear()
    site.cycle(at_steps(look))
    assert [visible[f"{ORDERS}_copy"][:2] for visible in seen if 7 in visible[f"{ITEMS}_copy"]][:1] == [
        (1, 2)
    ]
    assert all((2 in visible[f"{ORDERS}_copy"]) == (7 in visible[f"{ITEMS}_copy"]) for visible in seen)
    assert site.visible()[f"{ORDERS}_copy"][:6] == (1, 2, 3, 4, 5, 6)
    assert site.cycle().idle


def test_a_killed_load_and_members_that_come_and_go(site: GroupSite) -> None:
    orders, items = site.group.policies
    # One database is replicated alone first, and joins.
    alone = replace(orders, group="")
    site.commit()
    site.group = ReplicationGroup(name="group_shop", policies=[items])
    site.cycle()
    with pytest.raises(GroupMembershipError, match="cannot load alone"):
        load_idle(site.target, items, 1)
    with pytest.raises(GroupMembershipError, match="belongs to consistency group 'group_shop'"):
        is_published_alone(site, replace(items, group=""))
    with pytest.raises(GroupMembershipError, match="cannot fail over alone"):
        start_failover(site.source, site.target, items)
    site.group = ReplicationGroup(name="group_shop", policies=[orders, items])
    site.cycle()
    in_step(site)

    # A load that ends between the two publications: the next cycle brings both to one moment.
    site.commit()
    still_open = site.begin()
    site.stop(site.dump(), "publish", 1)
    first, second = site.events()
    assert first > second
    assert not read_group_status(site.source, site.target, site.group).one_moment
    # That cycle overtakes one whose dump is being written.
    with site.another() as other:
        later = [other]

        def overtake(_: object) -> None:
            if later:
                second_site = later.pop()
                second_site.commit()
                second_site.cycle()

        dumped = dump_group(site.source, site.target, site.group, observer=overtake)
    assert len(set(site.events())) == 1
    assert site.visible() == site.source_visible()
    with pytest.raises(CycleRunningError, match=f"Member '{ORDERS}' .* has published event"):
        site.load(dumped)

    # A transaction is open on the target: a member can neither leave nor be left out.
    with pytest.raises(GroupBusyError, match=f"cannot leave consistency group .* transactions {still_open}"):
        leave_group(site.target, site.group, [ORDERS])
    only = ReplicationGroup(name="group_shop", policies=[items])
    with pytest.raises(GroupMembershipError, match=f"{ORDERS}_copy belong to consistency group"):
        read_group_status(site.source, site.target, only)
    site.end(still_open)
    site.cycle()
    in_step(site)
    # While the other member leaves, it waits: the last one has to know that it is the last.
    with ExitStack() as other_leaves:
        other_leaves.enter_context(CycleLock(site.target, items))
        waits: list[str] = []

        def let_it_end(event: object) -> None:
            if isinstance(event, LockContended):
                waits.append(event.database)
                other_leaves.close()

        assert leave_group(site.target, site.group, [ORDERS], observer=let_it_end) == [ORDERS]
        assert waits == [f"{ITEMS}_copy"]
    assert leave_group(site.target, site.group, [ORDERS]) == []

    # It goes on alone, and cannot join while it has an open transaction.
    still_open = site.begin()
    cycle_alone(site, alone)
    with pytest.raises(GroupBusyError, match="cannot join"):
        site.dump()
    site.end(still_open)
    cycle_alone(site, alone)
    site.cycle()
    in_step(site)

    # The last member aborts what a load that was killed early has opened.
    with site.target.client() as client:
        Replay(client, site.group.policies[0]).open({"t": [(1_000_000, 99)]})
        assert transactions_of_group(client)
        assert leave_group(site.target, site.group) == [ORDERS, ITEMS]
        assert not transactions_of_group(client)


def transactions_of_group(client: MetastoreClient) -> list[int]:
    """Return the open transactions of the target that carry the group's name."""
    transactions = client.call("get_open_txns_info").open_txns or ()
    return [
        txn.id
        for txn in transactions
        if txn.hostname.endswith("group group_shop") and txn.state == types.TxnState.OPEN
    ]


def is_published_alone(site: GroupSite, policy: ReplicationPolicy) -> bool:
    with site.target.client() as client:
        return is_published(client, policy)


def cycle_alone(site: GroupSite, policy: ReplicationPolicy) -> None:
    dumped = dump_next_increment(site.source, site.target, policy)
    load_dump(site.source, site.target, policy, dumped.dump, run_copy=run_copy)


def test_the_targets_are_taken_over_as_of_one_moment(site: GroupSite) -> None:
    site.commit()
    # A bootstrap that ends between the two publications: the next cycle continues it.
    site.stop(None, "publish", 1)
    with site.target.client() as client:
        states = read_members(client, site.group)
    assert [states[database].published for database in DATABASES] == [True, False]
    site.cycle()
    in_step(site)
    site.commit([ITEMS])
    site.commit()
    still_open = site.begin()
    whole = site.source_visible()
    # Killed between two ends: the first transaction is visible, and the second is not.
    site.kill(site.dump(), "end", 1)
    assert site.visible() != whole
    with pytest.raises(FailoverError, match="answers"):
        take_over_group(site.source, site.target, site.group)
    site.end(still_open, commit=False)
    reports = take_over(site)
    assert [report.database for report in reports] == [f"{ORDERS}_copy", f"{ITEMS}_copy"]
    assert len({report.event_id for report in reports}) == 1
    assert site.visible() == whole
    with site.target.client() as client:
        for policy in site.group.policies:
            parameters = client.get_database(policy.target_database).parameters or {}
            assert not {"hive.federation.policy", "hive.federation.group", "readonly"} & parameters.keys()


def test_a_take_over_leaves_no_rows_of_a_load_that_has_not_copied_all(site: GroupSite) -> None:
    site.commit()
    site.cycle()
    # An earlier load had copied all, and ended nothing.
    site.commit()
    whole = site.source_visible()
    site.stop(site.dump(), "functions", 0)
    _, files = site.files()
    site.commit()

    # The files of the second member are in place, and the load does not know it.
    def interrupted(policy: ReplicationPolicy) -> CopyRunner:
        def copy(plan: str, outcomes: str) -> None:
            run_copy(plan, f"{outcomes}.lost")
            raise StorageFullError("The store is full.", path="/")

        return copy if policy.name == ITEMS else run_copy

    with pytest.raises(StorageFullError):
        load_group(site.source, site.target, site.group, site.dump(), run_copy=interrupted)
    assert len(site.files()[1]) == len(files) + 2
    assert [report.removed for report in take_over(site)] == [1, 1]
    assert site.files()[1] == files
    assert {name: ids[:2] for name, ids in site.visible().items()} == whole


def test_a_take_over_aborts_no_transaction_for_whose_end_files_of_an_idle_member_wait(
    site: GroupSite,
) -> None:
    """The metastore would forget the aborted transaction, and readers would see the files."""
    site.commit()
    site.cycle()
    site.commit([ITEMS])
    whole = site.source_visible()
    site.stop(site.dump(), "functions", 0)
    site.commit([ORDERS])

    def interrupted(_: ReplicationPolicy) -> CopyRunner:
        def copy(plan: str, outcomes: str) -> None:
            run_copy(plan, f"{outcomes}.lost")
            raise StorageFullError("The store is full.", path="/")

        return copy

    with pytest.raises(StorageFullError):
        load_group(site.source, site.target, site.group, site.dump(), run_copy=interrupted)

    waiting = []

    def react(step: str) -> None:
        if step.startswith("remove files"):
            with site.target.client() as client:
                waiting.append(len(Replay(client, site.group.policies[0])._ours()))

    assert [report.removed for report in take_over(site, at_steps(react))] == [1, 0]
    assert waiting == [1, 1]
    assert site.visible() == whole


def take_over(site: GroupSite, observer: Observer = unobserved) -> list[TakeOverReport]:
    with MetastorePool(MetastoreSettings(uris=("thrift://127.0.0.1:1",)), 2) as lost:
        return take_over_group(lost, site.target, site.group, observer=observer)
