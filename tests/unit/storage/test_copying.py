from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.errors import (
    ConfigurationError,
    FileVanishedError,
    StorageFullError,
    StoragePermissionError,
)
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.storage.copying import (
    CopySettings,
    copy_file,
    survey_targets,
)
from airflow_hive_federation.storage.digests import CHUNK_BYTES, digest_file
from airflow_hive_federation.storage.filesystem import open_filesystem, reading
from airflow_hive_federation.storage.listing import list_files
from airflow_hive_federation.storage.publishing import remove_file, rename, write_atomically

CONTENT = os.urandom(100_000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def make_item(source: str, target: str, content: bytes = CONTENT) -> CopyItem:
    write_atomically(source, [content])
    return CopyItem(source=source, target=target, size_bytes=len(content))


def content_of(uri: str) -> bytes:
    with reading(uri) as file:
        content: bytes = file.read()
    return content


@pytest.mark.parametrize("store", ["file", "memory"])
def test_a_prefix_of_a_file_that_grows(store: str, tmp_path: Path) -> None:
    content = os.urandom(CHUNK_BYTES + 100)
    item = make_item(f"{store}://{tmp_path}/s/f", f"{store}://{tmp_path}/t/f", content)
    for size_bytes in (7, CHUNK_BYTES + 1):
        prefix = replace(item, size_bytes=size_bytes, prefix=True)
        assert [copy_file(prefix).copied for _ in range(2)] == [True, False]
        assert content_of(item.target) == content[:size_bytes]
    with pytest.raises(FileVanishedError):
        copy_file(replace(prefix, size_bytes=len(content) + 1))
    with pytest.raises(FileVanishedError):
        copy_file(replace(item, size_bytes=7))
    assert content_of(item.target) == content[: CHUNK_BYTES + 1]


@pytest.mark.parametrize("store", ["file", "memory"])
def test_a_file_of_the_target_with_the_same_bytes_is_renamed(store: str, tmp_path: Path) -> None:
    root = f"{store}://{tmp_path}"
    item = make_item(f"{root}/s/new/f", f"{root}/t/new/f")
    former = make_item(f"{root}/t/old/f", f"{root}/t/old/g").source
    levels = {"source_levels": 1, "target_levels": 1} if store == "file" else {}
    item = replace(item, moved_from=former, digest=DIGEST, **levels)
    filesystem, folder = open_filesystem(f"{root}/t")
    if store == "memory":
        filesystem.makedirs(f"{folder}/new", exist_ok=True)
    # Killed before the outcome was noted: the next run finds the same bytes under the new name.
    for _ in range(2):
        outcome = copy_file(item)
        assert (outcome.copied, outcome.digest, content_of(item.target)) == (False, DIGEST, CONTENT)
        assert not filesystem.exists(f"{folder}/old/f")


@pytest.mark.parametrize("state", ["other bytes", "gone", "target there"])
def test_a_file_of_the_target_that_was_changed_is_not_renamed(state: str, tmp_path: Path) -> None:
    item = make_item(f"file:{tmp_path}/s/f", f"file:{tmp_path}/t/f")
    item = replace(item, moved_from=f"file:{tmp_path}/t/old", digest=DIGEST)
    other = bytes(len(CONTENT))
    if state != "gone":
        write_atomically(item.moved_from or "", [other if state == "other bytes" else CONTENT])
    if state == "target there":
        write_atomically(item.target, [other])
    assert copy_file(item).copied
    assert content_of(item.target) == CONTENT
    assert (tmp_path / "t" / "old").exists() == (state != "gone")


@pytest.mark.parametrize("source", ["file", "memory"])
@pytest.mark.parametrize("target", ["file", "memory"])
@pytest.mark.parametrize("size_bytes", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1])
def test_copies_between_stores(source: str, target: str, size_bytes: int, tmp_path: Path) -> None:
    content = os.urandom(size_bytes)
    item = make_item(f"{source}://{tmp_path}/s/f", f"{target}://{tmp_path}/t/p=1/f", content)
    outcome = copy_file(item, CopySettings(sync=True))
    assert outcome.copied
    assert (outcome.target, outcome.size_bytes) == (item.target, size_bytes)
    assert outcome.digest == hashlib.sha256(content).hexdigest()
    assert content_of(item.target) == content
    filesystem, folder = open_filesystem(item.target.rpartition("/")[0])
    assert len(filesystem.ls(folder)) == 1


