"""Parses Hive's URIs, opens their file systems, and translates their errors to those of this package.

A Hive location is the text of a Hadoop ``Path`` (``org.apache.hadoop.fs.Path.toString``): nothing in it is
percent-encoded, so ``%``, ``?`` and ``#`` are ordinary characters (a partition value with a colon lies in the
directory ``p=a%3Ab``), and URL parsers would misread it. ``file:/x``, ``file:///x`` and ``/x`` are the same
location.
"""

from __future__ import annotations

import errno
import importlib
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from airflow_hive_federation.errors import (
    BucketMissingError,
    ConfigurationError,
    FileVanishedError,
    HiddenLocationError,
    HiveFederationError,
    StorageError,
    StorageFullError,
    StoragePermissionError,
)
from airflow_hive_federation.model.files import hidden_name
from airflow_hive_federation.storage.azure_accounts import account_options
from airflow_hive_federation.storage.object_store_errors import driver_errors, object_store_error
from airflow_hive_federation.storage.options import StorageOptions, StorageValue

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


#: Hadoop's and fsspec's schemes, and the ones that this package uses for the same stores.
_SCHEME_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "local": "file"}

#: Stores in which a file appears, complete, at the commit of its upload, and in which a rename is a copy.
OBJECT_STORES = frozenset({"s3", "gs", "abfs"})

#: Stores whose files have owners, groups and modes.
WITH_MODES = frozenset({"file", "hdfs"})

#: Command that installs the driver of a scheme.
_EXTRAS = {
    "s3": "pip install 'airflow-hive-federation[s3]'",
    "hdfs": "pip install 'airflow-hive-federation[hdfs]'",
    "gs": "pip install 'airflow-hive-federation[gcs]'",
    "abfs": "pip install 'airflow-hive-federation[azure]'",
}

#: Schemes of Hadoop that are refused, and the locations that tables need instead. fsspec has a driver of its
#: own for one of them, and would open a directory of another store or of none.
_WITHOUT_DRIVER = {
    **dict.fromkeys(("viewfs", "webhdfs", "swebhdfs", "ofs", "o3fs"), "hdfs://nameservice/path"),
    **dict.fromkeys(("wasb", "wasbs"), "abfs://container@account.dfs.core.windows.net/path"),
}

_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/]*))?(?P<path>/.*)?", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Location:
    """Scheme, authority and path of a URI.

    :param scheme: ``file``, ``s3``, ``hdfs``, …; one name for Hadoop's variants of it.
    :param authority: bucket, or host and port; empty if the URI has none.
    :param path: absolute path without a trailing ``/``, except for the root itself.
    """

    scheme: str
    authority: str
    path: str

    @property
    def is_local(self) -> bool:
        """Return whether the path is local to the machine (a network mount included)."""
        return self.scheme == "file"

    def __str__(self) -> str:
        return (
            f"{self.scheme}:{self.path}" if self.is_local else f"{self.scheme}://{self.authority}{self.path}"
        )


def parse_location(uri: str) -> Location:
    """Parse and normalise a URI or a bare local path.

    :raises ConfigurationError: if it is no URI, is a ``file`` URI of another host, or has a name ``.`` or
        ``..``, or a NUL character, which no file system accepts.
    """
    _refuse_nul(uri)
    match = _URI.fullmatch(uri)
    if match is None:
        if not uri or "://" in uri:
            raise ConfigurationError(
                f"{uri!r} is not a URI.", remedy="Write scheme://authority/path, or a path."
            )
        # A user may give a relative path in the shell.
        path = uri if uri.startswith("/") else os.path.abspath(uri)  # noqa: PTH100 - Path keeps '..'
        return Location(scheme="file", authority="", path=_clean(path))
    scheme = match["scheme"].lower()
    scheme = _SCHEME_ALIASES.get(scheme, scheme)
    authority = (match["authority"] or "").lower()
    if scheme == "file" and authority not in {"", "localhost"}:
        raise ConfigurationError(
            f"{uri!r} names a file of host {authority!r}.", remedy="Local files are file:/path.", path=uri
        )
    return Location(
        scheme=scheme,
        authority="" if scheme == "file" else match["authority"] or "",
        path=_clean(match["path"] or "/"),
    )


def canonical(uri: str) -> str:
    """Return the canonical form of a URI: ``file:/x``, ``s3`` for ``s3a``, single slashes, no final slash."""
    return str(parse_location(uri))


