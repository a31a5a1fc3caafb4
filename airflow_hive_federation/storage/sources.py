"""The roots that a replication may copy from.

Whoever may alter tables of a source writes their locations, and puts links into their directories: files that
the worker's account can read would come into the replica, whatever they hold. So a policy names roots, and an
administrator of the workers bounds them by an environment variable. Without either, stores that machines
share are copied from, and the worker's own disk is not.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from airflow_hive_federation.errors import ConfigurationError, SourceNotAllowedError
from airflow_hive_federation.storage.filesystem import is_below, local_path, parse_location, storage_errors

#: Comma-separated URIs of the directories that policies may copy from at most.
ROOTS_VARIABLE = "HIVE_FEDERATION_SOURCE_ROOTS"
#: Where Hive's tables lie that several machines share: copied from unless roots are given.
SHARED_STORES = frozenset(
    {"hdfs", "webhdfs", "viewfs", "s3", "gs", "abfs", "wasb", "wasbs", "adl", "ofs", "oss"}
)

#: A directory is only passed through: listing it may be forbidden.
_PASS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Opening a named pipe would wait for its writer.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class SourceRoots:
    """The directories that may be copied from.

    :param roots: URIs; ``s3://`` is every bucket. Empty for the stores that machines share.
    """

    roots: tuple[str, ...] = ()

    @classmethod
    def of(cls, roots: Iterable[str], environment: Mapping[str, str] | None = None) -> SourceRoots:
        """The roots of a policy, within the bound that an administrator sets.

        :param roots: ``allowed_source_roots`` of the policy; empty for all that the bound allows.
        :param environment: of the process by default.
        :raises ConfigurationError: a root is no URI, or lies outside the bound.
        """
        text = (os.environ if environment is None else environment).get(ROOTS_VARIABLE, "")
        bound = checked_roots(text.split(","), ROOTS_VARIABLE)
        chosen = checked_roots(roots, "allowed_source_roots")
        for root in chosen:
            if bound and not any(_is_within(root, outer) for outer in bound):
                raise ConfigurationError(
                    f"allowed_source_roots has {root}, which lies outside of what the administrator of this "
                    f"worker allows: {ROOTS_VARIABLE} is {', '.join(bound)}.",
                    remedy="Name directories below those, or have the variable extended.",
                    path=root,
                )
        return cls(roots=chosen or bound)

    def check(self, uri: str, what: str) -> None:
        """Refuse a directory or file that lies elsewhere, as it is written and where links lead.

        :param uri: its URI.
        :param what: its owner and role in a sentence: ``location of table d.t``.
        :raises SourceNotAllowedError: it lies elsewhere.
        :raises StorageError: a link cannot be followed.
        """
        self.check_written(uri, what)
        path = local_path(uri)
        if path is not None:
            with storage_errors(uri):
                self._below(os.path.realpath(path), uri, what)

    def check_written(self, uri: str, what: str) -> None:
        """The same by the text of the URI alone: no store is asked.

        :raises SourceNotAllowedError: it lies elsewhere.
        """
        if not _is_allowed(self.roots, uri):
            raise _refused(uri, what, self.roots)

    def watch(self, files: Iterable[Item], what: str) -> Iterator[Item]:
        """Pass files on, refusing links that lead out of the roots.

        A directory is followed once, a file only if it is a link.

        :param files: what has an attribute ``uri``.
        :param what: their owner in a sentence.
        :raises SourceNotAllowedError: a file lies elsewhere.
        """
        followed: dict[str, None] = {}
        for file in files:
            uri: str = file.uri  # type: ignore[attr-defined]
            path = local_path(uri)
            if path is not None:
                folder = path.rpartition("/")[0] or "/"
                with storage_errors(uri):
                    if folder not in followed or Path(path).is_symlink():
                        self.check(uri, what)
                        followed[folder] = None
            yield file

    @contextmanager
    def opened(self, uri: str) -> Iterator[Any]:
        """Open a file of this machine for reading bytes, unbuffered, where links lead nowhere else.

        Links are resolved first. Then each directory on the way is opened in the one before, and none may be
        a link by then: what is put in place meanwhile is not followed.

        :raises SourceNotAllowedError: it lies elsewhere, or is no file.
        :raises StorageError: it cannot be opened.
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

    def _below(self, real: str, uri: str, what: str) -> str:
        """The real path of the root that a real path lies below."""
        for root in _real_roots(self.roots):
            if real == root or real.startswith(f"{root.rstrip('/')}/"):
                return root
        raise _refused(uri, what, self.roots, real)


def checked_roots(roots: Iterable[str], where: str) -> tuple[str, ...]:
    """Make sure that roots are URIs or absolute paths; blank ones are left out.

    :param where: the field or variable that has them.
    :raises ConfigurationError: one is none.
    """
    found = tuple(root.strip() for root in roots if root.strip())
    for root in found:
        # Relative, it would be another directory for each process.
        if ":" not in root and not root.startswith("/"):
            raise ConfigurationError(
                f"{where} has {root!r}, which is no URI.",
                remedy="Write absolute URIs: file:/data/warehouse, s3://bucket/warehouse.",
            )
        parse_location(root)
    return found


@lru_cache(maxsize=4096)
def _is_allowed(roots: tuple[str, ...], uri: str) -> bool:
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


def _refused(uri: str, what: str, roots: tuple[str, ...], real: str = "") -> SourceNotAllowedError:
    leads = f", which a link leads to from {uri}" if real and real != local_path(uri) else ""
    shown = f"file:{real}" if leads else uri
    allowed = f"{', '.join(roots)}" if roots else "stores that machines share (hdfs, s3, gs, abfs, …)"
    return SourceNotAllowedError(
        f"{what[:1].upper()}{what[1:]} is {shown}{leads}. The policy may copy from {allowed}, and from "
        "nowhere else.",
        remedy="If it may be copied, add a directory that contains it to allowed_source_roots of the policy, "
        f"and to {ROOTS_VARIABLE} if an administrator has set that; else move the data, or leave the table "
        "out (exclude_tables).",
        path=uri,
        leads_to=shown,
        field="allowed_source_roots",
    )
