"""Mending a replica: exactly what a verification names.

A repair is a cycle: an increment that looks at the tables that differ, whether events name them or not. So it
holds the target's lock, copies to hidden places and publishes by a switch, may be killed between any two
lines, and leaves the target at one event. Definitions and partitions are altered, made and dropped as they
differ, files copied again as their digests do. A table that nothing less mends is copied as a whole, alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.replication.cycle import dump_next_increment, load_dump
from airflow_hive_federation.replication.dump.mends import mend_of
from airflow_hive_federation.replication.load.bootstrap import CopyRunner
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.differences import RETAINED, Difference
from airflow_hive_federation.replication.replica.position import loaded_dump
from airflow_hive_federation.replication.verify.verify import VerificationReport, VerifyRunner, verify_replica

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastorePool

logger = logging.getLogger(__name__)

#: A table is mended; what that uncovers is mended; it is made anew. There is no fourth way.
_ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class RepairReport:
    """What a repair has done.

    :param mended: differences that are there no more.
    :param tables: tables that were looked at.
    :param replaced: those of them that were copied anew, as a whole.
    :param report: the last verification.
    """

    mended: list[Difference] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    report: VerificationReport

    def to_json(self) -> dict[str, Any]:
        """JSON values; what is left is in ``differences``."""
        values = asdict(self)
        return {
            **self.report.to_json(),
            "mended": [str(one) for one in self.mended],
            "mended_tables": values["tables"],
            "replaced_tables": values["replaced"],
        }


def repair_replica(
    source: MetastorePool,
    target: MetastorePool,
    policy: ReplicationPolicy,
    *,
    run_copy: CopyRunner,
    run_verify: VerifyRunner,
    tables: Collection[str] | None = None,
    progress: Callable[[str], None] = logger.info,
    on_step: Callable[[str], None] = lambda _: None,
) -> RepairReport:
    """Verify a target, mend what differs, and verify it again.

    :param source: connections to the source.
    :param target: connections to the target.
    :param run_copy: carries out a copy plan.
    :param run_verify: reads files by Spark, see :func:`~.verify.verify_replica`.
    :param tables: those whose files and rows are compared; all by default.
    :param on_step: told each step of the loads before it is taken; tests kill there.
    :return: what was mended; what is left is in its ``report``.
    :raises TargetNotOursError: the target database is not this policy's, or not published yet.
    :raises CycleRunningError: another cycle works on the target.
    :raises HiveFederationError: as :func:`~.cycle.dump_next_increment`, :func:`~.cycle.load_dump` and
        :func:`~.verify.verify_replica`.
    """

    def verify() -> VerificationReport:
        with target.client() as client:
            dump = loaded_dump(client, policy)
        return verify_replica(
            target, policy, dump, run_verify=run_verify, source=source, tables=tables, progress=progress
        )

    report = verify()
    met: list[Difference] = []
    mended: set[str] = set()
    replaced: set[str] = set()
    for _ in range(_ROUNDS):
        found = [one for one in report.differences if one.table not in replaced and not _stays(one, policy)]
        if not found:
            break
        # The same once more: looking at the table was not enough.
        mend = mend_of(found, again={one.table for one in found if one in met})
        progress(f"{policy.target_database}: mending {', '.join(sorted(mend.tables))}")
        dumped = dump_next_increment(source, target, policy, mend=mend, progress=progress)
        load_dump(source, target, policy, dumped.dump, run_copy=run_copy, progress=progress, on_step=on_step)
        met += [one for one in found if one not in met]
        mended |= mend.tables
        replaced |= mend.replaced
        report = verify()
    left = set(report.differences)
    return RepairReport(
        mended=[one for one in met if one not in left],
        tables=sorted(mended),
        replaced=sorted(replaced),
        report=report,
    )


def _stays(difference: Difference, policy: ReplicationPolicy) -> bool:
    """Tables that were in an adopted database before, and those that wait for somebody's decision."""
    adopted = policy.into_existing and difference.what == "table" and difference.expected == "none"
    return adopted or difference.what == RETAINED
