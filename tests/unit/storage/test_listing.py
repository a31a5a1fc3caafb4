from __future__ import annotations

import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airflow_hive_federation.errors import FileVanishedError, StorageError
from airflow_hive_federation.storage.filesystem import open_filesystem
from airflow_hive_federation.storage.listing import file_size, list_directory, list_files, list_many

NAMES = ["a", "p=1/delta_1_1/bucket_0", "p=1/delta_1_1/.bucket_0.crc", "p=2/x#y%20", "_SUCCESS", ".hidden"]
LISTED = [".hidden", "_SUCCESS", "a", "p=1/delta_1_1/bucket_0", "p=2/x#y%20"]


@pytest.fixture(params=["file", "memory"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    uri = f"{request.param}://{tmp_path}/t"
    filesystem, root = open_filesystem(uri)
    for number, name in enumerate([*NAMES, "p=2/._copy_x.1-2"]):
        filesystem.makedirs(f"{root}/{name}".rpartition("/")[0], exist_ok=True)
        filesystem.pipe_file(f"{root}/{name}", b"x" * number)
    filesystem.makedirs(f"{root}/empty", exist_ok=True)
    return uri


@pytest.mark.parametrize("threads", [1, 8])
def test_lists_files_without_checksums_and_half_copies(tree: str, threads: int) -> None:
    files = list_files(tree, threads=threads)
    assert [file.path for file in files] == LISTED
    assert {file.path: file.size_bytes for file in files} == {n: NAMES.index(n) for n in LISTED}
    assert all(file.modified_ns > 0 for file in files)


def test_empty_directories_are_listed_on_request(tree: str) -> None:
    listed = [entry.path for entry in list_files(tree, empty_directories=True)]
    assert listed == sorted([*LISTED, "empty/"])
    assert [entry.path for entry in list_many([tree], empty_directories=True)[tree]] == listed


def test_modification_times_are_exact_on_local_files(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    os.utime(tmp_path / "f", ns=(1, 1_700_000_000_123_456_789))
    assert list_files(str(tmp_path))[0].modified_ns == 1_700_000_000_123_456_789


def test_missing_directory(tree: str) -> None:
    missing = f"{tree}/nowhere"
    with pytest.raises(FileVanishedError) as caught:
        list_files(missing)
    assert caught.value.path == missing
    assert list_files(missing, missing_ok=True) == []
    assert list_files(f"{tree}/empty") == []


def test_others_remove_things_meanwhile(tmp_path: Path) -> None:
    stays = ["base/bucket", "file"]
    (tmp_path / "base").mkdir()
    for name in stays:
        (tmp_path / name).touch()
    ended = threading.Event()

    def clean() -> None:
        while not ended.is_set():
            for number in range(20):
                (tmp_path / f"delta_{number}").mkdir()
                (tmp_path / f"delta_{number}" / "bucket").touch()
                (tmp_path / f"original_{number}").touch()
            for number in range(20):
                shutil.rmtree(tmp_path / f"delta_{number}")
                (tmp_path / f"original_{number}").unlink()
            time.sleep(0.02)

    with ThreadPoolExecutor(1) as others:
        cleaning = others.submit(clean)
        try:
            for _ in range(40):
                listed = {file.path for file in list_files(str(tmp_path), missing_ok=True)}
                assert listed >= set(stays)
        finally:
            ended.set()
        cleaning.result()


def test_a_file_is_no_directory(tree: str) -> None:
    with pytest.raises(StorageError):
        list_files(f"{tree}/a")


def test_list_many_keeps_the_order(tree: str) -> None:
    uris = [f"{tree}/p=2", f"{tree}/p=1", f"{tree}/none"]
    listed = list_many(uris, missing_ok=True)
    assert list(listed) == uris
    assert [len(files) for files in listed.values()] == [1, 1, 0]


def test_list_directory_shows_temporary_files_too(tree: str) -> None:
    assert list_directory(f"{tree}/p=2") == {"x#y%20": 3, "._copy_x.1-2": 6}
    assert list_directory(f"{tree}/none") == {}


def test_file_size(tree: str) -> None:
    assert file_size(f"{tree}/p=2/x#y%20") == 3
    with pytest.raises(FileVanishedError):
        file_size(f"{tree}/none")
    with pytest.raises(StorageError, match="is a directory"):
        file_size(f"{tree}/p=2")
