"""Accesses HDFS as an fsspec file system by ``hdfs-native``, a client in Rust, without a JVM, or by libhdfs.

The driver's own fsspec class parses paths as URLs, so that it misreads a name with ``?`` or ``#``; it sets no
modes at creation, and its errors are Java's traces. The class here passes paths unchanged and translates the
errors.

Closing a file that has a block takes up to half a second: the client asks the NameNode whether the file is
complete, the DataNode has not reported the block yet, and the client asks again after 0.5 s (Java's client
after 0.4 s). All clients have this wait. Seconds per file of 1 kB, on a NameNode and DataNode of two busy
cores:

==============================  ==========  =================
client                          one by one  eight side by side
==============================  ==========  =================
hdfs-native 0.14.7              0.28 s      0.045 s
Java (``hdfs dfs -put``)        0.29 s      0.045 s
WebHDFS                         0.33 s      0.094 s
==============================  ==========  =================

libhdfs is Java's client behind a C interface, and needs Hadoop and a JVM in each worker. So this package uses
hdfs-native unless a storage option names libhdfs, and writes files in parallel. A NameNode with
``dfs.namenode.file.close.num-committed-allowed`` set to 1 avoids the wait; see :mod:`.hdfs_reader` for the
readers of a file that is closed so.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from fsspec import AbstractFileSystem

from airflow_hive_federation.errors import StorageError
from airflow_hive_federation.storage.hdfs_errors import USER_VARIABLE, native_errors
from airflow_hive_federation.storage.hdfs_reader import REPORTS, HdfsReader, open_whole
from airflow_hive_federation.storage.options import StorageValue

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


#: Hadoop's variable for the file with the delegation tokens of a container.
TOKENS = "HADOOP_TOKEN_FILE_LOCATION"
#: The modules of the clients that the storage option ``client`` names.
NATIVE = "hdfs-native"
_DRIVERS = {NATIVE: "hdfs_native", "libhdfs": "airflow_hive_federation.storage.libhdfs_client"}
_UMASK = "fs.permissions.umask-mode"
_BUFFER_BYTES = 1 << 20
_LOGIN = ("kerberos_principal", "kerberos_keytab", "kerberos_cache")
#: Settings that give up after half a minute without an answer of the NameNode; the default is three minutes.
_PATIENCE = {"dfs.client.failover.max.attempts": "8", "dfs.client.failover.sleep.max.millis": "5000"}


@dataclass(frozen=True, kw_only=True, order=True)
class AclLine:
    """One entry of an access list.

    :param type: ``user``, ``group``, ``mask`` or ``other``.
    :param scope: ``access``, or ``default`` for new files and directories in a directory.
    :param permissions: permissions such as ``r-x``.
    :param name: name of the user or group; empty for the owner, and the owner's group.
    """

    type: str
    scope: str
    permissions: str
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class HdfsAccess:
    """Owner, group, mode and access list of a file or directory.

    :param mode: mode, in which an access list's mask replaces the group's rights.
    :param acl: sorted entries of the access list, without those that the mode holds, in HDFS's own form.
    """

    owner: str
    group: str
    mode: int
    acl: tuple[AclLine, ...] = ()


class HdfsFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The file system of one HDFS, or name service, for one user.

    :param authority: host and port of a NameNode, or a name service; empty for ``fs.defaultFS``.
    :param config_dir: directory of ``core-site.xml`` and ``hdfs-site.xml``; by default ``HADOOP_CONF_DIR``;
        in a container of YARN without that variable, the files that ``spark-submit`` has sent along.
    :param settings: Hadoop's settings, and ``kerberos_principal``, ``kerberos_keytab``, ``kerberos_cache``.
    :param client: ``hdfs-native`` (the default), or ``libhdfs``, see :mod:`.libhdfs_client`.
    :raises ImportError: if hdfs-native is the client and not installed.
    :raises ConfigurationError: if libhdfs is the client, and something that it needs is missing.
    :raises TypeError: if an option is neither a setting of Hadoop nor one of these.
    """

    protocol = "hdfs"
    root_marker = "/"
    # This module caches clients by process and user for all threads; fsspec would create one per thread.
    cachable = False

    def __init__(
        self,
        authority: str = "",
        *,
        config_dir: StorageValue = None,
        client: StorageValue = None,
        **settings: StorageValue,
    ) -> None:
        super().__init__()
        if (name := str(client or NATIVE)) not in _DRIVERS:
            raise ValueError(f"the client of HDFS is {' or '.join(_DRIVERS)}, not {name!r}")
        login = {name: str(settings.pop(name)) for name in _LOGIN if settings.get(name)}
        # Hadoop's settings have dots in their names; the options of other drivers have none.
        if unknown := sorted(name for name in settings if "." not in name):
            raise TypeError(f"HDFS knows no option {', '.join(unknown)}")
        config = {**_PATIENCE, **{name: str(value) for name, value in settings.items()}}
        self._uri = f"hdfs://{authority}"
        self._login = login
        self._umask = int(config.get(_UMASK, "022"), 8)
        directory = container_configuration(os.environ) if config_dir is None else str(config_dir)
        address = token_address(authority, os.environ)
        self._driver = importlib.import_module(_DRIVERS[name])
        self._knows_last_blocks = name != NATIVE
        self._client = _client(
            self._driver, f"hdfs://{address}" if address else None, config, directory, login
        )

    # -- reading metadata --------------------------------------------------------------------------------

    def info(self, path: str, **_: object) -> dict[str, Any]:
        """Return the metadata of a file or directory.

        :raises FileNotFoundError: if it does not exist.
        """
        with self._errors(path):
            return _details(self._client.get_file_info(path))

    def exists(self, path: str, **_: object) -> bool:
        """Return whether a file or directory exists; raise an error if HDFS does not answer."""
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def ls(self, path: str, detail: bool = True, **_: object) -> list[Any]:
        """List a directory, or return the metadata of a file."""
        with self._errors(path):
            entries = [_details(status) for status in self._client.list_status(path, False)]
        return entries if detail else [entry["name"] for entry in entries]

    def access(self, path: str) -> HdfsAccess:
        """Return owner, group, mode and access list of a file or directory.

        :raises FileNotFoundError: if it does not exist.
        """
        with self._errors(path):
            status = self._client.get_file_info(path)
        return HdfsAccess(
            owner=status.owner, group=status.group, mode=status.permission & 0o7777, acl=self._acl(path)
        )

    def _acl(self, path: str) -> tuple[AclLine, ...]:
        try:
            with self._errors(path):
                entries = self._client.get_acl_status(path).entries
        except StorageError as error:
            if error.facts.get("java") == "AclException":
                # The NameNode has access lists switched off.
                return ()
            raise
        return tuple(
            sorted(
                AclLine(
                    type=entry.type, scope=entry.scope, permissions=entry.permissions, name=entry.name or ""
                )
                for entry in entries
            )
        )

    # -- changing ----------------------------------------------------------------------------------------

    def mkdir(self, path: str, create_parents: bool = True, *, mode: int = 0o777, **_: object) -> None:
        """Create a directory; an existing one is unchanged.

        :param mode: mode before the umask.
        """
        with self._errors(path):
            self._client.mkdirs(path, mode & ~self._umask, create_parents)

    def makedirs(self, path: str, exist_ok: bool = False, *, mode: int = 0o777) -> None:
        """Create a directory and its missing parents."""
        if not exist_ok and self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self.mkdir(path, mode=mode)

    def mv(self, path1: str, path2: str, *, overwrite: bool = False, **_: object) -> None:
        """Rename a file or directory.

        :param overwrite: replace, in one step, an existing file or empty directory of the new name.
        :raises FileExistsError: if the new name exists.
        """
        with self._errors(path1):
            self._client.rename(path1, path2, overwrite)

    def rm_file(self, path: str) -> None:
        """Remove a file or an empty directory.

        :raises FileNotFoundError: if it does not exist.
        """
        self._remove(path, recursive=False)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        self._remove(path, recursive=False)

    def rm(self, path: str | Iterable[str], recursive: bool = False, **_: object) -> None:
        """Remove files and directories."""
        for each in [path] if isinstance(path, str) else path:
            self._remove(self._strip_protocol(each), recursive=recursive)

    def set_mode(self, path: str, mode: int) -> None:
        """Set the mode of a file or directory."""
        with self._errors(path):
            self._client.set_permission(path, mode)

    def set_owner(self, path: str, *, owner: str | None = None, group: str | None = None) -> None:
        """Set the owner, the group or both."""
        with self._errors(path):
            self._client.set_owner(path, owner, group)

    def set_acl(self, path: str, access: HdfsAccess) -> None:
        """Set the mode and the access list of a file or directory to those of another one."""
        if access.acl:
            entries = [self._driver.AclEntry(*line) for line in acl_specification(access)]
            with self._errors(path):
                self._client.set_acl(path, entries)
        elif self._acl(path):
            with self._errors(path):
                self._client.remove_acl(path)
        # The entries do not have the sticky bit, so that the mode is set as well.
        self.set_mode(path, access.mode)

    def _remove(self, path: str, *, recursive: bool) -> None:
        with self._errors(path):
            removed = self._client.delete(path, recursive)
        if not removed:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    # -- reading and writing -----------------------------------------------------------------------------

    def _open(
        self,
        path: str,
        mode: str = "rb",
        *,
        permission: int = 0o666,
        **_: object,
    ) -> Any:
        with self._errors(path):
            if mode == "rb":
                if self._knows_last_blocks:
                    inner = self._client.read(path)
                else:
                    inner = open_whole(self._client, path, f"{self._uri}{path}", REPORTS)
                return io.BufferedReader(HdfsReader(inner, partial(self._errors, path)), _BUFFER_BYTES)
            if mode == "ab":
                return HdfsWriter(_Writer(self, path, self._client.append(path)))
            overwrites = mode == "wb"
            allowed = permission & ~self._umask
            if overwrites and self.exists(path):
                # The NameNode creates a new file, which has to keep the mode of the one that it replaces.
                allowed = self.info(path)["permission"] & 0o777
            options = self._driver.WriteOptions(permission=allowed, overwrite=overwrites, create_parent=False)
            return HdfsWriter(_Writer(self, path, self._client.create(path, options)))

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        with native_errors(f"{self._uri}{path}", self._login):
            yield


