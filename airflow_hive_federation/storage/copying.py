"""Copies a file so that a reader of the target sees all of it or nothing.

The copy writes to a hidden name beside the target, digests the bytes on the way, checks their number against
the listing, and renames the hidden file to the target. A copy that is killed leaves a hidden file, which the
next run removes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from airflow_hive_federation.errors import (
    ConfigurationError,
    FileVanishedError,
)
from airflow_hive_federation.model.files import CopyItem, CopyOutcome
from airflow_hive_federation.storage import durable
from airflow_hive_federation.storage.bandwidth import TokenBucket
from airflow_hive_federation.storage.digests import check_length, digest_file, read_chunks
from airflow_hive_federation.storage.fence import Fence
from airflow_hive_federation.storage.filesystem import (
    OBJECT_STORES,
    join,
    local_path,
    open_filesystem,
    parse_location,
    protocols,
    storage_errors,
    store_errors,
)
from airflow_hive_federation.storage.listing import file_size, is_as_listed, list_directory
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.permissions import Preserve, creation_mode, make_directories, settle
from airflow_hive_federation.storage.publishing import (
    make_directory,
    publishing,
    remove_quietly,
    rename,
    replace_local,
    temporary_run,
    temporary_uri,
)
from airflow_hive_federation.storage.sources import SourceRoots

#: A function that writes the visible rows of a source file, according to a valid write-id list, to a new
#: file: (source URI, URI to write, the list in Hive's text form, storage options).
Rewrite = Callable[[str, str, str, StorageOptions | None], None]

#: The number of directories that are surveyed in parallel.
_SURVEY_THREADS = 8


@dataclass(frozen=True, kw_only=True)
class CopySettings:
    """Settings of a copy: storage options, durability, fence and permissions.

    :param options: storage options, see :func:`.filesystem.options_for`.
    :param run_id: id in the temporary names of one run, by which other runs recognize them.
    :param sync: wait until the bytes are on the disk (``fsync``) before the file is renamed, and then until
        the name is; stores other than local file systems (NFS included) do so anyway.
    :param rewrite: function that copies files with rows of aborted write ids; without it they are refused.
    :param fence: fence that is checked before a file is published: a copy of a cycle that has ended
        publishes nothing.
    :param preserve: owner, group and mode that the copy keeps of its source.
    :param sources: directories that files may be copied from; ``None`` copies any file.
    """

    options: StorageOptions | None = field(default=None, repr=False)
    run_id: str = ""
    sync: bool = True
    rewrite: Rewrite | None = None
    fence: Fence = field(default_factory=Fence)
    preserve: Preserve = field(default_factory=Preserve)
    sources: SourceRoots | None = None


def copy_file(
    item: CopyItem,
    settings: CopySettings | None = None,
    *,
    bandwidth: TokenBucket | None = None,
) -> CopyOutcome:
    """Copy a file, unless the target is identical already.

    :param item: source and target of the copy.
    :param bandwidth: limit of the bytes read from the source per second.
    :raises SourceNotAllowedError: if the source, or the target of a link, lies outside of the directories
        that ``settings`` allow.
    :raises FileVanishedError: if the source is gone, or changed during the copy.
    :raises StoragePermissionError: if the source cannot be read, or the target not written.
    :raises StorageFullError: if the target's store is full.
    :raises ConfigurationError: if the copy has to leave out rows and ``settings`` has no ``rewrite``.
    :raises CycleLostError: if the copy's cycle is over; see :class:`~.fence.Fence`.
    :raises StorageError: if a store fails otherwise. After every error the target is unchanged.
    """
    settings = settings or CopySettings()
    # Directories first: a change manager's directory does not have the modes of the file's original one.
    preserved = make_directories(item, settings.preserve, settings.options)
    try:
        outcome = _copy(item, settings, bandwidth)
    except FileVanishedError:
        if item.kept is None:
            raise
        # The change manager's copy may have another time.
        kept = replace(item, source=item.kept, kept=None, modified_ns=0)
        outcome = _copy(kept, settings, bandwidth)
    return outcome if preserved else replace(outcome, preserved=False)


def _copy(item: CopyItem, settings: CopySettings, bandwidth: TokenBucket | None) -> CopyOutcome:
    if settings.sources is not None:
        settings.sources.check(item.source, "the file to copy")
    if item.content is not None:
        return _write_content(item, item.content.encode(), settings)
    if item.visible_write_ids is not None:
        return _rewrite_file(item, settings)
    identical = _moved(item, settings) or _identical_target(item, settings, bandwidth)
    if identical is not None:
        _check_time(item, settings)
        _keep(item, settings)
        preserved = _settle(item.target, item, settings)
        return CopyOutcome(
            target=item.target,
            size_bytes=item.size_bytes,
            digest=identical,
            copied=False,
            preserved=preserved,
        )
    with _target(item, settings) as target:
        sha = hashlib.sha256()
        read = 0
        end = item.size_bytes if item.prefix else None
        for chunk in read_chunks(item.source, end=end, options=settings.options, sources=settings.sources):
            if bandwidth is not None:
                bandwidth.take(len(chunk))
            sha.update(chunk)
            target.write(chunk)
            read += len(chunk)
        check_length(item.source, item.size_bytes, read)
        _check_time(item, settings)
        digest = sha.hexdigest()
        preserved = _settle(target.at, item, settings)
        settings.fence.check()
    return CopyOutcome(target=item.target, size_bytes=read, digest=digest, copied=True, preserved=preserved)


def _check_time(item: CopyItem, settings: CopySettings) -> None:
    """Refuse a file that another one of the same length has replaced, after it was read.

    A table may be dropped and created anew between its dump and the copy, and a partition as well. Their
    files then have the names of the former ones.
    """
    if item.modified_ns and not is_as_listed(item.source, item.modified_ns, options=settings.options):
        raise FileVanishedError(
            f"{item.source} was replaced by another file of {item.size_bytes} bytes after it was listed.",
            remedy="List it again: the file that was listed is no longer there.",
            path=item.source,
        )


def _write_content(item: CopyItem, content: bytes, settings: CopySettings) -> CopyOutcome:
    digest = hashlib.sha256(content).hexdigest()
    copied = _target_digest(item, settings) != digest
    if copied:
        # The file gets the mode of the directory that it represents, without the right to execute.
        with _target(replace(item, source=item.source.rpartition("/")[0]), settings) as target:
            target.write(memoryview(content))
            settings.fence.check()
    else:
        _keep(item, settings)
    return CopyOutcome(target=item.target, size_bytes=len(content), digest=digest, copied=copied)


def survey_targets(
    directories: Iterable[str],
    *,
    options: StorageOptions | None = None,
    sweep_runs_before: str | None = None,
) -> dict[str, int]:
    """Remove abandoned temporary files, and return the sizes in bytes of the files in directories, by URI.

    :param directories: URIs of directories, without their subdirectories; missing ones have no files.
    :param sweep_runs_before: remove temporary files of runs with a smaller id than this; ``None`` removes
        none. (A run that is taken for dead never removes files of its successors: their ids are greater.)
    :raises StorageError: if a directory cannot be listed.
    """

    def survey(directory: str) -> dict[str, int]:
        names = list_directory(directory, options=options)
        if sweep_runs_before is not None:
            _sweep(directory, names, options, lambda run: run < sweep_runs_before)
        return {join(directory, name): size for name, size in names.items()}

    sizes: dict[str, int] = {}
    with ThreadPoolExecutor(max_workers=_SURVEY_THREADS, thread_name_prefix="survey") as workers:
        for directory_sizes in workers.map(survey, directories):
            sizes.update(directory_sizes)
    return sizes


# -- the target exists already and is identical, perhaps under another name ------------------------------


def _identical_target(item: CopyItem, settings: CopySettings, bandwidth: TokenBucket | None) -> str | None:
    """Return the digest of the target if it is identical to the copy; ``None`` otherwise."""
    target_digest = _target_digest(item, settings)
    if target_digest is None:
        return None
    source = digest_file(
        item.source,
        size_bytes=item.size_bytes,
        prefix=item.prefix,
        bandwidth=bandwidth,
        options=settings.options,
        sources=settings.sources,
    )
    return target_digest if target_digest == source.digest else None


def _moved(item: CopyItem, settings: CopySettings) -> str | None:
    """Rename a file of the target that has the bytes of the copy, and return its digest.

    :return: ``None`` if the file is gone or has other bytes, or the target exists.
    """
    if item.moved_from is None or item.digest is None:
        return None
    try:
        found = _target_digest(replace(item, target=item.moved_from), settings)
    except FileVanishedError:
        # Another attempt of the job has renamed it.
        return None
    if found != item.digest or _size_or_none(item.target, settings.options) is not None:
        return None
    filesystem, former = open_filesystem(item.moved_from, settings.options)
    _, target = open_filesystem(item.target, settings.options)
    settings.fence.check()
    with storage_errors(item.target):
        rename(filesystem, former, target)
    return found


def _target_digest(item: CopyItem, settings: CopySettings) -> str | None:
    """Return the digest of a target that has the size of the copy; ``None`` for others."""
    if _size_or_none(item.target, settings.options) != item.size_bytes:
        return None
    return digest_file(item.target, options=settings.options).digest


def _keep(item: CopyItem, settings: CopySettings) -> None:
    """Sync an existing file: the process that created it may have been killed before it did so."""
    path = local_path(item.target)
    if path is not None and settings.sync:
        with storage_errors(item.target):
            durable.sync_file(path)
            durable.sync_directory(Path(path).parent)


def _size_or_none(uri: str, options: StorageOptions | None) -> int | None:
    try:
        return file_size(uri, options=options)
    except FileVanishedError:
        return None


# -- files with rows to leave out ------------------------------------------------------------------------


def _rewrite_file(item: CopyItem, settings: CopySettings) -> CopyOutcome:
    if settings.rewrite is None or item.visible_write_ids is None:
        raise ConfigurationError(
            f"{item.source} holds rows of aborted write ids, which the copy cannot leave out.",
            remedy="Set the function CopySettings.rewrite.",
            path=item.source,
        )
    # A file of a streaming batch may have grown: rows after the snapshot are not in the write-id list.
    found_bytes = file_size(item.source, options=settings.options)
    check_length(item.source, item.size_bytes, min(found_bytes, item.size_bytes))
    temporary = temporary_uri(item.target, settings.run_id)
    filesystem, path = open_filesystem(temporary, settings.options)
    _, target = open_filesystem(item.target, settings.options)
    published = False
    try:
        written = local_path(temporary)
        _reserve(temporary, creation_mode([item.source], settings.options) | 0o600, settings.options)
        settings.rewrite(item.source, temporary, item.visible_write_ids, settings.options)
        if settings.sources is not None:
            # ``rewrite`` opens the source by name: this check finds a link that has replaced it meanwhile.
            settings.sources.check(item.source, "the file to copy")
        written_digest = digest_file(temporary, options=settings.options)
        same = _size_or_none(item.target, settings.options) == written_digest.size_bytes and (
            digest_file(item.target, options=settings.options).digest == written_digest.digest
        )
        if not same:
            preserved = _settle(temporary, item, settings)
            with storage_errors(item.target):
                if written is not None and settings.sync:
                    durable.sync_file(written)
            settings.fence.check()
            with storage_errors(item.target):
                rename(filesystem, path, target)
            published = True
        else:
            _keep(item, settings)
            preserved = _settle(item.target, item, settings)
    finally:
        if not published:
            remove_quietly(filesystem, path)
    return CopyOutcome(
        target=item.target,
        size_bytes=written_digest.size_bytes,
        digest=written_digest.digest,
        copied=not same,
        preserved=preserved,
    )


def _reserve(uri: str, mode: int, options: StorageOptions | None) -> None:
    """Create an empty file with a mode, which the later writer keeps, and its directory."""
    filesystem, path = open_filesystem(uri, options)
    with storage_errors(uri):
        if (local := local_path(uri)) is not None:
            durable.make_directories(Path(local).parent)
            os.close(_create(local, mode))
            return
        make_directory(uri.rpartition("/")[0], options)
        if "hdfs" in protocols(filesystem):
            filesystem.open(path, "xb", permission=mode).close()


def _settle(at: str, item: CopyItem, settings: CopySettings) -> bool:
    """Set owner, group and mode of a file according to its source, if its store has them."""
    return settle(at, item.target, item.source, settings.preserve, settings.options)


# -- writing ---------------------------------------------------------------------------------------------


class _LocalFile:
    """An unbuffered local file whose errors have the target's URI."""

    def __init__(self, path: str, uri: str, mode: int) -> None:
        self._uri = uri
        self.at = f"file:{path}"
        with storage_errors(uri):
            try:
                self._descriptor = _create(path, mode)
            except FileNotFoundError:
                durable.make_directories(Path(path).parent)
                self._descriptor = _create(path, mode)

    def write(self, chunk: memoryview) -> None:
        with storage_errors(self._uri):
            while len(chunk):
                # A write may be cut short, by a signal or at the edge of a full disk.
                chunk = chunk[os.write(self._descriptor, chunk) :]

    def sync(self) -> None:
        with storage_errors(self._uri):
            os.fsync(self._descriptor)

    def close(self) -> None:
        # NFS reports a full disk only here.
        with storage_errors(self._uri):
            os.close(self._descriptor)


