"""``hive-federation doctor``: examines the installed Spark, and a metastore's abilities and configuration."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from airflow_hive_federation.cli.connecting import settings_for
from airflow_hive_federation.cli.parsers import Subparsers
from airflow_hive_federation.errors import SparkEnvironmentError

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import Finding


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to ``hive-federation``."""
    parser = subparsers.add_parser(
        "doctor", help="report errors of the installation, and a metastore's features and errors"
    )
    parser.add_argument(
        "connection",
        nargs="?",
        help="URI(s) of a metastore, or the id of an Airflow connection; without it, the installation alone",
    )
    parser.add_argument("--json", action="store_true", help="print findings as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the findings; return 1 if one of them is an error."""
    from airflow_hive_federation.metastore import MetastoreClient, examine

    findings = [examine_spark()]
    if args.connection is not None:
        with MetastoreClient(settings_for(args.connection)) as client:
            findings += examine(client)
    if args.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        _print(f"Metastore {args.connection}" if args.connection is not None else "Installation", findings)
    return int(any(finding.state == "error" for finding in findings))


def examine_spark() -> Finding:
    """Check the pyspark that is installed beside this package, which local masters and spark-submit use."""
    from airflow_hive_federation.metastore import Finding
    from airflow_hive_federation.runtime.installed_spark import installed_spark, refuse_mixed_pyspark

    installed = installed_spark()
    try:
        refuse_mixed_pyspark(installed)
    except SparkEnvironmentError as error:
        return Finding(name="spark", state="error", detail=error.message, remedy=error.remedy)
    if installed.pyspark is None:
        return Finding(
            name="spark",
            state="warning",
            detail="pyspark is not installed: jobs need a SPARK_HOME, or a spark-submit on the PATH",
            remedy="Install pyspark in the version of your cluster's Spark.",
        )
    beside = f" beside the apache-spark provider {installed.provider}" if installed.provider else ""
    return Finding(name="spark", state="ok", detail=f"pyspark {installed.pyspark}{beside}")


def _print(heading: str, findings: Sequence[Finding]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(heading), soft_wrap=True)
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        line = Text("  ")
        line.append(f"{finding.state:<9}", style=_STYLES.get(finding.state, "dim"))
        line.append(f"{finding.name:<{width}}  {finding.detail}")
        console.print(line, soft_wrap=True)
        if finding.remedy:
            console.print(Text(f"{'':<{width + 13}}→ {finding.remedy}"), soft_wrap=True)
    counts = Counter(finding.state for finding in findings)
    console.print(", ".join(f"{count} {state}" for state, count in counts.items()))


_STYLES = {"ok": "green", "warning": "yellow", "error": "red"}
