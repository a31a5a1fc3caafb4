"""Files of statements become part of a table: partitions first, then names, and no position is set back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.errors import ConfigurationError, TransactionAbortedError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.tables.write.plan import StagedFile, table_layout
from airflow_hive_federation.tables.write.publish import Publication, Statement, publish
from airflow_hive_federation.transactions.locks import WriteKind
from airflow_hive_federation.transactions.positions import unguarded
from airflow_hive_federation.transactions.snapshots import take_snapshots
from tests.support.memory_metastore import MemoryMetastore
from tests.support.small_source import storage

ACCURATE = "COLUMN_STATS_ACCURATE"
KEY, OTHER = "_meta.a", "_meta.b"


@pytest.fixture
def metastore(tmp_path: Path) -> MemoryMetastore:
    """A metastore with the tables ``d.plain`` and ``d.parted``, which has the partition p=a."""
    made = MemoryMetastore(f"file:{tmp_path}")
    for name, keys in (("plain", []), ("parted", ["p"])):
        table = types.Table(
            dbName="d",
            tableName=name,
            sd=storage(f"file:{tmp_path}/{name}"),
            partitionKeys=[types.FieldSchema(name=key, type="string") for key in keys],
            parameters={"transactional": "true", "bucketing_version": "2"},
            tableType="MANAGED_TABLE",
        )
        made.put_table(table, *([partition(f"file:{tmp_path}/parted/p=a", "a")] if keys else []))
    return made


@pytest.fixture
def client(metastore: MemoryMetastore) -> Iterator[MetastoreClient]:
    with metastore.served() as settings, MetastoreClient(settings) as connected:
        yield connected


def partition(location: str, value: str) -> types.Partition:
    return types.Partition(
        dbName="d", tableName="parted", values=[value], sd=storage(location), parameters={}
    )


def publication(
    client: MetastoreClient,
    tmp_path: Path,
    kind: WriteKind,
    values: Sequence[str],
    *,
    number: int = 0,
    own: Sequence[str] = (),
    check: Callable[[], None] = unguarded,
) -> Publication:
    """Return a statement of transaction 5 with a staged file per partition; of ``plain`` without values."""
    described: Any = client.get_table("d", "parted" if values else "plain")
    transaction: Any = SimpleNamespace(
        id=5,
        on_abort=lambda _clean_up: None,
        own_positions={*own},
        check=check,
        snapshot=lambda database, table: take_snapshots(client, [f"{database}.{table}"])[
            f"{database}.{table}"
        ],
    )
    files = []
    for texts in [(value,) for value in values] or [()]:
        staged = tmp_path / "staged" / "-".join([str(number), *texts])
        staged.parent.mkdir(exist_ok=True)
        staged.write_text("rows")
        files.append(
            StagedFile(
                path=f"file:{staged}",
                values=texts,
                bucket=0,
                row_count=1,
                size_bytes=4,
                deletes=kind is WriteKind.DELETE,
            )
        )
    statement = Statement(
        client=client,
        transaction=transaction,
        layout=table_layout(described),
        write_id=5,
        statement_id=number,
        kind=kind,
        static_values=None if values else (),
        storage_options=None,
    )
    return Publication(statement=statement, files=files)


def written(tmp_path: Path) -> list[str]:
    """Return the files that have their final names."""
    return sorted(
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("bucket_*") if path.parent.name != "staged"
    )


def test_all_partitions_of_a_merge_are_registered_before_a_file_has_its_name(
    metastore: MemoryMetastore, client: MetastoreClient, tmp_path: Path
) -> None:
    """Killed between two statements, rows of a partition without registration would become visible."""
    seen: list[tuple[list[str], list[str], bool]] = []

    def registers(args: Any) -> None:
        exists = {*args.rqst.partitionnames} <= {*metastore.partitions["d", "parted"]}
        seen.append((args.rqst.partitionnames, written(tmp_path), exists))

    metastore.before["add_dynamic_partitions"] = registers
    deleted = publication(client, tmp_path, WriteKind.DELETE, ["a"])
    inserted = publication(client, tmp_path, WriteKind.INSERT, ["b", "c"], number=1)
    publish([deleted, inserted])
    assert seen == [(["p=a"], [], True), (["p=b", "p=c"], [], True)]
    assert written(tmp_path) == [
        "parted/p=a/delete_delta_0000005_0000005_0000/bucket_00000_0",
        "parted/p=b/delta_0000005_0000005_0001/bucket_00000_0",
        "parted/p=c/delta_0000005_0000005_0001/bucket_00000_0",
    ]
    assert metastore.calls.count("add_write_notification_log") == 3


def test_a_partition_that_another_writer_has_made_first_gets_the_files(
    metastore: MemoryMetastore, client: MetastoreClient, tmp_path: Path
) -> None:
    def first(_args: Any) -> None:
        metastore.partitions["d", "parted"]["p=x"] = partition(f"file:{tmp_path}/theirs/", "x")

    named: list[str] = []
    metastore.before["add_partitions_req"] = first
    metastore.before["add_write_notification_log"] = lambda args: named.extend(args.rqst.fileInfo.filesAdded)
    publish([publication(client, tmp_path, WriteKind.INSERT, ["x"])])
    assert written(tmp_path) == ["theirs/delta_0000005_0000005_0000/bucket_00000_0"]
    assert named == [f"file:{tmp_path}/theirs/delta_0000005_0000005_0000/bucket_00000_0"]


def test_a_partition_that_another_writer_has_made_otherwise_is_refused(
    metastore: MemoryMetastore, client: MetastoreClient, tmp_path: Path
) -> None:
    def first(_args: Any) -> None:
        theirs: Any = partition(f"file:{tmp_path}/theirs", "x")
        theirs.sd.outputFormat = "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat"
        metastore.partitions["d", "parted"]["p=x"] = theirs

    metastore.before["add_partitions_req"] = first
    with pytest.raises(ConfigurationError, match=r"Partition p=x of d\.parted is not stored as its table"):
        publish([publication(client, tmp_path, WriteKind.INSERT, ["x"])])
    assert written(tmp_path) == []


def test_a_refused_statement_creates_no_partition(
    metastore: MemoryMetastore, client: MetastoreClient, tmp_path: Path
) -> None:
    present = metastore.partitions["d", "parted"]["p=a"]
    present.sd.outputFormat = "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat"
    with pytest.raises(ConfigurationError, match=r"Partition p=a of d\.parted is not stored as its table"):
        publish([publication(client, tmp_path, WriteKind.INSERT, ["a", "x"])])
    assert "add_partitions_req" not in metastore.calls


def test_files_of_partitions_that_another_writer_has_placed_together(
    metastore: MemoryMetastore, client: MetastoreClient, tmp_path: Path
) -> None:
    def first(_args: Any) -> None:
        metastore.partitions["d", "parted"]["p=x"] = partition(f"file:{tmp_path}/parted/p=a", "x")

    metastore.before["add_partitions_req"] = first
    with pytest.raises(ConfigurationError, match="files of partitions p=a and p=x would replace each other"):
        publish([publication(client, tmp_path, WriteKind.INSERT, ["a", "x"])])
    assert written(tmp_path) == []


def test_a_partition_that_is_dropped_at_once(
    metastore: MemoryMetastore, client: MetastoreClient, tmp_path: Path
) -> None:
    def drop(_args: Any) -> None:
        del metastore.partitions["d", "parted"]["p=x"]

    metastore.after["add_partitions_req"] = drop
    with pytest.raises(ConfigurationError, match=r"p=x of d\.parted was dropped as soon as it was created"):
        publish([publication(client, tmp_path, WriteKind.INSERT, ["x"])])
    assert written(tmp_path) == []


def test_rows_of_a_missing_partition_cannot_be_deleted(
    metastore: MemoryMetastore, client: MetastoreClient, tmp_path: Path
) -> None:
    with pytest.raises(
        ConfigurationError, match=r"d\.parted has no partition \w+=x\. Remedy: Read the rows again"
    ):
        publish([publication(client, tmp_path, WriteKind.DELETE, ["x"])])
    assert "add_partitions_req" not in metastore.calls


@pytest.mark.parametrize("moment", ["add_write_notification_log", "alter_table_req"])
def test_a_position_is_not_set_back_with_the_statistics(
    metastore: MemoryMetastore, client: MetastoreClient, tmp_path: Path, moment: str
) -> None:
    metastore.tables["d", "plain"].parameters |= {ACCURATE: "{}", KEY: "1"}

    def move(_args: Any) -> None:
        del metastore.before[moment]
        metastore.tables["d", "plain"].parameters[KEY] = "2"

    metastore.before[moment] = move
    publish([publication(client, tmp_path, WriteKind.INSERT, [])])
    after = metastore.tables["d", "plain"].parameters
    assert (after[KEY], ACCURATE in after) == ("2", False)


def test_the_position_of_another_stream_than_the_callers_is_compared(
    metastore: MemoryMetastore, client: MetastoreClient, tmp_path: Path
) -> None:
    metastore.tables["d", "plain"].parameters |= {ACCURATE: "{}", KEY: "1", OTHER: "1"}

    def move(_args: Any) -> None:
        del metastore.before["alter_table_req"]
        metastore.tables["d", "plain"].parameters[OTHER] = "2"

    fences: list[str] = []
    metastore.before["lock"] = lambda args: fences.extend(
        component.tablename for component in args.rqst.component if "_meta" in component.tablename
    )
    metastore.before["alter_table_req"] = move
    publish([publication(client, tmp_path, WriteKind.INSERT, [], own=[KEY])])
    after = metastore.tables["d", "plain"].parameters
    assert (after[KEY], after[OTHER], ACCURATE in after) == ("1", "2", False)
    # Nobody else moves the caller's, and the metastore compares the other: no fence is waited for.
    assert fences == []


def test_statistics_of_partitions_are_withdrawn_as_they_are_after_the_files(
    metastore: MemoryMetastore, client: MetastoreClient, tmp_path: Path
) -> None:
    def analyse(_args: Any) -> None:
        metastore.partitions["d", "parted"]["p=a"].parameters |= {ACCURATE: "{}", "numRows": "7"}

    metastore.before["add_write_notification_log"] = analyse
    publish([publication(client, tmp_path, WriteKind.INSERT, ["a"])])
    assert metastore.partitions["d", "parted"]["p=a"].parameters == {"numRows": "7"}


@pytest.mark.parametrize("values", [[], ["a"]])
def test_cluster_metadata_outlives_withdrawn_statistics(
    values: list[str], metastore: MemoryMetastore, client: MetastoreClient, tmp_path: Path
) -> None:
    """A copy that is noted after the writer has read the table or partition keeps its note."""
    name = "parted" if values else "plain"
    described = metastore.partitions["d", "parted"]["p=a"] if values else metastore.tables["d", "plain"]
    described.parameters |= {ACCURATE: "{}"}
    locked: list[bool] = []

    def note(_args: Any) -> None:
        described.parameters["hive.cluster.secondary.C2"] = "file:/copy"

    metastore.before["lock"] = note
    alter = "alter_partitions_req" if values else "alter_table_req"
    metastore.before[alter] = lambda _args: locked.append(bool(metastore.locks_of(f"{name}:metadata")))
    publish([publication(client, tmp_path, WriteKind.INSERT, values)])
    after = metastore.partitions["d", "parted"]["p=a"] if values else metastore.tables["d", "plain"]
    assert after.parameters["hive.cluster.secondary.C2"] == "file:/copy"
    assert ACCURATE not in after.parameters
    assert (locked, metastore.locks) == ([True], {})


def test_a_table_property_outlives_withdrawn_statistics(
    metastore: MemoryMetastore, client: MetastoreClient, tmp_path: Path
) -> None:
    """``ALTER TABLE … SET TBLPROPERTIES`` of Hive waits for no writer, and takes no lock of this package."""
    parameters = metastore.tables["d", "plain"].parameters
    parameters |= {ACCURATE: "{}", "transient_lastDdlTime": "1"}

    def set_property(_args: Any) -> None:
        del metastore.before["alter_table_req"]
        parameters.update({"transient_lastDdlTime": "2", "owned.by": "somebody"})

    metastore.before["alter_table_req"] = set_property
    publish([publication(client, tmp_path, WriteKind.INSERT, [])])
    after = metastore.tables["d", "plain"].parameters
    assert (after["owned.by"], ACCURATE in after) == ("somebody", False)


@pytest.mark.parametrize("values", [[], ["a"]])
def test_a_transaction_that_may_have_ended_withdraws_no_statistics(
    values: list[str], metastore: MemoryMetastore, client: MetastoreClient, tmp_path: Path
) -> None:
    """It may have been suspended, and another may have moved its position, or the partition, since then."""
    metastore.tables["d", "plain"].parameters |= {ACCURATE: "{}", KEY: "1", OTHER: "1"}
    metastore.partitions["d", "parted"]["p=a"].parameters = {ACCURATE: "{}"}

    def lost() -> None:
        raise TransactionAbortedError("no heartbeat was confirmed")

    with pytest.raises(TransactionAbortedError):
        publish([publication(client, tmp_path, WriteKind.INSERT, values, own=[KEY], check=lost)])
    assert metastore.writes == []
