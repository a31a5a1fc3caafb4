"""Registries of two clusters, C1 and C2, of which C1 is the default."""

from __future__ import annotations

from pathlib import Path

from airflow_hive_federation.clusters.registry import ClusterRegistry, read_registry


def two_clusters(c1: str | Path, c2: str | Path) -> ClusterRegistry:
    """Make a registry from the roots of both file systems."""
    properties = {
        name: {"fileSystem": str(root), "jobTracker": f"spark_{name.lower()}"}
        for name, root in (("C1", c1), ("C2", c2))
    }
    return read_registry(
        {"hive.cluster.properties": properties, "hive.default.cluster.name": "C1"}, origin="the test"
    )
