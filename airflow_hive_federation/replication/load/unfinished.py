"""Increments whose load has begun, and was killed or goes on."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_hive_federation.replication.dump.directory import DumpDirectory
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.storage.filesystem import join, open_filesystem, storage_errors

#: What a load writes first.
COPY_PLAN = "load/copy_plan.jsonl"


def unfinished_loads(policy: ReplicationPolicy, loaded: str) -> Iterator[DumpDirectory]:
    """Yield increments that go on from where a target stands, and whose load has begun to copy.

    :param loaded: URI of the dump that the target was loaded from last.
    """
    filesystem, path = open_filesystem(policy.directory, policy.storage_options)
    with storage_errors(policy.directory):
        found = sorted(filesystem.glob(f"{path}/*/{COPY_PLAN}"))
    for plan in found:
        dump = DumpDirectory(join(policy.directory, plan.split("/")[-3]), policy.storage_options)
        if dump.manifest().get("previous") == loaded:
            yield dump
