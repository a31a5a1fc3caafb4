"""Loads that have begun, and were killed or go on."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.storage.filesystem import join, open_filesystem, storage_errors

#: What a load writes first.
COPY_PLAN = "load/copy_plan.jsonl"


def begun_loads(policy: ReplicationPolicy) -> Iterator[DumpDirectory]:
    """Yield the dumps of a policy whose load has begun to copy: published ones, and others."""
    filesystem, path = open_filesystem(policy.directory, policy.storage_options)
    with storage_errors(policy.directory):
        found = sorted(filesystem.glob(f"{path}/*/{COPY_PLAN}"))
    for plan in found:
        yield DumpDirectory(join(policy.directory, plan.split("/")[-3]), policy.storage_options)


def unfinished_loads(policy: ReplicationPolicy, loaded: str) -> Iterator[DumpDirectory]:
    """Yield increments that go on from where a target stands, and whose load has begun to copy.

    :param loaded: URI of the dump that the target was loaded from last.
    """
    return (dump for dump in begun_loads(policy) if dump.manifest().get("previous") == loaded)
