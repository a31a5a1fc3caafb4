"""``hive-federation state``: lists what is published for Airflow's page, and forgets what a person names."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from airflow_hive_federation.cli.airflow_logs import log_to_stderr
from airflow_hive_federation.cli.parsers import Subparsers
from airflow_hive_federation.cli.tables import print_table
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.published.forgetting import Kind, forget, known_objects


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to ``hive-federation``."""
    parser = subparsers.add_parser(
        "state",
        help="list what is published for Airflow's page, or forget a part of it",
        description="The state lies where [hive_federation] state_uri of Airflow's configuration points, or "
        "AIRFLOW__HIVE_FEDERATION__STATE_URI of the environment.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listed = actions.add_parser("list", help="list the objects whose state is published")
    forgotten = actions.add_parser(
        "forget",
        help="remove an object from the page",
        description="Remove an object from the page: the object itself stays, and it appears again when a "
        "task or command publishes it again.",
    )
    kinds = [str(kind) for kind in Kind]
    listed.add_argument("kind", metavar="KIND", nargs="?", choices=kinds, help=f"only: {', '.join(kinds)}")
    forgotten.add_argument("kind", metavar="KIND", choices=kinds, help=", ".join(kinds))
    forgotten.add_argument("name", metavar="NAME", help="its name, as the list prints it")
    forgotten.add_argument("--target", metavar="DATABASE", help="target database of the policy, if several")
    forgotten.add_argument("--metastore", metavar="NAME", help="metastore of the object, if several")
    for action in (listed, forgotten):
        action.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    log_to_stderr()
    from airflow_hive_federation.hooks.published import state_directory

    directory = state_directory()
    if args.action == "forget":
        kind, of = Kind(args.kind), args.target if args.kind == Kind.POLICY else args.metastore
        unused = args.metastore if kind is Kind.POLICY else args.target
        if unused is not None:
            option = "--metastore" if kind is Kind.POLICY else "--target"
            raise ConfigurationError(f"{option} is not for a {kind}.", remedy=f"Leave {option} out.")
        known = forget(directory, kind, args.name, of=of)
        print(json.dumps(asdict(known)) if args.json else f"Forgot {known.kind} {known.name} ({known.of})")
        return 0
    found = {
        (each.kind, each.name, each.of): None
        for each in known_objects(directory)
        if args.kind in {None, each.kind}
    }
    if args.json:
        print(json.dumps([dict(zip(("kind", "name", "of"), each, strict=True)) for each in found], indent=1))
    elif found:
        print_table(("Kind", "Name", "Target or metastore"), found, whole=True)
    else:
        print(f"Nothing is published in {directory.uri}.")
    return 0
