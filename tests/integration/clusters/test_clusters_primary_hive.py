"""Statements of real Hive that wait for a change of the primary; transactional tables would lose rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

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


class Raced(MetastoreClient):
    """A client beside which something happens before its first change of the table."""

    meanwhile: Callable[[], None] | None = None

    def alter_table(self, *args: Any, **kwargs: Any) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        super().alter_table(*args, **kwargs)


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
        # Our streaming connection reads the location in each transaction; that of Hive does so once.
        with connection.transaction():
            connection.write(b"3")
    assert hive.execute(f"SELECT id FROM {name} ORDER BY id") == [("1",), ("3",)]
    assert len(list(former.glob("delta_*"))) == 2
    moved_to(former)
    assert hive.execute(f"SELECT id FROM {name} ORDER BY id") == [("1",), ("2",)]


def external(hive: HiveSql, root: Path, name: str, keys: str = "") -> None:
    """Create an external table in C1, with a row (of the partition ``p=a``)."""
    database, _, table = name.partition(".")
    place = root / "C1" / f"{database}.db" / table
    hive.execute(f"CREATE EXTERNAL TABLE {name} (id INT) {keys} STORED AS TEXTFILE LOCATION 'file:{place}'")
    hive.execute(f"INSERT INTO {name} {'PARTITION (p=1)' if keys else ''} VALUES (1)")


@pytest.fixture
def locked_external_tables(hive: HiveSql) -> Iterator[None]:
    """Let Hive take locks on external tables."""
    changed = {"hive.txn.ext.locking.enabled": "true", "hive.exec.dynamic.partition.mode": "nonstrict"}
    before = {name: hive.execute(f"SET {name}")[0][0] for name in changed}
    for name, value in changed.items():
        hive.set(name, value)
    yield
    for setting in before.values():
        hive.execute(f"SET {setting}")


@pytest.mark.slow
@pytest.mark.usefixtures("locked_external_tables")
@pytest.mark.parametrize("partitioned", [False, True])
def test_an_insert_that_waits_for_the_change_writes_into_the_new_primary(
    hive: HiveSql, client: MetastoreClient, registry: ClusterRegistry, root: Path, partitioned: bool
) -> None:
    """Hive does not plan it again, but its ``MoveTask`` takes the location that the table then has."""
    name = f"{DATABASE}.plain_{int(partitioned)}"
    external(hive, root, name, "PARTITIONED BY (p INT)" if partitioned else "")
    former = location_of(client, name)
    copy_to_cluster(client, registry, name, "C2", run_copy)
    values = "PARTITION (p) VALUES (2, 1), (3, 2)" if partitioned else "VALUES (2)"
    with ExitStack() as stack, Raced(client.settings) as raced:
        inserts: list[Future[list[Row]]] = []

        def insert() -> None:
            inserts.append(stack.enter_context(waiting(client, hive, name, f"INSERT INTO {name} {values}")))

        raced.meanwhile = insert
        with pytest.raises(PrimaryRefusedError, match="C2 now, but statements that write it waited"):
            change_primary(raced, registry, name, "C2", keep_former=False)
        inserts[0].result()
    expected = [("1", "1"), ("2", "1"), ("3", "2")] if partitioned else [("1",), ("2",)]
    assert sorted(hive.execute(f"SELECT * FROM {name}")) == expected
    assert len([file for file in former.rglob("0*") if file.is_file()]) == 1
    # The statement has ended, so this run finds no obstacle, and nobody's file in the former location.
    report = change_primary(client, registry, name, "C2", keep_former=False, former_older_than_s=-60.0)
    assert (report.moved, len(report.removed), report.left) == ([], 1, {})
    assert sorted(hive.execute(f"SELECT * FROM {name}")) == expected


@pytest.mark.slow
@pytest.mark.usefixtures("locked_external_tables")
def test_a_query_that_waits_for_the_change_reads_the_former_location(
    hive: HiveSql, client: MetastoreClient, registry: ClusterRegistry, root: Path
) -> None:
    """Without its files, Hive would return no rows, and no error: they stay until such queries have ended."""
    name = f"{DATABASE}.queried"
    external(hive, root, name)
    copy_to_cluster(client, registry, name, "C2", run_copy)
    former = location_of(client, name)
    queries: list[Future[list[Row]]] = []
    with ExitStack() as stack, Raced(client.settings) as raced:

        def query() -> None:
            queries.append(stack.enter_context(waiting(client, hive, name, f"SELECT * FROM {name}")))

        raced.meanwhile = query
        report = change_primary(raced, registry, name, "C2", keep_former=False)
        assert (report.removed, list(report.left)) == ([], [f"file:{former}"])
        assert queries[0].result() == [("1",)]
        # As if the files were removed with the change.
        with Transaction(client) as transaction:
            client.lock([exclusive(name)], txn_id=transaction.id)
            query()
            shutil.rmtree(location_of(client, name))
        assert queries[1].result() == []
