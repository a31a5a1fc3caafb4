"""``hive-federation replicate``: replicates a database from a terminal, as the example DAG does.

A policy file is TOML::

    name = "flights"
    source = "thrift://source:9083"          # URIs, or the id of an Airflow connection
    target = "thrift://target:9083"
    source_database = "flights"
    dump_root = "s3://bucket/replication"
    external_base = "s3://bucket/replica"

    [options]                                 # settings under Hive's own names
    "hive.repl.bootstrap.dump.open.txn.timeout" = "10m"

A policy file holds no keys of the stores: name Airflow connections as source and target, whose extras hold
them.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.cli import replicate_follow
from airflow_hive_federation.cli.connecting import common_storage_options, end_for
from airflow_hive_federation.cli.parsers import Subparsers
from airflow_hive_federation.cli.published import CommandState
from airflow_hive_federation.cli.report import print_report
from airflow_hive_federation.cli.story import Story
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model.results import result_json
from airflow_hive_federation.progress.events import SourceWritable
from airflow_hive_federation.progress.words import words
from airflow_hive_federation.replication.policy import (
    BOUNDS,
    COUNTS,
    FLAGS,
    HIVE_OPTIONS,
    ReplicationPolicy,
)
from airflow_hive_federation.runtime.unreadable_files import remedy_of_unreadable

if TYPE_CHECKING:
    from airflow_hive_federation.hooks.spark import SparkPipelineHook
    from airflow_hive_federation.metastore import MetastorePool
    from airflow_hive_federation.replication.dump.drain import DrainStart
    from airflow_hive_federation.replication.failover import FailoverReport
    from airflow_hive_federation.replication.failover_results import FailoverResult, SourceState
    from airflow_hive_federation.replication.load.summary import LoadSummary
    from airflow_hive_federation.replication.repair import RepairReport
    from airflow_hive_federation.replication.verify.report import VerificationReport

#: Connections per metastore, because tables are dumped and created side by side.
_CONNECTIONS = 8

#: Keys of a policy file, and their types in TOML.
_KEYS = {
    field.name: {
        **dict.fromkeys(FLAGS, (bool,)),
        **dict.fromkeys((*COUNTS, *BOUNDS), (int,)),
        "open_txn_timeout_s": (str, int, float),
        "table_names": (dict,),
        "allowed_source_roots": (list,),
    }.get(field.name, (str,))
    for field in fields(ReplicationPolicy)
    if field.name != "storage_options"
}
_REQUIRED = ("name", "source_database", "dump_root")


#: The files that an action takes, for those that do not take both kinds.
_FILES = {
    "follow": "policy file (TOML)",
    "repair": "policy file (TOML)",
    "failover": "policy file (TOML); with --source-lost also a group file",
    "leave": "group file (TOML)",
}


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to ``hive-federation``."""
    parser = subparsers.add_parser("replicate", help="replicate a database according to a policy file")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in (
        ("run", "run one cycle: a bootstrap, or an increment if the target is published; then verify"),
        ("follow", "run a cycle whenever the source has changed, until a signal or a limit"),
        ("plan", "show the objects that a cycle would copy, create, alter and drop, without a change"),
        ("status", "show the target's position, its lag, and the results of the last cycles"),
        ("verify", "compare the target with the dump it was loaded from"),
        ("repair", "repair the differences on the target, then verify again"),
        ("failover", "exchange the roles of source and target: a last cycle, a verification, the switch"),
        ("leave", "take policies out of their consistency group, so that they run their cycles alone"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("policy", type=Path, help=_FILES.get(name, "policy file, or group file (TOML)"))
        action.add_argument("--json", action="store_true", help="print the result as JSON")
        if name in {"run", "follow", "verify", "repair", "failover"}:
            action.add_argument(
                "--spark-conn-id",
                default="spark_default",
                help="Airflow connection of Spark (default: spark_default)",
            )
        if name == "run":
            action.add_argument(
                "--into-existing",
                action="store_true",
                help="adopt a target database that exists and has no policy's marker, empty or not",
            )
            action.add_argument(
                "--verify-whole", action="store_true", help="compare all tables, not only those that changed"
            )
        if name == "follow":
            replicate_follow.add_arguments(action)
        if name == "failover":
            # A failover, its end without the source, and its undoing: only the first has a way back.
            kinds = action.add_mutually_exclusive_group()
            kinds.add_argument("--back", type=Path, metavar="FILE", help="write the policy of the way back")
            kinds.add_argument(
                "--roll-back",
                action="store_true",
                help="undo the start of a failover, before its switch",
            )
            action.add_argument(
                "--target-lost",
                action="store_true",
                help="with --roll-back: the target is lost",
            )
            kinds.add_argument(
                "--source-lost",
                action="store_true",
                help="the source is lost: release the target at the last event that it has",
            )
        if name == "leave":
            action.add_argument(
                "policies", nargs="*", help="names of the policies that leave (default: all of the group)"
            )
        if name == "verify":
            action.add_argument(
                "--row-digests",
                action="store_true",
                help="compare digests of rows, not only their number",
            )
            action.add_argument(
                "dump", nargs="?", help="URI of the dump (default: that of the target's last cycle)"
            )


def run(args: argparse.Namespace) -> int:
    """Run an action; return 0 if the replica equals its source."""
    if getattr(args, "target_lost", False) and not args.roll_back:
        raise ConfigurationError(
            "--target-lost is not for a failover, which needs its target.",
            remedy="Add --roll-back to undo a start; or leave --target-lost out.",
        )
    into_existing = getattr(args, "into_existing", False)
    values = _read_toml(args.policy)
    if args.action == "leave" or "policies" in values:
        from airflow_hive_federation.cli import replicate_group

        options = values.pop("options", {})
        values.setdefault("policies", [])
        group = replicate_group.read_group(args.policy, values, options, into_existing=into_existing)
        return replicate_group.run(args, group)
    file = read_policy_file(args.policy, into_existing=into_existing)
    if args.action == "follow":
        return replicate_follow.run(args, file.policy, file.source, file.target)
    if args.action in {"plan", "status"}:
        from airflow_hive_federation.cli.replication_state import show

        return show(args.action, file.policy, file.source, file.target, as_json=args.json)
    return _replicate(args, file)


def _replicate(args: argparse.Namespace, file: PolicyFile) -> int:
    # This import comes late, because it imports Airflow, which takes seconds.
    from airflow_hive_federation.cli.airflow_logs import logging_to
    from airflow_hive_federation.hooks.spark import SparkPipelineHook
    from airflow_hive_federation.metastore import MetastorePool

    story = Story()
    with ExitStack() as stack:
        stack.enter_context(logging_to(story))
        source, target = end_for(file.source), end_for(file.target)
        options = common_storage_options(source, target)
        work = _Work(
            source=stack.enter_context(MetastorePool(source.settings, _CONNECTIONS)),
            target=stack.enter_context(MetastorePool(target.settings, _CONNECTIONS)),
            policy=replace(file.policy, storage_options=options),
            spark=SparkPipelineHook(args.spark_conn_id, storage_options=options, observer=story.observe),
            story=story,
            command=f"replicate {args.action}",
        )
        if args.action == "failover":
            return _fail_over(args, file, work)
        with work.state.failures():
            report, facts = work.act(args)
    story.stage("Done")
    if args.json:
        print(json.dumps({**facts, "seconds": round(story.seconds, 1)}))
    else:
        print_report(facts, title=f"Database {report.database} at event {report.event_id} ({facts['dump']})")
        for line in facts.get("repaired", ()):
            print(f"repaired: {line}")
    report.raise_if_different()
    return 0


def _fail_over(args: argparse.Namespace, file: PolicyFile, work: _Work) -> int:
    from airflow_hive_federation.replication.failover import roll_back_failover
    from airflow_hive_federation.replication.failover_results import SourceState
    from airflow_hive_federation.replication.take_over import take_over

    if args.source_lost:
        result = take_over(work.source, work.target, work.policy, observer=work.story.observe).result()
        work.state.failover(result.event_id)
    elif args.roll_back:
        roll_back_failover(
            work.source,
            work.target,
            work.policy,
            target_lost=args.target_lost,
            observer=work.story.observe,
        )
        return _end_fail_over(
            args,
            work,
            SourceState(database=work.policy.source_database, writable=True),
            words(SourceWritable(database=work.policy.source_database)),
        )
    else:
        with work.state.failures():
            report = work.fail_over()
        result = report.result()
        work.state.failover(result.event_id)
        if args.back:
            args.back.write_text(policy_text(report.policy, file.target, file.source), encoding="utf-8")
    return _end_fail_over(args, work, result, result.summary)


def _end_fail_over(
    args: argparse.Namespace, work: _Work, result: FailoverResult | SourceState, summary: str
) -> int:
    work.story.stage("Done")
    print(json.dumps(result_json(result)) if args.json else summary)
    return 0


@dataclass(frozen=True, kw_only=True)
class PolicyFile:
    """A policy and its two ends."""

    policy: ReplicationPolicy
    source: str
    target: str


def read_policy_file(path: Path, *, into_existing: bool = False) -> PolicyFile:
    """Read a policy file.

    :param into_existing: set ``into_existing``, whatever its value in the file.
    :raises ConfigurationError: the file cannot be read, has an unknown key, lacks a required key, or has an
        impossible value.
    """
    values = _read_toml(path)
    options = values.pop("options", {})
    ends = {name: values.pop(name, None) for name in ("source", "target")}
    _check(path, values, ends, options)
    if into_existing:
        values["into_existing"] = True
    policy = ReplicationPolicy.from_options(
        options={key: str(value) for key, value in options.items()}, **values
    )
    return PolicyFile(policy=policy, source=str(ends["source"]), target=str(ends["target"]))


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"Policy file {path} cannot be read: {error}.", remedy=remedy_of_unreadable(error)
        ) from error


def policy_text(policy: ReplicationPolicy, source: str, target: str) -> str:
    """Return a policy as the text of a policy file, for :func:`read_policy_file`."""
    values = {"source": source, "target": target, **policy.to_json()}
    return "".join(f"{name} = {_toml(value)}\n" for name, value in values.items() if value is not None)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    # TOML writes text and numbers as JSON does, but knows no pairs of surrogates.
    return json.dumps(value, ensure_ascii=False)


def _check(path: Path, values: Mapping[str, object], ends: Mapping[str, object], options: object) -> None:
    if not isinstance(options, dict):
        raise ConfigurationError(f"Policy file {path}: options is no table.", remedy="Write [options].")
    by_option = {HIVE_OPTIONS[key] for key in options if key in HIVE_OPTIONS}
    missing = [name for name, end in ends.items() if not end]
    missing += [name for name in _REQUIRED if name not in values and name not in by_option]
    unknown = sorted(set(values) - set(_KEYS))
    if unknown or missing:
        defects = [f"{', '.join(unknown)} not known"] * bool(unknown) + [
            f"{', '.join(missing)} missing"
        ] * bool(missing)
        raise ConfigurationError(
            f"Policy file {path}: {'; '.join(defects)}.",
            remedy=f"Keys are source, target, options, {', '.join(sorted(_KEYS))}.",
        )
    for name, value in {**values, **ends}.items():
        kinds = _KEYS.get(name, (str,))
        # Python counts a boolean as an int; a policy file does not.
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise ConfigurationError(
                f"Policy file {path}: {name} is {value!r}.",
                remedy=f"Give {' or '.join(_NAMES_OF_TYPES[kind] for kind in kinds)}.",
            )


_NAMES_OF_TYPES = {
    str: "text",
    list: "a list of texts",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    dict: "a table",
}


@dataclass(frozen=True, kw_only=True)
class _Work:
    """The steps of the DAG as methods, which report their progress to the story."""

    source: MetastorePool
    target: MetastorePool
    policy: ReplicationPolicy
    spark: SparkPipelineHook
    story: Story
    command: str

    def act(self, args: argparse.Namespace) -> tuple[VerificationReport, dict[str, Any]]:
        """Run the requested action; return the last verification, and the result to print."""
        if args.action == "repair":
            repaired = self._repair()
            self.state.cycle(self.source, self.target, None)
            self.state.verification(repaired.report, whole=True)
            return repaired.report, {"dump": self._loaded_dump(), **result_json(repaired.result())}
        if args.action == "verify":
            dump, tables = args.dump or self._loaded_dump(), None
        else:
            dump, tables = self._cycle()
            self.state.cycle(self.source, self.target, None)
        whole, row_digests = getattr(args, "verify_whole", False), getattr(args, "row_digests", False)
        tables = None if whole else tables
        report = self._verify(dump, tables, row_digests=row_digests)
        self.state.verification(report, whole=tables is None)
        return report, {"dump": dump, **result_json(report.result())}

    @property
    def state(self) -> CommandState:
        """Return the publisher of the state that the command brings about."""
        return CommandState(policy=self.policy, command=self.command)

    def fail_over(self) -> FailoverReport:
        """Drain the source, load the last increment, verify, and switch the roles."""
        from airflow_hive_federation.replication.failover import is_switched, start_failover, switch_roles

        story = self.story
        if not is_switched(self.source, self.policy):
            story.stage(f"Draining {self.policy.source_database}")
            observer = self.state.waiting(story.observe)
            start_failover(self.source, self.target, self.policy, observer=observer)
            self._verify(self._increment().dump, None).raise_if_different()
        story.stage("Switching the roles")
        return switch_roles(self.source, self.target, self.policy, observer=story.observe)

    def _cycle(self) -> tuple[str, set[str] | None]:
        """Run a bootstrap or an increment; return the URI of the dump and the tables to compare."""
        from airflow_hive_federation.replication.cycle import is_published
        from airflow_hive_federation.replication.verify.unverified import tables_to_compare

        with self.target.client() as client:
            published = is_published(client, self.policy)
        loaded = self._increment() if published else self._bootstrap()
        return loaded.dump, tables_to_compare(loaded.dump, self.policy.storage_options, idle=loaded.idle)

    def _loaded_dump(self) -> str:
        from airflow_hive_federation.replication.replica.position import loaded_dump

        with self.target.client() as client:
            return loaded_dump(client, self.policy)

    def _repair(self) -> RepairReport:
        from airflow_hive_federation.replication.repair import repair_replica

        self.story.stage(f"Repairing {self.policy.target_database}")
        return repair_replica(
            self.source,
            self.target,
            self.policy,
            run_copy=self.spark.copy_runner(self.policy),
            run_verify=self.spark.verify_runner(),
            observer=self.story.observe,
        )

    def _increment(self) -> LoadSummary:
        from airflow_hive_federation.replication.cycle import dump_next_increment, load_idle

        policy, story = self.policy, self.story
        story.stage(f"Dumping what has changed in {policy.source_database}")
        dumped = dump_next_increment(
            self.source, self.target, policy, threads=_CONNECTIONS, observer=story.observe
        )
        if dumped.idle:
            return load_idle(self.target, policy, dumped.event_id, observer=story.observe)
        return self._load(dumped.dump)

    def _bootstrap(self) -> LoadSummary:
        from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap

        policy, story = self.policy, self.story
        story.stage(f"Waiting for open transactions of {policy.source_database}")
        start = self._drain()
        story.stage(f"Dumping {policy.source_database} at event {start.event_id}")
        dumped = dump_bootstrap(self.source, policy, start, threads=_CONNECTIONS, observer=story.observe)
        return self._load(dumped.dump)

    def _load(self, dump: str) -> LoadSummary:
        from airflow_hive_federation.replication.cycle import load_dump

        self.story.stage(f"Loading {self.policy.target_database}")
        return load_dump(
            self.source,
            self.target,
            self.policy,
            dump,
            run_copy=self.spark.copy_runner(self.policy),
            observer=self.story.observe,
        )

    def _verify(
        self, dump: str, tables: Collection[str] | None, *, row_digests: bool = False
    ) -> VerificationReport:
        """Compare the target with the dump.

        :param tables: the tables whose files and rows are compared; by default all tables.
        """
        from airflow_hive_federation.replication.verify.verify import verify_replica

        self.story.stage(f"Verifying {self.policy.target_database}")
        return verify_replica(
            self.target,
            self.policy,
            dump,
            run_verify=self.spark.verify_runner(),
            source=self.source,
            tables=tables,
            row_digests=row_digests,
            observer=self.story.observe,
        )

    def _drain(self) -> DrainStart:
        from airflow_hive_federation.replication.dump.drain import begin_drain, drain

        with self.source.client() as client:
            start = begin_drain(client, self.policy.source_database)
            drain(
                client,
                start,
                timeout_s=self.policy.open_txn_timeout_s,
                observer=self.state.waiting(self.story.observe),
            )
        return start
