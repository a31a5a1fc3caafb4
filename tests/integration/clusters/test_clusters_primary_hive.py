"""The reasons why the primary of transactional tables does not change, shown by what real Hive does."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_hive_federation.clusters.altering import alter_table, relocate
from airflow_hive_federation.clusters.copies.copying import copy_to_cluster
from airflow_hive_federation.clusters.locking import exclusive
from airflow_hive_federation.clusters.primary import change_primary
from airflow_hive_federation.clusters.registry import ClusterRegistry, read_registry
from airflow_hive_federation.embedded.sql import HiveSql, Row
from airflow_hive_federation.errors import MetastoreServerError, PrimaryRefusedError
from airflow_hive_federation.ingest import HiveStreamingConnection, StrictDelimitedInputWriter
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.copying import copy_file
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.storage.plan_files import read_plan
from airflow_hive_federation.transactions.transaction import Transaction
from airflow_hive_federation.waiting import PollPolicy, wait_until

DATABASE = "written_primaries"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("roots")


@pytest.fixture(scope="module")
def registry(root: Path) -> ClusterRegistry:
    properties = {name: {"fileSystem": f"{root}/{name}", "jobTracker": name} for name in ("C1", "C2")}
    return read_registry(
        {"hive.cluster.properties": properties, "hive.default.cluster.name": "C1"}, origin="the test"
    )


@pytest.fixture(scope="module")
def hive(hive_sql_source: HiveSql) -> HiveSql:
    hive_sql_source.execute(f"CREATE DATABASE {DATABASE}")
    return hive_sql_source


def run_copy(plan: str, outcomes: str) -> None:
    for item in list(read_plan(plan)):
        copy_file(item)


def location_of(client: MetastoreClient, name: str) -> Path:
    storage = client.get_table(*name.split(".")).sd
    assert storage is not None
    return Path(str(local_path(str(storage.location))))


@contextmanager
def waiting(client: MetastoreClient, hive: HiveSql, name: str, statement: str) -> Iterator[Future[list[Row]]]:
    """Begin a statement that is compiled, and waits for a lock of the table at the start of the block."""
    database, _, table = name.partition(".")

    def waits() -> bool:
        locks = client.show_locks(database=database, table=table)
        return any(lock.state == types.LockState.WAITING for lock in locks)

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(hive.execute, statement)
        assert wait_until(lambda: waits() or future.done(), PollPolicy(first_s=0.05, timeout_s=120.0))
        assert not future.done()
        yield future


@pytest.mark.slow
def test_no_lock_keeps_the_writers_of_a_transactional_table_out_of_its_former_location(
    hive: HiveSql, client: MetastoreClient, registry: ClusterRegistry, root: Path
) -> None:
    """The reasons for which :func:`change_primary` refuses transactional tables."""
    name = f"{DATABASE}.acid"
    hive.execute(f"CREATE TABLE {name} (id INT) STORED AS ORC TBLPROPERTIES ('transactional'='true')")
    hive.execute(f"INSERT INTO {name} VALUES (1)")
    copy_to_cluster(client, registry, name, "C2", run_copy)
    with pytest.raises(PrimaryRefusedError, match="it is transactional"):
        change_primary(client, registry, name, "C2")
    former = location_of(client, name)

    def moved_to(place: Path) -> None:
        def moved(now: types.Table) -> types.Table:
            relocate(now, f"file:{place}")
            return now

        alter_table(client, name, moved)

    # The metastore keeps managed tables below the managed location of their database.
    with pytest.raises(MetastoreServerError, match="managed"):
        moved_to(root / "C2" / "copy-of-acid")
    builder = HiveStreamingConnection.new_builder().with_database(DATABASE).with_table("acid")
    builder = builder.with_record_writer(StrictDelimitedInputWriter(field_delimiter=","))
    with builder.with_conf(client.settings).connect() as connection:
        with Transaction(client) as transaction:
            client.lock([exclusive(name)], txn_id=transaction.id)
            with waiting(client, hive, name, f"INSERT INTO {name} VALUES (2)") as inserted:
                new = former.with_name("acid_moved")
                shutil.copytree(former, new)
                moved_to(new)
                transaction.commit()
                inserted.result()
        # Between its transactions, a streaming connection holds no lock.
        with connection.transaction():
            connection.write(b"3")
    assert hive.execute(f"SELECT id FROM {name}") == [("1",)]
    assert len(list(former.glob("delta_*"))) == 3
    moved_to(former)
    assert hive.execute(f"SELECT id FROM {name} ORDER BY id") == [("1",), ("2",), ("3",)]
