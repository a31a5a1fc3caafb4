"""Makes documents of dumps and values of their fields, for tests of their readers and writers."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.replication.format.dumped_policy import DumpedPolicy
from airflow_hive_federation.replication.format.files import DataLocation, VisibleFile
from airflow_hive_federation.replication.format.job_records import PlannedDirectory, SidePlan, SideRows
from airflow_hive_federation.replication.format.kinds import DumpKind, TableKind, TableWork
from airflow_hive_federation.replication.format.manifest import (
    Manifest,
    RepairPlan,
    SourceEvent,
    TableChanges,
    TableEntry,
)
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.storage.snapshot_paths import SnapshotPath

counts = st.integers(0, 1 << 62)
wholes = st.integers(-(1 << 62), 1 << 62)
texts = st.text(max_size=8)
words = st.text("abcz_09ü ", min_size=1, max_size=6)
names = words.filter(str.strip)
table_names = st.one_of(names, st.builds("{}/{}".format, words, words))
partitions = st.builds("p={}".format, words)
locations = st.one_of(
    st.builds("hdfs://nn:8020/{}".format, words),
    st.builds("file:/{}/{}".format, words, words),
    st.builds("s3a://b/{}".format, words),
)
digests = st.text("0123456789abcdef", min_size=64, max_size=64)


def a_few(items: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(items, max_size=3).map(tuple)


def sets(items: st.SearchStrategy[Any]) -> st.SearchStrategy[frozenset[Any]]:
    return st.frozensets(items, max_size=3)


def maps(keys: st.SearchStrategy[Any], items: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[Any, Any]]:
    return st.dictionaries(keys, items, max_size=3)


policies = st.builds(
    ReplicationPolicy,
    name=st.just("p"),
    source_database=st.sampled_from(["d", "shop"]),
    dump_root=locations,
    external_base=st.none() | locations,
    external_authority=st.booleans(),
    functions_root=st.none() | locations,
    table_names=st.sampled_from([{}, {"a": "b"}]),
)
entries = st.builds(
    TableEntry,
    name=table_names,
    kind=st.sampled_from(TableKind),
    partitions=counts,
    files=counts,
    size_bytes=counts,
    reached=counts,
    partition_names=texts,
    dump=st.just("") | locations,
    work=st.none() | st.sampled_from(TableWork),
    recorded_changes=st.none()
    | st.builds(TableChanges, seed=counts, writes=counts, renewed=a_few(partitions), gone=a_few(partitions)),
    unsettled=a_few(partitions),
) | st.builds(
    TableEntry,
    name=table_names,
    kind=st.sampled_from(TableKind),
    dump=locations,
    work=st.just(TableWork.CONTINUE),
    recorded_changes=st.builds(TableChanges, concerned=a_few(partitions)),
    rest=a_few(locations),
)
shared = {
    "policy": policies.map(DumpedPolicy.of),
    "event_id": counts,
    "lease": counts,
    "tables": a_few(entries),
    "last_event": st.none() | st.builds(SourceEvent, id=counts, time=wholes, type=texts, message=texts),
    "adopted": a_few(table_names),
    "skipped": maps(table_names, texts),
    "partitions": counts,
    "files": maps(st.builds("files/{}.jsonl".format, words), digests),
}
repair_plans = st.builds(
    RepairPlan,
    tables=sets(table_names),
    replaced=sets(table_names),
    files=sets(locations),
    database=st.booleans(),
)
bootstraps = st.builds(
    Manifest, kind=st.just(DumpKind.BOOTSTRAP), dumped_files=counts, size_bytes=counts, **shared
)
increments = st.builds(
    Manifest,
    kind=st.just(DumpKind.INCREMENT),
    from_id=counts,
    previous=locations,
    begun=a_few(locations),
    events=counts,
    transactions=counts,
    open_writes=maps(counts, maps(table_names, counts)),
    functions_changed=st.booleans(),
    lost=st.booleans(),
    unreadable=a_few(texts),
    repair_plan=repair_plans,
    retained=a_few(table_names),
    dropped=a_few(table_names),
    functions_gone=a_few(names),
    **shared,
)
storages = st.builds(
    types.StorageDescriptor,
    location=st.none() | locations,
    cols=st.lists(st.builds(types.FieldSchema, name=words, type=words), max_size=2),
    numBuckets=st.integers(-1, 8),
)
tables = st.builds(
    types.Table,
    tableName=table_names,
    dbName=st.none() | names,
    createTime=st.none() | st.integers(0, 1 << 30),
    sd=st.none() | storages,
    partitionKeys=st.none() | st.lists(st.builds(types.FieldSchema, name=words), max_size=2),
    parameters=st.none() | maps(words, texts),
)
write_ids = st.none() | st.sampled_from(
    [ValidWriteIds.parse(f"d.t:{ids}") for ids in ("0:9223372036854775807::", "7:5:5:6", "3:2:2:")]
)
documents = st.builds(
    TableDocument,
    table=tables,
    kind=st.sampled_from(TableKind),
    constraints=st.builds(
        types.SQLAllTableConstraints,
        primaryKeys=st.none() | st.lists(st.builds(types.SQLPrimaryKey, pk_name=words), max_size=2),
    ),
    write_ids=write_ids,
    places=a_few(st.builds(DataLocation, partition=st.just("") | partitions, location=locations)),
    snapshots=st.sampled_from(
        [{}, {"hdfs://nn/d/t": SnapshotPath(root="hdfs://nn/d", name="s-1", path="t")}]
    ),
)
wire_partitions = st.builds(
    types.Partition,
    values=st.lists(texts, max_size=2),
    sd=storages,
    createTime=st.none() | st.integers(0, 1 << 30),
    parameters=st.none() | maps(words, texts),
)
#: Paths inside a directory, each with the path on the target.
paths = st.sampled_from(
    [
        ("000000_0", "000000_0"),
        ("p=1/a", "p=1/a"),
        ("base_0000005_v0000077/bucket_00000", "base_0000005/bucket_00000"),
        ("delta_0000001_0000001_0000/bucket_00000", "delta_0000001_0000001_0000/bucket_00000"),
    ]
)


@st.composite
def files(draw: st.DrawFn) -> VisibleFile:
    path, target_path = draw(paths)
    return VisibleFile(
        directory=draw(locations),
        partition=draw(st.just("") | partitions),
        path=path,
        target_path=target_path,
        size_bytes=draw(counts),
        modified_ns=draw(wholes),
        filtered=draw(st.booleans()),
        side_file=draw(st.sampled_from(["", "delta_0000001_0000001/bucket_00000_flush_length"])),
        kept=draw(st.just("") | locations),
        empty_base=draw(st.booleans()),
        renamed_from=draw(st.sampled_from(["", "p=1/a"])),
    )


rows = st.builds(
    SideRows,
    table=table_names,
    side=st.sampled_from(["source", "target"]),
    rows=st.none() | counts,
    row_digest=st.none() | texts,
    not_counted=st.none() | texts,
)
unreadable_rows = st.builds(
    SideRows, table=table_names, side=st.just("source"), unreadable=texts, vanished=st.booleans()
)
planned_directories = st.builds(
    PlannedDirectory,
    location=locations,
    storage=st.none() | st.integers(0, 3),
    files=a_few(st.builds(FileEntry, path=texts, size_bytes=counts)),
)
sides = st.builds(
    SidePlan,
    side=st.sampled_from(["source", "target"]),
    kind=st.sampled_from(TableKind),
    table=tables,
    write_ids=write_ids,
    storages=a_few(storages),
    directories=a_few(planned_directories),
    row_digests=st.booleans(),
)
