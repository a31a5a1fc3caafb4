"""Describes the files that a dump lists."""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_hive_federation.acid.names import is_acid_directory, parse_directory
from airflow_hive_federation.model import json_values
from airflow_hive_federation.model.json_values import Fields, JsonObject
from airflow_hive_federation.replication.format import values
from airflow_hive_federation.storage.filesystem import join

_FIELDS = frozenset(
    {"directory", "partition", "path", "target_path", "size_bytes", "modified_ns"}
    | {"filtered", "side_file", "kept", "empty_base", "renamed_from"}
)


@dataclass(frozen=True, kw_only=True)
class DataLocation:
    """A directory that holds data of the table itself (``partition`` empty) or of a partition.

    :param partition: the partition's name, as :func:`~.partitions.partition_name` makes it.
    :param location: URI of the directory.
    """

    partition: str
    location: str


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
    :param empty_base: the source has only the file's directory, a base without files that hides all earlier
        rows. The load makes the file.
    :param renamed_from: path inside the directory that the file had, unchanged, in the table's last dump.
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
    empty_base: bool = False
    renamed_from: str = ""

    @property
    def uri(self) -> str:
        return join(self.directory, self.path)

    @classmethod
    def from_json(cls, value: object) -> VisibleFile:
        """Read a line.

        :raises ValueError: a field is missing, is not known, has another type, or has a name or path that
            leads elsewhere.
        """
        fields = Fields(value)
        file = cls(
            directory=fields.needed("directory", values.location),
            partition=fields.needed("partition", values.partition_or_table),
            path=fields.needed("path", values.path),
            target_path=fields.needed("target_path", values.path),
            size_bytes=fields.needed("size_bytes", json_values.count),
            modified_ns=fields.needed("modified_ns", json_values.whole),
            filtered=fields.optional("filtered", json_values.flag, default=False),
            side_file=fields.optional("side_file", values.path_or_none, default=""),
            kept=fields.optional("kept", values.location_or_none, default=""),
            empty_base=fields.optional("empty_base", json_values.flag, default=False),
            renamed_from=fields.optional("renamed_from", values.path_or_none, default=""),
        )
        fields.refuse_others(_FIELDS)
        if file.path != file.target_path and target_file_path(file.path) != file.target_path:
            raise ValueError(f"the file {file.path!r} does not belong at {file.target_path!r} of the target")
        return file

    def to_json(self) -> JsonObject:
        return {
            "directory": self.directory,
            "partition": self.partition,
            "path": self.path,
            "target_path": self.target_path,
            "size_bytes": self.size_bytes,
            "modified_ns": self.modified_ns,
            "filtered": self.filtered,
            "side_file": self.side_file,
            "kept": self.kept,
            **({"empty_base": True} if self.empty_base else {}),
            **({"renamed_from": self.renamed_from} if self.renamed_from else {}),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class CopiedFile:
    """The record that a load keeps of a file on the target.

    :param uri: canonical URI of the file.
    :param digest: lower-case hexadecimal SHA-256 of its bytes.
    """

    uri: str
    digest: str

    @classmethod
    def from_json(cls, value: object) -> CopiedFile:
        """Read a line.

        :raises ValueError: a field is missing, or has another type, or the URI leads elsewhere.
        """
        fields = Fields(value)
        return cls(uri=fields.needed("uri", values.location), digest=fields.needed("digest", values.digest))

    def to_json(self) -> JsonObject:
        return {"uri": self.uri, "digest": self.digest}


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedTime:
    """The time that a file of a table without transactions had when a load had placed it.

    :param uri: canonical URI of the file.
    :param modified_ns: its modification time.
    """

    uri: str
    modified_ns: int

    @classmethod
    def from_json(cls, value: object) -> PlacedTime:
        """Read a line.

        :raises ValueError: a field is missing, or has another type, or the URI leads elsewhere.
        """
        fields = Fields(value)
        return cls(
            uri=fields.needed("uri", values.location),
            modified_ns=fields.needed("modified_ns", json_values.whole),
        )

    def to_json(self) -> JsonObject:
        return {"uri": self.uri, "modified_ns": self.modified_ns}


def target_file_path(path: str) -> str:
    """Return the path of a file inside its table or partition on the target.

    The path loses the ``_vN`` of a compacted directory. It names a transaction of the *source*, and readers
    of the target would judge it by their own transactions (HIVE-21213).
    """
    first, slash, rest = path.partition("/")
    if not is_acid_directory(first):
        return path
    return f"{replace(parse_directory(first), visibility_txn_id=0)}{slash}{rest}"
