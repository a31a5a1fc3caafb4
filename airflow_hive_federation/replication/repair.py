"""Repairs a replica: corrects exactly the differences that a verification names.

A repair is a cycle: an increment that also examines the tables that differ, whether or not events name them.
So it holds the target's lock, copies to hidden directories, publishes by a switch, survives a kill between
any two lines, and leaves the target at one event. It alters, creates and drops definitions and partitions
that differ, and copies files again whose digests differ. It copies a table as a whole only if nothing less
repairs that table, and then copies only that table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model.json_values import Fields, count, list_of, reader_of, text
from airflow_hive_federation.progress.events import RepairStarting
from airflow_hive_federation.progress.observers import LOGGED, Observer
from airflow_hive_federation.replication.cycle import dump_next_increment, load_dump
from airflow_hive_federation.replication.dump.repair_plan import repair_plan_of
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.manifest import RepairPlan
from airflow_hive_federation.replication.group_policy import refuse_alone
from airflow_hive_federation.replication.load.summary import CopyRunner
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.differences import RETAINED, Difference
from airflow_hive_federation.replication.replica.position import loaded_dump
from airflow_hive_federation.replication.verify.report import (
    VerificationReport,
    VerificationResult,
    found_equal,
)
from airflow_hive_federation.replication.verify.verify import VerifyRunner, verify_replica
from airflow_hive_federation.waiting import Departure

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastorePool

#: The first round repairs a table, the second what the first uncovered, and the third replaces the table. No
#: fourth method exists.
_ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class RepairResult(VerificationResult):
    """A repair as tasks and commands return it: the last verification, and the changes before it.

    :param repaired: the descriptions of the differences that no longer exist.
    :param repaired_tables: the tables that the repair examined.
    :param replaced_tables: those of them that the repair copied anew, as a whole.
    """

    repaired: Sequence[str] = ()
    repaired_tables: Sequence[str] = ()
    replaced_tables: Sequence[str] = ()

    @classmethod
    def of_report(cls, report: Mapping[str, Any]) -> Self:
        """Return the result of a repair that had nothing to do.

        :param report: the verification before it, as a task returned it.
        :raises ConfigurationError: a field of the verification is missing, or it has an unknown field.
        """
        try:
            return cls(**report)
        except TypeError as error:
            raise ConfigurationError(
                f"The report is not the result of a verification: {error}.",
                remedy="Give the result of a VerifyReplicaOperator.",
            ) from error


@dataclass(frozen=True, kw_only=True)
class RepairReport:
    """The result of a repair.

    :param repaired: differences that no longer exist.
    :param tables: tables that the repair examined.
    :param replaced: those of them that the repair copied anew, as a whole.
    :param dumps: URIs of the dumps that the target was loaded from, in order: those of the repair's cycles,
        after those of an earlier repair that did not end well, whose changes nobody may have announced.
    :param report: the last verification.
    """

    repaired: list[Difference] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    dumps: list[str] = field(default_factory=list)
    report: VerificationReport

    def result(self) -> RepairResult:
        """Return the report with descriptions in place of differences."""
        return RepairResult(
            **vars(self.report.result()),
            repaired=[str(difference) for difference in self.repaired],
            repaired_tables=self.tables,
            replaced_tables=self.replaced,
        )


def repair_replica(
    source: MetastorePool,
    target: MetastorePool,
    policy: ReplicationPolicy,
    *,
    run_copy: CopyRunner,
    run_verify: VerifyRunner,
    tables: Collection[str] | None = None,
    begun: RepairProgress | None = None,
    retried: bool = False,
    observer: Observer = LOGGED,
) -> RepairReport:
    """Verify a target, repair its differences, and verify it again.

    :param source: connections to the source.
    :param target: connections to the target.
    :param run_copy: carries out a copy plan.
    :param run_verify: reads files by Spark, see :func:`~.verify.verify_replica`.
    :param tables: tables whose files and rows are compared; all by default.
    :param begun: the progress of this repair when it left its process by a
        :class:`~airflow_hive_federation.waiting.Departure`.
    :param retried: a repair of which this one is another try may have been killed after its last
        verification.
    :param observer: receives the events of progress.
    :return: the repaired differences; its ``report`` holds those that remain.
    :raises TargetNotOursError: the target database is not this policy's, or not published yet.
    :raises CycleRunningError: another cycle works on the target.
    :raises GroupMembershipError: the policy belongs to a consistency group.
    :raises HiveFederationError: as :func:`~.cycle.dump_next_increment`, :func:`~.cycle.load_dump` and
        :func:`~.verify.verify_replica`.
    """
    refuse_alone(policy, "repair its target")

    def verify() -> VerificationReport:
        with target.client() as client:
            dump = loaded_dump(client, policy)
        return verify_replica(
            target, policy, dump, run_verify=run_verify, source=source, tables=tables, observer=observer
        )

    progress = begun or RepairProgress(dumps=_unannounced(target, policy, retried=retried))
    try:
        while True:
            if not progress.dump:
                report = verify()
                repairable = progress.repairable(report, policy)
                if not repairable:
                    break
                # A difference that was seen before needs more than another look at its table.
                again = {difference.table for difference in repairable if difference in progress.seen}
                repair_plan = repair_plan_of(repairable, again=again)
                observer(
                    RepairStarting(database=policy.target_database, tables=tuple(sorted(repair_plan.tables)))
                )
                dumped = dump_next_increment(
                    source, target, policy, repair_plan=repair_plan, observer=observer
                )
                progress.begin_round(dumped.dump, repairable, repair_plan)
            load_dump(source, target, policy, progress.dump, run_copy=run_copy, observer=observer)
            progress.end_round()
    except Departure as left:
        left.progress = progress.to_json()
        raise
    return progress.report(report)


@dataclass(kw_only=True)
class RepairProgress:
    """The progress of a repair, which may go on in another process.

    :param rounds: the number of rounds that have been loaded.
    :param seen: differences that rounds were to repair.
    :param repaired: tables that rounds have examined.
    :param replaced: those of them that were copied anew.
    :param dumps: URIs of the dumps that have been loaded, as those of :class:`RepairReport`.
    :param dump: URI of the dump that is being loaded; empty before a verification.
    """

    rounds: int = 0
    seen: list[Difference] = field(default_factory=list)
    repaired: set[str] = field(default_factory=set)
    replaced: set[str] = field(default_factory=set)
    dumps: list[str] = field(default_factory=list)
    dump: str = ""

    def repairable(self, report: VerificationReport, policy: ReplicationPolicy) -> list[Difference]:
        """Return the differences that another round may repair; none after the last round."""
        return [
            difference
            for difference in report.differences
            if self.rounds < _ROUNDS
            and difference.table not in self.replaced
            and not _stays(difference, policy)
        ]

    def begin_round(self, dump: str, repairable: Sequence[Difference], repair_plan: RepairPlan) -> None:
        """Note a round of which the dump is written."""
        self.dump = dump
        self.seen += [difference for difference in repairable if difference not in self.seen]
        self.repaired |= repair_plan.tables
        self.replaced |= repair_plan.replaced

    def end_round(self) -> None:
        """Note that the round's dump is loaded."""
        self.rounds += 1
        self.dumps.append(self.dump)
        self.dump = ""

    def report(self, last: VerificationReport) -> RepairReport:
        """Return the report of the repair."""
        remaining = set(last.differences)
        return RepairReport(
            repaired=[difference for difference in self.seen if difference not in remaining],
            tables=sorted(self.repaired),
            replaced=sorted(self.replaced),
            dumps=self.dumps,
            report=last,
        )

    def to_json(self) -> dict[str, object]:
        """Return the progress as values of JSON."""
        return {
            "rounds": self.rounds,
            "seen": [asdict(difference) for difference in self.seen],
            "repaired": sorted(self.repaired),
            "replaced": sorted(self.replaced),
            "dumps": self.dumps,
            "dump": self.dump,
        }

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Return the progress that :meth:`to_json` wrote.

        :raises ValueError: a field is missing, or has another type.
        """
        fields = Fields(value)
        return cls(
            rounds=fields.needed("rounds", count),
            seen=list(fields.needed("seen", list_of(reader_of(Difference)))),
            repaired=set(fields.needed("repaired", list_of(text))),
            replaced=set(fields.needed("replaced", list_of(text))),
            # A task that left its worker in an earlier version has none.
            dumps=list(fields.optional("dumps", list_of(text), default=())),
            dump=fields.needed("dump", text),
        )


def _unannounced(target: MetastorePool, policy: ReplicationPolicy, *, retried: bool) -> list[str]:
    """Return the dumps of a repair by which the target was loaded last, if that repair did not end well.

    Only a task that succeeds announces its changes, and the next cycle does not find them again.
    """
    with target.client() as client:
        directory = DumpDirectory(loaded_dump(client, policy), policy.storage_options)
    dumps: list[str] = []
    while directory.dump_finished and directory.uri not in dumps:  # Old dumps are removed.
        ended_well = found_equal(directory) and (bool(dumps) or not retried)
        manifest = directory.manifest()
        if ended_well or not manifest.is_increment or not manifest.repair_plan:
            break
        dumps.append(directory.uri)
        directory = DumpDirectory(manifest.previous, policy.storage_options)
    return dumps[::-1]


def _stays(difference: Difference, policy: ReplicationPolicy) -> bool:
    """Return whether a repair leaves a difference alone.

    It leaves alone tables that an adopted database held before, and tables that wait for a decision of an
    administrator.
    """
    adopted = policy.into_existing and difference.what == "table" and difference.expected == "none"
    return adopted or difference.what == RETAINED
