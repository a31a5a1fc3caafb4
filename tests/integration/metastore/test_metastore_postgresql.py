"""Metastores whose data is in PostgreSQL: SQL, replication, deadlocks, streaming, a database that dies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psutil
import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.postgresql import EmbeddedPostgresql
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import MetastoreServerError
from airflow_hive_federation.ingest import HiveStreamingConnection, StrictDelimitedInputWriter
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.transactions.locks import TableWrite, WriteKind
from airflow_hive_federation.transactions.transaction import Transaction
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support.concurrent_commits import judge_concurrent_commits
from tests.support.groovy_scripts import run_groovy
from tests.support.incrementing import Cycles, cycles
from tests.support.moving_files import content_of, paths_below
from tests.support.small_source import connected, make_table, storage

pytestmark = pytest.mark.slow

#: If its database is away, a call fails after seconds, instead of minutes.
IMPATIENT = {
    "metastore.hmshandler.retry.attempts": "3",
    "metastore.hmshandler.retry.interval": "100ms",
    "hikaricp.connectionTimeout": "1000",
}
_WRITERS = 6
_WRITES = 5


@dataclass(frozen=True)
class Site:
    """Two metastores with databases in one server, and Hive's SQL on the first."""

    server: EmbeddedPostgresql
    source: EmbeddedMetastore
    target: EmbeddedMetastore
    sql: HiveSql


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedPostgresql.start(settings={"deadlock_timeout": "50ms"}))

        def start(name: str) -> EmbeddedMetastore:
            return EmbeddedMetastore.start(name, database=server, settings=IMPATIENT)

        with ThreadPoolExecutor() as threads:
            source, target = (stack.enter_context(it) for it in threads.map(start, ("source", "target")))
        yield Site(server, source, target, stack.enter_context(HiveSql(source)))


def test_hives_sql_and_replication(site: Site, tmp_path: Path) -> None:
    engines = (site.sql, HiveSql(site.target))
    with cycles(site.source, site.target, engines, tmp_path, source_database="pg") as run:
        run.write(
            "CREATE DATABASE pg",
            "CREATE TABLE pg.t (a INT, b STRING) PARTITIONED BY (p STRING) STORED AS ORC "
            "TBLPROPERTIES ('transactional'='true')",
            "INSERT INTO pg.t VALUES (1, 'x', 'a'), (2, NULL, 'B'), (3, 'ß', 'ä')",
        )
        assert run.bootstrap().partitions == 3
        run.write("UPDATE pg.t SET b = 'y' WHERE a = 2", "INSERT INTO pg.t VALUES (4, '', 'C')")
        assert not run.cycle().idle
        rows = site.sql.execute("SELECT a, b, p FROM pg.t ORDER BY a")
        assert rows == [("1", "x", "a"), ("2", "y", "B"), ("3", "ß", "ä"), ("4", "", "C")]
        source, target = (_contents(run, side) for side in ("source", "target"))
        assert source == target
        assert len(source[2]) == 4


def _contents(run: Cycles, side: str) -> tuple[object, object, dict[str, object]]:
    """Valid write ids, names of files, and column statistics of a partition, on one side."""
    pool, database = (run.source, "pg") if side == "source" else (run.target, "pg_copy")
    with pool.client() as client:
        wire = client.get_valid_write_ids([f"{database}.t"])[f"{database}.t"]
        root = Path(client.get_table(database, "t").sd.location.removeprefix("file:"))
        statistics = {
            partition.values[0]: _columns(partition)
            for partition in client.iter_partitions(database, "t", with_column_stats=True)
        }
    names = {str(path.relative_to(root)) for path in root.rglob("bucket_*")}
    return (wire.writeIdHighWaterMark, list(wire.invalidWriteIds or [])), names, statistics


def _columns(partition: types.Partition) -> object:
    stats = partition.colStats.statsObj if partition.colStats else []
    return sorted((column.colName, repr(column.statsData)) for column in stats)


