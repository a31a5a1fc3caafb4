"""The contract of HDFS' clients, in a process of its own: that of libhdfs gets a JVM, which no fork survives.

The arguments are the URI of a directory and storage options. By a line on stdout, the process asks its parent
for what an administrator does, and it waits for a line on stdin.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from unittest.mock import patch

import pytest

from airflow_hive_federation.errors import (
    ConfigurationError,
    FileVanishedError,
    StorageError,
    StorageFullError,
    StoragePermissionError,
    StorageUnavailableError,
)
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.storage import hdfs
from airflow_hive_federation.storage.copying import CopySettings, copy_file
from airflow_hive_federation.storage.filesystem import open_filesystem, reading
from airflow_hive_federation.storage.hdfs import AclLine, HdfsAccess
from airflow_hive_federation.storage.hdfs_errors import USER_VARIABLE
from airflow_hive_federation.storage.listing import list_directory, list_files
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.permissions import Preserve
from airflow_hive_federation.storage.publishing import make_private, write_atomically
from airflow_hive_federation.waiting import PollPolicy

BIG = os.urandom(1 << 20) * 17
ACCESS = HdfsAccess(
    owner="carol",
    group="staff",
    mode=0o640,
    acl=(
        AclLine(type="group", scope="access", permissions="r--"),
        AclLine(type="user", scope="access", permissions="r--", name="bob"),
    ),
)


def ask(request: str) -> None:
    print(request, flush=True)
    assert sys.stdin.readline()


class Contract:
    """Everything that the package asks of a client, on one directory."""

    def __init__(self, root: str, options: StorageOptions) -> None:
        self.root, self.options = root, options
        self.filesystem, self.path = open_filesystem(root, options)

    def write(self, name: str, content: bytes = b"x" * 100) -> None:
        write_atomically(f"{self.root}/{name}", [content], self.options)

    def read(self, name: str) -> bytes:
        with reading(f"{self.root}/{name}", self.options) as file:
            return file.read()

    def files_are_written_read_and_renamed(self) -> None:
        odd = "p=1?2#3%41 ;é+&🐝"
        self.write(f"{odd}/f", b"rows")
        self.write(f"{odd}/f", b"new")
        assert self.read(f"{odd}/f") == b"new"
        path = f"{self.path}/{odd}"
        with self.filesystem.open(f"{path}/f", "ab") as file:
            file.write(b"er")
            file.hsync()
        (listed,) = list_files(f"{self.root}/{odd}", options=self.options)
        assert (listed.path, listed.size_bytes, self.read(f"{odd}/f")) == ("f", 5, b"newer")
        # A client that rounds times would not see that a file has changed.
        assert listed.modified_ns == open_filesystem(self.root)[0].info(f"{path}/f")["modified_ns"]
        with pytest.raises(FileExistsError), self.filesystem.open(f"{path}/f", "xb"):
            pass
        self.filesystem.makedirs(f"{path}/directory/inner", exist_ok=True)
        with self.filesystem.open(f"{path}/g", "xb", permission=0o600) as file:
            assert self.filesystem.info(f"{path}/g")["permission"] == 0o600
            file.write(b"g")
        with pytest.raises(FileExistsError):
            self.filesystem.mv(f"{path}/g", f"{path}/f")
        # HDFS' older rename would move the file into the directory.
        with pytest.raises(StorageError, match="must both be directories"):
            self.filesystem.mv(f"{path}/g", f"{path}/directory")
        self.filesystem.mv(f"{path}/g", f"{path}/f", overwrite=True)
        assert self.read(f"{odd}/f") == b"g"
        with self.filesystem.open(f"{path}/f", "wb") as file:
            file.write(b"over")
        assert self.read(f"{odd}/f") == b"over"
        assert self.filesystem.info(f"{path}/f")["permission"] == 0o600
        with pytest.raises(FileVanishedError):
            self.read("none")
        with pytest.raises(FileNotFoundError), self.filesystem.open(f"{path}/none/f", "xb"):
            pass
        with pytest.raises(FileNotFoundError):
            self.filesystem.rm_file(f"{path}/none")
        with pytest.raises(OSError, match=r"directory|not a file"):
            self.filesystem.open(path)
        # Nothing hidden stays of what was refused.
        assert set(self.filesystem.ls(path, detail=False)) == {f"{path}/f", f"{path}/directory"}
        self.filesystem.rm(path, recursive=True)
        assert not self.filesystem.exists(path)

    def files_are_whole_once_they_are_closed(self) -> None:
        self.filesystem.makedirs(f"{self.path}/closed at once")
        for number in range(20):
            name = f"closed at once/{number}"
            with self.filesystem.open(f"{self.path}/{name}", "wb") as file:
                file.write(name.encode())
            assert self.read(name) == name.encode()
            self.write(name, b"published")
            assert self.read(name) == b"published"
        with self.filesystem.open(f"{self.path}/{name}", "ab") as file:
            file.write(b" anew")
            file.hsync()
            if self.options.get("client") == "libhdfs":
                assert self.read(name) == b"published anew"
            else:
                at_once = PollPolicy(timeout_s=0.0)
                with (
                    patch.object(hdfs, "REPORTS", at_once),
                    pytest.raises(StorageUnavailableError, match=r"has 14 bytes, .* the first 0"),
                ):
                    self.read(name)
        assert self.read(name) == b"published anew"

    def large_files_side_by_side(self) -> None:
        names = [f"big/{number}" for number in range(4)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda name: self.write(name, BIG + name.encode()), names))
            assert list(pool.map(self.read, names)) == [BIG + name.encode() for name in names]
        with reading(f"{self.root}/big/3", self.options) as file:
            assert (file.seek(len(BIG)), file.read(), file.seek(5), file.read(7)) == (
                len(BIG),
                b"big/3",
                5,
                BIG[5:12],
            )

    def a_copy_keeps_what_it_is_asked_for(self) -> None:
        self.write("source/f", b"rows")
        source, target = f"{self.path}/source/f", f"{self.path}/target/f"
        self.filesystem.set_owner(source, owner=ACCESS.owner, group=ACCESS.group)
        self.filesystem.set_acl(source, ACCESS)
        assert self.filesystem.access(source) == ACCESS
        item = CopyItem(source=f"{self.root}/source/f", target=f"{self.root}/target/f", size_bytes=4)
        outcome = copy_file(item, CopySettings(options=self.options, preserve=Preserve(letters="ugpa")))
        assert (outcome.copied, outcome.preserved, self.read("target/f")) == (True, True, b"rows")
        assert outcome.digest
        assert self.filesystem.access(target) == ACCESS
        self.filesystem.set_acl(target, HdfsAccess(owner="", group="", mode=0o1600))
        assert self.filesystem.access(target) == HdfsAccess(owner="carol", group="staff", mode=0o1600)
        make_private(f"{self.root}/private", self.options)
        assert self.filesystem.info(f"{self.path}/private")["permission"] == 0o700
        # A default list applies to new files, within the mode that they are given.
        default = AclLine(type="user", scope="default", permissions="rwx", name="bob")
        self.filesystem.set_acl(
            f"{self.path}/target", HdfsAccess(owner="", group="", mode=0o755, acl=(default,))
        )
        with self.filesystem.open(f"{self.path}/target/g", "xb", permission=0o640):
            pass
        inherited = self.filesystem.access(f"{self.path}/target/g")
        assert inherited.mode == 0o640
        assert {line.name for line in inherited.acl} >= {"bob"}

    def refusals_have_types(self) -> None:
        ask("safe mode")
        with pytest.raises(StorageUnavailableError, match="safe mode"):
            self.write("refused")
        ask("quota of names")
        with pytest.raises(StorageFullError, match="quota") as full:
            self.write("quota/refused")
        assert full.value.facts["directory"] == f"{self.path}/quota"
        ask("quota of space")
        with pytest.raises(StorageFullError, match="DiskSpace quota"):
            self.write("quota/refused")
        assert list_directory(f"{self.root}/quota", options=self.options) == {}
        self.filesystem.set_mode(f"{self.path}/source", 0o700)
        self.filesystem.makedirs(f"{self.path}/closed")
        os.environ[USER_VARIABLE] = "alice"
        try:
            with pytest.raises(StoragePermissionError, match="user=alice"):
                self.write("closed/f")
            with pytest.raises(StoragePermissionError, match="user=alice") as denied:
                self.read("source/f")
            # A file system acts for the user who opened it.
            self.filesystem.set_mode(f"{self.path}/closed", 0o711)
        finally:
            del os.environ[USER_VARIABLE]
        assert "at org.apache" not in str(denied.value)

    def a_fork_is_refused(self) -> None:
        child = os.fork()
        if not child:
            code = 1
            try:
                self.read("after")
            except ConfigurationError as error:
                code = 0 if "fork" in error.message else 2
            finally:
                os._exit(code)
        ended = 0
        deadline = time.monotonic() + 60
        while not ended and time.monotonic() < deadline:
            ended, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0.05)
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError("the fork hangs")
        assert status == 0


def main(root: str, options: StorageOptions) -> None:
    seen: list[int] = []

    def see(number: int, _: FrameType | None) -> None:
        seen.append(number)

    # A JVM replaces the handlers that it finds.
    signal.signal(signal.SIGTERM, see)
    contract = Contract(root, options)
    contract.files_are_written_read_and_renamed()
    contract.files_are_whole_once_they_are_closed()
    contract.large_files_side_by_side()
    contract.a_copy_keeps_what_it_is_asked_for()
    contract.refusals_have_types()
    os.kill(os.getpid(), signal.SIGTERM)
    contract.write("after")
    assert seen == [signal.SIGTERM]
    if options.get("client") == "libhdfs":
        contract.a_fork_is_refused()
    print("kept", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
