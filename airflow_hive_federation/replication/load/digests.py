"""Records the digests of a load's files in its dump."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import CopiedFile
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.load.survey import note_placed
from airflow_hive_federation.replication.replica.layout import TargetLayout
from airflow_hive_federation.replication.replica.table_index import TableIndex
from airflow_hive_federation.storage.filesystem import canonical


def note_digests(
    directory: DumpDirectory,
    layout: TargetLayout,
    previous: DumpDirectory,
    document_of: Callable[[str], TableDocument],
    entries: Iterable[TableEntry],
) -> None:
    """Record the digests of all files of the tables concerned, for later verifications.

    :param directory: the increment's dump.
    :param previous: the dump before.
    :param document_of: returns the document of a table, by its name.
    :param entries: the tables concerned.
    """
    before = TableIndex(previous)
    copied = TableIndex(directory).copied(directory)
    for entry in entries:
        name, described = entry.name, entry.described
        document = document_of(name)
        if not document.kind.has_files:
            continue
        # Of the partitions that earlier dumps describe, those dumps have the digests, too.
        older = before.digests(name) if name in before and described is None else {}
        known = {**older, **copied}
        note_placed(directory, layout, document)
        files = directory.files(name, only=described)
        uris = (canonical(layout.file(document, file)) for file in files)
        directory.add_digests(name, (CopiedFile(uri=uri, digest=known[uri]) for uri in uris if uri in known))
