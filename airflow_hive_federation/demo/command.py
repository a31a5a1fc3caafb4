"""``hive-federation demo``: runs the main job, start to end, on this machine.

The demo starts two real Hive metastores, on this machine's disk or on an HDFS and a PostgreSQL server of its
own. It lets Hive itself write a database, and leaves a transaction open.
The example DAG then runs in Airflow: it waits for the transaction, dumps, copies with Spark, loads and
verifies. Then Hive changes the source, and the same DAG brings the target up to date.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_hive_federation.cli.parsers import Subparsers
from airflow_hive_federation.cli.report import print_report
from airflow_hive_federation.cli.story import Story
from airflow_hive_federation.demo import data as demo_data
from airflow_hive_federation.demo.local_airflow import DAG_ID, DagRun, DemoAirflow
from airflow_hive_federation.demo.site import HADOOP, KINDS, LOCAL, Site, start_site
from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.progress.events import Event, TransactionsOpen
from airflow_hive_federation.storage.filesystem import open_filesystem

if TYPE_CHECKING:
    from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
    from airflow_hive_federation.embedded.sql import HiveSql
    from airflow_hive_federation.metastore import MetastoreClient

#: Seconds between the DAG's first wait for the open transaction and the commit of that transaction.
_LEFT_OPEN_S = 3.0


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to ``hive-federation``."""
    parser = subparsers.add_parser(
        "demo",
        help="replicate a database between two embedded metastores",
        description="Starts two real Hive metastores on this machine and lets Hive fill one of them. The "
        "example DAG in Airflow replicates its database to the other and verifies the copy.",
    )
    parser.add_argument(
        "--site",
        choices=KINDS,
        default=LOCAL,
        help="store of the tables and metadata, and Spark's engine: local is this machine's disk, Derby and "
        "a local Spark; hadoop is an HDFS, a PostgreSQL server and a YARN that run during the demo "
        "(default: %(default)s)",
    )
    parser.add_argument("--ui", action="store_true", help="leave Airflow's UI up with the same DAG")
    parser.add_argument("--json", action="store_true", help="end with the result as JSON on stdout")
    parser.add_argument("--directory", type=Path, help="work here and keep everything (default: temporary)")


def run(args: argparse.Namespace) -> int:
    """Run the demo; return 0 if the replica equals its source."""
    story = Story()
    with _ended_in_order(), _directory(args.directory, story) as directory, ExitStack() as stack:
        airflow = DemoAirflow(directory)
        scene = _set_up(stack, args.site, directory, airflow, story)
        if args.ui:
            from airflow_hive_federation.demo.ui import serve

            return serve(airflow, scene.dag_run(), scene.commit, story)
        set_up_s = story.seconds
        story.stage(f"Airflow runs the DAG {DAG_ID}")
        tasks_s = airflow.run_dag(scene.dag_run(), _Audience(scene, story).relay)
        report = _report(scene.site, airflow)
        changes = _second_cycle(scene, airflow, story)
        if args.json:
            print(json.dumps(_result(report, story.seconds)))
        else:
            story.stage("Done")
            _show(report, scene, {"set-up": set_up_s, **tasks_s, "in all": story.seconds})
            _show_changes(changes, args.site)
    return int(bool(report["differences"] or changes["differences"]))


def _second_cycle(scene: _Scene, airflow: DemoAirflow, story: Story) -> dict[str, object]:
    """Let Hive change the source and run the DAG again; return the report of its verification."""
    story.stage("Hive changes the source")
    demo_data.change_source(scene.source_sql, story.detail)
    story.stage(f"Airflow runs the DAG {DAG_ID} again: now it copies what has changed")

    def relay(task: str, entry: Event | str) -> None:
        story.relay(entry, label=task)

    tasks_s = airflow.run_dag(scene.dag_run(), relay)
    story.detail(" · ".join(f"{name} {seconds:.0f} s" for name, seconds in tasks_s.items()))
    return _report(scene.site, airflow)


# -- setting up ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Scene:
    """Two metastores, and a transaction that is open in the source."""

    site: Site
    source: EmbeddedMetastore
    target: EmbeddedMetastore
    source_sql: HiveSql
    open_txn: int

    def dag_run(self) -> DagRun:
        return DagRun(
            conf={"database": demo_data.DATABASE, "open_txn_timeout": "5m"},
            connections=self._connections(),
            # The variables also serve the runs that a user triggers in the UI.
            variables={
                "hive_federation_dump_root": self.site.dumps,
                "hive_federation_external_base": f"{self.site.external('target')}/from_source",
                # The demo's source may keep its tables on the local disk.
                "hive_federation_source_roots": ",".join(
                    (self.site.warehouse("source"), self.site.external("source"))
                ),
            },
        )

    def _connections(self) -> dict[str, dict[str, Any]]:
        """Return the connections that the DAG uses, by their ids."""
        ends = {"source": self.source, "target": self.target}
        return {
            **{
                f"hive_{name}": {
                    "conn_type": "hive_federation",
                    "description": f"The demo's {name}",
                    "host": "127.0.0.1",
                    "port": metastore.port,
                }
                for name, metastore in ends.items()
            },
            "spark_default": self.site.spark_connection(),
        }

    def commit(self) -> None:
        """Commit the open transaction."""
        with _connected(self.source) as client:
            client.commit_txn(self.open_txn)