def test_calls_that_the_database_ends_by_deadlocks_are_repeated(site: Site, tmp_path: Path) -> None:
    """A session locks rows in the opposite order until PostgreSQL has ended transactions of the metastore.

    Hive falls back from SQL to JDO after the first deadlock of a call; after the second, the call fails.
    """
    with connected(site.source) as client:
        client.create_database(types.Database(name="dead", parameters={}))
        make_table(client, "dead", "acid", partitioned=True)
        add_partitions(client, "dead", [f"{number:02d}" for number in range(40)])
        partitions = client.get_partitions("dead", "acid")
        password, stop, pid = (tmp_path / name for name in ("password", "stop", "pid"))
        password.write_text(site.server.password, encoding="utf-8")
        places = (site.source.jdbc_url, str(password), str(stop), str(pid))

        def ended() -> int:
            return len([process for process in deadlocked(site.server) if process != _text(pid)])

        with ThreadPoolExecutor() as threads:
            locker = threads.submit(run_groovy, "row_locker.groovy", *places, scratch=tmp_path)
            try:
                started = PollPolicy(first_s=0.05, longest_s=0.2, timeout_s=120.0)
                assert wait_until(lambda: locker.done() or _text(pid), started)
                watch = PollPolicy(first_s=0.05, longest_s=0.05)
                # The locker ends by itself, after minutes.
                watcher = threads.submit(wait_until, lambda: locker.done() or ended() >= 4, watch)
                watcher.add_done_callback(lambda _: stop.touch())
                for number in count():
                    for partition in partitions:
                        partition.parameters = {**(partition.parameters or {}), "round": str(number)}
                    client.alter_partitions("dead", "acid", partitions)
                    if watcher.done():
                        break
            finally:
                stop.touch()
            locker.result()
        assert ended() >= 4, "PostgreSQL has ended no transaction of the metastore"
        last = [(partition.parameters or {})["round"] for partition in client.get_partitions("dead", "acid")]
    assert last == [str(number)] * 40


def _text(path: Path) -> str:
    return path.read_text("ascii") if path.exists() else ""


def deadlocked(server: EmbeddedPostgresql) -> list[str]:
    """Return the process of each transaction that the server has ended because of a deadlock."""
    log = server.log_path.read_text("utf-8", "replace")
    return re.findall(r"\[(\d+)\] ERROR:  deadlock detected", log)


def test_concurrent_writers_commit_once_or_not_at_all(site: Site) -> None:
    judge_concurrent_commits(site.source, writers=_WRITERS, writes=_WRITES, sharing=3)


def test_streamed_rows_are_read_by_hive(site: Site) -> None:
    with connected(site.source) as client:
        client.create_database(types.Database(name="streamed", parameters={}))
        make_table(client, "streamed", "t")
    connection = (
        HiveStreamingConnection.new_builder()
        .with_database("streamed")
        .with_table("t")
        .with_record_writer(StrictDelimitedInputWriter(field_delimiter=","))
        .with_conf({"hive.metastore.uris": site.source.uri})
        .with_transaction_batch_size(3)
        .connect()
    )
    for number in range(2):
        connection.begin_transaction()
        connection.write(f"{number},a".encode())
        connection.commit_transaction()
    connection.begin_transaction()
    connection.write(b"9,aborted")
    connection.abort_transaction()
    connection.close()
    assert site.sql.execute("SELECT a, b FROM streamed.t ORDER BY a") == [("0", "a"), ("1", "a")]


def test_two_thousand_partitions(site: Site) -> None:
    values = [f"{'aB'[number % 2]}-{number:04d}" for number in range(2000)]
    with connected(site.source) as client:
        client.create_database(types.Database(name="many", parameters={}))
        make_table(client, "many", "acid", partitioned=True)
        add_partitions(client, "many", values)
        add_partitions(client, "many", values[:700])
        read = [partition.values[0] for partition in client.iter_partitions("many", "acid", batch_size=300)]
        assert sorted(read) == sorted(values)
        assert sorted(client.list_partition_names("many", "acid")) == sorted(f"p={value}" for value in values)
        # Hive compares in the database, whose order of letters is not that of bytes.
        after = client.find_partitions("many", "acid", "p > 'B-1990'")
        assert {partition.values[0] for partition in after} == {
            "B-1991",
            "B-1993",
            "B-1995",
            "B-1997",
            "B-1999",
        }