def test_a_text_is_written_in_place_of_a_directory_without_files(tmp_path: Path) -> None:
    source, target = tmp_path / "s" / "base_5", tmp_path / "t" / "base_5" / "_orc_acid_version"
    source.mkdir(parents=True)
    source.chmod(0o750)
    item = CopyItem(
        source=f"file:{source}/_orc_acid_version",
        target=f"file:{target}",
        size_bytes=1,
        content="2",
        source_levels=1,
        target_levels=1,
    )
    for copied in (True, False):
        outcome = copy_file(item)
        assert (outcome.copied, outcome.size_bytes) == (copied, 1)
        assert outcome.digest == hashlib.sha256(b"2").hexdigest()
        assert target.read_text(encoding="ascii") == "2"
    assert (target.parent.stat().st_mode & 0o777, target.stat().st_mode & 0o137) == (0o750, 0)
    target.write_text("3", encoding="ascii")
    # The source has removed the directory meanwhile.
    source.rmdir()
    assert copy_file(item).copied
    assert target.read_text(encoding="ascii") == "2"


def test_identical_target_is_left_alone(tmp_path: Path) -> None:
    item = make_item(f"{tmp_path}/s", f"{tmp_path}/t")
    copy_file(item)
    before = (tmp_path / "t").stat()
    outcome = copy_file(item)
    assert not outcome.copied
    assert outcome.digest == DIGEST
    assert (tmp_path / "t").stat().st_ino == before.st_ino


@pytest.mark.parametrize("other", [b"shorter", os.urandom(len(CONTENT))])
def test_another_target_is_replaced(other: bytes, tmp_path: Path) -> None:
    item = make_item(f"{tmp_path}/s", f"{tmp_path}/t")
    (tmp_path / "t").write_bytes(other)
    assert copy_file(item).copied
    assert (tmp_path / "t").read_bytes() == CONTENT


@pytest.mark.parametrize("way", ["copied", "rewritten", "written", "renamed", "removed"])
def test_the_checksum_of_what_is_replaced_goes_with_it(way: str, tmp_path: Path) -> None:
    """Hadoop's local file system would compare the new bytes with it, and read nothing."""
    target = tmp_path / "t" / "f"
    item = make_item(f"file:{tmp_path}/s", f"file:{target}")
    write_atomically(item.target, [b"theirs"])
    checksum, beside = target.with_name(".f.crc"), target.with_name(".g.crc")
    for path in (checksum, beside):
        path.write_bytes(b"crc\0")
    if way == "copied":
        copy_file(item)
    elif way == "rewritten":

        def rewrite(source: str, made: str, _ids: str, _options: Any) -> None:
            write_atomically(made, [content_of(source)])

        copy_file(replace(item, visible_write_ids="d.t:1:1::"), CopySettings(rewrite=rewrite))
    elif way == "written":
        write_atomically(item.target, [CONTENT])
    elif way == "renamed":
        filesystem, source = open_filesystem(item.source)
        rename(filesystem, source, str(target))
    else:
        assert remove_file(item.target)
    assert not checksum.exists()
    assert beside.exists()
    assert target.exists() == (way != "removed")
    assert way == "removed" or target.read_bytes() == CONTENT


def test_a_name_of_full_length_has_no_checksum(tmp_path: Path) -> None:
    target = f"file:{tmp_path}/{'n' * 255}"
    for _ in range(2):
        assert write_atomically(target, [CONTENT]) == len(CONTENT)
    assert remove_file(target)


def test_an_identical_target_keeps_its_checksum(tmp_path: Path) -> None:
    item = make_item(f"file:{tmp_path}/s", f"file:{tmp_path}/t")
    write_atomically(item.target, [CONTENT])
    (tmp_path / ".t.crc").write_bytes(b"crc\0")
    assert not copy_file(item).copied
    assert (tmp_path / ".t.crc").exists()