class _RemoteFile:
    """A file of an fsspec store whose errors have the target's URI."""

    def __init__(self, file: IO[bytes], uri: str, at: str, options: StorageOptions | None) -> None:
        self._file = file
        self._uri = uri
        self._options = options
        self.at = at

    def write(self, chunk: memoryview) -> None:
        with store_errors(self._uri, self._options):
            # Drivers keep a reference to the bytes, but the next chunk overwrites the buffer of `chunk`.
            self._file.write(bytes(chunk))


@contextmanager
def _target(item: CopyItem, settings: CopySettings) -> Iterator[_LocalFile | _RemoteFile]:
    """Yield a file that is renamed to the target if the block raises no error."""
    uri = item.target
    path = local_path(uri)
    hidden = temporary_uri(uri, settings.run_id)
    mode = creation_mode([item.source], settings.options)
    if path is None:
        with publishing(uri, settings.options, mode=mode, temporary=hidden, private=False) as stream:
            yield _RemoteFile(stream, uri, hidden, settings.options)
        return
    temporary = local_path(hidden) or ""
    file = _LocalFile(temporary, uri, mode)
    published = False
    try:
        try:
            yield file
            if settings.sync:
                file.sync()
        finally:
            file.close()
        with storage_errors(uri):
            replace_local(temporary, path, sync=settings.sync)
        published = True
    finally:
        if not published:
            with suppress(FileNotFoundError):
                Path(temporary).unlink()


def _create(path: str, mode: int) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)


def _sweep(
    directory: str,
    names: Iterable[str],
    options: StorageOptions | None,
    is_abandoned: Callable[[str], bool],
) -> None:
    # Object stores commit uploads under the final name: they have no temporary names to sweep.
    if parse_location(directory).scheme in OBJECT_STORES:
        return
    abandoned = [name for name in names if (run := temporary_run(name)) is not None and is_abandoned(run)]
    for name in abandoned:
        # The dying process that owns it may remove it first.
        with suppress(FileVanishedError):
            _remove(join(directory, name), options)


def _remove(uri: str, options: StorageOptions | None) -> None:
    path = local_path(uri)
    with store_errors(uri, options):
        if path is not None:
            Path(path).unlink()
            return
        filesystem, known_as = open_filesystem(uri, options)
        filesystem.rm_file(known_as)
