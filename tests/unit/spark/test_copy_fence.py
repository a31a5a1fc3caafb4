"""A copy job of a cycle that another one has followed changes nothing of the target."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.errors import CycleLostError
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.spark.copy_files import CopyWork, copy_plan
from airflow_hive_federation.spark.workers import ThisProcess
from airflow_hive_federation.storage.copying import CopySettings
from airflow_hive_federation.storage.fence import Fence, raise_fence, write_ticket
from airflow_hive_federation.storage.permissions import Preserve
from airflow_hive_federation.storage.plan_files import write_plan
from airflow_hive_federation.storage.publishing import temporary_uri


@pytest.fixture
def item(tmp_path: Path) -> CopyItem:
    """A file that is on the target already, with another mode."""
    for side, mode in (("source", 0o640), ("target", 0o600)):
        (tmp_path / side).mkdir()
        file = tmp_path / side / "f"
        file.write_text("rows\n", encoding="utf-8")
        file.chmod(mode)
    return CopyItem(source=f"file:{tmp_path}/source/f", target=f"file:{tmp_path}/target/f", size_bytes=5)


@pytest.fixture
def lost(tmp_path: Path) -> Fence:
    fence = Fence(uri=f"file:{tmp_path}/policy/_fences/t", epoch=7)
    raise_fence(fence.uri, 8)
    return fence


def test_a_task_leaves_a_file_that_is_there_as_it_is(item: CopyItem, lost: Fence, tmp_path: Path) -> None:
    settings = CopySettings(fence=lost, preserve=Preserve(letters="p"))
    with pytest.raises(CycleLostError):
        CopyWork(settings=settings)(item, None)
    assert (tmp_path / "target" / "f").stat().st_mode & 0o777 == 0o600


def test_a_job_sweeps_nothing_of_its_successor(item: CopyItem, lost: Fence, tmp_path: Path) -> None:
    being_written = Path(temporary_uri(item.target).removeprefix("file:"))
    being_written.touch()
    plan = f"file:{tmp_path}/dump/load/copy_plan.jsonl"
    write_plan(plan, [item])
    write_ticket(f"file:{tmp_path}/dump/load", lost.uri, lost.epoch)
    with pytest.raises(CycleLostError, match="another cycle has begun"):
        copy_plan(ThisProcess(), plan, f"file:{tmp_path}/dump/load/outcomes")
    assert being_written.exists()