def is_below(uri: str, base: str) -> bool:
    """Return whether ``uri`` is ``base`` or lies below it."""
    inner, outer = _comparable(uri), _comparable(base)
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")


def innermost(uri: str, directories: Collection[str]) -> str:
    """Return the innermost of some directories that is ``uri`` or holds it; an empty text for none of them.

    :param uri: canonical URI.
    :param directories: canonical URIs.
    """
    while uri and uri not in directories:
        uri = uri.rpartition("/")[0]
    return uri


def join(uri: str, *parts: str) -> str:
    """Append path parts, each relative and with ``/`` between names.

    :raises ConfigurationError: if a part has a name ``.`` or ``..``, which could leave the directory, or a
        NUL character.
    """
    for part in parts:
        _refuse_nul(part)
        _refuse_dots(part)
    return "/".join([uri.rstrip("/"), *(part.strip("/") for part in parts if part.strip("/"))])


def join_below(root: str, *parts: str) -> str:
    """Append path parts as :func:`join` does, and check that the result lies below the root.

    Here names from a metastore or a dump become paths of a target: this is the last check, after all others.

    :raises ConfigurationError: if the result does not lie below the root.
    """
    uri = join(root, *parts)
    if not uri.startswith(f"{root.rstrip('/')}/"):
        raise ConfigurationError(
            f"{'/'.join(parts)!r} does not lie below {root}, but is to be written there.",
            remedy="Find out who wrote this name into the metastore or the dump.",
            path=uri,
        )
    return uri


def relative(uri: str, base: str) -> str:
    """Return the path of ``uri`` below ``base``; empty for ``base`` itself.

    :raises ConfigurationError: if ``uri`` does not lie below ``base``.
    """
    if not is_below(uri, base):
        raise ConfigurationError(f"{uri} does not lie below {base}.", path=uri)
    return parse_location(uri).path[len(parse_location(base).path.rstrip("/")) :].lstrip("/")


def refuse_hidden(uri: str, description: str, *, remedy: str) -> None:
    """Refuse a directory whose tables Hive would read as empty.

    :param description: the directory's description for the error.
    :raises HiddenLocationError: if a name in its path begins with ``.`` or ``_``.
    """
    name = hidden_name(parse_location(uri).path)
    if name is not None:
        raise HiddenLocationError(
            f"Hive would read tables in {description}, {uri}, as empty: it hides paths in which a name "
            f"begins with '.' or '_', as {name!r} does.",
            remedy=remedy,
            path=uri,
        )


def local_path(uri: str) -> str | None:
    """Return the local path of a URI; ``None`` for other stores."""
    location = parse_location(uri)
    return location.path if location.is_local else None


def options_for(uri: str, options: StorageOptions | None) -> dict[str, StorageValue]:
    """Return the fsspec options for a URI.

    :param options: either options for every URI (``{"key": …, "secret": …}``), or, if source and target need
        different ones, a mapping from URI prefixes to options (``{"s3://a": {…}, "s3://b": {…}}``); the
        longest prefix of ``uri`` applies, and no options if the mapping has none.
    """
    by_prefix = options_by_prefix(options)
    if "" in by_prefix:
        return dict(by_prefix[""])
    prefixes = [prefix for prefix in by_prefix if is_below(uri, prefix)]
    return dict(by_prefix[max(prefixes, key=lambda prefix: len(canonical(prefix)))]) if prefixes else {}


def options_by_prefix(options: StorageOptions | None) -> dict[str, StorageOptions]:
    """Return storage options by URI prefix; the prefix of options for every URI is empty."""
    if not options:
        return {}
    by_prefix = {
        key: value for key, value in options.items() if _URI.fullmatch(key) and isinstance(value, Mapping)
    }
    return by_prefix if len(by_prefix) == len(options) else {"": options}


