"""Lists the target's directories of the tables of a dump."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.load.copying import partition_names
from airflow_hive_federation.replication.replica.external_claims import is_external_claim
from airflow_hive_federation.replication.replica.layout import TargetLayout
from airflow_hive_federation.storage.filesystem import canonical, innermost, join
from airflow_hive_federation.storage.listing import list_many
from airflow_hive_federation.storage.options import StorageOptions


@dataclass(frozen=True, kw_only=True)
class TargetFiles:
    """The content of the target's directories of a table.

    :param files: the files, by canonical URI.
    :param empty: canonical URIs of the empty directories below those that were listed.
    """

    files: Mapping[str, FileEntry]
    empty: tuple[str, ...] = ()


def files_there(
    layout: TargetLayout, document: TableDocument, options: StorageOptions | None = None
) -> Mapping[str, FileEntry]:
    """List the files in the target's directories of a dump's table, by canonical URI.

    A table whose directory is ``external_base`` has claims beside its files, which are not listed.
    """
    return _listed(_roots(layout, document), options).files


def content_there(
    directory: DumpDirectory,
    layout: TargetLayout,
    document: TableDocument,
    only: Collection[str] | None,
    *,
    total: int,
) -> TargetFiles:
    """List the files and the empty directories in the target's directories of a dump's table.

    One listing serves the whole table, or most of its partitions: the number of listings does not grow with
    that of new partitions. Few partitions of many are listed one by one.

    :param directory: the dump.
    :param only: names of partitions of a managed table, none of which lies inside another; ``None`` for the
        whole table.
    :param total: the number of the table's partitions.
    """
    options = layout.policy.storage_options
    if only is None:
        return _listed(_roots(layout, document), options)
    root = canonical(layout.directory(document, document.location, ""))
    places = partition_names(directory, layout, document, only).keys()
    if 2 * len(places) <= total:
        listed = _listed(places, options)
    else:
        listed = _listed([root, *(place for place in places if not innermost(place, {root}))], options)
    # Paths are those below the table's directory, as in a listing of the whole table.
    return TargetFiles(
        files={
            uri: replace(entry, path=uri.removeprefix(root).lstrip("/"))
            for uri, entry in listed.files.items()
            if innermost(uri, places)
        },
        empty=tuple(uri for uri in listed.empty if innermost(uri, places)),
    )


def _roots(layout: TargetLayout, document: TableDocument) -> Iterator[str]:
    if document.kind is TableKind.EXTERNAL:
        for place in document.places:
            yield layout.directory(document, place.location, place.partition)
    else:
        # Partitions of a replica lie below their table.
        yield layout.directory(document, document.location, "")


def _listed(roots: Iterable[str], options: StorageOptions | None) -> TargetFiles:
    listings = list_many(roots, options=options, missing_ok=True, empty_directories=True)
    files, empty = {}, []
    for root, entries in listings.items():
        for entry in entries:
            uri = canonical(join(root, entry.path))
            if entry.path.endswith("/"):
                empty.append(uri)
            elif not is_external_claim(entry.path):
                files[uri] = entry
    return TargetFiles(files=files, empty=tuple(empty))
