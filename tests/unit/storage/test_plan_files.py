from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.errors import DumpCorruptError, FileVanishedError
from airflow_hive_federation.model.files import CopyItem, CopyOutcome
from airflow_hive_federation.storage import plan_files
from airflow_hive_federation.storage.plan_files import (
    read_outcomes,
    read_plan,
    write_bound_plan,
    write_plan,
    write_records,
)

ITEMS = [
    CopyItem(source="file:/s/é", target="file:/t/é", size_bytes=1),
    CopyItem(source="file:/s/b", target="file:/t/b", size_bytes=2, visible_write_ids="d.t:1:9:"),
]


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_plan_round_trip(scheme: str, tmp_path: Path) -> None:
    uri = f"{scheme}://{tmp_path}/dump/copy_plan.jsonl"
    assert write_plan(uri, iter(ITEMS)) == 2
    assert list(read_plan(uri)) == ITEMS


def test_plan_in_parts(tmp_path: Path) -> None:
    write_plan(f"{tmp_path}/copy_plan/part-1.jsonl", ITEMS[1:])
    write_plan(f"{tmp_path}/copy_plan/part-0.jsonl", ITEMS[:1])
    assert list(read_plan(f"{tmp_path}/copy_plan")) == ITEMS


def test_plan_larger_than_a_write(tmp_path: Path) -> None:
    items = [CopyItem(source=f"s{i}", target=f"t{i}", size_bytes=i) for i in range(2500)]
    assert write_plan(f"{tmp_path}/p.jsonl", items) == 2500
    assert list(read_plan(f"{tmp_path}/p.jsonl")) == items


def test_a_part_that_vanishes_is_no_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_outcomes(f"{tmp_path}/none") == {}
    monkeypatch.setattr(plan_files, "list_directory", lambda *_, **__: {"gone.jsonl": 1})
    with pytest.raises(FileVanishedError, match=r"gone\.jsonl"):
        read_outcomes(f"{tmp_path}/outcomes")


def test_no_plan(tmp_path: Path) -> None:
    with pytest.raises(FileVanishedError):
        list(read_plan(f"{tmp_path}/copy_plan.jsonl"))
    with pytest.raises(FileVanishedError, match=r"part-\*\.jsonl"):
        list(read_plan(f"{tmp_path}/copy_plan"))


@pytest.mark.parametrize(
    "line",
    [
        b'{"source": "s", "target": "t", "size_by',
        b'{"source": "s"}',
        b"[]",
        b'{"source": "s", "target": "t", "size_bytes": 1, "more": 2}',
        b"\xff",
    ],
)
def test_damaged_line_is_named(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "copy_plan.jsonl"
    write_plan(str(path), ITEMS[:1])
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(DumpCorruptError, match=r"copy_plan\.jsonl:2"):
        list(read_plan(str(path)))


def test_a_bound_plan_is_read_only_as_it_was_written(tmp_path: Path) -> None:
    bound, count = write_bound_plan(f"{tmp_path}/copy_plan.jsonl", iter(ITEMS))
    assert (count, list(read_plan(bound))) == (len(ITEMS), ITEMS)
    path = tmp_path / "copy_plan.jsonl"
    written = path.read_text()
    for changed in (
        written.replace(ITEMS[0].target, f"{ITEMS[0].target}2"),
        written.partition("\n")[2],
        written + written.partition("\n")[0] + "\n",
        "",
    ):
        assert changed != written
        path.write_text(changed)
        with pytest.raises(DumpCorruptError, match="not the copy plan that the load has written") as caught:
            list(read_plan(bound))
        assert caught.value.facts["path"] == f"{tmp_path}/copy_plan.jsonl"
    path.write_text(written)
    assert list(read_plan(bound)) == ITEMS


def test_later_outcomes_hold_and_unfinished_ones_are_not_read(tmp_path: Path) -> None:
    def outcome(digest: str) -> CopyOutcome:
        return CopyOutcome(target="file:/t/a", size_bytes=1, digest=digest, copied=True)

    assert read_outcomes(f"{tmp_path}/none") == {}
    write_records(f"{tmp_path}/0000000000000002-b-0.jsonl", [outcome("new")])
    write_records(f"{tmp_path}/0000000000000001-a-9.jsonl", [outcome("old")])
    (tmp_path / "._copy_0000000000000003-c-0.jsonl.0-1").write_text("{")
    (tmp_path / "_summary.json").write_text("{}")
    assert read_outcomes(str(tmp_path)) == {"file:/t/a": outcome("new")}
