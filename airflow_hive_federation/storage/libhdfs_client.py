"""Serves :class:`~.hdfs.HdfsFileSystem` by libhdfs, in place of ``hdfs-native``.

libhdfs has no calls for access lists, for renames that replace a file, for the mode of a new file or
directory, and it rounds times to seconds. So it transfers the bytes of files, and all other calls go to the
NameNode's web server. Both report Java's errors, which become the same errors as those of ``hdfs-native``.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from airflow_hive_federation.errors import ConfigurationError, StorageError
from airflow_hive_federation.model import json_values
from airflow_hive_federation.model.json_values import Fields
from airflow_hive_federation.storage.hadoop_access import AUTHENTICATION, KERBEROS
from airflow_hive_federation.storage.hadoop_configuration import configuration_directory, hadoop_settings
from airflow_hive_federation.storage.hdfs_errors import java_error
from airflow_hive_federation.storage.libhdfs import Library
from airflow_hive_federation.storage.publishing import temporary_run, temporary_uri
from airflow_hive_federation.storage.webhdfs import NameNodeWeb, current_user

T = TypeVar("T")

#: The errors of Java that have a class of Python's.
_PYTHONS: Mapping[str, type[OSError]] = {
    "FileNotFoundException": FileNotFoundError,
    "FileAlreadyExistsException": FileExistsError,
    "ParentNotDirectoryException": NotADirectoryError,
}
#: A call transfers an ``int`` of bytes at most; Java copies them once more.
_PIECE_BYTES = 1 << 23


@dataclass(frozen=True)
class AclEntry:
    """One entry of an access list, see :class:`~.hdfs.AclLine`."""

    type: str
    scope: str
    permissions: str
    name: str | None = None

    def __str__(self) -> str:
        default = "default:" if self.scope == "default" else ""
        return f"{default}{self.type}:{self.name or ''}:{self.permissions}"

    @classmethod
    def of(cls, value: object) -> AclEntry:
        """Read an entry as Hadoop writes it (``default:user:bob:r-x``)."""
        text = json_values.text(value)
        scope = "default" if text.startswith("default:") else "access"
        kind, name, permissions = text.removeprefix("default:").split(":")
        return cls(kind, scope, permissions, name)


@dataclass(frozen=True, kw_only=True)
class AclStatus:
    """The entries of an access list that the mode does not have."""

    entries: Sequence[AclEntry]


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """Mode of a new file, without the umask's bits, and the treatment of an existing one."""

    permission: int
    overwrite: bool
    create_parent: bool


@dataclass(frozen=True, kw_only=True)
class FileStatus:
    """Metadata of a file or directory."""

    path: str
    length: int
    isdir: bool
    modification_time: int
    owner: str
    group: str
    permission: int


