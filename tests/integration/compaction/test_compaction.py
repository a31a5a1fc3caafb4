"""Our compactions, judged by real Hive: its reader, its writer, its own worker."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc

from airflow_hive_federation.compaction.plan import BucketMerge, CompactionKind
from airflow_hive_federation.compaction.requests import (
    compact_table,
    queue_entry,
    request_compaction,
)
from airflow_hive_federation.compaction.runners import in_threads
from airflow_hive_federation.compaction.worker import CompactionReport, CompactionWorker, _Compaction
from airflow_hive_federation.embedded.configuration import minimum_history
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql, Row
from airflow_hive_federation.errors import ConfigurationError, NoSuchObjectError
from airflow_hive_federation.ingest import HiveStreamingConnection, StrictDelimitedInputWriter
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.transactions.locks import TableWrite, WriteKind
from airflow_hive_federation.transactions.transaction import Transaction
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support.committed_files import copy_table
from tests.support.history_files import insert_rows
from tests.support.hive_readers import by_both_readers
from tests.support.hives_worker import hives_worker
from tests.support.small_source import make_table

DATABASE = "compacted"
ROWS = pa.schema([("a", pa.int32()), ("b", pa.string())])
ACID = "stored as orc tblproperties ('transactional'='true', 'no_auto_compaction'='true')"


def still_open(client: MetastoreClient) -> list[Any]:
    answer: Any = client.call("get_open_txns_info")
    return [open_txn for open_txn in answer.open_txns if open_txn.state == types.TxnState.OPEN]


@pytest.fixture(scope="module")
def hive(quick_hive: HiveSql) -> HiveSql:
    quick_hive.execute(f"create database {DATABASE}")
    return quick_hive


@pytest.fixture(scope="module")
def settings(source: EmbeddedMetastore) -> MetastoreSettings:
    return MetastoreSettings(uris=(source.uri,))


@pytest.fixture(scope="module")
def compact(settings: MetastoreSettings) -> Callable[..., list[CompactionReport]]:
    def run(table: str, kind: CompactionKind, **options: Any) -> list[CompactionReport]:
        return compact_table(settings, f"{DATABASE}.{table}", kind, in_threads(2), **options)

    return run


def rows_with_id(hive: HiveSql, table: str) -> list[Row]:
    return by_both_readers(hive, f"select ROW__ID, * from {DATABASE}.{table}")


def directories(source: EmbeddedMetastore, table: str) -> set[str]:
    return {path.name for path in (source.warehouse / f"{DATABASE}.db" / table).iterdir()}


def cleaned(source: EmbeddedMetastore, table: str, left: set[str]) -> bool:
    if wait_until(lambda: directories(source, table) == left, PollPolicy(timeout_s=120)):
        return True
    with MetastoreClient(MetastoreSettings(uris=(source.uri,))) as client:
        opened = still_open(client)
        queue: Any = client.call("show_compact", types.ShowCompactRequest())
    waiting = [
        compact for compact in queue.compacts if compact.state not in ("succeeded", "failed", "refused")
    ]
    raise AssertionError(f"{directories(source, table)} instead of {left}; open: {opened}; queue: {waiting}")


class CleanersRounds:
    """Tells when the metastore's cleaner has looked at all that awaits it.

    Two tables are compacted, and their requests held back. Later the first one is handed to the cleaner, and
    once it is cleaned, the second: the cleaner serves that one in another round, so the round before is over.

    :param client: client of the metastore.
    :param name: begins the names of the two tables.
    """

    def __init__(self, client: MetastoreClient, source: EmbeddedMetastore, name: str) -> None:
        self._client, self._source = client, source
        self._waiting = [self._compacted(f"{name}_{number}") for number in (1, 2)]

    def end_round(self) -> None:
        """Wait until a round of the cleaner that begins after this call is over."""
        for request, left in self._waiting:
            self._client.call("mark_compacted", request)
            assert cleaned(self._source, request.tablename, left)

    def _compacted(self, table: str) -> tuple[Any, set[str]]:
        make_table(self._client, DATABASE, table)
        place = self._source.warehouse / f"{DATABASE}.db" / table
        for number in (1, 2):
            with Transaction(self._client) as transaction:
                transaction.lock([TableWrite(database=DATABASE, table=table, kind=WriteKind.INSERT)])
                write_id = transaction.write_id(DATABASE, table)
                insert_rows(place, write_id, [{"a": number, "b": "x"}], ROWS, acid=True)
        held: list[Any] = []
        call = MetastoreClient.call

        def holding(client: MetastoreClient, method: str, *arguments: Any) -> Any:
            return held.append(*arguments) if method == "mark_compacted" else call(client, method, *arguments)

        settings = MetastoreSettings(uris=(self._source.uri,))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MetastoreClient, "call", holding)
            (report,) = compact_table(settings, f"{DATABASE}.{table}", CompactionKind.MAJOR, in_threads(1))
        (request,) = held
        return request, {*report.directories}


@pytest.fixture(scope="module")
def changed(hive: HiveSql, settings: MetastoreSettings) -> Iterator[Callable[..., None]]:
    """Return a function that makes tables in which Hive has written several transactions of every kind."""
    name = f"{DATABASE}.changed"
    columns = "(id int, name varchar(10), amount decimal(10,2)) clustered by (id) into 2 buckets"
    hive.execute(f"create table {name} {columns} {ACID}")
    for start in (0, 10):
        values = ", ".join(f"({start + i}, 'n{start + i}', {i}.25)" for i in range(6))
        hive.execute(f"insert into {name} values {values}")
    hive.execute(f"update {name} set name = upper(name) where id in (1, 12)")
    hive.execute(f"delete from {name} where id in (0, 13)")
    with MetastoreClient(settings) as client:
        yield functools.partial(copy_table, client, DATABASE, "changed")


def events(directory: Path) -> dict[str, list[dict[str, Any]]]:
    return {path.name: orc.ORCFile(path).read().to_pylist() for path in directory.glob("bucket_*")}


@pytest.mark.slow
def test_the_same_as_hives_worker_makes_and_it_goes_on_from_ours(
    hive: HiveSql,
    source: EmbeddedMetastore,
    changed: Callable[..., None],
    compact: Callable[..., list[CompactionReport]],
) -> None:
    kinds = [CompactionKind.MINOR, CompactionKind.MAJOR]
    changed("ours_minor", "theirs_minor", "ours_major", "theirs_major")
    location = source.warehouse / f"{DATABASE}.db"

    def change_again(table: str) -> None:
        hive.execute(f"update {DATABASE}.{table} set amount = 0 where id in (2, 12)")
        hive.execute(f"delete from {DATABASE}.{table} where id in (3, 11)")

    made = {}
    for kind in kinds:
        before = rows_with_id(hive, f"ours_{kind}")
        (report,) = compact(f"ours_{kind}", kind)
        assert report.state == "compacted", report
        assert rows_with_id(hive, f"ours_{kind}") == before
        made[kind] = {name: events(location / f"ours_{kind}" / name) for name in report.directories}
        hive.execute(f"alter table {DATABASE}.theirs_{kind} compact '{kind}'")
        # Hive takes no request before the last one is cleaned up.
        assert cleaned(source, f"ours_{kind}", set(report.directories))
        change_again(f"ours_{kind}")
        hive.execute(f"alter table {DATABASE}.ours_{kind} compact 'major'")
    hives_worker(source)
    for kind in kinds:
        for name, rows in made[kind].items():
            (hives,) = (location / f"theirs_{kind}").glob(f"{name.partition('_v')[0]}_v*")
            assert rows == events(hives)
        change_again(f"theirs_{kind}")
        assert any(name.startswith("base_0000006_v") for name in directories(source, f"ours_{kind}"))
        assert rows_with_id(hive, f"ours_{kind}") == rows_with_id(hive, f"theirs_{kind}")


def test_partitions_are_compacted_side_by_side(
    hive: HiveSql, compact: Callable[..., list[CompactionReport]]
) -> None:
    hive.execute(
        f"create table {DATABASE}.parts (id int, name string) partitioned by (day date, code string) {ACID}"
    )
    for start in (0, 10):
        hive.execute(
            f"insert into {DATABASE}.parts values ({start + 1}, 'a', '2026-01-01', 'x:y'), "
            f"({start + 2}, 'b', '2026-01-01', 'a b'), ({start + 3}, 'c', null, 'z')"
        )
    hive.execute(f"delete from {DATABASE}.parts where id = 11")
    hive.execute(f"create table {DATABASE}.not_parted (id int) {ACID}")
    before = rows_with_id(hive, "parts")
    reports = compact("parts", CompactionKind.MAJOR, partitions=["day=2026-01-01/code=x%3Ay"])
    assert [(report.state, report.rows, report.deleted) for report in reports] == [("compacted", 1, 1)]
    rest = compact("parts", CompactionKind.MAJOR)
    # Hive 4.2 takes no request for a partition whose last compaction is not cleaned up yet.
    assert sorted(report.state for report in rest) == ["compacted", "compacted", "refused"]
    assert rows_with_id(hive, "parts") == before
    with pytest.raises(ConfigurationError, match="has no partitions"):
        compact("not_parted", CompactionKind.MAJOR, partitions=["day=2026-01-01"])
    with pytest.raises(
        NoSuchObjectError,
        match=r"parts, whose partition keys are day, code, has no partition day=1999-01-01/code=q\..*Write "
        "day=VALUE/code=VALUE",
    ):
        compact("parts", CompactionKind.MAJOR, partitions=["day=1999-01-01/code=q"])
    with pytest.raises(NoSuchObjectError, match=r"There is no table .*\.nothing"):
        compact("nothing", CompactionKind.MAJOR)


def test_a_table_of_which_nothing_is_left(
    hive: HiveSql, source: EmbeddedMetastore, compact: Callable[..., list[CompactionReport]]
) -> None:
    hive.execute(f"create table {DATABASE}.emptied (id int) {ACID}")
    hive.execute(f"insert into {DATABASE}.emptied values (1), (2)")
    hive.execute(f"delete from {DATABASE}.emptied where id = 1")
    hive.execute(f"delete from {DATABASE}.emptied where id = 2")
    (report,) = compact("emptied", CompactionKind.MAJOR)
    assert (report.state, report.rows, report.deleted) == ("compacted", 0, 2)
    assert cleaned(source, "emptied", set(report.directories))
    assert rows_with_id(hive, "emptied") == []
    hive.execute(f"insert into {DATABASE}.emptied values (3)")
    assert len(rows_with_id(hive, "emptied")) == 1


@pytest.mark.parametrize("kind", list(CompactionKind))
def test_a_streaming_batch_goes_on_over_a_compaction(
    hive: HiveSql,
    settings: MetastoreSettings,
    compact: Callable[..., list[CompactionReport]],
    kind: CompactionKind,
) -> None:
    table = f"streamed_{kind}"
    hive.execute(f"create table {DATABASE}.{table} (a int, b string) {ACID}")
    for number in range(3):
        hive.execute(f"insert into {DATABASE}.{table} values ({number}, 'inserted')")
    described = (
        HiveStreamingConnection.new_builder()
        .with_database(DATABASE)
        .with_table(table)
        .with_record_writer(StrictDelimitedInputWriter(field_delimiter=","))
        .with_conf(settings)
        .with_transaction_batch_size(2)
    )
    with described.connect() as stream:
        for number in (10, 11):
            stream.begin_transaction()
            stream.write(f"{number},streamed")
            if number == 11:
                # The batch's delta has a committed row, and ends above what the compactor may read.
                before = rows_with_id(hive, table)
                (report,) = compact(table, kind)
                assert report.state == "compacted", report
                assert len(before) == 4
                assert rows_with_id(hive, table) == before
            stream.commit_transaction()
    after = rows_with_id(hive, table)
    assert [row for row in after if row in before] == before
    assert len(after) == 5
    hive.execute(f"insert into {DATABASE}.{table} values (20, 'later')")
    (report,) = compact(table, kind)
    assert report.state == "compacted", report
    assert [row for row in rows_with_id(hive, table) if row in after] == after


@pytest.mark.slow
def test_aborted_rows_stay_invisible_whenever_the_cleaner_comes(
    hive: HiveSql,
    source: EmbeddedMetastore,
    settings: MetastoreSettings,
    compact: Callable[..., list[CompactionReport]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def marking_slowly(client: MetastoreClient, method: str, *arguments: Any) -> Any:
        answer = call(client, method, *arguments)
        if method == "mark_compacted" and arguments[0].tablename == "interrupted":
            rounds.end_round()
        return answer

    place = source.warehouse / f"{DATABASE}.db" / "interrupted"
    with MetastoreClient(settings) as client, MetastoreClient(settings) as other:
        rounds = CleanersRounds(other, source, "beside_interrupted")
        make_table(client, DATABASE, "interrupted")
        for _ in range(2):
            with Transaction(client) as transaction:
                transaction.lock([TableWrite(database=DATABASE, table="interrupted", kind=WriteKind.INSERT)])
                write_id = transaction.write_id(DATABASE, "interrupted")
                insert_rows(place, write_id, [{"a": 1, "b": "x"}], ROWS, acid=True)
                if write_id == 1:
                    transaction.abort()
        call = MetastoreClient.call
        monkeypatch.setattr(MetastoreClient, "call", marking_slowly)
        (report,) = compact("interrupted", CompactionKind.MINOR)
        assert report.state == "cleaning"
        assert cleaned(source, "interrupted", {"delta_0000002_0000002_0000"})
    assert hive.execute(f"select * from {DATABASE}.interrupted") == [("1", "x")]


class _ReaderAtTheEnd:
    """Merges, and begins to read when the compaction is about to commit."""

    def __init__(self, client: MetastoreClient, tables: list[str]) -> None:
        self._client, self._tables = client, tables
        self.txn_id = 0

    def __call__(self, merges: Sequence[BucketMerge]) -> list[Any]:
        outcomes = in_threads(1)(merges)
        (self.txn_id,) = self._client.open_txns()
        self._client.keep_history(self.txn_id, self._tables)
        return list(outcomes)


@pytest.mark.slow
def test_the_cleaner_waits_for_the_newest_reader_too(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without its minimum history of transactions, which Hive means to drop.
    plain = {**minimum_history(False), "metastore.txn.use.minhistorylevel": "false"}
    # Nor does it come earlier for what a few have left that aborted.
    plain["hive.compactor.abortedtxn.threshold"] = "2"
    with (
        EmbeddedMetastore.start("plain", settings=plain) as source,
        MetastoreClient(MetastoreSettings(uris=(source.uri,))) as client,
    ):
        client.create_database(types.Database(name=DATABASE))
        for protection in ("worker", "reader"):
            table = f"awaited_{protection}"
            place = source.warehouse / f"{DATABASE}.db" / table
            make_table(client, DATABASE, table)
            for number in (1, 2):
                with Transaction(client) as transaction:
                    transaction.lock([TableWrite(database=DATABASE, table=table, kind=WriteKind.INSERT)])
                    write_id = transaction.write_id(DATABASE, table)
                    insert_rows(place, write_id, [{"a": number, "b": "x"}], ROWS, acid=True)
            for _ in range(4):
                with Transaction(client) as transaction:
                    transaction.lock([TableWrite(database=DATABASE, table=table, kind=WriteKind.INSERT)])
                    transaction.abort()
            before = directories(source, table)
            reading = [f"{DATABASE}.{table}"] if protection == "reader" else []
            reader = _ReaderAtTheEnd(client, reading)
            settings = MetastoreSettings(uris=(source.uri,))
            rounds = CleanersRounds(client, source, f"beside_{protection}")
            (report,) = compact_table(settings, f"{DATABASE}.{table}", CompactionKind.MAJOR, reader)
            assert report.state == "compacted"
            rounds.end_round()
            assert before < directories(source, table), protection
            client.commit_txn(reader.txn_id)
            assert cleaned(source, table, {*report.directories})
            # As Hive's worker does it.
            monkeypatch.setattr(_Compaction, "_have_all_waited_for", lambda _: None)


@pytest.mark.parametrize("kind", ["orc", "parquet", "textfile"])
def test_insert_only(
    kind: str, hive: HiveSql, source: EmbeddedMetastore, compact: Callable[..., list[CompactionReport]]
) -> None:
    table = f"only_{kind}"
    hive.execute(
        f"create table {DATABASE}.{table} (id int, name string, at timestamp, amount decimal(8,3), day date) "
        f"stored as {kind} tblproperties ('transactional'='true', "
        "'transactional_properties'='insert_only', 'no_auto_compaction'='true')"
    )

    def insert(number: int) -> None:
        hive.execute(
            f"insert into {DATABASE}.{table} values "
            f"({number}, 'ä', '2026-01-0{number} 10:00:00.5', {number}.125, '1500-01-01'), "
            f"({number + 10}, null, null, null, null)"
        )

    for number in (1, 2, 3):
        insert(number)
    query = f"select * from {DATABASE}.{table}"
    before = sorted(hive.execute(query), key=repr)
    (minor,) = compact(table, CompactionKind.MINOR)
    assert minor.state == "compacted", minor
    assert sorted(hive.execute(query), key=repr) == before
    assert cleaned(source, table, set(minor.directories))
    insert(4)
    before = sorted(hive.execute(query), key=repr)
    (major,) = compact(table, CompactionKind.MAJOR)
    assert major.state == "compacted", major
    assert cleaned(source, table, set(major.directories))
    assert sorted(hive.execute(query), key=repr) == before
    insert(5)
    assert len(hive.execute(query)) == len(before) + 2
    hive.execute(f"insert into {DATABASE}.{table} values (6, 'long ago', '0001-01-01 00:00:00', 0, null)")
    before = sorted(hive.execute(query), key=repr)
    (report,) = compact(table, CompactionKind.MAJOR)
    assert report.state == "compacted", report
    assert sorted(hive.execute(query), key=repr) == before


def test_the_queue_is_served(
    hive: HiveSql, settings: MetastoreSettings, changed: Callable[..., None]
) -> None:
    changed("queued")
    before = rows_with_id(hive, "queued")
    hive.execute(f"alter table {DATABASE}.queued compact 'minor'")
    hive.execute(f"create table {DATABASE}.dropped (id int) {ACID}")
    hive.execute(f"insert into {DATABASE}.dropped values (1)")
    with MetastoreClient(settings) as client:
        (request,) = request_compaction(client, f"{DATABASE}.dropped", CompactionKind.MAJOR)
        reports = CompactionWorker(settings, in_threads(2), batch_size=4).serve(until_empty=True)
        # The initiator requests other tests' tables in the same pool.
        states = {report.table: report.state for report in reports}
        assert states[f"{DATABASE}.queued"] == "compacted"
        assert states[f"{DATABASE}.dropped"] == "refused"
        entry = queue_entry(client, request.id)
        assert entry.state == "refused"
        assert "thresholds" in str(entry.errorMessage)
    assert rows_with_id(hive, "queued") == before


def test_a_bad_file_fails_its_table_alone(
    source: EmbeddedMetastore, settings: MetastoreSettings, changed: Callable[..., None]
) -> None:
    changed("broken", "sound")
    (bucket,) = (source.warehouse / f"{DATABASE}.db" / "broken").glob("delta_0000002_*/bucket_00000_0")
    bucket.write_bytes(bucket.read_bytes()[:-30])
    before = directories(source, "broken")
    with MetastoreClient(settings) as client:
        for table in ("broken", "sound"):
            request_compaction(client, f"{DATABASE}.{table}", CompactionKind.MAJOR, pool_name="bad_input")
        worker = CompactionWorker(settings, in_threads(2), batch_size=2, pool_name="bad_input")
        reports = {report.table: report for report in worker.serve(until_empty=True)}
        broken = reports[f"{DATABASE}.broken"]
        assert broken.state == "failed"
        assert str(bucket) in broken.message
        assert reports[f"{DATABASE}.sound"].state == "compacted"
        entry = queue_entry(client, broken.id)
        assert entry.state == "failed"
        assert str(bucket) in str(entry.errorMessage)
    assert directories(source, "broken") == before


KILLED = """
import os, sys
from airflow_hive_federation.compaction import worker
from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.compaction.requests import compact_table
from airflow_hive_federation.compaction.runners import in_threads
from airflow_hive_federation.metastore import MetastoreSettings

