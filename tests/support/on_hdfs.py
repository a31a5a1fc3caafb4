"""HDFS in tests: its users, metastores whose tables lie there, and cycles between them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fsspec import AbstractFileSystem

from airflow_hive_federation.embedded.configuration import settings_on_hdfs
from airflow_hive_federation.embedded.hdfs import EmbeddedHdfs
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.progress.cycle_events import SnapshotNotUsed
from airflow_hive_federation.progress.events import Event, FilesCopied
from airflow_hive_federation.replication.cycle import dump_next_increment, is_published, load_dump, load_idle
from airflow_hive_federation.replication.load.summary import LoadSummary
from airflow_hive_federation.spark.job import run_job
from airflow_hive_federation.storage.filesystem import open_filesystem, parse_location, reading
from airflow_hive_federation.storage.hdfs import USER_VARIABLE
from airflow_hive_federation.storage.listing import list_files
from airflow_hive_federation.storage.publishing import write_atomically
from airflow_hive_federation.storage.snapshots import list_snapshots
from tests.support.cycling import Scheduled
from tests.support.hive_beside_cleaner import HiveBesideCleaner
from tests.support.incrementing import run_copy


@contextmanager
def user(name: str) -> Iterator[None]:
    """Be another user for HDFS, who is not its superuser."""
    before = os.environ.get(USER_VARIABLE)
    os.environ[USER_VARIABLE] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ[USER_VARIABLE]
        else:
            os.environ[USER_VARIABLE] = before


def path_of(uri: str) -> str:
    return parse_location(uri).path


def modes(hdfs: EmbeddedHdfs, uri: str) -> str:
    """Return owner, group and mode of a file or directory, as Hadoop prints them."""
    return hdfs.shell("-stat", "%u %g %a", path_of(uri)).strip()


def acl(hdfs: EmbeddedHdfs, uri: str) -> set[str]:
    """Return the access list of a file or directory, as Hadoop prints it."""
    lines = hdfs.shell("-getfacl", path_of(uri)).splitlines()
    return {line.partition("\t")[0] for line in lines if line and not line.startswith("#")}


@dataclass
class Side:
    """A metastore whose tables lie on HDFS, and Hive's SQL on them."""

    metastore: EmbeddedMetastore
    base: str
    sql: HiveSql


@contextmanager
def side(hdfs: EmbeddedHdfs, name: str, *, jars: Sequence[Path] = ()) -> Iterator[Side]:
    base = f"{hdfs.uri}/{name}"
    settings = settings_on_hdfs(base)
    with (
        EmbeddedMetastore.start(f"hdfs-{name}", settings=settings, jars=jars) as metastore,
        HiveBesideCleaner(metastore, settings=settings, jars=jars) as sql,
    ):
        yield Side(metastore, base, sql)


class OnHdfs(Scheduled):
    """Cycles whose copies are made by the Spark job."""

    def _copy(self, plan: str, outcomes: str) -> None:
        self.jobs.append("copy")
        run_job(
            self.spark,
            "copy-files",
            ["--plan", plan, "--outcomes", outcomes, "--preserve", self.policy.preserve],
        )


#: A close of a file waits for the NameNode.
_SIDE_BY_SIDE = 8


class Killed(BaseException):
    """The end of a process."""


@dataclass
class Lake(Scheduled):
    """Cycles of external tables, copied in this process.

    :param root: URI of the directory of the source's tables.
    :param reasons: the reasons for which the last cycle listed directories as a whole.
    """

    root: str = ""
    reasons: list[str] = field(default_factory=list)

    @property
    def filesystem(self) -> AbstractFileSystem:
        return open_filesystem(self.root)[0]

    @property
    def target_root(self) -> str:
        """URI of the target's table."""
        return f"{self.policy.external_base}{path_of(self.root)}/t"

    def write(self, *names: str, text: str = "") -> None:
        def write(name: str) -> None:
            write_atomically(f"{self.root}/{name}", [(text or name).encode()])

        with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
            list(pool.map(write, names))

    def cycle(self) -> LoadSummary:
        self.reasons.clear()
        with self.target.client() as client:
            published = is_published(client, self.policy)
        if not published:
            return self._bootstrap()
        dumped = dump_next_increment(self.source, self.target, self.policy, observer=self.observe)
        return (
            load_idle(self.target, self.policy, dumped.event_id) if dumped.idle else self._load(dumped.dump)
        )

    def dump(self) -> str:
        return dump_next_increment(self.source, self.target, self.policy, observer=self.observe).dump

    def load_one_by_one(self, dump: str) -> LoadSummary:
        return load_dump(self.source, self.target, self.policy, dump, run_copy=run_copy)

    def kill_before_it_publishes(self, dump: str) -> None:
        def observe(event: Event) -> None:
            if isinstance(event, FilesCopied):
                raise Killed

        with pytest.raises(Killed):
            load_dump(self.source, self.target, self.policy, dump, run_copy=self._copy, observer=observe)

    def observe(self, event: Event) -> None:
        if isinstance(event, SnapshotNotUsed):
            self.reasons.append(event.reason)

    def snapshots(self) -> list[str]:
        return list_snapshots(self.root)

    def files(self, table: str) -> dict[str, bytes]:
        """Contents of the source's files, by path."""
        return _contents(f"{self.root}/{table}")

    def copied(self) -> dict[str, bytes]:
        return _contents(self.target_root)

    def assert_same(self) -> None:
        assert self.copied() == self.files("t")

    def _copy(self, plan: str, outcomes: str) -> None:
        run_copy(plan, outcomes, threads=_SIDE_BY_SIDE)


def _contents(uri: str) -> dict[str, bytes]:
    contents = {}
    for entry in list_files(uri):
        with reading(f"{uri}/{entry.path}") as file:
            contents[entry.path] = file.read()
    return contents
