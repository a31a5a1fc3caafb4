"""An increment whose load is killed at a step."""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.progress.observers import Observer, unobserved
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain
from airflow_hive_federation.replication.dump.increment import dump_increment
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.load.load import load_into_target
from airflow_hive_federation.replication.load.replay import Replay
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.external_claims import EXTERNAL_CLAIMS
from airflow_hive_federation.replication.replica.position import read_position
from airflow_hive_federation.storage.copying import copy_file
from airflow_hive_federation.storage.plan_files import read_plan, write_records
from tests.support.forked_workers import Run, forking
from tests.support.incrementing import run_copy
from tests.support.kills import KILLED, exiting_before, lasting, pool
from tests.support.observing import at_steps
from tests.support.small_source import add_partition, commit_files, connected, make_small_source, make_table

DATABASE = "inc_killed"


def worker(argv: list[str]) -> None:
    """The process that is killed: ``SOURCE TARGET POLICY DUMP STEP``."""
    source_uri, target_uri, policy, dump, step = argv
    load(
        source_uri, target_uri, ReplicationPolicy(**json.loads(policy)), dump, at_steps(exiting_before(step))
    )


def load(
    source_uri: str,
    target_uri: str,
    policy: ReplicationPolicy,
    dump: str,
    observer: Observer = unobserved,
) -> None:
    with pool(source_uri) as source, pool(target_uri) as target:
        load_into_target(source, target, policy, dump, run_copy=run_copy, observer=observer)


