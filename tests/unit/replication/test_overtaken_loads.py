"""A later load was killed after it had dropped partitions that an earlier load needs."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.errors import FailoverError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.replication import overtaken_loads, take_over
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.format.kinds import DumpKind, TableKind, TableWork
from airflow_hive_federation.replication.format.manifest import TableChanges, TableEntry
from airflow_hive_federation.replication.format.tables import PartitionLine, TableDocument
from airflow_hive_federation.replication.format.unfinished import COPY_PLAN, MADE_ROOM, cleared_since
from airflow_hive_federation.replication.overtaken_loads import OvertakenError
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.layout import TargetLayout
from airflow_hive_federation.storage.filesystem import canonical
from airflow_hive_federation.storage.plan_files import write_bound_plan
from tests.support.dumps import manifest

#: Name of the dump from which the target was loaded.
LOADED = "0-0-0"


@pytest.fixture
def policy(tmp_path: Path) -> ReplicationPolicy:
    return ReplicationPolicy(name="p", source_database="d", dump_root=tmp_path.as_uri())


def write_dump(
    policy: ReplicationPolicy, event_id: int, places: dict[str, str], *gone: str, **fields: Any
) -> DumpDirectory:
    """Write an increment that describes partitions of table ``t`` and a file in each.

    :param places: path of each partition's directory below the source's table, by the partition's name.
    """
    dump = DumpDirectory(f"{policy.directory}/1-{event_id}-0")
    table = types.Table(
        dbName="d",
        tableName="t",
        sd=types.StorageDescriptor(location="file:/src/t"),
        partitionKeys=[types.FieldSchema(name="p", type="string")],
    )
    dump.write_table(TableDocument(table=table, kind=TableKind.FULL_ACID))
    lines, files = [], []
    for name, place in places.items():
        location = f"file:/src/t/{place}"
        partition = types.Partition(
            values=[name.partition("=")[2]], sd=types.StorageDescriptor(location=location), parameters={}
        )
        lines.append(PartitionLine.of(name, partition))
        path = "delta_0000001_0000001_0000/bucket_00000"
        files.append(
            VisibleFile(
                directory=location,
                partition=name,
                path=path,
                target_path=path,
                size_bytes=1,
                modified_ns=1,
            )
        )
    dump.write_partitions("t", lines)
    dump.write_files("t", files)
    changes = TableChanges(gone=gone)
    entry = TableEntry(name="t", kind=TableKind.FULL_ACID, work=TableWork.CONTINUE, recorded_changes=changes)
    fields = {"previous": f"{policy.directory}/{LOADED}", **fields}
    dump.finish_dump(manifest(entry, kind=DumpKind.INCREMENT, event_id=event_id, **fields))
    return dump


def test_partitions_dropped_because_they_are_gone_and_in_the_way(
    policy: ReplicationPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later load needs the directory of ``p=1`` for ``p=3``; it would drop ``p=2`` at its end only."""
    layout = TargetLayout(policy=policy, managed="file:/w")
    monkeypatch.setattr(overtaken_loads, "find_layout", lambda *_: layout)
    earlier = write_dump(policy, 5, {"p=1": "p=1", "p=2": "p=2"})
    later = write_dump(policy, 6, {"p=3": "p=1"}, "p=1", "p=2")
    # It was killed before it wrote its copy plan.
    later.add_lines(MADE_ROOM, ())
    client: Any = None
    found = overtaken_loads.overtaken_files(client, policy, earlier, [later.uri])
    root = canonical(layout.managed)
    assert {uri.removeprefix(f"{root}/") for uri in found} == {
        "t/p=1/delta_0000001_0000001_0000/bucket_00000"
    }


def test_a_load_that_was_killed_before_its_copy_plan_has_overtaken_an_earlier_one(
    policy: ReplicationPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = TargetLayout(policy=policy, managed="file:/w")
    for module in (overtaken_loads, take_over):
        monkeypatch.setattr(module, "find_layout", lambda *_: layout)
    DumpDirectory(f"{policy.directory}/{LOADED}").finish_dump(manifest())
    earlier = write_dump(policy, 5, {"p=1": "p=1"})
    later = write_dump(policy, 7, {"p=3": "p=1"}, "p=1")
    lost = f"{layout.managed}/t/p=1/delta_0000001_0000001_0000/bucket_00000"
    plan, _ = write_bound_plan(
        f"{earlier.uri}/{COPY_PLAN}", [CopyItem(source="file:/src", target=lost, size_bytes=1)]
    )
    pool: Any = SimpleNamespace(client=lambda: nullcontext(SimpleNamespace(list_tables=lambda _: ["t"])))

    def end_load() -> None:
        take_over.nothing_more_to_copy(pool, policy, earlier, ())(plan, f"{earlier.uri}/load/outcomes")

    # Somebody else has removed the file, and can mend that.
    with pytest.raises(FailoverError, match="was copied, and is gone"):
        end_load()
    later.add_lines(MADE_ROOM, ())
    with pytest.raises(OvertakenError, match="dropped or replaced"):
        end_load()


def test_only_later_loads_from_the_same_position_overtake(policy: ReplicationPolicy) -> None:
    before = write_dump(policy, 3, {})
    known = write_dump(policy, 6, {})
    earlier = write_dump(policy, 5, {}, begun=(known.uri,))
    later = write_dump(policy, 7, {})
    elsewhere = write_dump(policy, 8, {}, previous="file:/dumps/p/other")
    for dump in (before, known, earlier, later, elsewhere):
        dump.add_lines(MADE_ROOM, ())
    write_dump(policy, 9, {})
    assert cleared_since(policy, earlier) == [later.uri]