class Client:
    """The calls of ``hdfs_native.Client`` that the file system needs.

    :param uri: ``hdfs://`` with a NameNode or name service; ``None`` for ``fs.defaultFS``.
    :param config: settings of Hadoop.
    :param config_dir: directory of Hadoop's files; by default that of the environment.
    :param login: ``kerberos_cache``; libhdfs takes no keytab.
    :raises ConfigurationError: if libhdfs cannot be used here, or a login needs a keytab.
    """

    def __init__(
        self, uri: str | None, config: Mapping[str, str], config_dir: str | None, **login: str
    ) -> None:
        if refused := sorted(login.keys() - {"kerberos_cache"}):
            raise ConfigurationError(
                f"libhdfs logs in by a ticket only, and the storage options have {', '.join(refused)}.",
                remedy="Renew a ticket by kinit -kt, and name its cache (kerberos_cache, or KRB5CCNAME).",
            )
        options = {**config, **({"config_dir": config_dir} if config_dir else {}), **login}
        settings = hadoop_settings(options, os.environ)
        self._library = Library.load(config_dir or configuration_directory(os.environ))
        self._uri = (uri or "hdfs://").rstrip("/")
        if self._uri == "hdfs:":
            self._uri = settings.get("fs.defaultFS", "").rstrip("/")
        # With Kerberos the ticket names the user. Another user of the environment gets another client.
        user = "" if settings.get(AUTHENTICATION, "").lower() == KERBEROS else current_user()
        self._web = NameNodeWeb(self._uri, options, user=user)
        self._fs = self._connect(settings, user, login.get("kerberos_cache") or os.environ.get("KRB5CCNAME"))

    def get_file_info(self, path: str) -> FileStatus:
        return self._ask(
            "GET", "GETFILESTATUS", path, lambda answer: answer.needed("FileStatus", partial(_status, path))
        )

    def list_status(self, path: str, _recursive: bool) -> Sequence[FileStatus]:
        def read(answer: Fields) -> Sequence[FileStatus]:
            found = answer.needed("FileStatuses", Fields)
            return found.needed("FileStatus", json_values.list_of(partial(_status, path)))

        return self._ask("GET", "LISTSTATUS", path, read)

    def get_acl_status(self, path: str) -> AclStatus:
        def read(answer: Fields) -> AclStatus:
            found = answer.needed("AclStatus", Fields)
            return AclStatus(entries=found.needed("entries", json_values.list_of(AclEntry.of)))

        return self._ask("GET", "GETACLSTATUS", path, read)

    def set_acl(self, path: str, entries: Sequence[AclEntry]) -> None:
        self._change("SETACL", path, aclspec=",".join(str(entry) for entry in entries))

    def remove_acl(self, path: str) -> None:
        self._change("REMOVEACL", path)

    def set_permission(self, path: str, mode: int) -> None:
        self._change("SETPERMISSION", path, permission=f"{mode:o}")

    def set_owner(self, path: str, owner: str | None, group: str | None) -> None:
        chosen = {"owner": owner, "group": group}
        self._change("SETOWNER", path, **{name: value for name, value in chosen.items() if value})

    def mkdirs(self, path: str, permission: int, create_parent: bool) -> None:
        if not create_parent:
            self.get_file_info(_parent(path))
        self._change("MKDIRS", path, permission=f"{permission:o}")

    def rename(self, source: str, target: str, overwrite: bool) -> None:
        # Without this parameter, HDFS moves a file into an existing directory of the new name.
        self._change("RENAME", source, destination=target, renameoptions="OVERWRITE" if overwrite else "NONE")

    def delete(self, path: str, recursive: bool) -> bool:
        def read(answer: Fields) -> bool:
            return answer.needed("boolean", json_values.flag)

        return self._ask("DELETE", "DELETE", path, read, recursive=str(recursive).lower())

    def read(self, path: str) -> FileReader:
        status = self.get_file_info(path)
        if status.isdir:
            raise IsADirectoryError(f"{path} is a directory")
        return FileReader(self._opened(path, os.O_RDONLY), status.length)

    def append(self, path: str) -> FileWriter:
        self.get_file_info(path)
        return FileWriter(self._opened(path, os.O_WRONLY | os.O_APPEND))

    def create(self, path: str, options: WriteOptions) -> FileWriter:
        """Create a file of a mode, which is new, unless the options allow to replace one.

        libhdfs opens the file under a name of its own, because it would replace an existing file and make
        missing directories. HDFS renames an open file; the writer knows it by its number.
        """
        if not options.create_parent:
            self.get_file_info(_parent(path))
        hidden = temporary_uri(path, temporary_run(path.rpartition("/")[2]) or "")
        writer = FileWriter(self._opened(hidden, os.O_WRONLY, known_as=path))
        placed = False
        try:
            present = self.get_file_info(hidden).permission
            if present != present & options.permission:
                self.set_permission(hidden, present & options.permission)
            self.rename(hidden, path, options.overwrite)
            placed = True
        finally:
            if not placed:
                with suppress(StorageError, OSError):
                    writer.close()
                with suppress(StorageError, OSError):
                    self.delete(hidden, recursive=False)
        return writer

    def _opened(self, path: str, flags: int, *, known_as: str = "") -> OpenFile:
        uri = f"{self._uri}{known_as or path}"
        # The zeros stand for Hadoop's settings: sizes of buffers and blocks, and the replication.
        opened = self._library.call("hdfsOpenFile", self._fs, _javas_utf8(path), flags, 0, 0, 0)
        if not opened:
            raise failure(self._library, uri)
        return OpenFile(self._library, self._fs, uri, opened)

    def _connect(self, settings: Mapping[str, str], user: str, ticket: str | None) -> int:
        call = self._library.call
        builder = call("hdfsNewBuilder")
        # The builder keeps the addresses of the texts until it connects.
        kept = [(setting.encode(), value.encode()) for setting, value in settings.items()]
        uri, name = self._uri.encode(), user.encode()
        cache = (ticket or "").removeprefix("FILE:").encode()
        call("hdfsBuilderSetNameNode", builder, uri)
        call("hdfsBuilderSetForceNewInstance", builder)
        for setting, value in kept:
            call("hdfsBuilderConfSetStr", builder, setting, value)
        if user:
            call("hdfsBuilderSetUserName", builder, name)
        elif cache:
            call("hdfsBuilderSetKerbTicketCachePath", builder, cache)
        connected = call("hdfsBuilderConnect", builder)
        if not connected:
            raise failure(self._library, self._uri)
        return connected

    def _change(self, operation: str, path: str, **parameters: str) -> None:
        self._ask("PUT", operation, path, lambda _: None, **parameters)

    def _ask(
        self, method: str, operation: str, path: str, read: Callable[[Fields], T], **parameters: str
    ) -> T:
        try:
            return read(Fields(self._web.call(method, operation, path, **parameters)))
        except ValueError as error:
            raise StorageError(
                f"{self._uri}{path}: the NameNode's web server answers as none does ({error}).",
                remedy="Check that dfs.namenode.http-address is that of a NameNode's web server.",
                path=f"{self._uri}{path}",
            ) from error
        except StorageError as error:
            if (known := _of_python(str(error.facts.get("java", "")), error.message)) is not None:
                raise known from error
            raise


