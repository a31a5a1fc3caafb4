"""Metastores whose data is in MariaDB: replication between two of them, deadlocks, concurrent commits."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest

from airflow_hive_federation.embedded.mariadb import EmbeddedMariadb
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.ingest import HiveStreamingConnection, StrictDelimitedInputWriter
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support.concurrent_commits import judge_concurrent_commits
from tests.support.debian import require_program
from tests.support.incrementing import cycles
from tests.support.small_source import add_partition, connected, make_table

if TYPE_CHECKING:
    from pymysql import Connection

pytestmark = pytest.mark.slow

_DEADLOCK = 1213
_DEADLOCKS = 3
_PARTITIONS = 12
_WRITERS = 4
_WRITES = 2


@dataclass(frozen=True)
class Site:
    """Two metastores with databases in one server, and Hive's SQL on them."""

    server: EmbeddedMariadb
    source: EmbeddedMetastore
    target: EmbeddedMetastore
    sql: tuple[HiveSql, HiveSql]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    require_program("mariadbd", "mariadb-server")
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedMariadb.start())
        with closing(session(server)) as connection, connection.cursor() as cursor:
            # A killed start has left the beginning of a schema.
            for statement in (
                "CREATE DATABASE source",
                "CREATE TABLE source.UNFINISHED_SCHEMA (a INT)",
                "CREATE TABLE source.DBS (a INT)",
            ):
                cursor.execute(statement)

        def start(name: str) -> tuple[EmbeddedMetastore, HiveSql]:
            metastore = stack.enter_context(EmbeddedMetastore.start(name, database=server))
            return metastore, stack.enter_context(HiveSql(metastore))

        with ThreadPoolExecutor() as threads:
            (source, source_sql), (target, target_sql) = threads.map(start, ("source", "target"))
        yield Site(server, source, target, (source_sql, target_sql))


def session(server: EmbeddedMariadb) -> Connection:
    import pymysql

    return pymysql.connect(host="127.0.0.1", port=server.port, user="hive", password=server.password)


def test_replication_and_a_restart(site: Site, tmp_path: Path) -> None:
    rows = "SELECT * FROM {db}.t"
    with cycles(site.source, site.target, site.sql, tmp_path, source_database="maria") as run:
        run.write(
            "CREATE DATABASE maria",
            "CREATE TABLE maria.t (a INT, b STRING) PARTITIONED BY (p STRING) STORED AS ORC "
            "TBLPROPERTIES ('transactional'='true')",
            "CREATE TABLE maria.goes (a INT)",
            "INSERT INTO maria.t VALUES (1, 'x', 'a'), (2, NULL, 'B'), (3, 'ß', 'ä')",
        )
        assert run.bootstrap().partitions == 3
        run.write(
            "INSERT INTO maria.t VALUES (4, '', 'C')",
            "DELETE FROM maria.t WHERE a = 1",
            "ALTER TABLE maria.t DROP PARTITION (p = 'B')",
            "DROP TABLE maria.goes",
        )
        stream_and_abort(site.source)
        assert not run.cycle().idle
        source_rows, target_rows = run.rows(rows)
        assert source_rows == target_rows == [("3", "ß", "ä"), ("4", "", "C")]
        assert run.tables() == (["t"], ["t"])
        with run.source.client() as source, run.target.client() as target:
            # Hive's own threads forget an aborted write without files; its number stays taken.
            marks = [
                client.get_valid_write_ids([f"{name}.t"])[f"{name}.t"].writeIdHighWaterMark
                for client, name in ((source, "maria"), (target, "maria_copy"))
            ]
        assert marks[0] == marks[1] == 5
        site.source.restart()
        assert run.cycle().idle
        assert run.tables() == (["t"], ["t"])


def stream_and_abort(metastore: EmbeddedMetastore) -> None:
    connection = (
        HiveStreamingConnection.new_builder()
        .with_database("maria")
        .with_table("t")
        .with_static_partition_values(["C"])
        .with_record_writer(StrictDelimitedInputWriter(field_delimiter=","))
        .with_conf({"hive.metastore.uris": metastore.uri})
        .with_transaction_batch_size(1)
        .connect()
    )
    connection.begin_transaction()
    connection.write(b"9,aborted")
    connection.abort_transaction()
    connection.close()


def test_calls_that_the_database_ends_by_deadlocks_are_repeated(site: Site) -> None:
    """A session locks rows in the opposite order until MariaDB has ended transactions of the metastore."""
    values = [f"{number:02d}" for number in range(_PARTITIONS)]
    with connected(site.source) as client:
        client.create_database(types.Database(name="dead", parameters={}))
        make_table(client, "dead", "acid", partitioned=True)
        for value in values:
            add_partition(client, "dead", value)
        partitions = client.get_partitions("dead", "acid")
        locking, stop = Event(), Event()
        with ThreadPoolExecutor() as threads:
            locker = threads.submit(lock_rows, site.server, locking, stop)
            try:
                assert wait_until(lambda: locker.done() or locking.is_set(), PollPolicy(timeout_s=60.0))
                number = 0
                while not locker.done():
                    number += 1
                    for partition in partitions:
                        partition.parameters = {**(partition.parameters or {}), "round": str(number)}
                    client.alter_partitions("dead", "acid", partitions)
            finally:
                stop.set()
            assert locker.result() >= _DEADLOCKS, "MariaDB has ended no transaction of the metastore"
        last = [(partition.parameters or {})["round"] for partition in client.get_partitions("dead", "acid")]
    assert last == [str(number)] * _PARTITIONS


def lock_rows(server: EmbeddedMariadb, locking: Event, stop: Event) -> int:
    """Lock the rows of partitions, last one first, until the metastore's side has lost some deadlocks.

    :return: the number of the deadlocks whose other side MariaDB has ended.
    """
    from pymysql import OperationalError

    own = lost = 0
    with closing(session(server)) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE weight")
        cursor.execute("CREATE TABLE weight.rows_ (a INT)")
        cursor.execute("SELECT PART_ID FROM source.PARTITIONS ORDER BY PART_ID DESC LIMIT %s", [_PARTITIONS])
        ids = [row[0] for row in cursor.fetchall()]
        while not stop.is_set() and lost < _DEADLOCKS:
            try:
                # MariaDB ends the transaction that has changed fewer rows.
                cursor.execute("INSERT INTO weight.rows_ SELECT seq FROM weight.seq_1_to_500")
                for part_id in ids:
                    update = "UPDATE source.PARTITIONS SET LAST_ACCESS_TIME = LAST_ACCESS_TIME + 1"
                    cursor.execute(f"{update} WHERE PART_ID = %s", [part_id])
                    locking.set()
                    stop.wait(0.005)
                connection.commit()
            except OperationalError as error:
                connection.rollback()
                if error.args[0] != _DEADLOCK:
                    raise
                own += 1
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'")
            lost = int(cursor.fetchall()[0][1]) - own
    return lost


def test_concurrent_commits_are_there_once_or_not_at_all(site: Site) -> None:
    judge_concurrent_commits(site.source, writers=_WRITERS, writes=_WRITES, sharing=2)
