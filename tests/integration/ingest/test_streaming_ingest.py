"""Streaming into real tables; real Hive counts, reads, updates and compacts."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.compaction.requests import compact_table
from airflow_hive_federation.compaction.runners import in_threads
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.ingest import HiveStreamingConnection, StrictDelimitedInputWriter
from airflow_hive_federation.ingest.builder import StreamingConnectionBuilder
from airflow_hive_federation.ingest.errors import InvalidConnection, InvalidTable, InvalidTransactionState
from airflow_hive_federation.ingest.states import ConnectionState
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.transactions.locks import TableWrite, WriteKind, lock_components, unnoted
from airflow_hive_federation.transactions.transaction import Transaction
from airflow_hive_federation.waiting import PollPolicy, wait_until

DATABASE = "streamed"


@pytest.fixture(scope="module")
def sql(hive_sql_source: HiveSql) -> HiveSql:
    hive_sql_source.execute(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
    return hive_sql_source


@pytest.fixture(scope="module")
def settings(source: EmbeddedMetastore) -> MetastoreSettings:
    return MetastoreSettings(uris=(source.uri,))


@pytest.fixture
def client(settings: MetastoreSettings) -> Iterator[MetastoreClient]:
    with MetastoreClient(settings) as client:
        yield client


def builder(settings: MetastoreSettings, table: str) -> StreamingConnectionBuilder:
    writer = StrictDelimitedInputWriter.new_builder().with_field_delimiter(",").build()
    return (
        HiveStreamingConnection.new_builder()
        .with_database(DATABASE)
        .with_table(table)
        .with_agent_info("example-agent-1")
        .with_record_writer(writer)
        .with_conf(settings)
    )


def directory(client: MetastoreClient, table: str) -> Path:
    described: Any = client.get_table(DATABASE, table)
    return Path(local_path(described.sd.location) or "")


def count(sql: HiveSql, table: str) -> int:
    return int(sql.execute(f"SELECT count(*) FROM {DATABASE}.{table}")[0][0] or 0)


def ids(sql: HiveSql, table: str) -> list[int]:
    return sorted(int(row[0] or 0) for row in sql.execute(f"SELECT id FROM {DATABASE}.{table}"))


@pytest.mark.slow
def test_hive_reads_between_every_two_commits_of_a_batch(
    sql: HiveSql, settings: MetastoreSettings, client: MetastoreClient
) -> None:
    """Batches of four with aborts in the middle; then Hive updates, and everything is compacted."""
    sql.execute(
        f"CREATE TABLE {DATABASE}.batches (id int, msg string) CLUSTERED BY (id) INTO 2 BUCKETS "
        "STORED AS ORC TBLPROPERTIES ('transactional'='true')"
    )
    expected: list[int] = []
    connection = builder(settings, "batches").with_transaction_batch_size(4).with_buffer_bytes(64).connect()
    for number in range(6):
        connection.begin_transaction()
        for row in range(10):
            connection.write(f"{number * 10 + row},message {number}".encode())
        connection.flush()
        if number in {1, 4}:
            connection.abort_transaction()
        else:
            connection.commit_transaction()
            expected += range(number * 10, number * 10 + 10)
        assert count(sql, "batches") == len(expected)
        assert ids(sql, "batches") == expected
    place = directory(client, "batches")
    assert sorted(path.name for path in place.glob("delta_*/*flush_length"))
    connection.close()
    assert not list(place.glob("delta_*/*flush_length"))
    assert sorted(path.name for path in place.glob("delta_*")) == [
        "delta_0000001_0000004",
        "delta_0000005_0000008",
    ]
    assert {path.name for path in place.glob("delta_*/bucket*")} == {"bucket_00000", "bucket_00001"}
    sql.execute(f"UPDATE {DATABASE}.batches SET msg = 'changed' WHERE id % 2 = 0")
    sql.execute(f"DELETE FROM {DATABASE}.batches WHERE id < 5")
    rows = sql.execute(f"SELECT id, msg FROM {DATABASE}.batches ORDER BY id")
    assert [int(row[0] or 0) for row in rows] == [number for number in expected if number >= 5]
    assert all((row[1] == "changed") == (int(row[0] or 0) % 2 == 0) for row in rows)
    (report,) = compact_table(settings, f"{DATABASE}.batches", CompactionKind.MAJOR, in_threads())
    assert report.state == "compacted"
    assert sql.execute(f"SELECT id, msg FROM {DATABASE}.batches ORDER BY id") == rows
    assert connection.stats.committed_transactions == 4
    assert connection.stats.aborted_transactions == 2


@pytest.mark.slow
def test_the_specs_example(sql: HiveSql, settings: MetastoreSettings) -> None:
    sql.execute(
        f"CREATE TABLE {DATABASE}.alerts (id int, msg string) "
        "PARTITIONED BY (continent string, country string) CLUSTERED BY (id) "
        "INTO 5 BUCKETS STORED AS ORC TBLPROPERTIES ('transactional'='true')"
    )
    with builder(settings, "alerts").with_static_partition_values(["Asia", "India"]).connect() as connection:
        for first in (1, 3):
            connection.begin_transaction()
            connection.write(f"{first},val{first}".encode())
            connection.write(f"{first + 1},val{first + 1}".encode())
            connection.commit_transaction()
    with builder(settings, "alerts").connect() as connection:
        connection.begin_transaction()
        connection.write(b"11,val11,Asia,China")
        connection.write(b"12,val12,Asia,India")
        connection.commit_transaction()
        connection.begin_transaction()
        connection.write("13,val13,Europe,Germany")
        connection.write("14,val14,Asia,India")
        connection.write("15,val15,,a/b%😀")
        connection.commit_transaction()
        assert connection.stats.created_partitions == 3
    rows = sql.execute(f"SELECT * FROM {DATABASE}.alerts ORDER BY id")
    assert [tuple(row) for row in rows] == [
        ("1", "val1", "Asia", "India"),
        ("2", "val2", "Asia", "India"),
        ("3", "val3", "Asia", "India"),
        ("4", "val4", "Asia", "India"),
        ("11", "val11", "Asia", "China"),
        ("12", "val12", "Asia", "India"),
        ("13", "val13", "Europe", "Germany"),
        ("14", "val14", "Asia", "India"),
        ("15", "val15", "__HIVE_DEFAULT_PARTITION__", "a/b%😀"),
    ]


@pytest.mark.slow
def test_hive_reads_many_rows_of_each_stream(sql: HiveSql, settings: MetastoreSettings) -> None:
    """Runs of all lengths and widths, nulls, and instants before 1970, by scans and by conditions."""
    columns = "id int, small smallint, big bigint, day date, msg string, bin binary, t timestamp"
    sql.execute(
        f"CREATE TABLE {DATABASE}.streams ({columns}) STORED AS ORC TBLPROPERTIES ('transactional'='true')"
    )
    count = 25_003
    rows = pa.RecordBatch.from_pydict(
        {
            "id": pa.array(range(count), pa.int32()),
            "small": pa.array(
                [None if number % 3 == 0 else number % 65_536 - 32_768 for number in range(count)]
            ).cast(pa.int16()),
            "big": pa.array([-(2**63) + number if number % 2 else number**4 for number in range(count)]),
            "day": pa.array([number - 20_000 for number in range(count)], pa.int32()).cast(pa.date32()),
            "msg": [
                None if number % 7 == 0 else "é" * (number % 90) + str(number) for number in range(count)
            ],
            "bin": [None if number < 20_000 else bytes(number % 300) for number in range(count)],
            "t": pa.array(
                [
                    None if number % 5 == 0 else (number - 20_000) * 1_250_000 - 10**15
                    for number in range(count)
                ]
            ).cast(pa.timestamp("us")),
        }
    )
    with builder(settings, "streams").with_transaction_batch_size(2).connect() as connection:
        for part in (rows.slice(0, 9_001), rows.slice(9_001)):
            with connection.transaction():
                connection.write_batch(part)
    shown = "id, small, big, day, length(msg), substr(msg, -2), length(bin), cast(t as string)"
    chosen = [1, 7, 511, 512, 9_000, 9_001, 9_002, 19_999, 20_001, 24_999, 25_002]
    wanted = [seen(value) for value in rows.take(pa.array(chosen)).to_pylist()]
    sums = (str(count), *(str(sum(filter(None, rows.column(name).to_pylist()))) for name in ("id", "small")))
    for vectorized in ("true", "false"):
        sql.set("hive.vectorized.execution.enabled", vectorized)
        table = f"{DATABASE}.streams"
        listed = ", ".join(map(str, chosen))
        assert sql.execute(f"SELECT {shown} FROM {table} WHERE id IN ({listed}) ORDER BY id") == wanted
        assert sql.execute(f"SELECT count(*), sum(id), sum(small) FROM {table}") == [sums]
        assert sql.execute(f"SELECT id FROM {table} WHERE day = date '2020-01-01'") == []
        assert sql.execute(f"SELECT id FROM {table} WHERE day = date '1969-12-31'") == [("19999",)]
        assert sql.execute(f"SELECT id FROM {table} WHERE big = {-(2**63) + 9_001}") == [("9001",)]
        assert sql.execute(f"SELECT id FROM {table} WHERE msg = 'éé92'") == [("92",)]
        assert sql.execute(f"SELECT id FROM {table} WHERE t = timestamp'{rows.column('t')[9].as_py()}'") == [
            ("9",)
        ]
    sql.set("hive.vectorized.execution.enabled", "true")


def seen(row: dict[str, Any]) -> tuple[str | None, ...]:
    """A row as Hive shows it."""
    text, time = row["msg"], row["t"]
    values = (
        row["id"],
        row["small"],
        row["big"],
        row["day"],
        None if text is None else len(text),
        None if text is None else text[-2:],
        None if row["bin"] is None else len(row["bin"]),
        None if time is None else str(time).rstrip("0").rstrip(".") if time.microsecond else str(time),
    )
    return tuple(None if value is None else str(value) for value in values)


def test_tables_that_cannot_be_streamed_into(sql: HiveSql, settings: MetastoreSettings) -> None:
    sql.execute(f"CREATE EXTERNAL TABLE {DATABASE}.outside (id int)")
    sql.execute(f"CREATE VIEW {DATABASE}.seen AS SELECT 1 AS id")
    sql.execute(
        f"CREATE TABLE {DATABASE}.insert_only (id int) STORED AS ORC TBLPROPERTIES "
        "('transactional'='true', 'transactional_properties'='insert_only')"
    )
    for table, reason in (
        ("absent", "no table"),
        ("outside", "external"),
        ("seen", "a view"),
        ("insert_only", "insert-only"),
    ):
        with pytest.raises(InvalidTable, match=reason):
            builder(settings, table).connect()


def test_illegal_calls_leave_the_state_right(sql: HiveSql, settings: MetastoreSettings) -> None:
    sql.execute(
        f"CREATE TABLE {DATABASE}.plain (id int, msg string) STORED AS ORC "
        "TBLPROPERTIES ('transactional'='true')"
    )
    with pytest.raises(InvalidConnection, match="0 partition keys"):
        builder(settings, "plain").with_static_partition_values(["x"]).connect()
    connection = builder(settings, "plain").connect()
    for call in (
        connection.commit_transaction,
        connection.abort_transaction,
        lambda: connection.write(b"1,a"),
    ):
        with pytest.raises(InvalidTransactionState):
            call()
    connection.begin_transaction()
    with pytest.raises(InvalidTransactionState):
        connection.begin_transaction()
    assert connection.state is ConnectionState.OPEN
    connection.write(b"1,a")
    connection.commit_transaction()
    connection.close()
    connection.close()
    with pytest.raises(InvalidTransactionState, match="closed"):
        connection.begin_transaction()
    with pytest.raises(InvalidTransactionState):
        connection.write(b"2,b")
    assert ids(sql, "plain") == [1]


@pytest.mark.slow
def test_hive_overwrites_and_drops_between_the_transactions_of_a_batch(
    sql: HiveSql, settings: MetastoreSettings
) -> None:
    """A batch holds no lock between two transactions, but its write ids and files are of its beginning."""
    kind = "STORED AS ORC TBLPROPERTIES ('transactional'='true')"
    sql.execute(f"CREATE TABLE {DATABASE}.replaced (id int) {kind}")
    sql.execute(f"CREATE TABLE {DATABASE}.dropped (id int) PARTITIONED BY (d string) {kind}")
    changes = {
        "replaced": ["INSERT OVERWRITE TABLE {} SELECT 100", "TRUNCATE TABLE {}"],
        "dropped": [
            "ALTER TABLE {} DROP PARTITION (d='x')",
            "INSERT OVERWRITE TABLE {} PARTITION (d='x') SELECT 100",
        ],
    }
    seen = {}
    for table, statements in changes.items():
        with builder(settings, table).with_transaction_batch_size(4).connect() as connection:
            for number, statement in enumerate([*statements, ""]):
                with connection.transaction():
                    connection.write(f"{number},x" if table == "dropped" else f"{number}")
                seen[table, number] = ids(sql, table)
                if statement:
                    sql.execute(statement.format(f"{DATABASE}.{table}"))
            assert connection.stats.transaction_batches == 3
    assert seen == {
        ("replaced", 0): [0],
        ("replaced", 1): [1, 100],
        ("replaced", 2): [2],
        ("dropped", 0): [0],
        ("dropped", 1): [1],
        ("dropped", 2): [2, 100],
    }


@pytest.mark.slow
def test_values_are_where_hives_insert_puts_them(sql: HiveSql, settings: MetastoreSettings) -> None:
    """A text longer than its column is in the bucket of the stored text; a float names its partition."""
    sql.execute(
        f"CREATE TABLE {DATABASE}.places (id int, v varchar(3)) PARTITIONED BY (f float) CLUSTERED BY (v) "
        "INTO 8 BUCKETS STORED AS ORC TBLPROPERTIES ('transactional'='true')"
    )
    values = ["abcdef", "abc", "xyzxyz", "xyz", "p", "qrst"]
    literals = ", ".join(f"({number}, '{value}', 0.1)" for number, value in enumerate(values))
    sql.execute(f"INSERT INTO {DATABASE}.places PARTITION (f) VALUES {literals}")
    with builder(settings, "places").connect() as connection, connection.transaction():
        connection.write_records([f"{number},{value},0.1".encode() for number, value in enumerate(values)])
    static = builder(settings, "places").with_static_partition_values(["0.10"])
    with static.connect() as connection, connection.transaction():
        connection.write_records([f"{number},{value}".encode() for number, value in enumerate(values)])
    found = sql.execute(
        f"SELECT id, v, ROW__ID.bucketid, count(*) FROM {DATABASE}.places "
        "GROUP BY id, v, ROW__ID.bucketid ORDER BY id"
    )
    # Each row is there three times: in the same bucket each time.
    assert [row[0] for row in found] == [f"{number}" for number in range(len(values))]
    assert {row[3] for row in found} == {"3"}
    assert len({row[2] for row in found}) > 1
    assert [row[0] for row in sql.execute(f"SHOW PARTITIONS {DATABASE}.places")] == ["f=0.1"]


def test_a_stream_that_waits_for_an_overwrite_writes_above_it(
    sql: HiveSql, settings: MetastoreSettings, client: MetastoreClient
) -> None:
    """The overwrite has its lock, and allocates its write id while the stream waits for it."""
    sql.execute(
        f"CREATE TABLE {DATABASE}.awaited (id int) STORED AS ORC TBLPROPERTIES ('transactional'='true')"
    )
    overwrite = TableWrite(database=DATABASE, table="awaited", kind=WriteKind.OVERWRITE)

    def is_waiting() -> bool:
        found = client.show_locks(database=DATABASE, table="awaited")
        return any(lock.state == types.LockState.WAITING for lock in found)

    def stream() -> None:
        with builder(settings, "awaited").connect() as connection, connection.transaction():
            connection.write(b"2")

    with ThreadPoolExecutor(1) as pool, Transaction(client) as own:
        own._lock(unnoted(lock_components([overwrite])), {f"{DATABASE}.awaited"})
        streamed = pool.submit(stream)
        assert wait_until(is_waiting, PollPolicy(first_s=0.05, factor=1.0, longest_s=0.05, timeout_s=120.0))
        write_id = own.write_id(DATABASE, "awaited")
        client.lock(lock_components([overwrite]), txn_id=own.id)
        base = directory(client, "awaited") / f"base_{write_id:07d}"
        base.mkdir()
        (base / "_orc_acid_version").write_text("2")
        own.commit()
        streamed.result(120)
    assert ids(sql, "awaited") == [2]
