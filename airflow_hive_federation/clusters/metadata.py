"""Reads and writes cluster metadata in the parameters of tables and partitions. Pure.

Hive's design has a ``PrimaryCluster`` and ``SecondaryClusters`` in the storage descriptor. No metastore has
those fields, so they are parameters of the table, or of the partition, and ``sd.location`` stays the
primary's, as every client reads it::

    hive.cluster.primary                    C1
    hive.cluster.primary.next               C2    while C2 is being made the primary
    hive.cluster.secondary.C2.location      s3://c2/warehouse/sales.db/orders/day=2026-01-01/copy-…
    hive.cluster.secondary.C2.source        1:…   the state of the primary from which the copy was made
    hive.cluster.secondary.C2.snapshot      sales.orders:9:…   of transactional tables: the valid write ids

The primary belongs to a table: its partitions inherit it. Each unpartitioned table and each partition has
secondaries of its own, each with location and source, or without any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NoReturn

from airflow_hive_federation.errors import AcidFormatError, ClusterMetadataError
from airflow_hive_federation.metastore.objects import TableOrPartition
from airflow_hive_federation.model.content_marks import content_mark, digest_of, listing_mark, visible_files
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import ValidWriteIds

PRIMARY = "hive.cluster.primary"
_NEXT = "hive.cluster.primary.next"
_SECONDARY = "hive.cluster.secondary."
_LOCATION, _SOURCE, _FORMER, _SNAPSHOT = ".location", ".source", ".former", ".snapshot"
_PARTS = frozenset({_LOCATION, _SOURCE, _FORMER, _SNAPSHOT})
_VERSION = "1"
#: Parameters that Hive's metastore, Hive and Spark change when they write; without any of them, writes are
#: unknown.
_WRITTEN = ("transient_lastDdlTime", "numFiles", "totalSize", "numFilesErasureCoded")


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceMark:
    """The state of the primary that a copy was made from.

    A write by Hive changes parameters in the metastore. Spark and other writers may change files without any
    call to the metastore; the listing reveals such writes.

    :param metadata: a digest of location, write id and statistics of the table or partition.
    :param files: the number of files.
    :param size_bytes: the size of the files.
    :param content: a digest of the paths and sizes of the files, which are the same in the copy.
    :param listing: a digest of the paths, sizes and modification times of the primary's files.
    """

    metadata: str
    files: int
    size_bytes: int
    content: str
    listing: str

    def __str__(self) -> str:
        return ":".join(
            (_VERSION, self.metadata, str(self.files), str(self.size_bytes), self.content, self.listing)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Secondary:
    """A copy in a secondary cluster.

    :param location: the URI of its directory.
    :param source: the state of the primary that it was made from.
    :param former: the URI of the previous copy, which readers may still use; the next copy drops it.
    :param snapshot: for a transactional table, the write ids that are visible in the copy.
    """

    location: str
    source: SourceMark
    former: str | None = None
    snapshot: ValidWriteIds | None = None

    @property
    def directories(self) -> list[str]:
        """The URIs of the directories that it names."""
        return [uri for uri in (self.location, self.former) if uri]


@dataclass(frozen=True, kw_only=True)
class ClusterMetadata:
    """The cluster metadata of a table or a partition.

    :param primary: the name of the primary cluster; ``None`` for unassigned tables and for partitions.
    :param secondaries: the copies, by the name of their cluster.
    :param next_primary: the cluster that is becoming the primary; some partitions may have moved already.
    """

    primary: str | None = None
    next_primary: str | None = None
    secondaries: Mapping[str, Secondary] = field(default_factory=dict)

    def with_secondary(self, cluster: str, secondary: Secondary | None) -> ClusterMetadata:
        """Return the same metadata with another copy, or no copy, in a cluster."""
        others = {name: copy for name, copy in self.secondaries.items() if name != cluster}
        return replace(self, secondaries=others if secondary is None else {**others, cluster: secondary})


def read_metadata(parameters: Mapping[str, str] | None, object_title: str) -> ClusterMetadata:
    """Read the cluster metadata in the parameters of a table or partition.

    :param object_title: the table or partition, for error messages.
    :raises ClusterMetadataError: the location or source of a copy is missing or unreadable.
    """
    parts_by_cluster: dict[str, dict[str, str]] = {}
    for key, value in (parameters or {}).items():
        if key.startswith(_SECONDARY):
            name, dot, part = key.removeprefix(_SECONDARY).rpartition(".")
            if not name or dot + part not in _PARTS:
                _refuse(object_title, f"the parameter {key} is not known", name or None)
            parts_by_cluster.setdefault(name, {})[dot + part] = value
    return ClusterMetadata(
        primary=(parameters or {}).get(PRIMARY) or None,
        next_primary=(parameters or {}).get(_NEXT) or None,
        secondaries={
            name: _secondary(name, parts, object_title) for name, parts in sorted(parts_by_cluster.items())
        },
    )


def write_metadata(parameters: Mapping[str, str] | None, metadata: ClusterMetadata) -> dict[str, str]:
    """Return the parameters with their cluster metadata replaced."""
    made = without_metadata(parameters)
    if metadata.primary:
        made[PRIMARY] = metadata.primary
    if metadata.next_primary:
        made[_NEXT] = metadata.next_primary
    for name, copy in metadata.secondaries.items():
        made[_SECONDARY + name + _LOCATION] = copy.location
        made[_SECONDARY + name + _SOURCE] = str(copy.source)
        if copy.former:
            made[_SECONDARY + name + _FORMER] = copy.former
        if copy.snapshot is not None:
            made[_SECONDARY + name + _SNAPSHOT] = copy.snapshot.text()
    return made


def without_metadata(parameters: Mapping[str, str] | None) -> dict[str, str]:
    """Return the parameters without cluster metadata."""
    return {
        key: value
        for key, value in (parameters or {}).items()
        if key not in {PRIMARY, _NEXT} and not key.startswith(_SECONDARY)
    }


def metadata_mark(described: TableOrPartition) -> str:
    """Return a digest of the metastore's parameters for the data of a table or partition.

    Hive changes ``transient_lastDdlTime`` with any other change, even of a comment. Then a copy counts as
    stale, and copying it again only compares files.
    """
    parameters = described.parameters or {}
    location = (described.sd.location if described.sd else None) or ""
    parts = [location, str(described.writeId or 0), *(parameters.get(name, "") for name in _WRITTEN)]
    return digest_of(parts)


def place_mark(described: TableOrPartition) -> str:
    """Return a digest of the location of a transactional table or partition.

    Write ids reveal the writes. Statistics do not, because compactions also change them, but change no row.
    """
    return digest_of([(described.sd.location if described.sd else None) or "", "transactional"])


def source_mark(described: TableOrPartition, files: Iterable[FileEntry]) -> SourceMark:
    """Return the mark of the present state of a primary.

    :param files: the listing of its directory.
    """
    listed = sorted(visible_files(files), key=lambda file: file.path)
    return SourceMark(
        metadata=metadata_mark(described),
        files=len(listed),
        size_bytes=sum(file.size_bytes for file in listed),
        content=content_mark(listed),
        listing=listing_mark(listed),
    )


def _secondary(cluster: str, parts: Mapping[str, str], object_title: str) -> Secondary:
    location, source = parts.get(_LOCATION), parts.get(_SOURCE)
    if not location or not source:
        missing = _SOURCE if location else _LOCATION
        _refuse(
            object_title,
            f"the copy in cluster {cluster} has no parameter {_SECONDARY}{cluster}{missing}",
            cluster,
        )
    return Secondary(
        location=location,
        source=_source(source, cluster, object_title),
        former=parts.get(_FORMER) or None,
        snapshot=_snapshot(parts.get(_SNAPSHOT), cluster, object_title),
    )


def _snapshot(text: str | None, cluster: str, object_title: str) -> ValidWriteIds | None:
    if not text:
        return None
    try:
        return _parsed(text)
    except AcidFormatError:
        _refuse(
            object_title,
            f"the snapshot of the copy in cluster {cluster} cannot be read: {text[:100]!r}",
            cluster,
        )


@lru_cache(maxsize=256)
def _parsed(text: str) -> ValidWriteIds:
    """Parse a snapshot; the cache helps because the partitions of a table share few snapshots."""
    return ValidWriteIds.parse(text)


def _source(text: str, cluster: str, object_title: str) -> SourceMark:
    parts = text.split(":")
    if len(parts) != 6 or parts[0] != _VERSION or not (parts[2].isdecimal() and parts[3].isdecimal()):
        _refuse(
            object_title, f"the mark of the copy in cluster {cluster} cannot be read: {text[:100]!r}", cluster
        )
    return SourceMark(
        metadata=parts[1], files=int(parts[2]), size_bytes=int(parts[3]), content=parts[4], listing=parts[5]
    )


def _refuse(object_title: str, why: str, cluster: str | None) -> NoReturn:
    table, _, partition = object_title.partition("/")
    raise ClusterMetadataError(
        f"The cluster metadata of {object_title} is damaged: {why}.",
        remedy=f"Unset the parameters {_SECONDARY}<cluster>.* of that copy, and copy it again.",
        table=table,
        partition=partition or None,
        cluster=cluster,
    )
