"""Formats, files, lost transactions, positions and threads, with real tables."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_hive_federation.cli import ingest as cli_ingest
from airflow_hive_federation.cli.main import main
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import (
    ConfigurationError,
    MetastoreServerError,
    StreamingConnectionError,
)
from airflow_hive_federation.ingest import (
    ArrowRecordWriter,
    HiveStreamingConnection,
    StrictDelimitedInputWriter,
    StrictJsonWriter,
    StrictRegexWriter,
)
from airflow_hive_federation.ingest import batch as ingest_batch
from airflow_hive_federation.ingest.builder import StreamingConnectionBuilder
from airflow_hive_federation.ingest.errors import (
    HeartBeatFailure,
    InvalidTable,
    InvalidTransactionState,
    SerializationError,
    StreamingIOFailure,
)
from airflow_hive_federation.ingest.files import IngestRequest, ingest_files
from airflow_hive_federation.ingest.position import committed_position, ensure_position
from airflow_hive_federation.ingest.states import ConnectionState
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.orc.tail import read_tail
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.transactions.batch_heartbeat import Heartbeats
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support.gateway_front import gateway
from tests.support.small_source import make_table

DATABASE = "streamed_more"


@pytest.fixture(scope="module")
def settings(source: EmbeddedMetastore) -> MetastoreSettings:
    return MetastoreSettings(uris=(source.uri,))


@pytest.fixture(scope="module")
def sql(hive_sql_source: HiveSql) -> HiveSql:
    hive_sql_source.execute(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
    return hive_sql_source


@pytest.fixture
def client(settings: MetastoreSettings, sql: HiveSql) -> Any:
    with MetastoreClient(settings) as client:
        yield client


def table(client: MetastoreClient, name: str) -> str:
    """Make a table (a int, b string) without a SQL engine."""
    make_table(client, DATABASE, name)
    return name


def builder(settings: MetastoreSettings, name: str, writer: Any = None) -> StreamingConnectionBuilder:
    return (
        HiveStreamingConnection.new_builder()
        .with_database(DATABASE)
        .with_table(name)
        .with_record_writer(writer or StrictDelimitedInputWriter(field_delimiter=","))
        .with_conf(settings)
    )


def rows(sql: HiveSql, name: str) -> list[tuple[str | None, ...]]:
    return [tuple(row) for row in sql.execute(f"SELECT * FROM {DATABASE}.{name} ORDER BY a, b")]


def test_every_writer_writes_the_same(sql: HiveSql, settings: MetastoreSettings, client: Any) -> None:
    table(client, "formats")
    batch = pa.RecordBatch.from_pydict({"a": [4], "b": ["arrow"]})
    for writer, data in (
        (StrictDelimitedInputWriter(), b"1\x01delimited"),
        (StrictJsonWriter(), '{"A": 2, "b": "json"}'),
        (StrictRegexWriter(r"(\d+)-(\w+)"), b"3-regex"),
        (ArrowRecordWriter(batch.schema), batch),
    ):
        with builder(settings, "formats", writer).connect() as connection, connection.transaction():
            if isinstance(data, pa.RecordBatch):
                connection.write_batch(data)
            else:
                connection.write(data)
    assert rows(sql, "formats") == [("1", "delimited"), ("2", "json"), ("3", "regex"), ("4", "arrow")]


def test_the_settings_of_the_specification_override_the_configuration(
    source: EmbeddedMetastore, sql: HiveSql, client: Any
) -> None:
    """Transactions and locks of the metastore, partitions by the records alone, no cached answer, a user."""
    make_table(client, DATABASE, "settled", partitioned=True)
    conf = {
        "metastore.thrift.uris": source.uri,
        "hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DummyTxnManager",
        "hive.support.concurrency": "false",
        "hive.metastore.execute.setugi": "false",
        "hive.exec.dynamic.partition.mode": "strict",
        "hive.exec.orc.delta.streaming.optimizations.enabled": "false",
        "hive.metastore.client.cache.enabled": "true",
    }
    described = builder(MetastoreSettings(uris=(source.uri,)), "settled").with_conf(conf)
    with described.connect() as connection, connection.transaction():
        connection.write_records([b"1,a,x", b"2,b,y"])
        connection.flush()
        (held,) = {
            (lock.type, lock.state, lock.txnid, lock.user) for lock in client.show_locks(database=DATABASE)
        }
        (open_txn,) = [
            open_txn
            for open_txn in client.call("get_open_txns_info").open_txns
            if open_txn.id == connection.current_txn_id
        ]
        assert held[:3] == (types.LockType.SHARED_READ, types.LockState.ACQUIRED, open_txn.id)
    answer = sql.execute(f"SELECT a, b, p FROM {DATABASE}.settled ORDER BY a")
    assert [tuple(row) for row in answer] == [("1", "a", "x"), ("2", "b", "y")]
    partition: Any = next(iter(client.iter_partitions(DATABASE, "settled")))
    (file,) = Path(local_path(partition.sd.location) or "").glob("delta_*/bucket_*")
    with file.open("rb") as opened:
        assert read_tail(opened, "file").compression == "uncompressed"
    # Another connection of the same program sees changes of other clients.
    client.drop_table(DATABASE, "settled", delete_data=True)
    with pytest.raises(InvalidTable, match="There is no table"):
        builder(MetastoreSettings(uris=(source.uri,)), "settled").with_conf(conf).connect()


def test_bad_records_leave_the_transaction_open(
    sql: HiveSql, settings: MetastoreSettings, client: Any
) -> None:
    table(client, "bad")
    letters: list[Any] = []
    with builder(settings, "bad").connect() as connection:
        connection.begin_transaction()
        for record in (b"1,a", b"x,b", b"3,c", b"4"):
            connection.write(record)
        with pytest.raises(SerializationError, match="Record 2 of the transaction, column a") as caught:
            connection.commit_transaction()
        assert [bad_record.record_number for bad_record in caught.value.bad_records] == [2, 4]
        assert connection.state is ConnectionState.OPEN
        connection.commit_transaction()
    with builder(settings, "bad").with_dead_letters(letters.append, limit=1).connect() as connection:
        connection.begin_transaction()
        connection.write(b"y,b")
        connection.flush()
        connection.write(b"z,b")
        with pytest.raises(SerializationError, match="More than 1 bad records"):
            connection.flush()
        connection.abort_transaction()
    assert [letter.record for letter in letters] == [b"y,b"]
    assert rows(sql, "bad") == [("1", "a"), ("3", "c")]


def test_a_transaction_that_another_client_aborts_fails(settings: MetastoreSettings, client: Any) -> None:
    table(client, "lost")
    connection = builder(settings, "lost").with_transaction_batch_size(2).connect()
    connection.begin_transaction()
    connection.write(b"1,a")
    client.abort_txns([connection.current_txn_id])
    with pytest.raises(HeartBeatFailure):
        connection.commit_transaction()
    assert connection.state is ConnectionState.FAILED
    connection.abort_transaction()
    with pytest.raises(InvalidTransactionState, match="failed"):
        connection.begin_transaction()
    connection.close()


def test_rows_that_never_came_to_the_files_are_not_forgotten(
    settings: MetastoreSettings, sql: HiveSql, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_memory(*_args: Any, **_named: Any) -> Any:
        raise MemoryError

    table(client, "torn")
    with builder(settings, "torn").connect() as connection:
        connection.begin_transaction()
        connection.write(b"1,a")
        with monkeypatch.context() as patch:
            patch.setattr(ingest_batch, "encoded", out_of_memory)
            with pytest.raises(MemoryError):
                connection.commit_transaction()
        with pytest.raises(StreamingIOFailure, match="are missing"):
            connection.commit_transaction()
        assert connection.state is ConnectionState.FAILED
    assert rows(sql, "torn") == []


def test_heartbeats_notice_a_lost_transaction(client: Any) -> None:
    ids = client.open_txns(3)
    hearts = Heartbeats(client, ids, 0.05, silence_s=300.0)
    client.abort_txns([ids[1]])
    assert wait_until(lambda: ids[1] in hearts.lost, PollPolicy(first_s=0.02, timeout_s=30))
    hearts.stop()
    assert hearts.lost == {ids[1]}
    client.abort_txns([ids[0], ids[2]])


def test_two_threads_are_refused(settings: MetastoreSettings, client: Any) -> None:
    table(client, "threads")
    connection = builder(settings, "threads").connect()
    connection.begin_transaction()
    with ThreadPoolExecutor(1) as other:
        with pytest.raises(InvalidTransactionState, match="another thread"):
            other.submit(connection.write, b"1,a").result()
        with pytest.raises(InvalidTransactionState, match="another thread"):
            other.submit(connection.commit_transaction).result()
        other.submit(connection.abort_transaction).result()
    assert connection.state is ConnectionState.ABORTED
    connection.close()


@pytest.mark.slow
def test_threads_and_processes_into_one_table(
    sql: HiveSql, settings: MetastoreSettings, client: Any, source: EmbeddedMetastore, tmp_path: Path
) -> None:
    table(client, "parallel")

    def stream(number: int) -> None:
        with builder(settings, "parallel").with_transaction_batch_size(3).connect() as connection:
            for _ in range(4):
                with connection.transaction():
                    connection.write(f"{number},thread")

    (tmp_path / "in.csv").write_text("10,process\n11,process\n")
    command = ["-m", "airflow_hive_federation.cli.main", "ingest", f"{DATABASE}.parallel"]
    process = subprocess.Popen(
        [sys.executable, *command, str(tmp_path / "in.csv"), "--metastore", source.uri],
        stdout=subprocess.PIPE,
    )
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(stream, range(3)))
    assert process.wait() == 0
    process.communicate()
    answer = sql.execute(f"SELECT a, count(*) FROM {DATABASE}.parallel GROUP BY a")
    assert {tuple(row) for row in answer} == {
        *((str(number), "4") for number in range(3)),
        ("10", "1"),
        ("11", "1"),
    }


def test_a_position_is_committed_with_the_records(settings: MetastoreSettings, client: Any) -> None:
    table(client, "placed")
    with builder(settings, "placed").with_position_key("_meta.here").connect() as connection:
        assert connection.committed_position is None
        with connection.transaction():
            connection.write(b"1,a")
            connection.commit_transaction(key="_meta.here", value="7")
        connection.begin_transaction()
        with pytest.raises(ConfigurationError, match="Begin its name with _meta"):
            connection.commit_transaction(key="here", value="8")
        connection.abort_transaction()
        assert connection.committed_position == "7"
    with builder(settings, "placed").with_position_key("_meta.here").connect() as connection:
        assert connection.committed_position == "7"


def test_a_gateway_guards_positions_of_other_databases(settings: MetastoreSettings, client: Any) -> None:
    """A commit names the table of its position by an id, which the gateway looks for among locked ones."""
    other = f"{DATABASE}_other"
    client.create_database(types.Database(name=other))
    make_table(client, other, "orders")
    ensure_position(client, other, "orders", "_meta.here")
    table(client, "guarded")
    rule = {"access": ["read", "write"], "databases": [DATABASE]}
    with gateway({"upstream": {"uris": list(settings.uris)}, "rule": [rule]}) as serving:
        limited = MetastoreSettings(uris=(serving.fronts[0].uri,))
        with builder(limited, "guarded").with_position_key("_meta.here").connect() as connection:
            with connection.transaction():
                connection.write(b"1,a")
                connection.commit_transaction(key="_meta.here", value="7")
            assert connection.committed_position == "7"
        (txn_id,) = client.open_txns()
        orders = client.get_table(other, "orders")
        pair = types.CommitTxnKeyValue(tableId=orders.id, key="_meta.here", value="9")
        with (
            MetastoreClient(limited) as bob,
            pytest.raises(MetastoreServerError, match="may write no table of that id"),
        ):
            bob.commit_txn(txn_id, key_value=pair)
    assert committed_position(client, other, "orders", "_meta.here") is None
    # Hive itself has no such check.
    client.commit_txn(txn_id, key_value=pair)
    assert committed_position(client, other, "orders", "_meta.here") == "9"


def test_files_are_ingested_once(
    sql: HiveSql, settings: MetastoreSettings, client: Any, tmp_path: Path, source: EmbeddedMetastore
) -> None:
    table(client, "filed")
    (tmp_path / "1.csv").write_text("a,b\n1,x\n2,y\n")
    (tmp_path / "2.csv").write_text("a,b\n3,z\nbad\n4,w")
    request = IngestRequest(table=f"{DATABASE}.filed", inputs=[str(tmp_path)], header=True, commit_records=1)
    with pytest.raises(SerializationError, match=r"2\.csv, line 3: ") as caught:
        ingest_files(settings, request)
    assert caught.value.line == 3
    letters = tmp_path / "letters" / "bad.jsonl"
    again = IngestRequest(
        table=f"{DATABASE}.filed", inputs=[f"{tmp_path}/*.csv"], header=True, dead_letters=str(letters)
    )
    report = ingest_files(settings, again)
    assert (report.records, report.dead_letters, report.files) == (2, 1, 2)
    assert "2.csv, line 3" in json.loads(letters.read_text())["reason"]
    assert ingest_files(settings, again).records == 0
    pq.write_table(pa.table({"b": ["p"], "a": [9]}), tmp_path / "3.parquet")
    arguments = ["--format", "parquet", "--name", "parquet", "--metastore", source.uri, "--json"]
    arguments += ["--compaction", "minor"]
    assert main(["ingest", f"{DATABASE}.filed", f"{tmp_path}/*.parquet", *arguments]) == 0
    assert [row[0] for row in rows(sql, "filed")] == ["1", "2", "3", "4", "9"]
    asked = [
        compact
        for compact in client.call("show_compact", types.ShowCompactRequest()).compacts
        if compact.tablename == "filed"
    ]
    assert [compaction.type for compaction in asked] == [types.CompactionType.MINOR]


def test_quoted_fields_are_what_hive_reads_in_them(
    sql: HiveSql, client: Any, tmp_path: Path, source: EmbeddedMetastore, capsys: pytest.CaptureFixture[str]
) -> None:
    table(client, "quoted")
    lines = ['a,"b"', '"1","x, y"', '2,"say ""hi"""', "3,plain", '"4",""']
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "1.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    # Hive's own reader of CSV, whose columns are all texts, ends each record at a line feed.
    sql.execute(
        f"CREATE EXTERNAL TABLE {DATABASE}.judge (a STRING, b STRING) "
        "ROW FORMAT SERDE 'org.apache.hadoop.hive.serde2.OpenCSVSerde' "
        f"LOCATION '{tmp_path / 'csv'}' TBLPROPERTIES ('skip.header.line.count'='1')"
    )
    command = ["ingest", f"{DATABASE}.quoted", str(tmp_path / "csv"), "--metastore", source.uri]
    assert main(command) == 1
    assert "add --header" in capsys.readouterr().err
    assert main([*command, "--header"]) == 0
    assert rows(sql, "quoted") == sorted(sql.execute(f"SELECT a, b FROM {DATABASE}.judge"))
    (tmp_path / "csv" / "2.csv").write_text('a,b\n5,"two\nlines"\n6,"no end\n', encoding="utf-8")
    assert main([*command, "--header"]) == 1
    place = "2.csv, line 4: Record 2 of the transaction: the quote at its character 3 is not closed"
    assert place in capsys.readouterr().err
    assert main([*command, "--header", "--dead-letters", str(tmp_path / "bad.jsonl")]) == 0
    assert rows(sql, "quoted")[4:] == [("5", "two\nlines")]
    # Without quotes, those of a header are a part of its names.
    unquoted = ["--header", "--quote", "", "--name", "unquoted", "--malformed", "null"]
    assert main([*command, *unquoted]) == 1
    assert "1.csv is not the table's" in capsys.readouterr().err
    (tmp_path / "csv" / "1.csv").write_text("\n".join(["a,b", *lines[1:]]) + "\n", encoding="utf-8")
    assert main([*command, *unquoted]) == 0
    assert '"x' in {text for _, text in rows(sql, "quoted")}


