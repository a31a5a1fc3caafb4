"""A metastore whose tables lie in an object store, and the checks of its tables."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pytest

from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.compaction.requests import compact_table
from airflow_hive_federation.compaction.runners import in_threads
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql, HiveSqlError
from airflow_hive_federation.ingest import HiveStreamingConnection, StrictDelimitedInputWriter
from airflow_hive_federation.metastore import MetastorePool, MetastoreSettings
from airflow_hive_federation.progress.kinds import Step
from airflow_hive_federation.replication.cycle import dump_next_increment, load_dump
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain
from airflow_hive_federation.replication.load.load import load_into_target
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.storage.copying import CopySettings, copy_file
from airflow_hive_federation.storage.listing import list_files
from airflow_hive_federation.storage.plan_files import read_plan, write_records
from airflow_hive_federation.storage.publishing import write_atomically
from tests.support.cycling import rows
from tests.support.observing import at_steps

#: Hive reads these without a Tez job.
QUERIES = ("select id, name, ROW__ID.writeId, ROW__ID.rowId from {}.orders", "select a from {}.outside")


class KilledError(Exception):
    """A load was killed."""


class TableStore(Protocol):
    """A store that this package, Hive and its metastore reach."""

    @property
    def scheme(self) -> str: ...

    @property
    def options(self) -> dict[str, Any]:
        """Options of its fsspec driver."""

    @property
    def hadoop_settings(self) -> dict[str, str]:
        """Settings of its Hadoop driver."""

    @property
    def jars(self) -> list[Path]:
        """The jars of its Hadoop driver, beside those of the embedded Hive."""

    def uri(self, bucket: str) -> str:
        """Return the URI of a bucket."""

    def make_bucket(self, name: str) -> None:
        """Make a bucket."""


@dataclass
class Site:
    """A metastore whose tables lie in a store, with a policy from a database to another.

    :param base: URI of the directory of its tables and dumps.
    :param copies_before_kill: the number of files after which the next copy job is killed.
    """

    store: TableStore
    base: str
    settings: MetastoreSettings
    sql: HiveSql
    pool: MetastorePool
    policy: ReplicationPolicy
    copies_before_kill: int | None = None

    def bootstrap(self) -> str:
        with self.pool.client() as client:
            start = begin_drain(client, database=self.policy.source_database)
        return dump_bootstrap(self.pool, self.policy, start).dump

    def load(self, dump: str) -> None:
        load_dump(self.pool, self.pool, self.policy, dump, run_copy=self.copy)

    def increment(self) -> None:
        self.load(dump_next_increment(self.pool, self.pool, self.policy).dump)

    def copy(self, plan: str, outcomes: str) -> None:
        options = self.store.options
        items = list(read_plan(plan, options=options))[: self.copies_before_kill]
        copied = [copy_file(item, CopySettings(options=options)) for item in items]
        write_records(f"{outcomes}/run.jsonl", copied, options=options)
        if self.copies_before_kill is not None:
            self.copies_before_kill = None
            raise KilledError

    def files(self, path: str) -> list[str]:
        return [file.path for file in list_files(f"{self.base}/{path}", options=self.store.options)]


@contextmanager
def open_site(store: TableStore) -> Iterator[Site]:
    """Start a metastore with tables in a new bucket ``lake`` of the store, and Hive's SQL on it."""
    store.make_bucket("lake")
    lake = store.uri("lake")
    base = f"{lake}/site"
    settings, jars = {**store.hadoop_settings, **_warehouses(base)}, store.jars
    policy = ReplicationPolicy(
        name="shop",
        source_database="shop",
        target_database="shop_copy",
        dump_root=f"{lake}/dumps",
        external_base=f"{base}/copies",
        storage_options=store.options,
    )
    with (
        EmbeddedMetastore.start(store.scheme, settings=settings, jars=jars) as metastore,
        HiveSql(metastore, settings=settings, jars=jars) as sql,
        MetastorePool(MetastoreSettings(uris=(metastore.uri,)), 4) as pool,
    ):
        yield Site(store, base, MetastoreSettings(uris=(metastore.uri,)), sql, pool, policy)


