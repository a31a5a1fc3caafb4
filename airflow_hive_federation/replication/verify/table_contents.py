"""Describes one table's files on both sides, and their formats, for the Spark job that reads them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.replication.format.directory import DumpDirectory, table_file
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.verify.partition_formats import PartitionFormats


@dataclass(frozen=True, kw_only=True)
class TableContents:
    """The files of a table on both sides.

    :param note: the reason for which the source's files cannot be read; empty if they can.
    :param unrecorded: files of the target, each with the file of the source whose digest replaces the missing
        record.
    """

    document: Mapping[str, Any]
    table: Any
    source: Sequence[VisibleFile]
    target: Sequence[VisibleFile]
    target_write_ids: str | None
    source_formats: PartitionFormats
    target_formats: PartitionFormats
    note: str = ""
    unrecorded: dict[str, str] = field(default_factory=dict)

    def compacted_partitions(self) -> set[str]:
        """Return the partitions that the target has compacted: only their rows can be compared."""
        return {file.partition for file in self.target if file.path != file.target_path}

    def plan(self) -> Iterator[dict[str, Any]]:
        """Yield the lines of the Spark job's plan."""
        if not self.note:
            table, write_ids = self.document["table"], self.document["write_ids"]
            yield self._line("source", table, self.source, write_ids, self.source_formats)
        table, write_ids = to_json(self.table), self.target_write_ids
        yield self._line("target", table, self.target, write_ids, self.target_formats)

    def _line(
        self,
        side: str,
        table: Any,
        files: Sequence[VisibleFile],
        write_ids: str | None,
        formats: PartitionFormats,
    ) -> dict[str, Any]:
        directories: defaultdict[tuple[str, int | None], list[tuple[str, int]]] = defaultdict(list)
        for file in files:
            directory, path, storage = formats.place(file)
            directories[directory, storage].append((path, file.size_bytes))
            if file.side_file:
                directories[directory, storage].append((file.side_file, 0))
        return {
            "side": side,
            "kind": self.document["kind"],
            "table": table,
            "write_ids": write_ids,
            "storages": formats.storages,
            "directories": [(*place, files_there) for place, files_there in directories.items()],
        }


def dumped_formats(home: DumpDirectory, document: Mapping[str, Any]) -> PartitionFormats:
    """Return the formats of the source's partitions, as they were dumped."""
    formats = PartitionFormats(document["table"]["sd"])
    name = table_file("partitions", document["table"]["tableName"], ".jsonl")
    if document["table"].get("partitionKeys"):
        for line in home.read_lines(name):
            formats.add(line["partition"]["sd"])
        formats.among(line["partition"]["sd"]["location"] for line in home.read_lines(name))
    return formats
