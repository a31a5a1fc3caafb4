"""Removes empty directories, also those that an object store has as empty objects."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import FileVanishedError
from airflow_hive_federation.storage.filesystem import open_filesystem, protocols, storage_errors
from airflow_hive_federation.storage.listing import has_entries
from airflow_hive_federation.storage.options import StorageOptions

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


def remove_empty_directory(directory: str, options: StorageOptions | None = None) -> bool:
    """Remove a directory if it exists and is empty; return whether none is left.

    Another process may remove it at the same time.

    :param directory: URI of the directory.
    :raises StorageError: the directory cannot be listed or removed.
    """
    if has_entries(directory, options=options):
        return False
    filesystem, path = open_filesystem(directory, options)
    with suppress(FileVanishedError), storage_errors(directory):
        # An object store need not have an object for a directory.
        if filesystem.exists(path):
            _remove(filesystem, path)
    return True


def _remove(filesystem: AbstractFileSystem, path: str) -> None:
    if "s3" not in protocols(filesystem):
        filesystem.rmdir(path)
        return
    # Hadoop's object for a directory has a slash at the end. ``rmdir`` of s3fs removes buckets only, and
    # ``rm_file`` the object without that slash.
    bucket, key, _ = filesystem.split_path(path)
    filesystem.call_s3("delete_object", Bucket=bucket, Key=f"{key}/")
    filesystem.invalidate_cache(path)