def _warehouses(base: str) -> dict[str, str]:
    managed, external = f"{base}/warehouse", f"{base}/external"
    return {
        "metastore.warehouse.dir": managed,
        "hive.metastore.warehouse.dir": managed,
        "metastore.warehouse.external.dir": external,
        "hive.metastore.warehouse.external.dir": external,
        # Otherwise Hive withholds the store's keys from the tasks of its queries.
        "hive.conf.hidden.list": "javax.jdo.option.ConnectionPassword",
    }


def check_cycles(site: Site) -> None:
    """Replicate an ACID table, streamed into and compacted, and an external table; a load is killed once."""
    options = site.store.options
    site.sql.execute("create database shop")
    site.sql.execute(
        "create table shop.orders (id int, name string) clustered by (id) into 2 buckets stored as orc "
        "tblproperties ('transactional'='true')"
    )
    stream(site, b"1,a\n2,b\n3,c\n4,d")
    site.sql.execute(f"create external table shop.outside (a string) location '{site.base}/lake/outside'")
    write_atomically(f"{site.base}/lake/outside/first", [b"7\n"], options)

    dump = site.bootstrap()
    site.copies_before_kill = 1
    with pytest.raises(KilledError):
        site.load(dump)
    site.load(dump)

    stream(site, b"5,e", b"6,f")
    report = compact_table(
        site.settings,
        "shop.orders",
        CompactionKind.MINOR,
        in_threads(1, options=options),
        storage_options=options,
    )
    assert [item.state for item in report] == ["compacted"]
    # Of the same length, and perhaps within the same second.
    write_atomically(f"{site.base}/lake/outside/first", [b"8\n"], options)
    _kill_between_two_files(site, dump_next_increment(site.pool, site.pool, site.policy).dump)
    assert _placed(site) == ["bucket_00000", "bucket_00001"]
    orders, outside = (rows(site.sql, query.format("shop_copy")) for query in QUERIES)
    assert [orders, outside] == [rows(site.sql, query.format("shop")) for query in QUERIES]
    assert [row[:2] for row in orders] == [(str(n), "?abcdef"[n]) for n in range(1, 7)]
    assert outside == [("8",)]


def stream(site: Site, *records: bytes) -> None:
    """Commit the lines of each record in a transaction."""
    writer = StrictDelimitedInputWriter.new_builder().with_field_delimiter(",").build()
    builder = (
        HiveStreamingConnection.new_builder()
        .with_database("shop")
        .with_table("orders")
        .with_record_writer(writer)
        .with_conf(site.settings)
        .with_transaction_batch_size(len(records))
        .with_storage_options(site.store.options)
    )
    with builder.connect() as connection:
        for record in records:
            connection.begin_transaction()
            for line in record.splitlines():
                connection.write(line)
            connection.commit_transaction()


def _kill_between_two_files(site: Site, dump: str) -> None:
    """Kill a load whose compacted directory is in place by half: Hive reads nothing until the next one.

    The directory begins at a write id that readers of the replica see already: they would take the half for
    the whole.
    """
    checks, is_placing = count(1), threading.Event()

    def note(step: str) -> None:
        if step.startswith(f"{Step.PLACE} "):
            is_placing.set()

    def check() -> None:
        # The first one is before the directory, and one is before each of its two files.
        if is_placing.is_set() and next(checks) == 3:
            raise KilledError

    with pytest.raises(KilledError):
        load_into_target(
            site.pool, site.pool, site.policy, dump, run_copy=site.copy, observer=at_steps(note), check=check
        )
    assert len(_placed(site)) == 1
    with pytest.raises(HiveSqlError, match="Unable to acquire read lock"):
        rows(site.sql, QUERIES[0].format("shop_copy"))
    site.load(dump)


def _placed(site: Site) -> list[str]:
    """Return the names of the files in the replica's directory that a compaction of the source has made."""
    paths = site.files("warehouse/shop_copy.db/orders")
    return [path.rpartition("/")[2] for path in paths if path.startswith("delta_0000001_0000003/")]
