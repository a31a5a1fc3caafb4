"""Placing what was copied to hidden places."""

from __future__ import annotations

from pathlib import Path

from airflow_hive_federation.replication.increment_copy import STAGE, TableCopy, place_staged


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
