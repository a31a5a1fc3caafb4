"""Describes the files that a dump lists."""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_hive_federation.acid.names import is_acid_directory, parse_directory
from airflow_hive_federation.storage.filesystem import join


@dataclass(frozen=True, kw_only=True, slots=True)
class VisibleFile:
    """A file that a reader of the snapshot opens.

    :param directory: URI of the table's or partition's directory.
    :param partition: name of the partition, empty for the table itself.
    :param path: path inside the directory.
    :param target_path: path inside the directory of a replica.
    :param size_bytes: its length when it was listed.
    :param modified_ns: its modification time when it was listed.
    :param filtered: the file also holds rows of write ids that are not committed; these must not be copied.
    :param side_file: path of the ``_flush_length`` file with the length that may be read.
    :param kept: URI in the change manager's root where the source keeps the file if it is removed.
    """

    directory: str
    partition: str
    path: str
    target_path: str
    size_bytes: int
    modified_ns: int
    filtered: bool = False
    side_file: str = ""
    kept: str = ""

    @property
    def uri(self) -> str:
        return join(self.directory, self.path)


def target_file_path(path: str) -> str:
    """Return the path of a file inside its table or partition on the target.

    The path loses the ``_vN`` of a compacted directory. It names a transaction of the *source*, and readers
    of the target would judge it by their own transactions (HIVE-21213).
    """
    first, slash, rest = path.partition("/")
    if not is_acid_directory(first):
        return path
    return f"{replace(parse_directory(first), visibility_txn_id=0)}{slash}{rest}"
