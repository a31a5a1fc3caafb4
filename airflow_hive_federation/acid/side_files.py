"""How much counts of a bucket file that is still being written.

A streaming batch keeps ``bucket_N_flush_length`` beside ``bucket_N``: at every commit the writer appends the
file's length, a big-endian number of 64 bits, and takes the side file away when the batch is closed. Hive's
writer begins it with 0 (``OrcRecordUpdater``): until its first commit, a file has no rows.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from airflow_hive_federation.errors import AcidFormatError, FileVanishedError
from airflow_hive_federation.storage.filesystem import open_filesystem, storage_errors


def read_flushed_length(uri: str, options: Mapping[str, Any] | None = None) -> int | None:
    """Read a side file.

    :param uri: URI of the side file.
    :param options: storage options.
    :return: the length in bytes up to which the bucket file may be read, 0 if it has no rows yet; ``None`` if
        there is no side file (any more): the whole file counts (``AcidUtils.getLogicalLength``).
    :raises AcidFormatError: it holds no length.
    :raises StorageError: it cannot be read.
    """
    filesystem, path = open_filesystem(uri, options)
    try:
        with storage_errors(uri):
            content: bytes = filesystem.cat_file(path)
    except FileVanishedError:
        return None
    return flushed_length(content, uri)


def flushed_length(content: bytes, name: str = "side file") -> int:
    """Return the length that a side file's content says: the last whole one counts.

    As ``OrcAcidUtils.getLastFlushLength``, which returns -1 where this raises, and then fails in
    ``AcidUtils.getLogicalLength``.

    :raises AcidFormatError: there is none.
    """
    whole = len(content) // 8
    if not whole:
        raise AcidFormatError(
            f"{name} holds no length.",
            remedy="Wait for the writer to commit, or remove both files.",
            path=name,
        )
    return int(struct.unpack_from(">q", content, (whole - 1) * 8)[0])