class HdfsWriter(io.BufferedWriter):
    """A file open for writing, whose bytes are durable after :meth:`close` or :meth:`hsync`."""

    def __init__(self, raw: _Writer) -> None:
        super().__init__(raw, _BUFFER_BYTES)
        self._native = raw

    def hsync(self) -> None:
        """Make the bytes written so far durable, and visible to readers."""
        self.flush()
        self._native.hsync()


class _Writer(io.RawIOBase):
    def __init__(self, filesystem: HdfsFileSystem, path: str, inner: Any) -> None:
        self._filesystem, self._path, self._inner = filesystem, path, inner

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer) -> int:
        with self._filesystem._errors(self._path):  # noqa: SLF001 - of the same module
            return int(self._inner.write(bytes(data)))

    def hsync(self) -> None:
        with self._filesystem._errors(self._path):  # noqa: SLF001 - of the same module
            self._inner.hsync()

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        with self._filesystem._errors(self._path):  # noqa: SLF001 - of the same module
            self._inner.close()


def container_configuration(environ: Mapping[str, str]) -> str | None:
    """Return the directory of the Hadoop files that Spark has put into a container of YARN.

    Spark's JVMs have it at the end of their class path (``Client.createConfArchive``); Python's processes run
    in the container's directory, and know nothing of it.

    :return: ``None`` outside of such a container, and where the variables of Hadoop name a directory.
    """
    if "CONTAINER_ID" not in environ or "HADOOP_CONF_DIR" in environ or "HADOOP_HOME" in environ:
        return None
    directory = Path("__spark_conf__", "__hadoop_conf__").absolute()
    return str(directory) if directory.is_dir() else None