def test_vanished_source(tmp_path: Path) -> None:
    item = CopyItem(source=f"{tmp_path}/gone", target=f"{tmp_path}/d/t", size_bytes=1)
    with pytest.raises(FileVanishedError) as caught:
        copy_file(item)
    assert caught.value.path == item.source
    assert list((tmp_path / "d").iterdir()) == []


@pytest.mark.parametrize("listed_bytes", [len(CONTENT) - 1, len(CONTENT) + 1])
def test_source_that_changed_since_it_was_listed(listed_bytes: int, tmp_path: Path) -> None:
    make_item(f"{tmp_path}/s", "")
    item = CopyItem(source=f"{tmp_path}/s", target=f"{tmp_path}/t", size_bytes=listed_bytes)
    with pytest.raises(FileVanishedError, match="changed while it was read") as caught:
        copy_file(item)
    assert caught.value.retryable
    assert (caught.value.listed_bytes, caught.value.read_bytes) == (listed_bytes, len(CONTENT))
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize("store", ["file", "memory"])
@pytest.mark.parametrize("is_copied", [False, True])
def test_a_source_that_another_file_of_its_length_has_replaced(
    store: str, is_copied: bool, tmp_path: Path
) -> None:
    root = f"{store}://{tmp_path}"
    item = make_item(f"{root}/s/f", f"{root}/t/f")
    (listed,) = list_files(f"{root}/s")
    assert listed.modified_ns
    final = replace(item, modified_ns=listed.modified_ns)
    if is_copied:
        assert copy_file(final).digest == DIGEST
    other = replace(final, modified_ns=listed.modified_ns - 1)
    with pytest.raises(FileVanishedError, match="was replaced by another file") as caught:
        copy_file(other)
    assert caught.value.path == item.source
    assert [entry.path for entry in list_files(f"{root}/t", missing_ok=True)] == ["f"] * is_copied
    # The change manager has kept the former one, at another time.
    kept = make_item(f"{root}/kept/f", f"{root}/t/f", b"1" * len(CONTENT)).source
    assert copy_file(replace(other, kept=kept)).copied
    assert content_of(item.target) == b"1" * len(CONTENT)
    # A store without times, or a file that may change.
    assert copy_file(item).copied


def test_target_directory_that_is_a_file(tmp_path: Path) -> None:
    item = make_item(f"{tmp_path}/s", f"{tmp_path}/s/t")
    with pytest.raises(Exception, match="Not a directory"):
        copy_file(item)


def test_no_right_to_write() -> None:
    with public_directory() as folder:
        item = make_item(f"{folder}/s", f"{folder}/locked/t")
        (folder / "locked").mkdir(mode=0o555)
        with unprivileged(), pytest.raises(StoragePermissionError) as caught:
            copy_file(item)
        assert caught.value.path == item.target
        assert list((folder / "locked").iterdir()) == []


def test_no_right_to_read() -> None:
    with public_directory() as folder:
        item = make_item(f"{folder}/s", f"{folder}/t")
        (folder / "s").chmod(0)
        with unprivileged(), pytest.raises(StoragePermissionError) as caught:
            copy_file(item)
        assert caught.value.path == item.source


def test_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting needs root")
    try:
        item = make_item(f"{tmp_path}/s", f"{disk}/t")
        with pytest.raises(StorageFullError) as caught:
            copy_file(item)
        assert caught.value.path == item.target
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


FILE_SIZE_LIMIT = """
import resource, sys
from airflow_hive_federation.errors import StorageFullError
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.storage.copying import copy_file
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    copy_file(CopyItem(source=sys.argv[1], target=sys.argv[2], size_bytes=100_000))
except StorageFullError as error:
    print(error.path)
"""


