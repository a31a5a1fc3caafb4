"""Finds loads that have begun: finished ones, killed ones and running ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.storage.filesystem import join, open_filesystem, storage_errors

#: A load writes this file first.
COPY_PLAN = "load/copy_plan.jsonl"


def begun_loads(policy: ReplicationPolicy) -> Iterator[DumpDirectory]:
    """Yield the dumps of a policy whose load has begun to copy, whether or not it was published."""
    filesystem, path = open_filesystem(policy.directory, policy.storage_options)
    with storage_errors(policy.directory):
        plans = sorted(filesystem.glob(f"{path}/*/{COPY_PLAN}"))
    for plan in plans:
        yield DumpDirectory(join(policy.directory, plan.split("/")[-3]), policy.storage_options)


def unfinished_loads(policy: ReplicationPolicy, loaded: str) -> Iterator[DumpDirectory]:
    """Yield the increments that continue from the target's position and whose load has begun to copy.

    :param loaded: URI of the dump from which the target was last loaded.
    """
    return (dump for dump in begun_loads(policy) if dump.manifest().previous == loaded)


@dataclass(frozen=True, kw_only=True)
class UnfinishedLoads:
    """The result of :func:`unfinished_loads`, which is read when it is needed first, and only then."""

    policy: ReplicationPolicy
    loaded: str

    @cached_property
    def dumps(self) -> tuple[DumpDirectory, ...]:
        return tuple(unfinished_loads(self.policy, self.loaded))
