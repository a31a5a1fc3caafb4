"""The command line's and the operators' side of compaction, as far as it needs no server."""

from __future__ import annotations

import subprocess
import sys

import pytest

from airflow_hive_federation.cli.main import build_parser


def test_the_command_line_is_understood() -> None:
    args = build_parser().parse_args(
        ["compact", "sales.orders", "--kind", "minor", "--partition", "day=1", "--partition", "day=2"]
    )
    assert (args.command, args.table, args.kind, args.partition) == (
        "compact",
        "sales.orders",
        "minor",
        ["day=1", "day=2"],
    )
    assert build_parser().parse_args(["compact", "worker", "--until-empty"]).until_empty
    with pytest.raises(SystemExit):
        build_parser().parse_args(["compact", "sales.orders", "--kind", "sideways"])


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("operators.compaction", ("pyarrow", "pyspark", "numpy", "thriftpy2")),
        # A worker with threads needs no Spark.
        ("compaction.worker", ("pyspark",)),
    ],
)
def test_nothing_heavy_is_imported(module: str, heavy: tuple[str, ...]) -> None:
    code = f"import sys, airflow_hive_federation.{module}; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