def test_the_command_prints_its_progress(
    client: Any,
    tmp_path: Path,
    source: EmbeddedMetastore,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table(client, "watched")
    for name in "123":
        (tmp_path / f"{name}.csv").write_text("".join(f"{number},x\n" for number in range(2_000)))
    command = ["ingest", f"{DATABASE}.watched", f"{tmp_path}/*.csv", "--metastore", source.uri]
    shown, stdout = on_a_terminal([*command, "--commit-records", "1000"])
    assert "\x1b[" in shown
    assert re.search(r"6,000 records, 38\.7 of 38\.7 kB, [\d,]+ records/s .*0:00:00", shown)
    assert "6,000 records of 3 files" in stdout
    # Nobody watches: a line instead, and no other one however long it takes.
    monkeypatch.setattr(cli_ingest, "_LINE_SECONDS", 600.0)
    assert main([*command, "--name", "again"]) == 0
    line = rf"{DATABASE}\.watched: [\d,]+ records committed, [\d.]+ of 38\.7 kB read, [\d,]+ records/s\n"
    assert re.fullmatch(line, capsys.readouterr().err)


def on_a_terminal(arguments: list[str]) -> tuple[str, str]:
    """Run the command with its standard error on a pseudo-terminal; return that and its standard output."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 80, 0, 0))
    program = str(Path(sys.executable).with_name("hive-federation"))
    with subprocess.Popen(
        [program, *arguments],
        # A terminal there, of which the width is unknown, would count before the one on standard error.
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "", "LINES": ""},
        text=True,
    ) as process:
        os.close(theirs)
        shown = b""
        # A terminal that nobody writes to any more is an error on Linux, not an end.
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 65_536):
                shown += piece
        os.close(ours)
        assert process.stdout is not None
        stdout = process.stdout.read()
    assert process.returncode == 0, shown
    return shown.decode(), stdout


def test_no_metastore(settings: MetastoreSettings) -> None:
    nowhere = MetastoreSettings(uris=("thrift://127.0.0.1:1",), connect_timeout_s=1)
    with pytest.raises(StreamingConnectionError) as caught:
        builder(nowhere, "t").connect()
    assert caught.value.retryable