class Case:
    """A bootstrapped target and an increment that has a bit of everything."""

    def __init__(
        self, source: EmbeddedMetastore, target: EmbeddedMetastore, root: Path, database: str = DATABASE
    ) -> None:
        self.source, self.target, self.database = source, target, database
        self._opened = ExitStack()
        make_small_source(source, database)
        self.policy = ReplicationPolicy(
            name=self.database,
            source_database=self.database,
            dump_root=f"file:{root}",
            external_base=f"file:{target.external_warehouse}/{self.database}_base",
        )
        with connected(source) as client:
            for number in range(6):
                add_partition(client, self.database, f"same{number}")
            make_table(client, self.database, "replaced")
            make_table(client, self.database, "dropped")
            start = begin_drain(client, self.database)
        # The source's files as they were, for the bootstraps that come after its changes.
        self.backup = root / "backup"
        for place in (source.warehouse, source.external_warehouse):
            shutil.copytree(place, self.backup / place.name)
        with pool(source.uri) as source_pool:
            self.bootstrap = dump_bootstrap(source_pool, self.policy, start, threads=1).dump
        self.still_open: list[int] = []
        self.reset()
        self.change()
        self.dump = self.dump_again()

    def change(self) -> None:
        with connected(self.source) as client:
            # The cycle concerns these partitions of the table; the others are described by the bootstrap.
            commit_files(client, self.database, "acid", ["p=one", "p=a%3Ab"])
            add_partition(client, self.database, "later")
            client.drop_partitions(self.database, "acid", ["p=one"], delete_data=True)
            commit_files(client, self.database, "acid", ["p=a%3Ab", "p=later"])
            client.drop_table(self.database, "replaced", delete_data=True)
            make_table(client, self.database, "replaced", partitioned=True)
            client.drop_table(self.database, "dropped", delete_data=True)
            make_table(client, self.database, "new")
            client.drop_table(self.database, "seen", delete_data=False)
            aborted, ended, *self.still_open = client.open_txns(3)
            for table in ("acid", "new"):
                client.allocate_table_write_ids(self.database, table, [aborted, ended])
            client.allocate_table_write_ids(self.database, "acid", self.still_open)
            client.abort_txns([aborted])
            client.commit_txn(ended)
            external: Any = client.get_table(self.database, "ext")
            place = Path(external.sd.location.removeprefix("file:"))
            (place / "data").unlink()
            (place / "other").write_text("changed\n", encoding="utf-8")

    def reset(self) -> None:
        with connected(self.source) as client:
            for txn in self.still_open:
                # All cuts together take longer than a metastore waits for a transaction.
                client.heartbeat_txn_range(txn, txn)
        with connected(self.target) as client:
            client.drop_database(self.database, delete_data=True, cascade=True, if_exists=True)
        with pool(self.source.uri) as source, pool(self.target.uri) as target:
            load_into_target(source, target, self.policy, self.bootstrap, run_copy=self.restore, threads=1)

    def restore(self, plan: str, outcomes: str) -> None:
        """A copy job that takes the source's files as they were."""
        directory = str(self.source.warehouse.parent)
        copied = []
        for item in read_plan(plan):
            was = replace(item, source=item.source.replace(directory, str(self.backup)))
            copied.append(copy_file(was))
        write_records(f"{outcomes}/run.jsonl", copied)

    def dump_again(self) -> str:
        """Dump the increment after the target's position, and return the URI of the dump."""
        with connected(self.target) as client:
            position = read_position(client, self.policy)
        with pool(self.source.uri) as source:
            return dump_increment(source, self.policy, position).dump

    def forget(self, dump: str) -> None:
        """Remove a dump, which would continue from the same position once the target is reset."""
        shutil.rmtree(dump.removeprefix("file:"))

    def load(self, observer: Observer = unobserved) -> None:
        load(self.source.uri, self.target.uri, self.policy, self.dump, observer)

    def concerned(self) -> tuple[str, ...] | None:
        """Return the partitions of the ACID table that the dump describes, or knows to be gone."""
        entry = DumpDirectory(self.dump).entry("acid")
        return entry.changes.concerned if entry else None

    def close(self) -> None:
        """Leave no process, and no open transaction, to the other tests."""
        self._opened.close()
        with connected(self.source) as client:
            client.abort_txns(self.still_open)
        with connected(self.target) as client:
            Replay(client, self.policy).sweep([])

    def cycle(self) -> None:
        """Dump from where the target stands, and load."""
        with connected(self.target) as client:
            position = read_position(client, self.policy)
        with pool(self.source.uri) as source:
            dumped = dump_increment(source, self.policy, position, threads=1)
        if not dumped.idle:
            load(self.source.uri, self.target.uri, self.policy, dumped.dump)

    def kill(self, step: str, dump: str = "") -> None:
        """Begin the load of a dump, by default the case's, in a process that ends before a step."""
        policy = json.dumps(self.policy.to_json())
        arguments = [self.source.uri, self.target.uri, policy, dump or self.dump, step]
        assert self._worker(arguments) == KILLED

    @cached_property
    def _worker(self) -> Run:
        return self._opened.enter_context(forking("tests.support.increment_kills"))

    def state(self) -> dict[str, Any]:
        """The target as a reader finds it: tables, partitions, write ids, files; no times, no ids."""
        with connected(self.target) as client:
            names = sorted(client.list_tables(self.database))
            tables: list[Any] = [client.get_table(self.database, name) for name in names]
            write_ids = client.get_valid_write_ids([f"{self.database}.{name}" for name in names])
            return {
                "last": (client.get_database(self.database).parameters or {})["repl.last.id"],
                "tables": {table.tableName: lasting(to_json(table)) for table in tables},
                "partitions": [
                    lasting(to_json(partition))
                    for table in tables
                    if table.partitionKeys
                    for partition in client.iter_partitions(self.database, table.tableName)
                ],
                "write_ids": {
                    name: (ids.writeIdHighWaterMark, len(ids.invalidWriteIds or ()))
                    for name, ids in write_ids.items()
                },
                "files": {
                    str(path): path.read_bytes()
                    for root in (
                        self.target.warehouse / f"{self.database}.db",
                        self.target.external_warehouse,
                    )
                    for path in sorted(root.rglob("*"))
                    if path.is_file() and path.suffix != ".crc" and path.parent.name != EXTERNAL_CLAIMS
                },
            }
