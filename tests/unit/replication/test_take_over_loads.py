"""A take-over ends the load that was copied, without the source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.errors import FailoverError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyItem, CopyOutcome
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.progress.observers import Steps, unobserved
from airflow_hive_federation.replication import left_files, overtaken_loads, take_over
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import DumpKind, TableKind, TableWork
from airflow_hive_federation.replication.format.manifest import TableChanges, TableEntry
from airflow_hive_federation.replication.format.unfinished import begun_since, unsettled_loads
from airflow_hive_federation.replication.overtaken_loads import OvertakenError
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.take_over import is_copied, last_copied, nothing_to_copy
from airflow_hive_federation.storage.digests import digest_file
from airflow_hive_federation.storage.filesystem import canonical
from airflow_hive_federation.storage.plan_files import write_bound_plan, write_records
from tests.support.dumps import manifest

WORKS = {"t": TableWork.CONTINUE, "made": TableWork.CREATE}


@pytest.mark.parametrize("hidden", ["", "_hive_federation/"])
def test_a_load_with_a_file_of_a_streaming_batch_is_copied(tmp_path: Path, hidden: str) -> None:
    """Its plan lists the file at each run; an earlier run may have copied it to a hidden directory."""
    dump = DumpDirectory(f"file:{tmp_path}/dump")
    place, outcomes = tmp_path / "t" / "delta_0000001_0000004" / "bucket_00000", f"{dump.uri}/load/outcomes"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"rows")
    item = CopyItem(
        source="file:/source/bucket_00000",
        target=f"file:{place}",
        size_bytes=5000,
        visible_write_ids="d.t:4:3:3,4:",
    )
    plan, _ = write_bound_plan(f"{dump.uri}/load/copy_plan.jsonl", [item])
    copy = nothing_to_copy(None)
    assert not is_copied(dump)
    with pytest.raises(FailoverError, match="was copied, and is gone"):
        copy(plan, outcomes)
    outcome = CopyOutcome(
        target=f"file:{tmp_path}/t/{hidden}delta_0000001_0000004/bucket_00000",
        size_bytes=place.stat().st_size,
        digest=digest_file(item.target).digest,
        copied=True,
    )
    write_records(f"{outcomes}/run.jsonl", [outcome])
    assert is_copied(dump)
    copy(plan, outcomes)
    place.write_bytes(bytes(place.stat().st_size))
    with pytest.raises(FailoverError, match="was copied, and is gone"):
        copy(plan, outcomes)
    place.unlink()
    with pytest.raises(FailoverError, match="was copied, and is gone"):
        copy(plan, outcomes)


def test_the_last_load_that_has_copied_all_may_be_ended(tmp_path: Path) -> None:
    """The user, the policy and an earlier version of it may write the directory of dumps differently."""

    def dump(name: str, *begun: DumpDirectory, items: tuple[CopyItem, ...] = ()) -> DumpDirectory:
        made = DumpDirectory((tmp_path / name).as_uri())
        names = tuple(other.uri.replace("file:///", "file:/") for other in begun)
        made.finish_dump(manifest(kind=DumpKind.INCREMENT, previous="file:///0", begun=names))
        write_bound_plan(f"{made.uri}/load/copy_plan.jsonl", items)
        return made

    first = dump("1-5-6")
    second = dump("1-7-8", first)
    third = dump("1-9-9", first, second, items=(CopyItem(source="file:/a", target="file:/b", size_bytes=1),))
    for unfinished in ([first, second, third], [third, second, first]):
        assert last_copied(unfinished) is second
    assert last_copied([third]) is None
    assert begun_since(second, [first.uri, third.uri]) == [third.uri]


def test_a_take_over_that_was_killed_finds_the_later_loads_of_the_one_it_ended(tmp_path: Path) -> None:
    policy = ReplicationPolicy(name="p", source_database="d", dump_root=tmp_path.as_uri())

    def dump(name: str, previous: str, *begun: str) -> str:
        made = DumpDirectory(f"{policy.directory}/{name}")
        kind = DumpKind.INCREMENT if previous else DumpKind.BOOTSTRAP
        made.finish_dump(manifest(kind=kind, previous=previous, begun=begun))
        write_bound_plan(f"{made.uri}/load/copy_plan.jsonl", ())
        return made.uri

    given_up, bootstrap = dump("1-1-1", ""), dump("1-2-2", "")
    ended = dump("1-3-3", bootstrap, given_up, bootstrap)
    later = dump("1-4-4", bootstrap, given_up, bootstrap, ended)
    assert [each.uri for each in unsettled_loads(policy, bootstrap)] == [ended, later]
    assert [each.uri for each in unsettled_loads(policy, ended)] == [later]
    assert unsettled_loads(policy, later) == []


def test_a_later_load_may_have_replaced_the_file_of_a_streaming_batch_only(tmp_path: Path) -> None:
    plan, outcomes = (f"{tmp_path.as_uri()}/{name}" for name in ("plan.jsonl", "outcomes"))
    place = tmp_path / "bucket_00000"
    place.write_bytes(b"rows")
    item = CopyItem(source="file:/source", target=place.as_uri(), size_bytes=8, visible_write_ids="d.t:2:2::")
    copied = CopyOutcome(
        target=item.target, size_bytes=4, digest=digest_file(item.target).digest, copied=True
    )
    write_records(f"{outcomes}/run.jsonl", [copied])
    place.write_bytes(b"rows and more")
    overtaken = {canonical(item.target)}
    for visible in (item.visible_write_ids, ""):
        write_bound_plan(plan, [replace(item, visible_write_ids=visible)])
        copy = nothing_to_copy(None, overtaken)
        if visible:
            copy(plan, outcomes)
        else:
            with pytest.raises(OvertakenError, match="dropped or replaced"):
                copy(plan, outcomes)
        # No later load has done this, so somebody can mend it.
        with pytest.raises(FailoverError, match="has other bytes"):
            nothing_to_copy(None)(plan, outcomes)
    place.unlink()
    write_bound_plan(plan, [item])
    with pytest.raises(OvertakenError, match="dropped or replaced"):
        nothing_to_copy(None, overtaken)(plan, outcomes)


def test_a_load_is_overtaken_by_those_that_drop_or_replace_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = ReplicationPolicy(name="p", source_database="d", dump_root=tmp_path.as_uri())

    def entry(name: str, work: TableWork, *renewed: str) -> TableEntry:
        changes = TableChanges(renewed=renewed)
        return TableEntry(name=name, kind=TableKind.FULL_ACID, work=work, recorded_changes=changes)

    names = ("anew", "in_part", "plain", "other")
    files = [
        SimpleNamespace(partition=partition, uri=f"{name}/{partition}/f")
        for name in names
        for partition in ("p=1", "p=2")
    ]
    dump: Any = SimpleNamespace(
        manifest=lambda: SimpleNamespace(changed_tables=[entry(name, TableWork.CONTINUE) for name in names]),
        table=lambda name: name,
        files=lambda name, only: [file for file in files if file.uri.startswith(name)],
    )
    later = DumpDirectory(f"{policy.directory}/1-2-3")
    works = (entry("anew", TableWork.REPLACE), entry("in_part", TableWork.CONTINUE, "p=2"))
    later.finish_dump(manifest(*works, entry("plain", TableWork.CONTINUE), kind=DumpKind.INCREMENT))
    copied = CopyItem(source="file:/plain/p=1/f", target="file:/t/plain/p=1/f", size_bytes=1)
    write_bound_plan(f"{later.uri}/load/copy_plan.jsonl", [copied])
    layout = SimpleNamespace(file=lambda _, file: f"file:/t/{file.uri}")
    monkeypatch.setattr(overtaken_loads, "find_layout", lambda *_: layout)

    def target(*there: str) -> Any:
        return SimpleNamespace(list_tables=lambda _: there)

    found = overtaken_loads.overtaken_files(target(), policy, dump, [later.uri])
    assert sorted(uri.partition("/t/")[2] for uri in found) == [
        "anew/p=1/f",
        "anew/p=2/f",
        "in_part/p=2/f",
        "plain/p=1/f",
    ]
    overtaken_loads.refuse_dropped(target(*names), policy, dump, [later.uri])
    with pytest.raises(OvertakenError, match=r"d\.anew was dropped"):
        overtaken_loads.refuse_dropped(target(*names[1:]), policy, dump, [later.uri])
    # The later load has dropped neither of these: somebody else has.
    overtaken_loads.refuse_dropped(target(*names[:2]), policy, dump, [later.uri])


def test_a_file_that_the_load_did_not_have_to_copy_is_as_it_was(tmp_path: Path) -> None:
    """Its plan lists the file, because a later load was about to replace it."""
    place, plan = tmp_path / "part-0", f"{tmp_path.as_uri()}/plan.jsonl"
    place.write_bytes(b"rows")
    item = CopyItem(source="file:/source", target=place.as_uri(), size_bytes=4)
    write_bound_plan(plan, [item])
    before = {canonical(item.target): digest_file(item.target).digest}
    nothing_to_copy(None, (), before)(plan, f"{tmp_path.as_uri()}/outcomes")
    place.write_bytes(b"seen")
    with pytest.raises(FailoverError, match="has other bytes"):
        nothing_to_copy(None, (), before)(plan, f"{tmp_path.as_uri()}/outcomes")


def test_files_of_later_loads_make_way_for_the_load_that_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Write ids 2 to 5 are open: 2 and 3 are of the load, of which it also has a hidden directory."""
    needed = ["t/p=1/delta_2_2/b", "t/p=1/delta_3_3/b", "t/p=2/base_3/b", "made/delta_1_1/b"]
    staying = ["t/p=1/base_1/b", "t/p=1/delta_1_4/b"]
    later = ["t/p=1/delta_2_5/b", "t/p=1/_hive_federation/base_5/b", "t/p=2/delta_5_5/b", "made/delta_2_2/b"]
    hidden = "t/p=2/_hive_federation/base_3/b"
    for path in (*needed[:2], hidden, needed[3], *staying, *later):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    entries = [TableEntry(name=name, kind=TableKind.FULL_ACID, work=work) for name, work in WORKS.items()]
    dump: Any = SimpleNamespace(
        manifest=lambda: SimpleNamespace(changed_tables=entries, tables=entries),
        table=lambda name: SimpleNamespace(location=name),
        files=lambda name, only: [path for path in needed if path.startswith(f"{name}/")],
    )
    layout = SimpleNamespace(
        file=lambda _, path: f"{tmp_path.as_uri()}/{path}",
        directory=lambda _, location, __: f"{tmp_path.as_uri()}/{location}",
    )
    table = types.Table(dbName="d", tableName="t", tableType="MANAGED_TABLE")
    table.parameters = {"transactional": "true"}
    table.sd = types.StorageDescriptor(location=f"{tmp_path.as_uri()}/t")
    write_ids = ValidWriteIds(high_watermark=5, open_ids=(2, 3, 4, 5), min_open_id=2)
    monkeypatch.setattr(take_over, "find_layout", lambda *_: layout)
    monkeypatch.setattr(left_files, "readable_write_ids", lambda *_: {"t": write_ids})
    monkeypatch.setattr(left_files, "valid_transactions", lambda _: None)
    client: Any = SimpleNamespace(
        list_tables=lambda _: ["t"], get_tables=lambda *_: [table], get_open_txns=lambda: None
    )
    policy = ReplicationPolicy(name="p", source_database="d", dump_root=tmp_path.as_uri())
    steps = Steps(unobserved, "d")
    removed = take_over.make_way(client, policy, dump, [dump], check=lambda: None, step=steps)
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("b")}
    assert left == {*needed[:2], hidden, needed[3], *staying}
    assert removed == len(later)
