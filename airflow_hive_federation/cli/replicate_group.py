"""``hive-federation replicate`` with a group file: replicates several databases as of one moment.

A group file is TOML. It has the keys of a policy file, for all policies, and a list of policies in the order
of their publication::

    name = "shop"
    source = "thrift://source:9083"
    target = "thrift://target:9083"
    dump_root = "s3://bucket/replication"

    [[policies]]
    source_database = "orders"

    [[policies]]
    source_database = "items"
    target_database = "items_copy"
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_hive_federation.cli.connecting import common_storage_options, end_for
from airflow_hive_federation.cli.published import CommandState, failures, waiting
from airflow_hive_federation.cli.replication_state import print_plan, print_status
from airflow_hive_federation.cli.report import print_report
from airflow_hive_federation.cli.story import Story
from airflow_hive_federation.errors import ConfigurationError, GroupMembershipError
from airflow_hive_federation.model.results import result_json
from airflow_hive_federation.replication.group_policy import ReplicationGroup, members_of
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.storage.options import StorageOptions

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastorePool
    from airflow_hive_federation.replication.verify.report import VerificationReport

_CONNECTIONS = 8


@dataclass(frozen=True, kw_only=True)
class GroupFile:
    """A group and its two ends."""

    group: ReplicationGroup
    source: str
    target: str


def read_group(
    path: Path, values: Mapping[str, object], options: StorageOptions, *, into_existing: bool
) -> GroupFile:
    """Make a group of the values of a group file.

    :param options: settings under Hive's own names, for all policies.
    :param into_existing: set ``into_existing`` for all policies.
    :raises ConfigurationError: a key is unknown or missing, or has an impossible value.
    """
    defaults = dict(values)
    name, ends = defaults.pop("name", None), {end: defaults.pop(end, None) for end in ("source", "target")}
    for key, value in {"name": name, **ends}.items():
        if not isinstance(value, str) or not value:
            raise ConfigurationError(
                f"Group file {path}: {key} is {value!r}.", remedy=f"Give {key} as text, above the policies."
            )
    if into_existing:
        defaults["into_existing"] = True
    given = defaults.pop("policies")
    policies = [
        ReplicationPolicy.from_options(
            options={key: str(value) for key, value in options.items()}, **_complete(path, member)
        )
        for member in members_of(str(name), given, defaults)
    ]
    group = ReplicationGroup(name=str(name), policies=policies)
    return GroupFile(group=group, source=str(ends["source"]), target=str(ends["target"]))


def run(args: argparse.Namespace, file: GroupFile) -> int:
    """Run an action on a group; return 0 if the replicas equal their sources."""
    from airflow_hive_federation.metastore import MetastorePool

    if args.action in {"follow", "repair"} or (args.action == "failover" and not args.source_lost):
        raise GroupMembershipError(
            f"Consistency group {file.group.name!r} cannot {_VERBS[args.action]} as a whole.",
            remedy="Take its policies out (hive-federation replicate leave GROUP_FILE), and "
            f"{_VERBS[args.action]} each by a policy file of its own.",
            group=file.group.name,
            policies=[policy.name for policy in file.group.policies],
        )
    if dump := getattr(args, "dump", None):
        raise ConfigurationError(
            f"The targets of consistency group {file.group.name!r} are compared with the dumps from which "
            f"they were loaded last, and not with {dump}.",
            remedy="Leave out the dump.",
        )
    source, target = end_for(file.source), end_for(file.target)
    group = file.group.with_storage_options(common_storage_options(source, target))
    with ExitStack() as stack:
        pools = (
            stack.enter_context(MetastorePool(source.settings, _CONNECTIONS)),
            stack.enter_context(MetastorePool(target.settings, _CONNECTIONS)),
        )
        if args.action in {"plan", "status"}:
            return _show(args, *pools, group)
        if args.action == "failover":
            return _take_over(args, *pools, group)
        if args.action == "leave":
            return _leave(args, pools[1], group)
        return _replicate(args, *pools, group)


_VERBS = {"follow": "follow its source", "repair": "repair its targets", "failover": "fail over"}


def _complete(path: Path, member: Mapping[str, object]) -> dict[str, object]:
    missing = [name for name in ("name", "source_database", "dump_root") if not member.get(name)]
    if missing:
        raise ConfigurationError(
            f"Group file {path}: a policy has no {missing[0]}.",
            remedy=f"Set {missing[0]} in the policy, or for all policies.",
        )
    return dict(member)


def _show(
    args: argparse.Namespace, source: MetastorePool, target: MetastorePool, group: ReplicationGroup
) -> int:
    from airflow_hive_federation.replication.groups.status import plan_group, read_group_status

    if args.action == "plan":
        plan = plan_group(source, target, group)
        if args.json:
            print(json.dumps(plan.to_json()))
        else:
            for member in plan.members:
                print_plan(member)
        return 0
    states = _states(args, group)
    with failures(states):
        status = read_group_status(source, target, group)
    for publisher, member_status in zip(states, status.members, strict=True):
        publisher.status(member_status)
    if args.json:
        print(json.dumps(status.to_json()))
        return 0
    moment = f"of one moment, event {status.event_id}" if status.one_moment else "not of one moment"
    print(f"The targets of consistency group {group.name} are {moment}")
    for state in status.members:
        print_status(state)
    return 0


def _take_over(
    args: argparse.Namespace, source: MetastorePool, target: MetastorePool, group: ReplicationGroup
) -> int:
    from airflow_hive_federation.replication.groups.take_over import take_over_group

    story = Story()
    states = _states(args, group)
    with failures(states):
        reports = take_over_group(source, target, group, observer=story.observe)
    by_target = {state.policy.target_database: state for state in states}
    for report in reports:
        by_target[report.database].failover(report.event_id)
    if args.json:
        members = [result_json(report.result()) for report in reports]
        print(json.dumps({"group": group.name, "members": members}))
    else:
        for report in reports:
            print(report.summary)
    return 0


def _leave(args: argparse.Namespace, target: MetastorePool, group: ReplicationGroup) -> int:
    from airflow_hive_federation.replication.groups.membership import leave_group

    left = leave_group(target, group, args.policies)
    if args.json:
        print(json.dumps({"group": group.name, "left": left}))
    else:
        print(f"Left consistency group {group.name}: {', '.join(left) or 'no policy, none was in it'}")
    return 0


def _replicate(
    args: argparse.Namespace, source: MetastorePool, target: MetastorePool, group: ReplicationGroup
) -> int:
    # These imports come late, because they import Airflow, which takes seconds.
    from airflow_hive_federation.cli.airflow_logs import logging_to
    from airflow_hive_federation.hooks.spark import SparkPipelineHook
    from airflow_hive_federation.replication.groups.cycle import run_group_cycle
    from airflow_hive_federation.replication.groups.status import verify_group

    story = Story()
    options = group.policies[0].storage_options
    spark = SparkPipelineHook(args.spark_conn_id, storage_options=options, observer=story.observe)
    states = _states(args, group)
    whole = args.action == "verify" or args.verify_whole
    with logging_to(story), failures(states):
        if args.action == "run":
            story.stage(f"Running a cycle of consistency group {group.name}")
            run_group_cycle(
                source,
                target,
                group,
                run_copy=spark.copy_runner,
                threads=_CONNECTIONS,
                observer=waiting(states, story.observe),
            )
            for state in states:
                state.cycle(source, target, None)
        story.stage(f"Verifying consistency group {group.name}")
        reports = verify_group(
            source,
            target,
            group,
            run_verify=spark.verify_runner(),
            whole=whole,
            row_digests=getattr(args, "row_digests", False),
            observer=story.observe,
        )
        for state, report in zip(states, reports, strict=True):
            state.verification(report, whole=whole)
    story.stage("Done")
    _print_reports(args, group, reports, seconds=story.seconds)
    for report in reports:
        report.raise_if_different()
    return 0


def _states(args: argparse.Namespace, group: ReplicationGroup) -> list[CommandState]:
    """Return the publishers of the members' state."""
    return [CommandState(policy=policy, command=f"replicate {args.action}") for policy in group.policies]


def _print_reports(
    args: argparse.Namespace,
    group: ReplicationGroup,
    reports: list[VerificationReport],
    *,
    seconds: float,
) -> None:
    results = [result_json(report.result()) for report in reports]
    if args.json:
        print(json.dumps({"group": group.name, "members": results, "seconds": round(seconds, 1)}))
        return
    for report, facts in zip(reports, results, strict=True):
        print_report(facts, title=f"Database {report.database} at event {report.event_id}")
