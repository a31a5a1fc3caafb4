"""An increment copies files and places those that it copied to hidden places."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.replication.load.copying import (
    TableCopy,
    _directories,
    _is_covered,
    place_staged,
)
from airflow_hive_federation.replication.replica.layout import STAGE


def test_all_directories_of_a_partition_are_placed(tmp_path: Path) -> None:
    names = ("delta_0000001_0000001_0000", "delta_0000002_0000002_0000", "base_0000003")
    copy = TableCopy()
    for name in names:
        staged = tmp_path / "p=x" / STAGE / name
        staged.mkdir(parents=True)
        (staged / "bucket_00000").write_text(name, encoding="utf-8")
        copy.staged[f"file:{staged}"] = f"file:{tmp_path}/p=x/{name}"
    for _ in range(2):  # again, as after a kill
        place_staged(copy)
        assert sorted(path.name for path in (tmp_path / "p=x").iterdir()) == sorted(names)
        assert (tmp_path / "p=x" / names[1] / "bucket_00000").read_text(encoding="utf-8") == names[1]


def test_a_killed_placing_goes_on(tmp_path: Path) -> None:
    done, left = tmp_path / "delta_0000001_0000001", tmp_path / STAGE / "delta_0000002_0000002"
    done.mkdir()
    left.mkdir(parents=True)
    copy = TableCopy(
        staged={
            f"file:{tmp_path}/{STAGE}/{done.name}": f"file:{done}",
            f"file:{left}": f"file:{tmp_path}/{left.name}",
        }
    )
    place_staged(copy)
    assert sorted(path.name for path in tmp_path.iterdir()) == [done.name, left.name]


HOME = "file:/w/t/p=1"


@pytest.mark.parametrize(
    ("wanted", "there", "covered"),
    [
        ("delta_0000003_0000003_0000", ["base_0000005_v0000077"], True),
        ("delete_delta_0000003_0000003_0000", ["base_0000005"], True),
        ("delta_0000003_0000003_0000", ["delta_0000001_0000005_v0000077"], True),
        ("delete_delta_0000003_0000003_0000", ["delta_0000001_0000005_v0000077"], False),
        ("base_0000005", ["base_0000005_v0000077"], True),
        # Another statement of the same transaction.
        ("delta_0000003_0000003_0001", ["delta_0000003_0000003_0000"], False),
        # There already: its files are looked at one by one.
        ("base_0000005", ["base_0000005", "base_0000005_v0000077"], False),
        # Of write ids that may be open there yet.
        ("delta_0000006_0000006_0000", ["base_0000007"], False),
        ("delta_0000003_0000003_0000", ["base_0000007"], False),
        ("delta_0000003_0000003_0000", [], False),
        ("000000_0", ["base_0000005"], False),
    ],
)
def test_rows_that_the_target_has_in_directories_of_its_own(
    wanted: str, there: list[str], covered: bool
) -> None:
    files = [f"{HOME}/{name}/bucket_00000" for name in there] + ["file:/w/t/p=2/base_0000005/bucket_00000"]
    assert _is_covered(f"{HOME}/{wanted}/bucket_00000", 5, _directories(files)) is covered