def test_what_derby_keeps_is_kept(site: Site, source: EmbeddedMetastore) -> None:
    """Ids, defaults of settings, the case of names and values, NULL and long parameters are Derby's."""
    kept = []
    for number, metastore in enumerate((site.source, source)):
        with connected(metastore) as client:
            first = client.get_current_notification_event_id()
            name = f"like_{'pd'[number]}"
            client.create_database(types.Database(name=name.upper(), description="", parameters={"K": "v"}))
            make_table(client, name, "Mixed")
            table = client.get_table(name, "MIXED")
            table.parameters = {
                **table.parameters,
                "long": "ü" * 20_000,
                "empty": "",
                "Case": "A",
                "case": "a",
            }
            table.sd.serdeInfo.parameters = {"field.delim": "\u0001", "line": "\n", "escape": "\\"}
            client.alter_table(name, "mixed", table)
            read = client.get_table(name, "mixed")
            every = list(client.iter_notification_events(first))
            assert [event.eventId for event in every] == list(range(first + 1, first + 1 + len(every)))
            # Hive's own threads end transactions that others have left open.
            events = [event for event in every if (event.dbName or "").lower() == name]
            (txn_id,) = client.open_txns(1)
            component = types.LockComponent(
                type=types.LockType.SHARED_READ,
                level=types.LockLevel.DB,
                dbname=name,
                operationType=types.DataOperationType.NO_TXN,
            )
            lock = client.lock([component], txn_id=txn_id)
            assert lock.lockid > 0
            client.abort_txn(txn_id)
            parameters = {
                key: value
                for key, value in read.parameters.items()
                if key not in {"transient_lastDdlTime", "last_modified_time", "ddl.time"}
            }
            kept.append(
                {
                    "database": (client.get_database(name).description, client.get_database(name).parameters),
                    "parameters": parameters,
                    "serde": read.sd.serdeInfo.parameters,
                    "nulls": (read.viewOriginalText, read.sd.cols[0].comment, read.rewriteEnabled),
                    "events": [(event.eventType, event.tableName) for event in events],
                    "settings": [
                        client.call("get_config_value", setting, "none")
                        for setting in (
                            "hive.txn.timeout",
                            "metastore.txn.timeout",
                            "metastore.no.such.setting",
                        )
                    ],
                    "absent": [client.get_database(name).locationUri.rpartition("/")[2].replace(name, "")],
                }
            )
    assert kept[0] == kept[1]


def test_a_lost_database_fails_calls_by_name_and_the_next_ones_go_on(site: Site) -> None:
    with connected(site.source) as client, Transaction(client) as transaction:
        client.create_database(types.Database(name="lost", parameters={}))
        make_table(client, "lost", "t")
        transaction.lock([TableWrite(database="lost", table="t", kind=WriteKind.INSERT)])
        write_id = transaction.write_id("lost", "t")
        site.server.kill()
        with pytest.raises(MetastoreServerError):
            client.get_table("lost", "t")
        with pytest.raises(MetastoreServerError):
            client.create_database(types.Database(name="not_there", parameters={}))
        site.server.restart()
        assert client.get_table("lost", "t").tableName == "t"
    with connected(site.source) as client:
        wire = client.get_valid_write_ids(["lost.t"])["lost.t"]
        assert (wire.writeIdHighWaterMark, list(wire.invalidWriteIds or [])) == (write_id, [])
        assert "not_there" not in client.list_databases()


def test_the_password_is_in_files_of_its_owner_alone(site: Site) -> None:
    password = site.source.jdbc_password
    server = psutil.Process(site.server.pid)
    for process in (server, server.parent() or server, psutil.Process(site.source.pid)):
        assert password not in " ".join(process.cmdline())
        assert password not in str(process.environ())
    for directory in (site.server.directory, site.source.directory):
        holders = [path for path in paths_below(directory) if password.encode() in (content_of(path) or b"")]
        assert holders
        assert not [path for path in holders if path.stat().st_mode & 0o077]
    assert (site.server.directory / "data").stat().st_mode & 0o077 == 0
    listening = [one.laddr.ip for one in server.net_connections(kind="inet") if one.status == "LISTEN"]
    assert listening == ["127.0.0.1"]


def add_partitions(client: MetastoreClient, database: str, values: list[str]) -> None:
    location = client.get_table(database, "acid").sd.location
    client.add_partitions(
        [
            types.Partition(
                dbName=database,
                tableName="acid",
                values=[value],
                sd=storage(f"{location}/p={value}"),
                parameters={},
            )
            for value in values
        ]
    )
