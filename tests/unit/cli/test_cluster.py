"""Messages of ``hive-federation cluster``."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.cli.cluster import _print_waiting
from tests.support.two_clusters import two_clusters


def test_directories_that_stay_are_counted_per_cluster_with_its_sweep(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A move replaces a copy in one cluster, and drops copies in the other."""
    registry = two_clusters(tmp_path / "C1", tmp_path / "C2")
    left = [
        f"{registry.cluster(name).root}/d.db/t.copies/{number}" for name, number in (("C1", 1), ("C2", 2))
    ]
    _print_waiting([*left, f"{left[1]}2"], registry)
    assert capsys.readouterr().err == (
        "1 directory in cluster C1 stays for statements that were planned before; a day from now, "
        "`hive-federation cluster sweep C1` removes it.\n"
        "2 directories in cluster C2 stay for statements that were planned before; a day from now, "
        "`hive-federation cluster sweep C2` removes them.\n"
    )
    _print_waiting([], registry)
    assert capsys.readouterr().err == ""