def _set_up(stack: ExitStack, kind: str, directory: Path, airflow: DemoAirflow, story: Story) -> _Scene:
    """Set the scene up; the target starts and Airflow prepares while Hive writes."""
    from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
    from airflow_hive_federation.embedded.sql import HiveSql

    beside = "an HDFS with YARN, a PostgreSQL server and " if kind == HADOOP else ""
    story.stage(f"Starting {beside}two Hive metastores (the first time ever, their jars are fetched)")
    site = start_site(kind, stack, directory)
    airflow.environment.update(site.spark_environment())
    for line in site.described():
        story.detail(line)

    def start(name: str) -> EmbeddedMetastore:
        return stack.enter_context(
            EmbeddedMetastore.start(
                name, directory=directory / name, settings=site.settings(name), database=site.database
            )
        )

    # The pool ends before the metastores do, whatever happens.
    aside = ThreadPoolExecutor(max_workers=2, thread_name_prefix="demo")
    source = start("source")
    stack.callback(aside.shutdown, cancel_futures=True)
    starting = aside.submit(start, "target")
    migrating = aside.submit(airflow.migrate)
    story.detail(f"source   {source.uri}")
    sql = stack.enter_context(HiveSql(source, settings=site.settings("source")))
    open_txn = _fill(source, sql, site, story)
    target = starting.result()
    story.detail(f"target   {target.uri}")
    migrating.result()
    return _Scene(site, source, target, sql, open_txn)


def _fill(source: EmbeddedMetastore, sql: HiveSql, site: Site, story: Story) -> int:
    """Fill the source, abort one transaction and leave another open; return the id of the open one."""
    story.stage(f"Hive writes the database '{demo_data.DATABASE}' into the source")
    demo_data.fill_source(source.directory, sql, site.external("source"), story.detail)
    with _connected(source) as client:
        write_id = demo_data.abort_a_transaction(client)
        story.detail(f"flights  write id {write_id} aborted, its rows still in the table's directory")
        open_txn = demo_data.open_a_transaction(client)
        story.detail(f"flights  transaction {open_txn} left open: the replication has to wait for it")
    return open_txn


def _connected(metastore: EmbeddedMetastore) -> MetastoreClient:
    from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings

    return MetastoreClient(MetastoreSettings(uris=(metastore.uri,)))


@contextmanager
def _directory(named: Path | None, story: Story) -> Iterator[Path]:
    """Yield the directory of the demo; a temporary one is removed at the end, unless an error occurred."""
    if named:
        named.mkdir(parents=True, exist_ok=True)
        if any(named.iterdir()):
            raise HiveFederationError(
                f"Directory {named} is not empty.", remedy="Name another: the demo begins with nothing."
            )
        yield named.absolute()
        return
    directory = Path(tempfile.mkdtemp(prefix="hive-federation-demo-"))
    try:
        yield directory
    except HiveFederationError:
        story.detail(f"The demo's files and logs are kept in {directory}")
        raise
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    else:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the demo like an interrupt, with all the processes that it has started."""

    def interrupt(*_: object) -> NoReturn:
        # Only the first signal interrupts. A terminal that closes after Ctrl-C also sends SIGHUP, which would
        # cut the clean-up short and leave Airflow running. Processes that do not end in time are killed
        # anyway.
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# -- output --------------------------------------------------------------------------------------------


class _Audience:
    """Passes on the progress of the DAG's tasks, and commits the transaction once the DAG waits for it."""

    def __init__(self, scene: _Scene, story: Story) -> None:
        self._scene = scene
        self._story = story
        self._timer: threading.Timer | None = None

    def relay(self, task: str, entry: Event | str) -> None:
        self._story.relay(entry, label=task)
        if self._timer is None and isinstance(entry, TransactionsOpen):
            self._timer = threading.Timer(_LEFT_OPEN_S, self._commit)
            self._timer.start()

    def _commit(self) -> None:
        self._story.detail(f"        (somebody commits transaction {self._scene.open_txn} now)")
        self._scene.commit()


def _report(site: Site, airflow: DemoAirflow) -> dict[str, object]:
    """Return the report of the last verification."""
    filesystem, root = open_filesystem(site.dumps)
    paths = [path for path in filesystem.find(root) if path.endswith("/_verified.json")]
    reports: list[dict[str, Any]] = [json.loads(filesystem.cat_file(path)) for path in paths]
    if not reports:
        raise HiveFederationError("The DAG left no verification report.", remedy=f"Read {airflow.log_path}.")
    return max(reports, key=lambda report: int(report["event_id"]))


def _result(report: Mapping[str, Any], seconds: float) -> dict[str, object]:
    names = ("name", "source_rows", "target_rows", "digest_equal")
    return {
        "tables": [{name: table[name] for name in names} for table in report["tables"]],
        "seconds": round(seconds, 1),
    }


def _show(report: Mapping[str, object], scene: _Scene, times_s: Mapping[str, float]) -> None:
    title = f"Database {report['database']}, replicated from {scene.source.uri} to {scene.target.uri}"
    print()
    print_report(report, title=title)
    print(" · ".join(f"{name} {seconds:.0f} s" for name, seconds in times_s.items()))


def _show_changes(report: Mapping[str, Any], site: str) -> None:
    changed = [table for table in report["tables"] if table["files"]]
    print()
    print_report({**report, "tables": changed}, title=f"After the changes, at event {report['event_id']}")
    option, variable = ("", "") if site == LOCAL else (f" --site {site}", f" SITE={site}")
    print(
        f"\nNext: hive-federation demo{option} --ui (make demo{variable} UI=1) shows the same DAG in "
        "Airflow's UI."
    )
