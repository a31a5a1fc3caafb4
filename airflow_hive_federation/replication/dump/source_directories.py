"""Whether a table's directories on the source are there: an unmounted store looks like one without files.

A directory is known to exist when something was found in it. A file that it lacks was removed then; so was a
partition's directory that is missing in it, which Hive reads as an empty one. Where nothing was found at all,
nothing is known: the directory may have been emptied, or its store may not be mounted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.replication.dump.evidence import Evidence
from airflow_hive_federation.replication.format.directory import DumpDirectory, table_file
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.metadata.locations import Place, relative_to
from airflow_hive_federation.replication.metadata.places import Places
from airflow_hive_federation.storage.filesystem import OBJECT_STORES, join, parse_location
from airflow_hive_federation.storage.listing import has_entries, is_there


@dataclass(frozen=True, kw_only=True)
class BareDirectory:
    """A directory of a table in which nothing was found, nor below it.

    :param location: its URI.
    :param partition: name of the partition that lies there; empty for the table's directory. One inside
        the table's directory is bare only if its own is missing.
    :param missing: the directory does not exist.
    :param proved: it exists, or something lies beside it, so that its store is mounted.
    """

    location: str
    partition: str
    missing: bool
    proved: bool


class Sightings:
    """Counts what a listing of a table finds: in the table's directory, and in partitions outside it.

    :param places: where the table's data lies.
    """

    def __init__(self, places: Places) -> None:
        self._root = places.root
        self._found: Counter[Place] = Counter()
        if self._root:
            self._found[Place(partition="", location=self._root)] = 0
        self._empty_inside: list[Place] = []

    def watch(
        self, listings: Iterable[tuple[Place, list[FileEntry]]]
    ) -> Iterator[tuple[Place, list[FileEntry]]]:
        """Pass listings on."""
        root = Place(partition="", location=self._root)
        for place, listing in listings:
            inside = relative_to(place.location, self._root) is not None
            self._found[root if inside else place] += len(listing)
            if inside and place.partition and not listing:
                self._empty_inside.append(place)
            yield place, listing

    def bare(self, options: Mapping[str, Any] | None = None) -> list[BareDirectory]:
        """The directories in which nothing was found.

        :param options: storage options.
        """
        found = [_looked_at(place, options) for place, count in self._found.items() if not count]
        if any(one.missing and not one.partition for one in found):
            # All that lies inside is missing, too.
            return found
        inside = [place for place in self._empty_inside if not _is_there(place.location, options)]
        return found + [
            BareDirectory(location=one.location, partition=one.partition, missing=True, proved=True)
            for one in inside
        ]


@dataclass(frozen=True, kw_only=True)
class LostFiles:
    """Files of a replica that would go because nothing was found where they came from.

    :param location: URI of the directory on the source.
    :param missing: it does not exist; otherwise it is empty.
    :param files: how many would go.
    :param of: files that the table's replica has in all.
    """

    location: str
    missing: bool
    files: int
    of: int


def new_directories_missing(bare: Iterable[BareDirectory], kind: TableKind) -> list[str]:
    """Directories of tables and partitions that were not dumped before and cannot be: they are not there.

    Hive's replication demands the directory of a table and, unless the table is external, of each partition
    (``TestReplicationScenarios.testDumpWithPartitionDirMissing``). It copies external tables by their roots;
    a partition outside of its table's has to lie in a store that is mounted.
    """
    external = kind is TableKind.EXTERNAL
    return [one.location for one in bare if one.missing and not (external and one.partition and one.proved)]


def lost_files(
    home: DumpDirectory,
    table: str,
    bare: Sequence[BareDirectory],
    evidence: Evidence,
    *,
    before: Collection[str],
    kind: TableKind,
) -> tuple[list[LostFiles], list[str]]:
    """Say what a table that was dumped before would lose.

    :param home: the dump that describes what the target has of the table.
    :param bare: the directories in which nothing was found now.
    :param evidence: what events of the source say since then.
    :param before: names of the partitions in that dump. Hive reads one whose directory is gone as empty.
    :param kind: the table's.
    :return: files that nothing explains the loss of; and directories that are missing though nothing was
        known to lie in them.
    """
    document = home.read_json(table_file("tables", table, ".json"))
    root = (document["table"].get("sd") or {}).get("location") or ""
    counted: Counter[str] = Counter()
    total = 0
    explained = _explained_places(home, table, evidence)
    for file in home.read_lines(table_file("files", table, ".jsonl")):
        total += 1
        directory, partition = file["directory"], file["partition"]
        if not (
            evidence.of_files(table, partition)
            or explained.intersection(_parents(join(directory, file["path"])))
        ):
            counted[root if relative_to(directory, root) is not None else directory] += 1
    lost = [
        LostFiles(location=one.location, missing=one.missing, files=counted[one.location], of=total)
        for one in bare
        if counted[one.location]
    ]
    others = [
        one
        for one in bare
        if not counted[one.location]
        and (one.partition or one.location != root)
        and not (one.proved and one.partition in before)
    ]
    return lost, new_directories_missing(others, kind)


def _looked_at(place: Place, options: Mapping[str, Any] | None) -> BareDirectory:
    missing = not _is_there(place.location, options)
    parent = place.location.rstrip("/").rpartition("/")[0]
    return BareDirectory(
        location=place.location,
        partition=place.partition,
        missing=missing,
        proved=not missing or has_entries(parent, options=options),
    )


def _explained_places(home: DumpDirectory, table: str, evidence: Evidence) -> set[str]:
    """Locations of partitions of which events say that their rows were removed."""
    if not evidence.speaks_of_partitions(table):
        return set()
    return {
        line["partition"]["sd"]["location"]
        for line in home.read_lines(table_file("partitions", table, ".jsonl"))
        if evidence.of_files(table, line["name"])
    }


def _parents(uri: str) -> Iterator[str]:
    while "/" in uri:
        uri = uri.rpartition("/")[0]
        yield uri


def _is_there(location: str, options: Mapping[str, Any] | None) -> bool:
    # Object stores have no empty directories: their bucket has answered, so the store is there.
    return parse_location(location).scheme in OBJECT_STORES or is_there(location, options=options)
