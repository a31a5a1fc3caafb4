"""The verification of a group's cycle compares the tables that the cycle changed."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.group_lines import MEMBERS
from airflow_hive_federation.replication.format.kinds import DumpKind, TableKind, TableWork
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.replication.group_policy import ReplicationGroup
from airflow_hive_federation.replication.groups import status
from airflow_hive_federation.replication.groups.status import recorded_dump, verify_group
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.cycle_history import (
    IDLE,
    INCREMENT,
    CycleRecord,
    with_cycle,
)
from airflow_hive_federation.replication.replica.differences import Difference
from airflow_hive_federation.replication.verify.report import (
    ReadFailure,
    VerificationReport,
    found_equal,
    write_report,
)
from tests.support.dumps import manifest

REPORT = VerificationReport(database="d_copy", event_id=1, tables=[])
DIFFERENT = VerificationReport(
    database="d_copy",
    event_id=1,
    tables=[],
    differences=[Difference(table="t", what="rows", expected="1", found="2")],
)
UNREAD = VerificationReport(
    database="d_copy",
    event_id=1,
    tables=[],
    failures=[ReadFailure(table="t", side="target", reason="damaged")],
)


def recorded(kinds: list[str]) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for number, kind in enumerate(kinds, 1):
        parameters |= with_cycle(parameters, CycleRecord(kind=kind, event_id=number, ended_s=number))
    return parameters


def test_the_last_report_of_a_dump(tmp_path: Path) -> None:
    directory = DumpDirectory(tmp_path.as_uri())
    assert not found_equal(directory)
    for report, equal in ((REPORT, True), (DIFFERENT, False), (REPORT, True), (UNREAD, False)):
        write_report(directory, report)
        assert found_equal(DumpDirectory(tmp_path.as_uri())) is equal
    for text in ("", "{", "[]", '{"differences": [], "failures": 0}'):
        (tmp_path / "_verified.json").write_text(text, encoding="utf-8")
        assert not found_equal(directory)


def test_the_last_record_of_a_group_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member without changes has an older dump, perhaps with the record of an older cycle."""
    policies = [
        ReplicationPolicy(name=name, source_database=name, dump_root=tmp_path.as_uri()) for name in "abc"
    ]
    dumps = {policy.name: DumpDirectory(f"{policy.directory}/1-2-3") for policy in policies}
    for event_id, dump in zip((5, 9, 9), dumps.values(), strict=True):
        dump.finish_dump(manifest(kind=DumpKind.INCREMENT, event_id=event_id))
    pool: Any = SimpleNamespace(client=nullcontext)
    monkeypatch.setattr(status, "loaded_dump", lambda _, policy: dumps[policy.name].uri)
    group = ReplicationGroup(name="g", policies=policies)
    assert recorded_dump(pool, group) == dumps["a"].uri
    dumps["a"].add_lines(MEMBERS, [])
    assert recorded_dump(pool, group) == dumps["a"].uri
    dumps["b"].add_lines(MEMBERS, [])
    assert recorded_dump(pool, group) == dumps["b"].uri


def test_a_member_is_compared_until_it_was_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = ReplicationPolicy(name="p", source_database="d", dump_root=tmp_path.as_uri())
    directory = DumpDirectory(f"{policy.directory}/1-2-3")
    tables = [
        TableEntry(name="changed", kind=TableKind.MANAGED, work=TableWork.CONTINUE),
        TableEntry(name="same", kind=TableKind.MANAGED, work=TableWork.NOTHING, dump="file:/dumps/p/0-0"),
    ]
    before = DumpDirectory(f"{policy.directory}/0-1-2")
    write_report(before, REPORT)
    directory.finish_dump(manifest(*tables, kind=DumpKind.INCREMENT, previous=before.uri))
    parameters = {**recorded([INCREMENT, IDLE, IDLE]), markers.CHECKPOINT: directory.uri}
    client = SimpleNamespace(get_database=lambda _: SimpleNamespace(parameters=parameters))
    pool: Any = SimpleNamespace(client=lambda: nullcontext(client))
    compared: list[Collection[str] | None] = []

    def verify(*_: Any, tables: Collection[str] | None, **__: Any) -> VerificationReport:
        compared.append(tables)
        return REPORT

    monkeypatch.setattr(status, "loaded_dump", lambda *_: directory.uri)
    monkeypatch.setattr(status, "verify_replica", verify)
    run: Any = None

    def compare(*, whole: bool = False) -> Collection[str] | None:
        verify_group(pool, pool, ReplicationGroup(name="g", policies=[policy]), run_verify=run, whole=whole)
        return compared.pop()

    assert compare() == {"changed"}
    write_report(directory, DIFFERENT)
    assert compare() == {"changed", "t"}
    write_report(directory, REPORT)
    assert compare() == set()
    assert compare(whole=True) is None
