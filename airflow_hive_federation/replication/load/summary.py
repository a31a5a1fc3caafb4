"""Ends a load, of a bootstrap or an increment: its lease, its acknowledgement and its summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_hive_federation.progress.kinds import Step
from airflow_hive_federation.progress.observers import Steps
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.manifest import FinishedLoad
from airflow_hive_federation.transactions.lease import end_lease

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastorePool


CopyRunner = Callable[[str, str], None]


@dataclass(frozen=True, kw_only=True)
class LoadSummary:
    """The numbers of a published load. XCom-safe by :func:`dataclasses.asdict`.

    :param dump: URI of the dump; for an idle cycle, of the dump from which the target was last loaded.
    :param idle: the cycle found nothing to do.
    :param skipped: the tables of the source that the policy selects but that are not replicated, each with
        the reason.
    """

    dump: str
    database: str
    event_id: int
    tables: int
    partitions: int
    functions: int
    idle: bool = False
    skipped: Mapping[str, str] = field(default_factory=dict)


def acknowledge(
    source: MetastorePool,
    directory: DumpDirectory,
    lease: int,
    summary: LoadSummary,
    *,
    step: Steps,
) -> LoadSummary:
    """End a load, whether published now or before: release the source's cleaner, and acknowledge the load."""
    step(Step.END_LEASE)
    end_lease(source, lease)
    directory.finish_load(FinishedLoad(database=summary.database, event_id=summary.event_id))
    return summary
