"""A Hive 3.1 metastore as a source: its compactor's worker, its cleaner, its listener."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from airflow_hive_federation.acid.markers import chosen
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import AcidFormatError, FailoverError, UnsupportedMethodError
from airflow_hive_federation.metastore import MetastoreClient, MetastorePool, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.cycle import load_dump
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain
from airflow_hive_federation.replication.failover import mark_source
from airflow_hive_federation.replication.groups.status import plan_group, read_group_status
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.take_over import take_over
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.storage.listing import list_files
from airflow_hive_federation.transactions.keeping import KeptFiles
from airflow_hive_federation.transactions.locks import TableWrite, WriteKind
from airflow_hive_federation.transactions.snapshots import Snapshot
from airflow_hive_federation.transactions.transaction import Transaction
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support.cycling import Scheduled
from tests.support.groups import DATABASES, grouped
from tests.support.history_files import insert_rows, prepare_partitions
from tests.support.history_runs import Servers, run_history
from tests.support.hive_3_histories import HIVE_3, Hive3, hive_3_sql
from tests.support.incrementing import run_copy
from tests.support.small_source import add_partition, make_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
DATABASE = "from_hive_3"
ROWS = pa.schema([("a", pa.int32()), ("b", pa.string())])
#: Hive makes the names of locks lower-case.
PARTITION = "p=A b"
PATIENT = PollPolicy(first_s=0.2, longest_s=0.5, timeout_s=240)


@pytest.fixture(scope="module")
def far(hive_3: str) -> Iterator[MetastoreClient]:
    with MetastoreClient(MetastoreSettings(uris=(hive_3,))) as client:
        client.create_database(
            types.Database(name=DATABASE, ownerName="root", ownerType=types.PrincipalType.USER)
        )
        yield client
        client.drop_database(DATABASE, delete_data=True, cascade=True, if_exists=True)


def insert(far: MetastoreClient, table: str, number: int) -> None:
    """Insert a row with the transaction of its number, as Hive 3.1 names files."""
    with Transaction(far) as transaction:
        write = TableWrite(database=DATABASE, table=table, kind=WriteKind.INSERT, dynamic=True)
        transaction.lock([write])
        write_id = transaction.write_id(DATABASE, table)
        (where,) = prepare_partitions(far, transaction, DATABASE, table, ["A b"]).values()
        insert_rows(where, write_id, [{"a": number, "b": "x"}], ROWS, acid=True, bucket="bucket_00000")


def place(far: MetastoreClient, table: str) -> Path:
    (partition,) = far.iter_partitions(DATABASE, table, names=[PARTITION])
    return Path(local_path(partition.sd.location) or "")  # type: ignore[union-attr,arg-type]


def directories(far: MetastoreClient, table: str) -> set[str]:
    return {path.name for path in place(far, table).iterdir()}


def is_cleaned(far: MetastoreClient, table: str) -> bool:
    return wait_until(
        lambda: {name.partition("_")[0] for name in directories(far, table)} == {"base"},
        PATIENT,
    )


def chosen_now(far: MetastoreClient, snapshot: Snapshot) -> set[str]:
    """Return the directories that a reader of the snapshot opens."""
    uri = f"file:{place(far, 'read_now')}"
    state = chosen(uri, list_files(uri), snapshot.write_ids, snapshot.txns, None)
    return {directory.path for directory in state.directories}


def compact(far: MetastoreClient, tables: Sequence[str]) -> None:
    for table in tables:
        far.call(
            "compact2",
            types.CompactionRequest(
                dbname=DATABASE, tablename=table, partitionname=PARTITION, type=types.CompactionType.MAJOR
            ),
        )


def compacted(far: MetastoreClient) -> set[str]:
    """Return the tables that await the cleaner, or are cleaned."""
    queue = far.call("show_compact", types.ShowCompactRequest()).compacts
    return {entry.tablename for entry in queue if entry.state in {"ready for cleaning", "succeeded"}}


def policy_of(target: EmbeddedMetastore, root: Path, **fields: Any) -> ReplicationPolicy:
    return ReplicationPolicy(
        **{
            "name": DATABASE,
            "source_database": DATABASE,
            "dump_root": f"file:{root}/dumps",
            "external_base": f"file:{target.external_warehouse}/{DATABASE}_base",
            **fields,
        }
    )


@pytest.fixture
def both(hive_3: str, target: EmbeddedMetastore, spark: SparkSession, tmp_path: Path) -> Iterator[Scheduled]:
    with (
        MetastorePool(MetastoreSettings(uris=(hive_3,)), 4) as source_pool,
        MetastorePool(MetastoreSettings(uris=(target.uri,)), 4) as target_pool,
    ):
        yield Scheduled(source_pool, target_pool, policy_of(target, tmp_path), spark)


def test_the_cleaner_waits_for_a_reader_and_for_a_dump(far: MetastoreClient, both: Scheduled) -> None:
    tables = ["read_now", "dumped", "free"]
    for table in tables:
        make_table(far, DATABASE, table, partitioned=True)
        for number in (1, 2):
            insert(far, table, number)
    both.change(include_tables="dumped", target_database=f"{DATABASE}_kept")
    dump = dump_bootstrap(both.source, both.policy, begin_drain(far, DATABASE)).dump
    with Transaction(far, read_only=True) as reader:
        reader.lock_to_read([f"{DATABASE}.read_now"])
        snapshot = reader.snapshot(DATABASE, "read_now")
        assert chosen_now(far, snapshot) == directories(far, "read_now")
        for table in tables:
            # The compaction goes beyond what reader and dump may see.
            insert(far, table, 3)
        compact(far, ["read_now", "dumped"])
        assert wait_until(lambda: compacted(far) >= {"read_now", "dumped"}, PATIENT)
        # A round of the cleaner takes all that await it.
        compact(far, ["free"])
        assert is_cleaned(far, "free")
        for table in ("read_now", "dumped"):
            assert len([name for name in directories(far, table) if name.startswith("delta_")]) == 3
            assert "base_0000003" in directories(far, table)
        # Hive's rule: whoever lists only now cannot know that all deltas are there.
        with pytest.raises(AcidFormatError, match="Not enough history"):
            chosen_now(far, snapshot)
        load_dump(both.source, both.target, both.policy, dump, run_copy=run_copy)
    assert is_cleaned(far, "read_now")
    assert is_cleaned(far, "dumped")


def test_partitions_that_come_between_locks_and_snapshot(far: MetastoreClient) -> None:
    make_table(far, DATABASE, "acid", partitioned=True)
    names = [f"{DATABASE}.acid"]
    taken: list[set[str]] = []

    def snapshot() -> None:
        if len(taken) < 2:
            add_partition(far, DATABASE, str(len(taken)))
        taken.append({str(lock.partname) for lock in far.show_locks(txn_id=txn)})

    (txn,) = far.open_txns()
    KeptFiles(far, txn).take(lambda: names, snapshot)
    assert taken == [{"None"}, {"None", "p=0"}, {"None", "p=0", "p=1"}]
    far.commit_txn(txn)


def test_truncated_tables_and_partitions_lose_their_rows(
    far: MetastoreClient, both: Scheduled, hive_sql_target: HiveSql
) -> None:
    """Hive 3.1 removes the files, and leaves no directory that hides them on the target."""
    tables = {"emptied": None, "emptied_part": [PARTITION]}
    for table, partitions in tables.items():
        make_table(far, DATABASE, table, partitioned=bool(partitions))
        insert(far, table, 1)
    both.change(include_tables="emptied.*", target_database=f"{DATABASE}_emptied")
    both.cycle()
    for table, partitions in tables.items():
        far.call("truncate_table", DATABASE, table, partitions)
        insert(far, table, 2)
    both.cycle()
    for table in tables:
        assert hive_sql_target.execute(f"SELECT a FROM {DATABASE}_emptied.{table}") == [("2",)]


def test_it_is_no_target(hive_3: str, far: MetastoreClient, both: Scheduled) -> None:
    both.target, both.source = both.source, both.target
    before = far.list_databases()
    both.change(source_database="default", target_database="to_hive_3")
    with pytest.raises(UnsupportedMethodError, match="get_max_allocated_table_write_id"):
        both.cycle()
    assert far.list_databases() == before


def test_the_cut_over_to_hive_4(far: MetastoreClient, both: Scheduled) -> None:
    """A migration ends by a take-over, because Hive 3.1 cannot become the replica of a failover."""
    database = f"{DATABASE}_moved"
    both.change(name=database, target_database=database, include_tables="moved")
    make_table(far, DATABASE, "moved", partitioned=True)
    insert(far, "moved", 1)
    dump = dump_bootstrap(both.source, both.policy, begin_drain(far, DATABASE)).dump
    load_dump(both.source, both.target, both.policy, dump, run_copy=run_copy)
    with pytest.raises(UnsupportedMethodError, match=f"source database {DATABASE} cannot hold") as refused:
        mark_source(both.source, both.target, both.policy)
    assert "take the target over" in refused.value.remedy
    assert markers.FAILOVER not in (far.get_database(DATABASE).parameters or {})
    with pytest.raises(FailoverError, match=f"answers, and has database {DATABASE}"):
        take_over(both.source, both.target, both.policy)
    with both.target.client() as client:
        assert (client.get_database(database).parameters or {})[markers.READ_ONLY] == "true"
        with MetastorePool(MetastoreSettings(uris=("thrift://127.0.0.1:1",)), 1) as nowhere:
            taken = take_over(nowhere, both.target, both.policy)
        assert (taken.database, taken.removed) == (database, 0)
        assert not {markers.READ_ONLY, markers.POLICY} & set(client.get_database(database).parameters or {})
        assert client.list_partition_names(database, "moved") == [PARTITION]


def test_the_replica_of_a_history_is_equal_after_every_cycle(
    hive_3: str, target: EmbeddedMetastore, hive_sql_target: HiveSql, spark: SparkSession, tmp_path: Path
) -> None:
    with hive_3_sql(hive_3, tmp_path / "sql") as sql:
        source = Hive3(hive_3, tmp_path / "external")
        servers = Servers(source, target, sql, hive_sql_target, spark, HIVE_3)
        done = run_history(servers, 1, 12, tmp_path / "history", cuts=1.0)
    assert done.cuts
    assert not done.refused


def test_a_group_of_databases(hive_3: str, target: EmbeddedMetastore, tmp_path: Path) -> None:
    orders, _ = DATABASES
    with grouped(hive_3, target.uri, tmp_path) as site:
        site.commit()
        site.cycle()
        still_open = site.begin([orders])
        site.commit()
        # Its databases have no owner, and those of a target that has none could not be altered any more.
        with site.source.client() as client:
            database = client.get_database(orders)
            assert database.ownerName is None
            database.parameters = {"team": "one"}
            client.alter_database(orders, database)
        # The events name the tables of the write ids: no table is copied anew.
        plan = plan_group(site.source, site.target, site.group)
        assert [(member.transactions, member.files) for member in plan.members] == [(1, 1), (1, 1)]
        site.cycle()
        assert site.visible() == site.source_visible()
        site.end(still_open)
        site.cycle()
        of_source, of_target = site.files()
        assert of_target == of_source
        assert site.visible() == site.source_visible()
        assert site.cycle().idle
        assert read_group_status(site.source, site.target, site.group).one_moment
