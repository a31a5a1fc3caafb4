"""A failed start leaves nothing but its log in the cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.embedded.failed_starts import leaving_nothing
from airflow_hive_federation.errors import MetastoreStartError


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_HIVE_FEDERATION_CACHE", str(tmp_path / "cache"))


def fail(directory: Path, error: BaseException, *, remove: bool = False) -> None:
    with leaving_nothing(directory, "dev", log_name="metastore.log", remove=remove):
        (directory / "conf").mkdir(parents=True)
        (directory / "metastore.log").write_text("the reason", encoding="utf-8")
        raise error


def test_the_directories_go_and_the_log_stays_in_the_cache(tmp_path: Path) -> None:
    with pytest.raises(MetastoreStartError, match="no start") as caught:
        fail(tmp_path / "new" / "dev", MetastoreStartError("no start", log_path="gone"))
    assert not (tmp_path / "new").exists()
    log = Path(caught.value.log_path)
    assert log.read_text(encoding="utf-8") == "the reason"
    assert (tmp_path / "cache" / "failed-starts") in log.parents
    assert str(log) in caught.value.remedy


def test_an_interrupt_empties_a_directory_that_was_empty(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    with pytest.raises(KeyboardInterrupt):
        fail(tmp_path / "dev", KeyboardInterrupt())
    assert list((tmp_path / "dev").iterdir()) == []
    with pytest.raises(KeyboardInterrupt):
        fail(tmp_path / "dev", KeyboardInterrupt(), remove=True)
    assert not (tmp_path / "dev").exists()


def test_a_directory_with_files_keeps_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "dev" / "metastore_db").mkdir(parents=True)
    with pytest.raises(MetastoreStartError) as caught:
        fail(tmp_path / "dev", MetastoreStartError("no start", log_path="here"))
    assert caught.value.log_path == "here"
    assert {path.name for path in (tmp_path / "dev").iterdir()} == {"conf", "metastore.log", "metastore_db"}
