"""Places the files of a compaction in a hidden directory and renames them when they are finished.

Each directory gets its final name by one rename. The rename does not make it visible to readers: a directory
``…_vN`` counts from the moment when transaction N commits. On object stores, where a rename is a copy, files
are therefore written under their final names.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_hive_federation.acid.names import ACID_VERSION, VERSION_FILE
from airflow_hive_federation.compaction.plan import CompactionPlan, FileFormat, staging_txn
from airflow_hive_federation.errors import FileVanishedError
from airflow_hive_federation.model.write_ids import ValidTxns
from airflow_hive_federation.storage import durable
from airflow_hive_federation.storage.filesystem import (
    OBJECT_STORES,
    join,
    open_filesystem,
    parse_location,
    protocols,
    storage_errors,
)
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.publishing import make_directory, write_atomically
from airflow_hive_federation.storage.trees import remove_tree

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


def placed(plan: CompactionPlan, location: str) -> CompactionPlan:
    """Adapt a plan to the store: on object stores, files are written under their final names."""
    if parse_location(location).scheme not in OBJECT_STORES:
        return plan
    merges = tuple(
        replace(merge, output=merge.output.removeprefix(f"{plan.staging}/")) for merge in plan.merges
    )
    return replace(plan, staging="", merges=merges)


def publish(
    plan: CompactionPlan, location: str, file_format: FileFormat, options: StorageOptions | None = None
) -> None:
    """Give the finished directories their final names, and create those that got no file.

    :raises StorageError: a directory cannot be created or renamed.
    """
    filesystem, path = open_filesystem(location, options)
    for directory in plan.directories:
        made = join(location, plan.staging, directory)
        # An object store keeps no directory without a file, and Hive's readers ignore this one.
        if file_format is FileFormat.ACID or not plan.staging:
            write_atomically(join(made, VERSION_FILE), [ACID_VERSION.encode()], options)
        make_directory(made, options)
        with storage_errors(made):
            if plan.staging:
                _move(filesystem, f"{path}/{plan.staging}/{directory}", f"{path}/{directory}")
    remove_staging(plan, location, options)


def remove_staging(plan: CompactionPlan, location: str, options: StorageOptions | None = None) -> None:
    """Remove the hidden directory with the files that were not published."""
    if plan.staging:
        _remove(join(location, plan.staging), options)


def remove_directories(
    location: str, directories: Iterable[str], options: StorageOptions | None = None
) -> None:
    """Remove directories, and ignore those that do not exist.

    :param directories: paths relative to the location.
    :raises StorageError: a directory cannot be removed.
    """
    for directory in directories:
        _remove(join(location, directory), options)


def remove_leftovers(location: str, txns: ValidTxns, options: StorageOptions | None = None) -> None:
    """Remove the hidden directories of compactions that were killed.

    :param txns: the current transactions; directories of open transactions stay.
    """
    filesystem, path = open_filesystem(location, options)
    with storage_errors(location):
        names = [str(entry).rstrip("/").rpartition("/")[2] for entry in _listed(filesystem, path)]
    for name in names:
        txn_id = staging_txn(name)
        if txn_id is not None and txn_id <= txns.high_watermark and txn_id not in txns.open_ids:
            _remove(join(location, name), options)


def _move(filesystem: AbstractFileSystem, made: str, place: str) -> None:
    if "file" in protocols(filesystem):
        # The tasks that wrote the files, on any machine, have synced them.
        durable.rename(made, place)
    else:
        filesystem.mv(made, place, recursive=True)


def _listed(filesystem: AbstractFileSystem, path: str) -> list[object]:
    try:
        return list(filesystem.ls(path, detail=False, refresh=True))
    except FileNotFoundError:
        return []


def _remove(uri: str, options: StorageOptions | None) -> None:
    filesystem, path = open_filesystem(uri, options)
    with suppress(FileVanishedError), storage_errors(uri):
        remove_tree(filesystem, path)