def test_file_size_limit(tmp_path: Path) -> None:
    item = make_item(f"{tmp_path}/s", f"{tmp_path}/t")
    done = subprocess.run(
        [sys.executable, "-c", FILE_SIZE_LIMIT, item.source, item.target],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == item.target
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


SLOW_COPY = """
import sys
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.storage.bandwidth import TokenBucket
from airflow_hive_federation.storage.copying import copy_file

class Slow(TokenBucket):
    def take(self, size_bytes):
        if self.first:
            self.first = False
            return 0.0
        print("half", flush=True)
        sys.stdin.read()
        return 0.0

bucket = Slow(1)
bucket.first = True
copy_file(CopyItem(source=sys.argv[1], target=sys.argv[2], size_bytes=int(sys.argv[3])), bandwidth=bucket)
"""


def test_killed_copy_leaves_no_target_and_is_swept(tmp_path: Path) -> None:
    content = os.urandom(2 * CHUNK_BYTES)
    item = make_item(f"{tmp_path}/s", f"{tmp_path}/d/t", content)
    command = [sys.executable, "-c", SLOW_COPY, item.source, item.target, str(item.size_bytes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as copying:
        assert copying.stdout is not None
        assert copying.stdout.readline() == b"half\n"
        copying.send_signal(signal.SIGKILL)
    (left,) = (tmp_path / "d").iterdir()
    assert left.name.startswith("._copy_t.")
    assert left.stat().st_size == CHUNK_BYTES
    assert survey_targets([f"{tmp_path}/d"], sweep_runs_before="0000000000000001")
    assert list((tmp_path / "d").iterdir()) == []
    assert copy_file(item).copied


def test_sweeping_spares_later_runs(tmp_path: Path) -> None:
    for name in ("._copy_a.0005-x", "._copy_b.0007-x", "._copy_c.0009-x", "d"):
        (tmp_path / name).touch()
    survey_targets([str(tmp_path)], sweep_runs_before="0007")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["._copy_b.0007-x", "._copy_c.0009-x", "d"]


def test_survey_prints_sizes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"123")
    assert survey_targets([str(tmp_path), f"{tmp_path}/none"]) == {f"{tmp_path}/a": 3}


def test_threads_share_nothing(tmp_path: Path) -> None:
    items = [make_item(f"{tmp_path}/s{i}", f"{tmp_path}/t{i}", os.urandom(300_000)) for i in range(8)]
    threads = [threading.Thread(target=copy_file, args=(item,)) for item in items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(digest_file(item.source).digest == digest_file(item.target).digest for item in items)


# -- files with rows to leave out


def upper(source: str, target: str, write_ids: str, options: Mapping[str, Any] | None) -> None:
    """Stands for a rewriting: what it makes differs from the source and depends on the write ids."""
    write_atomically(target, [content_of(source).upper() + write_ids.encode()], options)


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_rewritten_files(scheme: str, tmp_path: Path) -> None:
    source, target = f"{scheme}://{tmp_path}/s", f"{scheme}://{tmp_path}/d/t"
    write_atomically(source, [b"abc"])
    item = CopyItem(source=source, target=target, size_bytes=3, visible_write_ids="7")
    outcome = copy_file(item, CopySettings(rewrite=upper))
    assert outcome.copied
    assert outcome.size_bytes == 4
    assert outcome.digest == hashlib.sha256(b"ABC7").hexdigest()
    assert content_of(target) == b"ABC7"
    assert not copy_file(item, CopySettings(rewrite=upper)).copied


def test_rewriting_without_a_function(tmp_path: Path) -> None:
    item = CopyItem(source=f"{tmp_path}/s", target=f"{tmp_path}/t", size_bytes=0, visible_write_ids="")
    with pytest.raises(ConfigurationError, match="aborted write ids"):
        copy_file(item)


def test_failed_rewriting_leaves_nothing(tmp_path: Path) -> None:
    def broken(source: str, target: str, write_ids: str, options: Mapping[str, Any] | None) -> None:
        upper(source, target, write_ids, options)
        raise ZeroDivisionError

    write_atomically(f"{tmp_path}/s", [b"abc"])
    item = CopyItem(source=f"{tmp_path}/s", target=f"{tmp_path}/d/t", size_bytes=3, visible_write_ids="7")
    with pytest.raises(ZeroDivisionError):
        copy_file(item, CopySettings(rewrite=broken))
    assert list((tmp_path / "d").iterdir()) == []


@contextmanager
def public_directory() -> Iterator[Path]:
    """A directory that another user may enter, which pytest's are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Do without root's rights, where the tests have them."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
