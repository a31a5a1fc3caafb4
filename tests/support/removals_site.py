"""A source with a replica, from which things are removed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import (
    UnexplainedRemovalError,
)
from airflow_hive_federation.metastore import MetastorePool
from airflow_hive_federation.replication.cycle import dump_next_increment, load_dump, load_idle
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain
from airflow_hive_federation.replication.dump.increment_summary import IncrementSummary
from airflow_hive_federation.replication.load.load import load_into_target
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.external_claims import EXTERNAL_CLAIMS
from airflow_hive_federation.replication.replica.position import loaded_dump
from airflow_hive_federation.replication.status import read_status
from airflow_hive_federation.replication.verify.report import VerificationReport
from airflow_hive_federation.replication.verify.verify import verify_replica
from tests.support.cutting import Cut
from tests.support.incrementing import run_copy
from tests.support.kills import pool
from tests.support.observing import at_steps
from tests.support.small_source import connected

DATABASE = "removals"


class _Hiding:
    """A pool whose clients do not show some tables and partitions, as a metastore that filters by rights."""

    def __init__(self, real: MetastorePool, tables: Collection[str], partitions: Collection[str]) -> None:
        self._real, self._tables, self._partitions = real, tables, partitions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    @contextmanager
    def client(self) -> Iterator[Any]:
        with self._real.client() as client:
            yield _HidingClient(client, self._tables, self._partitions)


class _HidingClient:
    def __init__(self, client: Any, tables: Collection[str], partitions: Collection[str]) -> None:
        self._client, self._tables, self._partitions = client, tables, partitions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def list_tables(self, database: str) -> list[str]:
        return [name for name in self._client.list_tables(database) if name not in self._tables]

    def iter_partitions(self, database: str, table: str, **how: Any) -> Iterator[Any]:
        partitions = self._client.iter_partitions(database, table, **how)
        return (partition for partition in partitions if partition.values[0] not in self._partitions)


class Site:
    """A database, its replica, and what a user sees of the database."""

    def __init__(self, source: EmbeddedMetastore, target: EmbeddedMetastore, root: Path) -> None:
        self.source, self.target = source, target
        self.hidden_tables: set[str] = set()
        self.hidden_partitions: set[str] = set()
        self.external = source.external_warehouse / f"{DATABASE}_ext"
        self.base = root / "base"
        self.policy = ReplicationPolicy(
            name=DATABASE,
            source_database=DATABASE,
            dump_root=f"file:{root}/dumps",
            external_base=f"file:{self.base}",
        )

    @contextmanager
    def sides(self) -> Iterator[tuple[MetastorePool, MetastorePool]]:
        with pool(self.source.uri) as source_pool, pool(self.target.uri) as target_pool:
            yield (
                cast("MetastorePool", _Hiding(source_pool, self.hidden_tables, self.hidden_partitions)),
                target_pool,
            )

    def dump_bootstrap(self) -> str:
        with self.sides() as (source_pool, _), source_pool.client() as client:
            start = begin_drain(client, DATABASE)
            return dump_bootstrap(source_pool, self.policy, start).dump

    def bootstrap(self) -> None:
        dump = self.dump_bootstrap()
        with self.sides() as (source_pool, target_pool):
            load_dump(source_pool, target_pool, self.policy, dump, run_copy=run_copy)

    def kill(self) -> None:
        """Run a cycle whose load ends before it publishes."""

        def killed(step: str) -> None:
            if step == "publish":
                raise Cut(step)

        with self.sides() as (source_pool, target_pool):
            dumped = dump_next_increment(source_pool, target_pool, self.policy)
            with pytest.raises(Cut):
                load_into_target(
                    source_pool,
                    target_pool,
                    self.policy,
                    dumped.dump,
                    run_copy=run_copy,
                    observer=at_steps(killed),
                )

    def cycle(self, **policy: Any) -> IncrementSummary:
        changed = replace(self.policy, **policy)
        with self.sides() as (source_pool, target_pool):
            dumped = dump_next_increment(source_pool, target_pool, changed)
            if dumped.idle:
                load_idle(target_pool, changed, dumped.event_id)
            else:
                load_dump(source_pool, target_pool, changed, dumped.dump, run_copy=run_copy)
        return dumped

    def refused(self) -> UnexplainedRemovalError:
        """Run a cycle that stops, and changes nothing on the target."""
        before = self.replica()
        with pytest.raises(UnexplainedRemovalError, match="Nothing was removed") as caught:
            self.cycle()
        with self.sides() as (source_pool, target_pool):
            assert read_status(source_pool, target_pool, self.policy).blocked == str(caught.value)
        assert self.replica() == before
        return caught.value

    def replica(self) -> Any:
        """Return the tables, partitions and files of the target, and its event."""
        with connected(self.target) as client:
            parts = client.list_partition_names(DATABASE, "acid")
            last_id = (client.get_database(DATABASE).parameters or {})["repl.last.id"]
            tables = sorted(client.list_tables(DATABASE))
        managed = self.target.warehouse / f"{DATABASE}.db"
        files = sorted(
            str(path) for root in (managed, self.base) for path in root.rglob("*") if path.is_file()
        )
        return tables, sorted(parts), files, last_id

    def tables(self) -> list[str]:
        return cast("list[str]", self.replica()[0])

    def table_id(self, table: str) -> int | None:
        """Return the target metastore's id of a table, which changes when the table is created anew."""
        with connected(self.target) as client:
            return client.get_table(DATABASE, table).id

    def copied(self) -> list[str]:
        """Names of files of the external table's replica."""
        files = [
            path for path in self.base.rglob("*") if path.is_file() and path.parent.name != EXTERNAL_CLAIMS
        ]
        return sorted(file.name for file in files if file.suffix != ".crc")

    def verify(self) -> VerificationReport:
        with self.sides() as (source_pool, target_pool):
            with target_pool.client() as client:
                dump = loaded_dump(client, self.policy)
            return verify_replica(
                target_pool, self.policy, dump, run_verify=nothing, source=source_pool, tables=()
            )

    def alter(self, table: str, **parameters: str | None) -> None:
        with connected(self.source) as client:
            definition: Any = client.get_table(DATABASE, table)
            wanted = {**definition.parameters, **parameters}
            definition.parameters = {name: value for name, value in wanted.items() if value is not None}
            client.alter_table(DATABASE, table, definition)


def nothing(_plan: str, _results: str) -> None:
    raise AssertionError("nothing is to be read")
