"""Reads the readable length of a bucket file that is still being written.

A streaming batch keeps ``bucket_N_flush_length`` beside ``bucket_N``. At every commit the writer appends the
file's length to this side file, as a big-endian number of 64 bits; it removes the side file when the batch is
closed. Hive's writer begins the side file with 0 (``OrcRecordUpdater``): until its first commit, a file has
no rows.
"""

from __future__ import annotations

import struct

from airflow_hive_federation.errors import AcidFormatError, FileVanishedError
from airflow_hive_federation.storage.filesystem import open_filesystem, storage_errors
from airflow_hive_federation.storage.options import StorageOptions


def read_flushed_length(uri: str, options: StorageOptions | None = None) -> int | None:
    """Read the flushed length from a side file.

    :param uri: URI of the side file.
    :return: the length in bytes up to which the bucket file may be read, 0 if it has no rows yet; ``None`` if
        the side file does not exist (any more): the whole file counts (``AcidUtils.getLogicalLength``).
    :raises AcidFormatError: if the side file holds no length.
    :raises StorageError: if the side file cannot be read.
    """
    filesystem, path = open_filesystem(uri, options)
    try:
        with storage_errors(uri):
            content: bytes = filesystem.cat_file(path)
    except FileVanishedError:
        return None
    return flushed_length(content, uri)


def flushed_length(content: bytes, name: str = "side file") -> int:
    """Return the last complete length in a side file's content.

    Hive's ``OrcAcidUtils.getLastFlushLength`` does the same, but returns -1 instead of raising, and Hive then
    fails in ``AcidUtils.getLogicalLength``.

    :raises AcidFormatError: if the content holds no complete length.
    """
    lengths = len(content) // 8
    if not lengths:
        raise AcidFormatError(
            f"{name} holds no length.",
            remedy="Wait for the writer to commit, or remove both files.",
            path=name,
        )
    return int(struct.unpack_from(">q", content, (lengths - 1) * 8)[0])