uri, table, step = sys.argv[1:]
merge = in_threads(1)

def die(*_: object, **__: object) -> None:
    os._exit(9)

def run_and_die(merges):
    merge(merges)
    os._exit(9)

if step == "published":
    publish = worker.publish
    def publish_and_die(*arguments):
        publish(*arguments)
        os._exit(9)
    worker.publish = publish_and_die
settings = MetastoreSettings(uris=(uri,))
compact_table(settings, table, CompactionKind.MAJOR, run_and_die if step == "merged" else merge)
"""


@pytest.mark.parametrize("step", ["merged", "published"])
def test_killed_it_leaves_nothing_visible_and_runs_again(
    step: str,
    hive: HiveSql,
    source: EmbeddedMetastore,
    changed: Callable[..., None],
    compact: Callable[..., list[CompactionReport]],
) -> None:
    table = f"killed_{step}"
    changed(table)
    before = rows_with_id(hive, table)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, source.uri, f"{DATABASE}.{table}", step],
        check=False,
        env={**os.environ},
        timeout=200,
    )
    assert killed.returncode == 9
    left = directories(source, table)
    assert any(name.startswith("_compaction" if step == "merged" else "base_") for name in left)
    assert rows_with_id(hive, table) == before
    (report,) = compact(table, CompactionKind.MAJOR)
    assert report.state == "compacted", report
    assert rows_with_id(hive, table) == before
    assert not any(name.startswith("_") for name in directories(source, table))
    assert wait_until(
        lambda: (
            set(report.directories) <= directories(source, table)
            and not any(name.startswith("delta_") for name in directories(source, table))
        ),
        PollPolicy(timeout_s=120),
    )
    assert rows_with_id(hive, table) == before


def test_compactions_of_other_workers_are_reported(
    settings: MetastoreSettings,
    changed: Callable[..., None],
    compact: Callable[..., list[CompactionReport]],
) -> None:
    changed("elsewhere")
    with MetastoreClient(settings) as client:
        request_compaction(client, f"{DATABASE}.elsewhere", CompactionKind.MAJOR, pool_name="elsewhere")
        taken = client.call(
            "find_next_compact2",
            types.FindNextCompactRequest(workerId="other-1", workerVersion="1", poolName="elsewhere"),
        ).ci
        (refused,) = compact("elsewhere", CompactionKind.MINOR)
        assert refused.state == "refused"
        assert "another worker is compacting it" in refused.message
        client.call("mark_failed", taken)
    assert compact("elsewhere", CompactionKind.MINOR)[0].state == "compacted"


@pytest.mark.parametrize(
    ("pool_name", "waits", "asked"),
    [
        (None, CompactionKind.MAJOR, CompactionKind.MINOR),
        ("default", CompactionKind.MAJOR, CompactionKind.MAJOR),
        ("another", CompactionKind.MINOR, CompactionKind.MINOR),
    ],
)
def test_a_request_that_waits_already_is_served(
    settings: MetastoreSettings,
    changed: Callable[..., None],
    compact: Callable[..., list[CompactionReport]],
    pool_name: str | None,
    waits: CompactionKind,
    asked: CompactionKind,
) -> None:
    table = f"waits_{pool_name}".lower()
    changed(table)
    with MetastoreClient(settings) as client:
        (waiting,) = request_compaction(client, f"{DATABASE}.{table}", waits, pool_name=pool_name)
    (report,) = compact(table, asked)
    assert (report.state, report.id, report.kind) == ("compacted", waiting.id, waits.value)