def act_for_user_of_spark(environ: MutableMapping[str, str]) -> None:
    """Act in HDFS for the user of the Spark application, in a container of YARN and without Kerberos.

    The process of a container may belong to another user: that of the NodeManager, or ``nobody``. Spark names
    the application's user in SPARK_USER, and its JVMs act for that one (``SparkHadoopUtil.createSparkUser``).
    hdfs-native takes the user from the variable alone. With Kerberos, a delegation token names the user.

    :param environ: the variables of this process; HADOOP_USER_NAME is set if it is missing.
    """
    if "CONTAINER_ID" in environ and (user := environ.get("SPARK_USER")):
        environ.setdefault(USER_VARIABLE, user)


def token_address(authority: str, environ: Mapping[str, str]) -> str:
    """Return the address of a NameNode under which the process has a delegation token.

    Hadoop issues a token for the number of a machine (``SecurityUtil.buildTokenService``), and hdfs-native
    looks it up under the name in the URI. Both formats of the file hold the address as text.

    :param authority: host and port of a NameNode, or a name service, whose tokens have its own name.
    """
    file, (host, _, port) = environ.get(TOKENS), authority.rpartition(":")
    if not (file and host and port.isdecimal()):
        return authority
    try:
        tokens = Path(file).read_bytes()
        numbers = {str(found[4][0]) for found in socket.getaddrinfo(host, int(port), socket.AF_INET)}
    except OSError:
        # The client's own error names the NameNode.
        return authority
    addresses = [authority, *(f"{number}:{port}" for number in sorted(numbers))]
    return next((address for address in addresses if address.encode() in tokens), authority)


