"""Hidden directories of statements, and what killed drivers leave of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem

from airflow_hive_federation.errors import FileVanishedError
from airflow_hive_federation.model.write_ids import ValidTxns
from airflow_hive_federation.tables.write import publish as write_publish
from airflow_hive_federation.tables.write.publish import remove_trees
from airflow_hive_federation.tables.write.staging import staging_directory, staging_txn, sweep
from airflow_hive_federation.waiting import PollPolicy

TXNS = ValidTxns(high_watermark=9, open_ids=(7,))


def test_it_is_there_while_it_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), staging_directory(f"file:{tmp_path}", 5) as uri:  # noqa: PT012
        path = Path(uri.removeprefix("file:"))
        assert (path.parent, staging_txn(path.name)) == (tmp_path, 5)
        (path / "insert-0-1-0").touch()
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_one_that_was_swept_meanwhile_hides_no_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), staging_directory(f"file:{tmp_path}", 5):  # noqa: PT012
        sweep(f"file:{tmp_path}", lambda: TXNS)
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_only_what_no_transaction_needs_is_swept(tmp_path: Path) -> None:
    ended = [".hive-staging_spark_5_abc", ".hive-staging_spark_9_abc_ending"]
    needed = [
        ".hive-staging_spark_7_abc",  # open
        ".hive-staging_spark_10_abc",  # began later
        ".hive-staging_hive_2026-01-01_5",  # Hive's
        "delta_0000005_0000005_0000",
    ]
    for name in (*ended, *needed):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    assert sorted(sweep(f"file:{tmp_path}", lambda: TXNS)) == ended
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(needed)


def test_nobody_is_asked_where_nothing_lies_about(tmp_path: Path) -> None:
    def asked() -> ValidTxns:
        raise AssertionError("asked")

    (tmp_path / "delta_0000001_0000001_0000").mkdir()
    assert sweep(f"file:{tmp_path}", asked) == []
    assert sweep(f"file:{tmp_path}/nowhere", asked) == []


@pytest.mark.parametrize("losses", [1, 99])
def test_another_process_is_removing_it_too(
    losses: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removal goes on where the other has been, and does not go on for ever."""
    (tmp_path / "tree").mkdir()
    tries = []
    remove = LocalFileSystem.rm

    def rm(self: LocalFileSystem, path: str, **how: bool) -> None:
        tries.append(path)
        if len(tries) <= losses:
            raise FileNotFoundError(path)
        remove(self, path, **how)

    monkeypatch.setattr(LocalFileSystem, "rm", rm)
    monkeypatch.setattr(write_publish, "_RACES", PollPolicy(first_s=0.0))
    if losses == 1:
        remove_trees([f"file:{tmp_path}/tree"], None)
        assert not (tmp_path / "tree").exists()
    else:
        with pytest.raises(FileVanishedError):
            remove_trees([f"file:{tmp_path}/tree"], None)
