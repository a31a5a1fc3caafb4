"""A copy that outlives its cycle publishes nothing."""

from __future__ import annotations

import pickle
import shutil
import stat
from pathlib import Path

import pytest

from airflow_hive_federation.errors import CycleLostError, DumpCorruptError
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.storage import fence as fences
from airflow_hive_federation.storage.copying import CopySettings, copy_file
from airflow_hive_federation.storage.fence import Fence, fence_of, raise_fence, read_fence, write_ticket


@pytest.fixture(autouse=True)
def _look_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fences, "_LOOK_S", 0.0)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"file:{tmp_path}/policy/_fence"


def test_a_fence_only_lets_its_own_number_pass(uri: str) -> None:
    assert read_fence(uri) == 0
    raise_fence(uri, 7)
    assert read_fence(uri) == 7
    own = pickle.loads(pickle.dumps(Fence(uri=uri, epoch=7)))  # as Spark sends it
    own.check()
    raise_fence(uri, 9)
    with pytest.raises(CycleLostError, match="stands at 9") as caught:
        own.check()
    assert caught.value.reason == "fenced"


def test_only_the_owner_reads_fences_and_tickets(uri: str, tmp_path: Path) -> None:
    """As the dumps beside them, also if an earlier version made them."""
    policy, load = tmp_path / "policy", tmp_path / "dump" / "load"
    policy.mkdir(mode=0o755)
    raise_fence(uri, 7)
    write_ticket(f"file:{load}", uri, 7)
    for directory, name in ((policy, "_fence"), (load, "fence.json")):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE((directory / name).stat().st_mode) == 0o600


def test_a_fence_that_is_gone_lets_nothing_pass(uri: str) -> None:
    with pytest.raises(CycleLostError, match="stands at nothing"):
        Fence(uri=uri, epoch=7).check()


def test_a_fence_that_cannot_be_read_lets_nothing_pass(uri: str, tmp_path: Path) -> None:
    raise_fence(uri, 7)
    (tmp_path / "policy" / "_fence").write_text("seven", encoding="utf-8")
    with pytest.raises(DumpCorruptError, match="does not hold a number"):
        Fence(uri=uri, epoch=7).check()


def test_a_plan_names_its_fence(uri: str, tmp_path: Path) -> None:
    plan = f"file:{tmp_path}/dump/load/copy_plan.jsonl"
    assert fence_of(plan) == Fence()
    fence_of(plan).check()
    write_ticket(f"file:{tmp_path}/dump/load", uri, 7)
    assert fence_of(plan) == Fence(uri=uri, epoch=7)
    (tmp_path / "dump" / "load" / "fence.json").write_text('{"epoch": 7}', encoding="utf-8")
    with pytest.raises(DumpCorruptError, match="does not name the fence"):
        fence_of(plan)


@pytest.mark.parametrize("rewritten", [False, True], ids=["copied", "rewritten"])
def test_a_copy_that_is_overtaken_while_it_reads_leaves_the_target_as_it_was(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rewritten: bool
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("old rows\n", encoding="utf-8")
    target.write_text("new rows of the successor\n", encoding="utf-8")
    item = CopyItem(
        source=f"file:{source}",
        target=f"file:{target}",
        size_bytes=9,
        visible_write_ids="d.t:5:9223372036854775807::" if rewritten else None,
    )
    raise_fence(uri, 7)
    settings = CopySettings(fence=Fence(uri=uri, epoch=7), rewrite=rewrite)
    read_chunks = fences.read_fence

    def overtaken(at: str, options: object = None) -> int:
        raise_fence(uri, 8)
        return read_chunks(at)

    monkeypatch.setattr(fences, "read_fence", overtaken)
    with pytest.raises(CycleLostError):
        copy_file(item, settings)
    assert target.read_text(encoding="utf-8") == "new rows of the successor\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy", "source", "target"]


def rewrite(source: str, target: str, _write_ids: str, _options: object) -> None:
    """As if all rows were visible."""
    shutil.copy(source.removeprefix("file:"), target.removeprefix("file:"))


def test_a_look_holds_for_a_moment_only(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(fences, "_LOOK_S", 1.0)
    monkeypatch.setattr(fences, "boot_time_s", lambda: now[0])
    raise_fence(uri, 7)
    own = Fence(uri=uri, epoch=7)
    own.check()
    raise_fence(uri, 8)
    own.check()
    now[0] += 1.0  # as after a suspension
    with pytest.raises(CycleLostError):
        own.check()