def acl_specification(access: HdfsAccess) -> list[tuple[str, str, str, str | None]]:
    """Return all entries of an access list, including those that the mode holds.

    :return: type, scope, permissions and name of each entry.
    """
    lines = [(line.type, line.scope, line.permissions, line.name or None) for line in access.acl]
    lines.append(("user", "access", _letters(access.mode >> 6), None))
    lines.append(("other", "access", _letters(access.mode), None))
    middle = _letters(access.mode >> 3)
    if any(line.scope == "access" for line in access.acl):
        lines.append(("mask", "access", middle, None))
    else:
        lines.append(("group", "access", middle, None))
    return lines


def _letters(bits: int) -> str:
    return "".join(letter if bits & bit else "-" for letter, bit in (("r", 4), ("w", 2), ("x", 1)))


def _details(status: Any) -> dict[str, Any]:
    return {
        "name": status.path,
        "size": status.length,
        "type": "directory" if status.isdir else "file",
        "modified_ns": status.modification_time * 1_000_000,
        "owner": status.owner,
        "group": status.group,
        "permission": status.permission,
    }


class _Clients:
    """The clients by process, user and settings; each client has connections and threads of its own."""

    known: ClassVar[dict[tuple[object, ...], Any]] = {}
    lock = threading.Lock()


def _client(
    driver: ModuleType,
    uri: str | None,
    config: Mapping[str, str],
    config_dir: str | None,
    login: Mapping[str, str],
) -> Any:
    act_for_user_of_spark(os.environ)
    key = (
        os.getpid(),
        driver.__name__,
        uri,
        config_dir,
        *(os.environ.get(name) for name in (USER_VARIABLE, "HADOOP_CONF_DIR", "KRB5CCNAME")),
        *sorted(config.items()),
        *sorted(login.items()),
    )
    with _Clients.lock:
        if key not in _Clients.known:
            with native_errors(uri or "hdfs:", login):
                _Clients.known[key] = driver.Client(uri, dict(config), config_dir, **login)
        return _Clients.known[key]