class OpenFile:
    """A file that libhdfs has opened."""

    def __init__(self, library: Library, fs: int, uri: str, file: int) -> None:
        self._library, self._fs, self._uri, self._file = library, fs, uri, file

    def call(self, name: str, *arguments: object) -> int:
        result = self._library.call(name, self._fs, self._file, *arguments)
        if result < 0:
            raise failure(self._library, self._uri)
        return result

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._file:
            file, self._file = self._file, 0
            if self._library.call("hdfsCloseFile", self._fs, file) < 0:
                raise failure(self._library, self._uri)


class FileReader:
    """A file open for reading."""

    def __init__(self, file: OpenFile, length: int) -> None:
        # A file that is being written is longer than the NameNode knows.
        self._file, self._length = file, max(length, file.call("hdfsAvailable"))

    def __len__(self) -> int:
        return self._length

    def read_range(self, at: int, length: int) -> bytes:
        """Return ``length`` bytes from a position, fewer at the end of the file."""
        pieces: list[bytes] = []
        while length > 0:
            wanted = min(length, _PIECE_BYTES)
            buffer = ctypes.create_string_buffer(wanted)
            count = self._file.call("hdfsPread", at, buffer, wanted)
            if not count:
                break
            pieces.append(ctypes.string_at(buffer, count))
            at, length = at + count, length - count
        return b"".join(pieces)

    def close(self) -> None:
        self._file.close()


class FileWriter:
    """A file open for writing."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file

    def write(self, data: bytes) -> int:
        for start in range(0, len(data), _PIECE_BYTES):
            piece = data[start : start + _PIECE_BYTES]
            self._file.call("hdfsWrite", piece, len(piece))
        return len(data)

    def hsync(self) -> None:
        self._file.call("hdfsHSync")

    def close(self) -> None:
        self._file.close()


def failure(library: Library, uri: str) -> Exception:
    """Return the error of a call of libhdfs that has failed."""
    number = ctypes.get_errno()
    java, reason = library.last_error()
    if not java:
        reason = f"libhdfs fails with errno {number}, see the process's stderr"
    return _of_python(java, reason) or java_error(java, reason, uri)


def _of_python(java: str, reason: str) -> OSError | None:
    kind = _PYTHONS.get(java)
    return kind(reason) if kind is not None else None


def _status(path: str, answer: object) -> FileStatus:
    fields = Fields(answer)
    suffix = fields.needed("pathSuffix", json_values.text)
    return FileStatus(
        path=f"{path.rstrip('/')}/{suffix}" if suffix else path,
        length=fields.needed("length", json_values.count),
        isdir=fields.needed("type", json_values.text) == "DIRECTORY",
        modification_time=fields.needed("modificationTime", json_values.whole),
        owner=fields.needed("owner", json_values.text),
        group=fields.needed("group", json_values.text),
        permission=int(fields.needed("permission", json_values.text), 8),
    )


def _javas_utf8(path: str) -> bytes:
    """Encode a path as Java's native interface reads it: a character beyond U+FFFF as its two surrogates."""
    units = path.encode("utf-16-le")
    return "".join(chr(units[at] | units[at + 1] << 8) for at in range(0, len(units), 2)).encode(
        "utf-8", "surrogatepass"
    )


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
