"""A table with a copy, whose primary a test changes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from airflow_hive_federation.clusters.copies.objects import CopyObject
from airflow_hive_federation.clusters.metadata import ClusterMetadata, Secondary, source_mark
from airflow_hive_federation.clusters.primary import _Change
from airflow_hive_federation.clusters.registry import ClusterRegistry
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.listing import list_files
from tests.support.one_table import OneTable


def placed(tmp_path: Path, primary: str, secondary: str) -> CopyObject:
    """Return a table with a file in its primary, and a copy."""
    places = {name: tmp_path / name / "d.db" / "t" / "copy-1" for name in (primary, secondary)}
    for place in places.values():
        place.mkdir(parents=True, exist_ok=True)
        (place / "data").write_text("x", encoding="utf-8")
    storage = types.StorageDescriptor(location=f"file:{places[primary]}")
    table = types.Table(dbName="d", tableName="t", sd=storage, parameters={}, createTime=1)
    files = list_files(f"file:{places[primary]}")
    mark = source_mark(table, files)
    metadata = ClusterMetadata().with_secondary(
        secondary, Secondary(location=f"file:{places[secondary]}", source=mark)
    )
    return CopyObject(partition="", described=table, metadata=metadata, files=files, mark=mark)


def changing(registry: ClusterRegistry, former: str, cluster: str, store: OneTable | None = None) -> _Change:
    return _Change(
        client=cast("Any", store),
        transaction=cast("Any", SimpleNamespace(check=lambda: None)),
        place=registry.cluster(cluster),
        former=former,
        keep_former=True,
        options=None,
    )


def note(registry: ClusterRegistry, former: str, cluster: str, pending: CopyObject) -> None:
    table = cast("types.Table", pending.described)
    changing(registry, former, cluster)._note(table, [pending], registry.cluster(former))
