"""Restricts the directories that a replication may copy from.

A user who may alter tables of a source can change their locations, and put links into their directories: so
any file that the worker's account can read could be copied to the replica. Therefore a policy names the
allowed roots, and an administrator of the workers limits them by an environment variable. Without either,
replication copies from shared stores, and not from the worker's own disk.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import BinaryIO, TypeVar

from airflow_hive_federation.errors import ConfigurationError, SourceNotAllowedError
from airflow_hive_federation.storage.filesystem import is_below, local_path, parse_location, storage_errors
from airflow_hive_federation.storage.snapshot_paths import live_uri

#: Environment variable with comma-separated URIs: the directories that policies may copy from at most.
ROOTS_VARIABLE = "HIVE_FEDERATION_SOURCE_ROOTS"
#: Stores of Hive's tables that several machines share: allowed if neither policy nor variable has roots.
SHARED_STORES = frozenset(
    {"hdfs", "webhdfs", "viewfs", "s3", "gs", "abfs", "wasb", "wasbs", "adl", "ofs", "oss"}
)

#: Flags to pass through a directory without reading it, because listing it may be forbidden.
_PASS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Flags to open a file; without O_NONBLOCK, opening a named pipe would wait for its writer.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class SourceRoots:
    """The directories that a replication may copy from.

    :param roots: URIs; ``s3://`` allows every bucket. Empty for the shared stores.
    """

    roots: tuple[str, ...] = ()

    @classmethod
    def of(cls, roots: Iterable[str], environment: Mapping[str, str] | None = None) -> SourceRoots:
        """Return the roots of a policy, within the limit that an administrator sets.

        :param roots: ``allowed_source_roots`` of the policy; empty for all roots of the limit.
        :param environment: environment variables; those of the process by default.
        :raises ConfigurationError: if a root is no URI, or lies outside of the limit.
        """
        text = (os.environ if environment is None else environment).get(ROOTS_VARIABLE, "")
        bound = checked_roots(text.split(","), ROOTS_VARIABLE)
        chosen = checked_roots(roots, "allowed_source_roots")
        for root in chosen:
            if bound and not any(_is_within(root, outer) for outer in bound):
                raise ConfigurationError(
                    f"allowed_source_roots has {root}, outside of the roots that this worker's administrator "
                    f"allows: {ROOTS_VARIABLE} is {', '.join(bound)}.",
                    remedy="Name directories below those, or have the variable extended.",
                    path=root,
                )
        return cls(roots=chosen or bound)

    def check(self, uri: str, description: str) -> None:
        """Refuse a directory or file outside of the roots, by its URI or by the target of links in its path.

        :param description: its description for the error: ``location of table d.t``.
        :raises SourceNotAllowedError: if it lies outside.
        :raises StorageError: if a link cannot be followed.
        """
        self.check_written(uri, description)
        path = local_path(uri)
        if path is not None:
            with storage_errors(uri):
                self._below(os.path.realpath(path), uri, description)

    def check_written(self, uri: str, description: str) -> None:
        """Refuse a directory or file outside of the roots by its URI alone, without a request to the store.

        :raises SourceNotAllowedError: if it lies outside.
        """
        if not _is_allowed(self.roots, uri):
            raise _refused(uri, description, self.roots)

    def watch(self, files: Iterable[Item], description: str) -> Iterator[Item]:
        """Yield files, and refuse links that lead out of the roots.

        The method follows the links in the path of the first directory. Of each other directory beside or
        below a known one, and of each file, it only asks whether that is a link: there are thousands of them.

        :param files: objects with an attribute ``uri``.
        :param description: their description for the error.
        :raises SourceNotAllowedError: if a file lies outside.
        """
        real_paths: dict[str, str] = {}
        allowed: set[str] = set()
        for file in files:
            uri: str = file.uri  # type: ignore[attr-defined]
            path = local_path(uri)
            if path is not None:
                folder = path.rpartition("/")[0] or "/"
                with storage_errors(uri):
                    if _is_link(path) or not self._allows(folder, uri, real_paths, allowed):
                        self.check(uri, description)
            yield file

    def _allows(self, folder: str, uri: str, real_paths: dict[str, str], allowed: set[str]) -> bool:
        """Return whether the roots contain the directory of a file.

        :param real_paths: real paths of directories, by their paths; extended.
        :param allowed: directories that the roots contain; extended.
        """
        if folder not in allowed:
            if not _is_allowed(self.roots, uri) or self._root_of(_real_folder(folder, real_paths)) is None:
                return False
            allowed.add(folder)
        return True

    @contextmanager
    def opened(self, uri: str) -> Iterator[BinaryIO]:
        """Open a local file for unbuffered reading, and refuse links that lead out of the roots.

        The method resolves links first. Then it opens each directory of the path relative to its parent, and
        refuses links at this point: so it does not follow a link that was created meanwhile.

        :raises SourceNotAllowedError: if it lies outside, or is no file.
        :raises StorageError: if it cannot be opened.
        """
        with storage_errors(uri):
            descriptor = self._open(uri)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            yield file

    def _open(self, uri: str) -> int:
        self.check_written(uri, "the file")
        path = os.path.realpath(local_path(uri) or "")
        root = self._below(path, uri, "the file")
        inside = [part for part in path[len(root) :].split("/") if part]
        at = os.open(root if inside else root.rpartition("/")[0] or "/", _PASS & ~os.O_NOFOLLOW)
        try:
            for name in inside[:-1]:
                at, before = os.open(name, _PASS, dir_fd=at), at
                os.close(before)
            descriptor = os.open(inside[-1] if inside else root.rpartition("/")[2], _READ, dir_fd=at)
        except OSError as error:
            if error.errno in {errno.ELOOP, errno.ENOTDIR}:
                raise _refused(
                    uri, "the file, which became a link while it was opened,", self.roots
                ) from error
            raise
        finally:
            os.close(at)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise SourceNotAllowedError(
                f"{uri} is no file, but a device, pipe or directory: it is not copied.",
                remedy="Remove it from the directory of the table.",
                path=uri,
            )
        return descriptor

    def _below(self, real: str, uri: str, description: str) -> str:
        """Return the real path of the root that contains a real path."""
        root = self._root_of(real)
        if root is None:
            raise _refused(uri, description, self.roots, real)
        return root

    def _root_of(self, real: str) -> str | None:
        for root in _real_roots(self.roots):
            if real == root or real.startswith(f"{root.rstrip('/')}/"):
                return root
        return None


def checked_roots(roots: Iterable[str], where: str) -> tuple[str, ...]:
    """Check that roots are URIs or absolute paths, and return them without blank ones.

    :param where: the field or variable that has them.
    :raises ConfigurationError: if a root is neither.
    """
    stripped = tuple(root.strip() for root in roots if root.strip())
    for root in stripped:
        # A relative path would be another directory in each process.
        if ":" not in root and not root.startswith("/"):
            raise ConfigurationError(
                f"{where} has {root!r}, which is not a URI.",
                remedy="Write absolute URIs: file:/data/warehouse, s3://bucket/warehouse.",
            )
        parse_location(root)
    return stripped


def _real_folder(folder: str, known: dict[str, str]) -> str:
    """Return the real path of a directory.

    :param known: real paths by paths, to which this one and that of the parent are added.
    """
    if folder not in known:
        parent, _, name = folder.rpartition("/")
        is_plain = not _is_link(folder)
        if is_plain and parent in known:
            known[folder] = f"{known[parent].rstrip('/')}/{name}"
        else:
            known[folder] = os.path.realpath(folder)
            if is_plain:
                known[parent] = known[folder].rpartition("/")[0]
    return known[folder]


def _is_link(path: str) -> bool:
    return os.path.islink(path)  # noqa: PTH114 - a Path takes three times as long


@lru_cache(maxsize=4096)
def _is_allowed(roots: tuple[str, ...], uri: str) -> bool:
    # A snapshot shows the files of its own directory.
    uri = live_uri(uri)
    if not roots:
        return parse_location(uri).scheme in SHARED_STORES
    return any(_is_within(uri, root) for root in roots)


def _is_within(uri: str, root: str) -> bool:
    outer = parse_location(root)
    if outer.authority or outer.path != "/":
        return is_below(uri, root)
    return parse_location(uri).scheme == outer.scheme


@lru_cache(maxsize=64)
def _real_roots(roots: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(os.path.realpath(path) for root in roots if (path := local_path(root)) is not None)


def _refused(uri: str, description: str, roots: tuple[str, ...], real: str = "") -> SourceNotAllowedError:
    leads = f", which a link leads to from {uri}" if real and real != local_path(uri) else ""
    shown = f"file:{real}" if leads else uri
    allowed = f"{', '.join(roots)}" if roots else "stores that machines share (hdfs, s3, gs, abfs, …)"
    return SourceNotAllowedError(
        f"{description[:1].upper()}{description[1:]} is {shown}{leads}. It may be copied from {allowed}, "
        "and from nowhere else.",
        remedy="If it may be copied, name a directory above it: for a copy between clusters, in the "
        f"environment variable {ROOTS_VARIABLE} of the workers; for a replication, in allowed_source_roots "
        "of the policy, and in that variable if an administrator has set it. Else move the data, or leave "
        "the table out.",
        path=uri,
        leads_to=shown,
        field="allowed_source_roots",
    )
