"""Compactions of golden tables."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from airflow_hive_federation.acid.snapshot import acid_state
from airflow_hive_federation.compaction.files import publish
from airflow_hive_federation.compaction.merge import merge_bucket
from airflow_hive_federation.compaction.plan import (
    CompactedTable,
    CompactionKind,
    CompactionPlan,
    plan_compaction,
)
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.storage.listing import list_files
from tests.support.golden_tables import GOLDEN


def described(name: str) -> dict[str, Any]:
    description: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    return description


def compact(
    directory: Path, kind: CompactionKind, write_ids: ValidWriteIds, columns: list[list[str]], **changes: Any
) -> CompactionPlan:
    table = CompactedTable(
        name="golden.t",
        location=str(directory),
        columns=tuple((name, type_text) for name, type_text in columns),
        **changes,
    )
    compactor = write_ids.for_compactor()
    plan = plan_compaction(table, acid_state(list_files(str(directory)), compactor), compactor, kind, 999)
    for merge in plan.merges:
        merge_bucket(merge)
    publish(plan, str(directory), table.file_format)
    return plan


def before_compaction(name: str, target: Path) -> None:
    """Copy the directories that Hive's compaction of a golden table has read."""
    for source in (GOLDEN / name).iterdir():
        if "_v" not in source.name and int(source.name.split("_")[-2]) <= 4:
            shutil.copytree(source, target / source.name)
