"""Describes one table's files on both sides, and their formats, for the Spark job that reads them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.format.job_records import PlannedDirectory, SidePlan
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.verify.partition_formats import PartitionFormats


@dataclass(frozen=True, kw_only=True)
class TableContents:
    """The files of a table on both sides.

    :param note: the reason for which the source's files cannot be read; empty if they can.
    :param unrecorded: files of the target, each with the file of the source whose digest replaces the missing
        record.
    """

    document: TableDocument
    table: types.Table
    source: Sequence[VisibleFile]
    target: Sequence[VisibleFile]
    target_write_ids: ValidWriteIds | None
    source_formats: PartitionFormats
    target_formats: PartitionFormats
    note: str = ""
    unrecorded: dict[str, str] = field(default_factory=dict)

    def compacted_partitions(self) -> set[str]:
        """Return the partitions that the target has compacted: only their rows can be compared."""
        return {file.partition for file in self.target if file.path != file.target_path}

    def plan(self, *, row_digests: bool = False) -> Iterator[SidePlan]:
        """Yield the lines of the Spark job's plan.

        :param row_digests: take digests of the rows, not only their number.
        """
        if not self.note:
            yield SidePlan(
                side="source",
                kind=self.document.kind,
                table=self.document.table,
                write_ids=self.document.write_ids,
                storages=self.source_formats.descriptors(),
                directories=_directories(self.source, self.source_formats),
                row_digests=row_digests,
            )
        yield SidePlan(
            side="target",
            kind=self.document.kind,
            table=self.table,
            write_ids=self.target_write_ids,
            storages=self.target_formats.descriptors(),
            directories=_directories(self.target, self.target_formats),
            row_digests=row_digests,
        )


def _directories(files: Sequence[VisibleFile], formats: PartitionFormats) -> tuple[PlannedDirectory, ...]:
    listings: defaultdict[tuple[str, int | None], list[FileEntry]] = defaultdict(list)
    for file in files:
        location, path, storage = formats.place(file)
        listing = listings[location, storage]
        listing.append(FileEntry(path=path, size_bytes=file.size_bytes))
        if file.side_file:
            listing.append(FileEntry(path=file.side_file, size_bytes=0))
    return tuple(
        PlannedDirectory(location=location, storage=storage, files=tuple(listing))
        for (location, storage), listing in listings.items()
    )


def dumped_formats(home: DumpDirectory, document: TableDocument) -> PartitionFormats:
    """Return the formats of the source's partitions, as they were dumped."""
    formats = PartitionFormats.of(document.table)
    if document.partition_keys:
        for line in home.partitions(document.name):
            formats.add(line.storage)
        formats.among(line.location for line in home.partitions(document.name))
    return formats