def open_filesystem(uri: str, options: StorageOptions | None = None) -> tuple[AbstractFileSystem, str]:
    """Return the fsspec file system of a URI, and the URI's path in that file system.

    :param uri: URI or bare local path.
    :param options: see :func:`options_for`.
    :raises ConfigurationError: if no driver for the scheme is installed, it does not accept the options, or
        they are those of another account of Azure.
    :raises StorageError: if the store cannot be reached.
    """
    location = parse_location(uri)
    if location.scheme in _WITHOUT_DRIVER:
        raise ConfigurationError(
            f"{uri}: the package has no driver for {location.scheme}://.",
            remedy=f"Give the table or directory a location of the form {_WITHOUT_DRIVER[location.scheme]}.",
            path=uri,
        )
    chosen = options_for(uri, options)
    try:
        with storage_errors(uri):
            filesystem = _driver(location, chosen)
    except ImportError as error:
        raise ConfigurationError(
            f"No driver for {location.scheme}:// is installed ({error}).",
            remedy=_EXTRAS.get(location.scheme, f"Install the fsspec driver of {location.scheme}") + ".",
            path=uri,
        ) from error
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigurationError(
            f"{uri} cannot be opened: {error}",
            remedy="Check the URI's scheme and the storage options.",
            path=uri,
        ) from error
    return filesystem, _filesystem_path(location)


@contextmanager
def reading(uri: str, options: StorageOptions | None = None) -> Iterator[BinaryIO]:
    """Open a file for buffered reading of bytes.

    :raises FileVanishedError: if it does not exist.
    :raises StorageError: if it cannot be opened.
    """
    path = local_path(uri)
    with store_errors(uri, options):
        if path is not None:
            file: BinaryIO = open(path, "rb")  # noqa: SIM115, PTH123
        else:
            filesystem, known_as = open_filesystem(uri, options)
            file = filesystem.open(known_as, "rb")
    with file:
        yield file


@contextmanager
def storage_errors(path: str) -> Iterator[None]:
    """Translate the errors of a file system in the block to errors of this package.

    :param path: URI for the error.
    :raises FileVanishedError: if the file does not exist (ENOENT).
    :raises StoragePermissionError: if the store denies the access (EACCES, EPERM), or is read-only (EROFS).
    :raises StorageFullError: if the space (ENOSPC), quota (EDQUOT) or file size limit (EFBIG) is used up.
    :raises StorageCredentialsExpiredError: if an object store refuses expired credentials.
    :raises BucketMissingError: if the bucket does not exist.
    :raises StorageUnavailableError: if an object store limits the rate of requests, fails or does not answer.
    :raises StorageError: for any other error of the store.
    """
    handled = sys.exception()
    try:
        yield
    except HiveFederationError:
        raise
    except OSError as error:
        raise _translated(error, path, handled) from error
    except driver_errors() as error:
        raise object_store_error(error, path, handled) or StorageError(
            f"{path}: {type(error).__name__}: {error}",
            remedy="Check the storage options and that the store can be reached from here.",
            path=path,
        ) from error
    except (RuntimeError, ValueError) as error:
        # adlfs raises the former for a refused upload, whose cause is the store's answer, and gcsfs, for
        # refused credentials, the latter.
        refused = object_store_error(error, path, handled)
        if refused is None:
            raise
        raise refused from error


@contextmanager
def store_errors(uri: str, options: StorageOptions | None = None) -> Iterator[None]:
    """Translate errors as :func:`storage_errors` does, and distinguish a missing bucket from a file.

    The drivers of Google's and Azure's stores have one error for both. A missing bucket must not look like a
    directory without files, so the function asks the store for the bucket where a file is missing.

    :param uri: URI of a file or directory of one store.
    :param options: see :func:`options_for`.
    :raises BucketMissingError: if the bucket or container does not exist.
    :raises StorageError: see :func:`storage_errors`.
    """
    try:
        with storage_errors(uri):
            yield
    except FileVanishedError as error:
        refuse_missing_bucket(uri, options, cause=error)
        raise


def refuse_missing_bucket(
    uri: str, options: StorageOptions | None = None, *, cause: BaseException | None = None
) -> None:
    """Raise an error if a bucket of Google's store or a container of Azure's does not exist.

    A bucket that these credentials may not look at counts as existing.

    :param cause: the error that the missing bucket explains.
    :raises BucketMissingError: if it does not exist.
    """
    location = parse_location(uri)
    if location.scheme not in {"gs", "abfs"}:
        return
    filesystem = open_filesystem(uri, options)[0]
    bucket = location.authority.partition("@")[0]
    try:
        with storage_errors(uri):
            if location.scheme == "abfs":
                there = bool(filesystem.exists(bucket))
            else:
                # A right to list its files is enough for this request, and not for that of the bucket itself.
                there = bool(filesystem.call("GET", "b/{}/o", bucket, maxResults=1, json_out=True))
    except (FileVanishedError, BucketMissingError):
        there = False
    except StorageError:
        return
    if not there:
        raise BucketMissingError(
            f"The bucket or container {bucket!r} of {uri} does not exist.",
            remedy="Create it, or correct the URI or the endpoint.",
            path=uri,
        ) from cause


