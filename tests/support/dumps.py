"""Writes parts of dumps by hand."""

from __future__ import annotations

from typing import Any

from airflow_hive_federation.replication.format.dumped_policy import DumpedPolicy
from airflow_hive_federation.replication.format.kinds import DumpKind
from airflow_hive_federation.replication.format.manifest import Manifest, TableEntry
from airflow_hive_federation.replication.policy import ReplicationPolicy

POLICY = ReplicationPolicy(name="p", source_database="d", dump_root="file:/dumps")


def manifest(*tables: TableEntry, kind: DumpKind = DumpKind.BOOTSTRAP, **fields: Any) -> Manifest:
    """A manifest with the fields that each needs."""
    needed: dict[str, Any] = {"policy": DumpedPolicy.of(POLICY), "event_id": 1, "lease": 1}
    if kind is DumpKind.INCREMENT:
        needed["previous"] = "file:/dumps/p/0-0"
    return Manifest(kind=kind, tables=tables, **{**needed, **fields})
