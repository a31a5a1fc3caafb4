"""``hive-federation doctor``: examines a metastore's abilities, and its configuration for this package."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.cli.connecting import settings_for

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import Finding


def add_parser(subparsers: Any) -> None:
    """Add the command to ``hive-federation``."""
    parser = subparsers.add_parser("doctor", help="report a metastore's features and configuration errors")
    parser.add_argument("connection", help="URI(s) of a metastore, or the id of an Airflow connection")
    parser.add_argument("--json", action="store_true", help="print findings as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the findings; return 1 if one of them is an error."""
    from airflow_hive_federation.metastore import MetastoreClient, examine

    with MetastoreClient(settings_for(args.connection)) as client:
        findings = examine(client)
    if args.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        _print(args.connection, findings)
    return int(any(finding.state == "error" for finding in findings))


def _print(connection: str, findings: Sequence[Finding]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    console.print(f"Metastore {connection}", soft_wrap=True)
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