def protocols(filesystem: AbstractFileSystem) -> tuple[str, ...]:
    """Return the schemes of an fsspec file system."""
    protocol = filesystem.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _driver(location: Location, options: dict[str, StorageValue]) -> AbstractFileSystem:
    if location.is_local:
        from airflow_hive_federation.storage.local import LocalFiles

        return LocalFiles()
    if location.scheme == "hdfs":
        from airflow_hive_federation.storage.hdfs import HdfsFileSystem

        return HdfsFileSystem(location.authority, **options)
    if location.scheme in OBJECT_STORES:
        # Otherwise a thread that has listed a directory misses what other processes write there later.
        options = {"use_listings_cache": False, **options}
    if location.scheme == "abfs":
        host = location.authority.partition("@")[2]
        options = {**account_options(str(location), host, options), **options}
    if location.scheme == "gs":
        # Otherwise gcsfs asks Google about a token by a URL with the token in it, which errors show.
        os.environ.setdefault("FETCH_RAW_TOKEN_EXPIRY", "false")
    fsspec = importlib.import_module("fsspec")
    return fsspec.filesystem(location.scheme, **options)


def _filesystem_path(location: Location) -> str:
    if location.scheme in {"file", "hdfs"}:
        return location.path
    return _clean(f"/{location.authority}{location.path}") if location.scheme == "memory" else _key(location)


def _key(location: Location) -> str:
    # adlfs lists files by their container: with the account, no file would seem to lie below the directory.
    bucket = location.authority.partition("@")[0] if location.scheme == "abfs" else location.authority
    return f"{bucket}{location.path}".rstrip("/")


def _refuse_dots(path: str) -> None:
    """Refuse paths with names ``.`` or ``..``.

    Hadoop's ``Path`` never has them, because it resolves them. A user who writes one into a metastore or a
    dump by other means could have files read, written or removed outside of their directories.
    """
    if "." in path and not {".", ".."}.isdisjoint(path.split("/")):
        raise ConfigurationError(
            f"The path {path!r} has a name '.' or '..', by which it would leave its directory.",
            remedy="Write the path without them. If a metastore or a dump has it, find out who wrote it.",
            path=path,
        )


def _refuse_nul(path: str) -> None:
    if "\0" in path:
        raise ConfigurationError(
            f"The path {path!r} has a NUL character, which no file system takes.",
            remedy="Write the path without it. If a metastore or a dump has it, find out who wrote it.",
            path=path,
        )


def _clean(path: str) -> str:
    _refuse_dots(path)
    collapsed = re.sub(r"/{2,}", "/", path) if "//" in path else path
    return collapsed.rstrip("/") or "/"


def _comparable(uri: str) -> str:
    location = parse_location(uri)
    # Host names are not case-sensitive; bucket names have no upper case.
    return f"{location.scheme}://{location.authority.lower()}{location.path}"


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}


def _translated(error: OSError, path: str, handled: BaseException | None) -> StorageError:
    refused = object_store_error(error, path, handled)
    if refused is not None:
        return refused
    reason = error.strerror or str(error) or type(error).__name__
    if isinstance(error, FileNotFoundError) or error.errno == errno.ENOENT:
        return FileVanishedError(
            f"{path} does not exist.",
            remedy="Run again if a cleaner or another writer removed it; otherwise check the name.",
            path=path,
        )
    if isinstance(error, PermissionError) or error.errno in _REFUSED:
        return StoragePermissionError(
            f"No right to use {path}: {reason}.",
            remedy="Grant the user that runs this the right to read sources and write targets.",
            path=path,
            user=_user(),
        )
    if error.errno in _FULL:
        return StorageFullError(
            f"{path} does not fit: {reason}.",
            remedy="Free space or raise the quota or file size limit, then run again; it goes on from there.",
            path=path,
        )
    return StorageError(
        f"{path}: {reason}.", remedy="Check that the store is mounted and healthy.", path=path
    )


def _user() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else ""
