"""A source with a replica of files, for increments without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.replication.cycle import dump_next_increment, load_dump
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain
from airflow_hive_federation.replication.dump.increment_summary import IncrementSummary
from airflow_hive_federation.replication.load.summary import CopyRunner
from airflow_hive_federation.replication.policy import ReplicationPolicy
from tests.support.incrementing import run_copy
from tests.support.kills import pool
from tests.support.small_source import commit_files, connected, make_small_source

DATABASE = "rough"


class Site:
    """A database and its replica."""

    def __init__(self, source: EmbeddedMetastore, target: EmbeddedMetastore, root: Path, base: Path) -> None:
        self.source, self.target = source, target
        self.policy = ReplicationPolicy(
            name=DATABASE,
            source_database=DATABASE,
            dump_root=f"file:{root}",
            external_base=f"file:{base}",
        )

    def bootstrap(self) -> None:
        with connected(self.source) as client:
            start = begin_drain(client, DATABASE)
        with pool(self.source.uri) as source_pool, pool(self.target.uri) as target_pool:
            dump = dump_bootstrap(source_pool, self.policy, start).dump
            load_dump(source_pool, target_pool, self.policy, dump, run_copy=run_copy)

    def dump(self) -> IncrementSummary:
        with pool(self.source.uri) as source_pool, pool(self.target.uri) as target_pool:
            return dump_next_increment(source_pool, target_pool, self.policy)

    def load(self, dump: str, copy: CopyRunner = run_copy) -> None:
        with pool(self.source.uri) as source_pool, pool(self.target.uri) as target_pool:
            load_dump(source_pool, target_pool, self.policy, dump, run_copy=copy)

    def cycle(self) -> IncrementSummary:
        dumped = self.dump()
        if not dumped.idle:
            self.load(dumped.dump)
        return dumped

    def commit(self) -> None:
        with connected(self.source) as client:
            commit_files(client, DATABASE, "acid")

    def last_id(self) -> str:
        with connected(self.target) as client:
            return (client.get_database(DATABASE).parameters or {})["repl.last.id"]

    def high_watermarks(self) -> list[int | None]:
        """Of the ACID table, on both sides."""
        name, watermarks = f"{DATABASE}.acid", []
        for side in (self.source, self.target):
            with connected(side) as client:
                watermarks.append(client.get_valid_write_ids([name])[name].writeIdHighWaterMark)
        return watermarks

    def external(self) -> Path:
        """The file of the external table on the source; its replica is at the same place below the base."""
        return self.source.external_warehouse / f"{DATABASE}_ext" / "data"


@pytest.fixture
def site(source: EmbeddedMetastore, target: EmbeddedMetastore, tmp_path: Path) -> Iterator[Site]:
    make_small_source(source, DATABASE)
    made = Site(source, target, tmp_path / "dumps", tmp_path / "base")
    yield made
    for metastore in (source, target):
        with connected(metastore) as client:
            client.drop_database(DATABASE, delete_data=True, cascade=True, if_exists=True)
    made.external().unlink()
    made.external().parent.rmdir()
