"""A consistency group of two databases, and transactions that write to both."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airflow_hive_federation.metastore import MetastoreClient, MetastorePool, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.progress.observers import Observer, unobserved
from airflow_hive_federation.replication.group_policy import ReplicationGroup
from airflow_hive_federation.replication.groups.cycle import run_group_cycle
from airflow_hive_federation.replication.groups.dump import GroupDump, dump_group
from airflow_hive_federation.replication.groups.load import GroupLoadSummary, load_group
from airflow_hive_federation.replication.load.replay import Replay
from airflow_hive_federation.replication.load.summary import CopyRunner
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.cycle_lock import LOCK_DATABASE
from airflow_hive_federation.storage.filesystem import local_path
from tests.support.incrementing import run_copy
from tests.support.kills import KILLED, exiting_at, pool
from tests.support.observing import at_steps
from tests.support.small_source import make_table

DATABASES = ("group_orders", "group_items")


def copying(policy: ReplicationPolicy) -> CopyRunner:
    assert policy.group
    return run_copy


class Stopped(BaseException):
    """Ends a load at a step; nothing that expects errors handles it."""


@dataclass
class GroupSite:
    """The group between two metastores; ``source`` and ``target`` are pools."""

    source: MetastorePool
    target: MetastorePool
    group: ReplicationGroup
    source_uri: str
    target_uri: str

    @contextmanager
    def another(self) -> Iterator[GroupSite]:
        """The same group over connections of its own."""
        with pool(self.source_uri) as source, pool(self.target_uri) as target:
            yield replace(self, source=source, target=target)

    def begin(self, databases: Sequence[str] = DATABASES) -> int:
        """Open a transaction of the source that writes to a table of each database; return its id."""
        with self.source.client() as client:
            (txn,) = client.open_txns(1)
            for database in databases:
                write(client, database, txn)
        return int(txn)

    def write(self, txn: int, database: str) -> None:
        with self.source.client() as client:
            write(client, database, txn)

    def end(self, txn: int, *, commit: bool = True) -> None:
        with self.source.client() as client:
            if commit:
                client.commit_txn(txn)
            else:
                client.abort_txns([txn])

    def commit(self, databases: Sequence[str] = DATABASES) -> None:
        self.end(self.begin(databases))

    def cycle(self, observer: Observer = unobserved) -> GroupLoadSummary:
        return run_group_cycle(self.source, self.target, self.group, run_copy=copying, observer=observer)

    def dump(self) -> GroupDump:
        return dump_group(self.source, self.target, self.group)

    def load(self, dump: GroupDump, observer: Observer = unobserved) -> GroupLoadSummary:
        return load_group(self.source, self.target, self.group, dump, run_copy=copying, observer=observer)

    def stop(self, dump: GroupDump | None, step: str, occurrence: int = 0) -> None:
        """Load a dump, or run a cycle without one, up to a step: as a kill, but the locks are released."""
        remaining = iter(range(occurrence, -1, -1))

        def react(name: str) -> None:
            if name.startswith(step) and next(remaining) == 0:
                raise Stopped

        with suppress(Stopped):
            if dump:
                self.load(dump, at_steps(react))
            else:
                self.cycle(at_steps(react))
            raise AssertionError(f"The step {step} was not reached.")

    def kill(self, dump: GroupDump, step: str, occurrence: int = 0) -> None:
        """Load a dump in a process that ends before a step; remove its locks as Hive does later."""
        arguments = [self.source_uri, self.target_uri, group_json(self.group), dump.dump, step]
        arguments.append(str(occurrence))
        code = "import sys; from tests.support.groups import worker; worker(sys.argv[1:])"
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            check=False,
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert done.returncode == KILLED, done.stderr
        databases = {policy.target_database for policy in self.group.policies}
        with self.target.client() as client:
            for lock in client.show_locks(database=LOCK_DATABASE):
                if lock.lockid and lock.tablename in databases:
                    client.unlock(lock.lockid)

    def visible(self) -> dict[str, tuple[int, ...]]:
        """Return the write ids that a reader of the target sees in each database, of one moment."""
        with self.target.client() as client:
            return write_ids(client, [policy.target_database for policy in self.group.policies])

    def source_visible(self) -> dict[str, tuple[int, ...]]:
        with self.source.client() as client:
            visible = write_ids(client, DATABASES)
        return {f"{database}_copy": ids for database, ids in visible.items()}

    def events(self) -> list[int]:
        """Return the events of the targets, in the order of publication."""
        with self.target.client() as client:
            return [
                int((client.get_database(policy.target_database).parameters or {})["repl.last.id"])
                for policy in self.group.policies
            ]

    def files(self) -> tuple[list[str], list[str]]:
        """Return the files of the source's committed deltas and those of the target's tables."""
        listings = []
        for site, databases in (
            (self.source, DATABASES),
            (self.target, [policy.target_database for policy in self.group.policies]),
        ):
            files = []
            with site.client() as client:
                for database in databases:
                    table: Any = client.get_table(database, "t")
                    place = Path(local_path(table.sd.location) or "")
                    files += [
                        f"{database.removesuffix('_copy')} {path.relative_to(place)}"
                        for path in place.rglob("bucket_*")
                    ]
            listings.append(sorted(files))
        return listings[0], listings[1]


def write(client: MetastoreClient, database: str, txn: int) -> None:
    write_id = client.allocate_table_write_ids(database, "t", [txn])[txn]
    table: Any = client.get_table(database, "t")
    delta = Path(local_path(table.sd.location) or "") / f"delta_{write_id:07d}_{write_id:07d}_0000"
    delta.mkdir(parents=True)
    (delta / "bucket_00000_0").write_text(f"{database} {write_id}", encoding="utf-8")


def write_ids(client: MetastoreClient, databases: Sequence[str]) -> dict[str, tuple[int, ...]]:
    answers = client.get_valid_write_ids([f"{database}.t" for database in databases])
    return {
        name.partition(".")[0]: tuple(
            write_id
            for write_id in range(1, (ids.writeIdHighWaterMark or 0) + 1)
            if write_id not in (ids.invalidWriteIds or ())
        )
        for name, ids in answers.items()
    }


def group_json(group: ReplicationGroup) -> str:
    return json.dumps({"name": group.name, "policies": [policy.to_json() for policy in group.policies]})


def worker(argv: list[str]) -> None:
    """The process that is killed: ``SOURCE TARGET GROUP DUMP STEP OCCURRENCE``."""
    source_uri, target_uri, group_text, dump, last, occurrence = argv
    exit_at = exiting_at(int(occurrence))

    def react(step: str) -> None:
        if step.startswith(last):
            exit_at(step)

    values = json.loads(group_text)
    policies = [ReplicationPolicy(**policy) for policy in values["policies"]]
    group = ReplicationGroup(name=values["name"], policies=policies)
    dumped = GroupDump(group=group.name, dump=dump, event_id=0, members=())
    with pool(source_uri) as source, pool(target_uri) as target:
        load_group(source, target, group, dumped, run_copy=copying, observer=at_steps(react))


@contextmanager
def grouped(source_uri: str, target_uri: str, root: Path) -> Iterator[GroupSite]:
    """Two databases with a table each, and a group that replicates both."""
    policies = [
        ReplicationPolicy(
            name=database,
            source_database=database,
            target_database=f"{database}_copy",
            dump_root=f"file:{root}/dumps",
        )
        for database in DATABASES
    ]
    with _connected(source_uri) as client:
        for database in DATABASES:
            client.create_database(types.Database(name=database, parameters={}))
            make_table(client, database, "t")
    with pool(source_uri) as source_pool, pool(target_uri) as target_pool:
        site = GroupSite(
            source_pool,
            target_pool,
            ReplicationGroup(name="group_shop", policies=policies),
            source_uri,
            target_uri,
        )
        try:
            yield site
        finally:
            with target_pool.client() as client:
                # No open transaction is left to the other tests.
                Replay(client, site.group.policies[0]).sweep([])
            for uri, suffix in ((source_uri, ""), (target_uri, "_copy")):
                with _connected(uri) as client:
                    for database in DATABASES:
                        client.drop_database(
                            f"{database}{suffix}", delete_data=True, cascade=True, if_exists=True
                        )


def _connected(uri: str) -> MetastoreClient:
    return MetastoreClient(MetastoreSettings(uris=(uri,)))
