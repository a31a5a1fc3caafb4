"""Parses and writes the names of directories and files in an ACID table.

========================================  ==========================================================
``base_0000005``                          INSERT OVERWRITE (or a compaction before Hive 4)
``base_0000005_v0000123``                 major compaction, made by transaction 123
``delta_0000002_0000002_0001``            inserts of write id 2, statement 1
``delta_0000002_0000007``                 streaming batch of several write ids, or minor compaction of Hive 3
``delta_0000002_0000007_v0000123``        minor compaction, made by transaction 123
``delete_delta_…``                        the same three forms for deletes
``bucket_00003``, ``bucket_00003_0``      data, the second with the number of the task attempt
``bucket_00003_flush_length``             readable length of a file that is still being written
``000003_0``, ``000003_0_copy_2``         original file: older than the table's transactions, or LOAD DATA
``_orc_acid_version``                     format version of the directory
``_metadata_acid``                        marker: compacted (Hive 3), truncated, dropped
========================================  ==========================================================

The rules are those of Hive's ``AcidUtils``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from airflow_hive_federation.errors import AcidFormatError

VERSION_FILE = "_orc_acid_version"
ACID_VERSION = "2"
"""Content of the version file (``AcidUtils.OrcAcidVersion``)."""
METADATA_FILE = "_metadata_acid"
SIDE_FILE_SUFFIX = "_flush_length"
CONVERTED_BASE_WRITE_ID = -(2**63)
"""Write id of the base from a compaction of a converted table that has no write ids yet."""


class DirectoryKind(StrEnum):
    """The kind of a directory in an ACID table."""

    BASE = "base"
    DELTA = "delta"
    DELETE_DELTA = "delete_delta"


_BASE = re.compile(r"base_(-?\d+)(?:_v(\d+))?\Z", re.ASCII)
_DELTA = re.compile(r"(delta|delete_delta)_(\d+)_(\d+)(?:_(\d+))?(?:_v(\d+))?\Z", re.ASCII)
_PREFIX = re.compile(r"(base|delta|delete_delta)_")


@dataclass(frozen=True, kw_only=True, slots=True)
class DirectoryName:
    """The parsed name of a base or delta directory.

    :param min_write_id: lowest write id inside; equal to ``max_write_id`` for a base.
    :param max_write_id: highest write id inside.
    :param statement_id: number of the statement in its transaction; ``None`` if the name has none.
    :param visibility_txn_id: id of the compacting transaction, which must be committed for the directory to
        count; 0 if no compaction made the directory.
    """

    kind: DirectoryKind
    min_write_id: int
    max_write_id: int
    statement_id: int | None = None
    visibility_txn_id: int = 0

    def __str__(self) -> str:
        if self.kind is DirectoryKind.BASE:
            name = f"base_{self.max_write_id:07d}"
        else:
            name = f"{self.kind}_{self.min_write_id:07d}_{self.max_write_id:07d}"
        if self.statement_id is not None:
            name += f"_{self.statement_id:04d}"
        return f"{name}_v{self.visibility_txn_id:07d}" if self.visibility_txn_id else name


def is_acid_directory(name: str) -> bool:
    """Return whether a name, the last part of a path, has the prefix of a base or a delta.

    A partition's directory may have the prefix, too: ``delta_t=1`` for a column ``delta_t``.
    """
    return _PREFIX.match(name) is not None and "=" not in name


def parse_directory(name: str) -> DirectoryName:
    """Parse the name of a base, delta or delete delta.

    :raises AcidFormatError: if it is the name of none of these.
    """
    if base := _BASE.match(name):
        write_id = int(base[1])
        return DirectoryName(
            kind=DirectoryKind.BASE,
            min_write_id=write_id,
            max_write_id=write_id,
            visibility_txn_id=int(base[2] or 0),
        )
    delta = _DELTA.match(name)
    if delta is None or int(delta[2]) > int(delta[3]):
        raise AcidFormatError(
            f"{name!r} is not the name of a base, delta or delete delta.",
            remedy="Rename it, or move it out of the table's directory.",
            path=name,
        )
    return DirectoryName(
        kind=DirectoryKind(delta[1]),
        min_write_id=int(delta[2]),
        max_write_id=int(delta[3]),
        statement_id=None if delta[4] is None else int(delta[4]),
        visibility_txn_id=int(delta[5] or 0),
    )


class FileKind(StrEnum):
    """The kind of a file in an ACID table."""

    BUCKET = "bucket"
    ORIGINAL = "original"
    SIDE_FILE = "side_file"
    VERSION = "version"
    METADATA = "metadata"
    HIDDEN = "hidden"
    OTHER = "other"


_HIDDEN_PREFIXES = (
    (VERSION_FILE, FileKind.VERSION),
    (METADATA_FILE, FileKind.METADATA),
    ("_", FileKind.HIDDEN),
    (".", FileKind.HIDDEN),
)
_BUCKET = re.compile(r"bucket_(\d+)(?:_(\d+))?\Z", re.ASCII)
_ORIGINAL = re.compile(r"(\d+)_(\d+)(?:_copy_(\d+))?\Z", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileName:
    """The parsed name of a file in an ACID table.

    :param bucket: bucket number; ``None`` if the name has none.
    :param attempt: number of the task attempt that wrote the file; ``None`` if the name has none.
    :param copy_number: N of ``_copy_N``; 0 if the name has none.
    """

    kind: FileKind
    bucket: int | None = None
    attempt: int | None = None
    copy_number: int = 0


def parse_file(name: str) -> FileName:
    """Classify a file by the last part of its path; a name of no known form is ``OTHER``, not an error."""
    for prefix, kind in _HIDDEN_PREFIXES:
        if name.startswith(prefix):
            return FileName(kind=kind)
    if name.endswith(SIDE_FILE_SUFFIX):
        return FileName(kind=FileKind.SIDE_FILE)
    if bucket := _BUCKET.match(name):
        attempt = None if bucket[2] is None else int(bucket[2])
        return FileName(kind=FileKind.BUCKET, bucket=int(bucket[1]), attempt=attempt)
    if original := _ORIGINAL.match(name):
        return FileName(
            kind=FileKind.ORIGINAL,
            bucket=int(original[1]),
            attempt=int(original[2]),
            copy_number=int(original[3] or 0),
        )
    return FileName(kind=FileKind.OTHER)


def bucket_file(bucket: int, attempt: int | None = None) -> str:
    """Return the name of a bucket file."""
    return f"bucket_{bucket:05d}" if attempt is None else f"bucket_{bucket:05d}_{attempt}"


def side_file(data_file: str) -> str:
    """Return the name of the file that holds the flushed length of ``data_file``."""
    return data_file + SIDE_FILE_SUFFIX
