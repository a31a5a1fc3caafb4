"""Finds writes on a target that no cycle of its policy made. Pure.

A cycle makes a target equal to its source. Foreign writes would be lost with that: a row whose write id the
source gives out again, a partition that the source does not have, a file whose name the source uses too. So a
load compares the target with the records of earlier loads, before it places or drops anything.

The evidence comes from the dumps of a policy, which record the highest write id of each table after each
load, the names of partitions, and the files that were placed. Three kinds of files are not foreign:
directories that the target's own compactor made (their write ids are not above the recorded one), remains of
a killed load of the same policy, and hidden files, which no reader opens. In the directory of a table or
partition that the target does not have, each other file is foreign (:mod:`..load.remains`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from operator import attrgetter

from airflow_hive_federation.acid.names import is_acid_directory, parse_directory
from airflow_hive_federation.errors import AcidFormatError, TargetChangedError
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import UNBOUNDED, ValidWriteIds
from airflow_hive_federation.progress.quantities import size

#: An error names at most this many of them; ``differences`` has them all.
SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class ForeignWrite:
    """A write on a target that no cycle of its policy made.

    :param table: the table, empty for a function of the database.
    :param what: the write ids, partition, file or function, in words.
    :param unread: it is a file of a table or partition that the target does not have.
    """

    table: str
    what: str
    unread: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        named = f"{self.table}: {self.what}" if self.table else self.what
        return f"{named}, of a table or partition that the target does not have" if self.unread else named


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedFile:
    """The record of a file that a load placed.

    :param size_bytes: its length; ``None`` if rows were left out of the copy.
    :param modified_ns: its modification time on the target; 0 if that is not known.
    """

    size_bytes: int | None
    modified_ns: int = 0

    def fits(self, entry: FileEntry) -> bool:
        return self.size_bytes is None or self.size_bytes == entry.size_bytes


def refuse_foreign_writes(database: str, policy: str, foreign: Iterable[ForeignWrite]) -> None:
    """Refuse a target that holds foreign writes.

    :param database: the target database.
    :param policy: name of the policy.
    :raises TargetChangedError: the target holds some; ``differences`` names each.
    """
    # Of two equal ones, the message shows that of an unread file.
    each = {write: write for write in sorted(foreign, key=attrgetter("unread"))}
    writes = sorted(map(str, each.values()))
    if not writes:
        return
    more = [f"and {len(writes) - SHOWN} more"] if len(writes) > SHOWN else []
    raise TargetChangedError(
        f"Target database {database} was written to by somebody else than policy {policy!r}. "
        "The cycle has published nothing, and has removed or replaced none of these:\n  "
        + "\n  ".join([*writes[:SHOWN], *more]),
        remedy="Stop the writer, and copy its rows elsewhere if they are needed. Then repair the replica "
        "(RepairReplicaOperator, hive-federation replicate repair), or drop the named tables on the target: "
        "the next cycle copies them anew. No repair finds files of a table or partition that the target does "
        "not have: remove them, or move them elsewhere. "
        "A table that is to be written on the target leaves the policy by "
        "exclude_tables, and the target database first.",
        differences=writes,
    )


def other_write_ids(table: str, present: ValidWriteIds, expected: int) -> ForeignWrite:
    """Describe the write ids of a table that are not the source's.

    :param expected: the highest write id of the source's table.
    """
    unseen = ", ".join(map(str, present.invalid_ids[:SHOWN]))
    of_them = f" ({unseen} open or aborted)" if unseen else ""
    reached = f"write ids up to {present.high_watermark}{of_them}"
    return ForeignWrite(table=table, what=f"{reached}, where the source has {expected}")


def foreign_write_ids(table: str, present: ValidWriteIds, known: int) -> list[ForeignWrite]:
    """Name the write ids of a table that no load gave out.

    The source gives out the same numbers later, and the rows of two transactions would then have one write
    id.

    :param present: the write ids of the target's table.
    :param known: its highest write id after the loads of the policy.
    """
    if present.high_watermark <= known:
        return []
    first, last = known + 1, present.high_watermark
    ids = f"write id {first}" if first == last else f"write ids {first} to {last}"
    states = [
        f"{state}: {', '.join(map(str, later_ids))}"
        for state, all_ids in (("open", present.open_ids), ("aborted", present.aborted_ids))
        if (later_ids := [write_id for write_id in all_ids if write_id > known])
    ]
    of_them = f" ({'; '.join(states)})" if states else ""
    return [ForeignWrite(table=table, what=f"{ids}{of_them}, where the last cycle left {known}")]


def foreign_partition(table: str, name: str, parameters: Mapping[str, str] | None) -> ForeignWrite:
    """Name a partition that no load made.

    :param parameters: its parameters.
    """
    made_s = (parameters or {}).get("transient_lastDdlTime", "")
    when = f", made or altered {_moment(int(made_s))}" if made_s.isdecimal() else ""
    return ForeignWrite(table=table, what=f"partition {name}{when}")


def suspect_files(
    there: Mapping[str, FileEntry], placed: Mapping[str, PlacedFile], *, known: int | None, adopted: bool
) -> dict[str, FileEntry]:
    """Return the files of a table that differ from the files placed by the last load that worked on it.

    Nobody writes to a file of a transactional table whose write id is committed: if the size of such a file
    has changed since it was placed, the file is damaged, and is copied again.

    :param there: the files on the target by canonical URI, with paths below the directory of the table.
    :param placed: for a table without transactions, the files that were recorded, by canonical URI.
    :param known: for a transactional table, its highest write id that loads of the policy know; ``None`` for
        other tables, of which every file counts.
    :param adopted: the table belonged to a source before a failover, and has files of its own making.
    """
    based = {before for entry in there.values() if (before := _before_base(entry.path)) is not None}

    def is_suspect(uri: str, entry: FileEntry) -> bool:
        if known is None:
            return uri not in placed or not _is_as_placed(entry, placed[uri])
        write_id = _write_id(entry.path)
        if write_id is None:
            # Every reader reads such a file, unless a base beside it hides it: then it may have been the
            # source's.
            return not adopted and entry.path.rpartition("/")[0] not in based
        return write_id > known

    return {
        uri: entry for uri, entry in there.items() if not _is_hidden(entry.path) and is_suspect(uri, entry)
    }


def unplaced(
    suspects: Mapping[str, FileEntry], placed: Iterable[tuple[str, PlacedFile]]
) -> dict[str, FileEntry]:
    """Return the suspects that no other load of the policy may have placed.

    :param placed: files of other loads, finished or killed, by canonical URI; they are read only as far as
        needed.
    """
    remaining = dict(suspects)
    for uri, file in placed:
        if uri in remaining and file.fits(remaining[uri]):
            del remaining[uri]
            if not remaining:
                break
    return remaining


def foreign_file(table: str, uri: str, entry: FileEntry, *, unread: bool = False) -> ForeignWrite:
    """Name a file that no load placed in its present state.

    :param unread: the target does not have the table or partition in whose directory it lies.
    """
    when = f", modified {_moment(entry.modified_ns // 1_000_000_000)}" if entry.modified_ns else ""
    return ForeignWrite(table=table, what=f"file {uri} ({size(entry.size_bytes)}{when})", unread=unread)


def names_digest(names: Iterable[str]) -> str:
    """Return a digest of names that does not depend on their order."""
    digest = blake2b(digest_size=16)
    for name in sorted(names):
        digest.update(name.encode() + b"\n")
    return digest.hexdigest()


def foreign_functions(there: Collection[str], known: Iterable[str]) -> list[ForeignWrite]:
    """Name the functions that no load made.

    :param there: names of the target's functions.
    :param known: names of the source's functions at the last cycles.
    """
    return [ForeignWrite(table="", what=f"function {name}") for name in sorted(set(there) - set(known))]


def _is_as_placed(entry: FileEntry, file: PlacedFile) -> bool:
    times = (entry.modified_ns, file.modified_ns)
    return file.fits(entry) and (0 in times or times[0] == times[1])


def _write_id(path: str) -> int | None:
    """Return the highest write id of the ACID directory that holds a file; ``None`` outside of one."""
    name = next((part for part in path.split("/")[:-1] if is_acid_directory(part)), None)
    if name is None:
        return None
    try:
        return parse_directory(name).max_write_id
    except AcidFormatError:
        # Neither Hive nor this package writes such a name.
        return UNBOUNDED


def _before_base(path: str) -> str | None:
    """Return the directory that holds a file's base; ``None`` if the file lies in no base."""
    parts = path.split("/")
    bases = [number for number, part in enumerate(parts[:-1]) if part.startswith("base_")]
    return "/".join(parts[: bases[0]]) if bases else None


def _is_hidden(path: str) -> bool:
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).isoformat(timespec="seconds")
