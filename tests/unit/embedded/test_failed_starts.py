"""A failed start leaves nothing but its log in the cache."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

from airflow_hive_federation.embedded import database, derby, failed_starts, hdfs, metastore
from airflow_hive_federation.embedded.failed_starts import leaving_nothing
from airflow_hive_federation.embedded.hdfs import EmbeddedHdfs
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import ConfigurationError, MetastoreStartError


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_HIVE_FEDERATION_CACHE", str(tmp_path / "cache"))


def fail(directory: Path, error: BaseException, *files: str, remove: bool = False) -> None:
    with leaving_nothing(directory, "dev", remove=remove):
        (directory / "conf").mkdir(parents=True)
        for name in ("metastore.log", *files):
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).write_text("the reason", encoding="utf-8")
        raise error


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_the_directories_go_and_the_log_stays_in_the_cache(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "dev"
    with pytest.raises(MetastoreStartError, match="no start") as caught:
        fail(directory, MetastoreStartError("no start", log_path=str(directory / "metastore.log")))
    assert not (tmp_path / "new").exists()
    log = Path(caught.value.log_path)
    assert log.read_text(encoding="utf-8") == "the reason"
    assert (tmp_path / "cache" / "failed-starts") in log.parents
    assert str(log) in caught.value.remedy


def test_the_log_is_that_of_the_error(tmp_path: Path) -> None:
    """A PostgreSQL server has a log of its own, below the metastore's directory or elsewhere."""
    log = "postgresql/postgresql.log"
    with pytest.raises(MetastoreStartError) as caught:
        fail(tmp_path / "dev", MetastoreStartError("no server", log_path=str(tmp_path / "dev" / log)), log)
    assert Path(caught.value.log_path).read_text(encoding="utf-8") == "the reason"
    assert not (tmp_path / "dev").exists()


@pytest.mark.parametrize("log", ["", "/elsewhere/postgresql.log"])
def test_an_error_without_a_log_in_the_directory_keeps_its_remedy(log: str, tmp_path: Path) -> None:
    with pytest.raises(MetastoreStartError) as caught:
        fail(tmp_path / "dev", MetastoreStartError("no start", remedy="make room.", log_path=log))
    assert (caught.value.remedy, caught.value.log_path) == ("make room.", log)
    assert not (tmp_path / "dev").exists()


def test_a_log_that_cannot_be_copied_stays(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "failed-starts").touch()
    log = tmp_path / "dev" / "metastore.log"
    with pytest.raises(MetastoreStartError) as caught:
        fail(tmp_path / "dev", MetastoreStartError("no start", log_path=str(log)))
    assert caught.value.log_path == str(log)
    assert log.read_text(encoding="utf-8") == "the reason"


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
    assert names(tmp_path / "dev") == {"conf", "metastore.log", "metastore_db"}


def test_files_of_others_stay(tmp_path: Path) -> None:
    """They came during the start."""
    with pytest.raises(KeyboardInterrupt):
        fail(tmp_path / "dev", KeyboardInterrupt(), "notes", "data/notes")
    assert names(tmp_path / "dev") == {"notes", "data"}


def test_every_name_of_a_start_is_known() -> None:
    records = [database._record_file(Path(), kind).name for kind in database.SERVERS]
    created = {
        metastore._LOCK,
        metastore._LOG,
        database._DERBY_DATA,
        f"{database._DERBY_DATA}.partial",
        *database.SERVERS,
        *records,
        derby._FILE,
        # write_atomically
        f".{derby._FILE}.17.partial",
        *(f".{record}.17.partial" for record in records),
    }
    unknown = {name for name in created if not any(fnmatch(name, known) for known in failed_starts._CREATED)}
    assert unknown == set()


def test_a_kill_leaves_no_half_of_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(path: Path, **_: object) -> None:
        raise SystemExit

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(SystemExit):
        fail(tmp_path / "dev", KeyboardInterrupt())
    assert not (tmp_path / "dev" / "conf").exists()


def test_starts_in_one_directory_wait_for_each_other(tmp_path: Path) -> None:
    """By a symbolic link, too: otherwise, the first would remove the files of the second."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "dev")
    for directory in (tmp_path / "dev", tmp_path / "link"):
        with leaving_nothing(directory, "dev", remove=False):
            (lock,) = (tmp_path / "cache" / "starting").iterdir()
            with lock.open("rb") as other, pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_file_in_place_of_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metastore, "find_java", lambda: None)
    (tmp_path / "dev").write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="dev/conf cannot be created"):
        EmbeddedMetastore.start("dev", directory=tmp_path / "dev")
    assert (tmp_path / "dev").read_text(encoding="utf-8") == "mine"


def test_an_hdfs_leaves_its_log_in_the_cache_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    homes: list[Path] = []

    def start(home: Path, *_: object, **__: object) -> None:
        homes.append(home)
        (home / "data" / "name-0-1").mkdir(parents=True)
        (home / hdfs._LOG).write_text("the reason", encoding="utf-8")
        raise MetastoreStartError("no start", log_path=str(home / hdfs._LOG))

    monkeypatch.setattr(hdfs, "_start", start)
    with pytest.raises(MetastoreStartError) as caught:
        EmbeddedHdfs.start()
    assert homes[0].parent == tmp_path / "temporary"
    assert names(tmp_path / "temporary") == set()
    log = Path(caught.value.log_path)
    assert (log.parent, log.read_text(encoding="utf-8")) == (
        tmp_path / "cache" / "failed-starts",
        "the reason",
    )
    # A directory of the caller's keeps its log.
    with pytest.raises(MetastoreStartError) as caught:
        EmbeddedHdfs.start(directory=tmp_path / "own")
    assert caught.value.log_path == str(tmp_path / "own" / hdfs._LOG)
    assert (tmp_path / "own" / hdfs._LOG).is_file()
