"""Writes on a target that no cycle of its policy made. Pure.

A cycle brings a target to what the source is. What somebody else wrote there would go with it: a row whose
write id the source gives out again, a partition that the source has not, a file whose name the source uses
too. So a load compares what it finds with what earlier loads recorded, before it places or drops anything.

The evidence is what the dumps of a policy record: the highest write id that each load left a table with, the
names of partitions, the files that were placed. Three things are no writes of others: directories that the
target's own compactor made (their write ids are not above the recorded one), what a killed load of the same
policy left, and hidden files, which no reader opens.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b

from airflow_hive_federation.acid.names import is_acid_directory, parse_directory
from airflow_hive_federation.errors import AcidFormatError, TargetChangedError
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import UNBOUNDED, ValidWriteIds

#: An error names no more of them than this; ``differences`` has them all.
SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class ForeignWrite:
    """Something on a target that no cycle of its policy made.

    :param table: the table, empty for a function of the database.
    :param what: the write ids, partition, file or function, in words.
    """

    table: str
    what: str

    def __str__(self) -> str:
        return f"{self.table}: {self.what}" if self.table else self.what


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedFile:
    """What a load recorded of a file that it placed.

    :param size_bytes: its length; ``None`` where rows were left out of the copy.
    :param modified_ns: its modification time on the target; 0 where that is not known.
    """

    size_bytes: int | None
    modified_ns: int = 0

    def fits(self, entry: FileEntry) -> bool:
        return self.size_bytes is None or self.size_bytes == entry.size_bytes


def refuse_foreign_writes(database: str, policy: str, found: Iterable[ForeignWrite]) -> None:
    """Refuse a target that holds writes of others.

    :param database: the target database.
    :param policy: name of the policy.
    :raises TargetChangedError: there are any; ``differences`` names each.
    """
    every = sorted(map(str, found))
    if not every:
        return
    more = [f"and {len(every) - SHOWN} more"] if len(every) > SHOWN else []
    raise TargetChangedError(
        f"Target database {database} was written to by somebody else than policy {policy!r}. "
        "The cycle has published nothing, and has removed or replaced none of these:\n  "
        + "\n  ".join([*every[:SHOWN], *more]),
        remedy="Stop the writer, and copy its rows elsewhere if they are needed. Then repair the replica "
        "(RepairReplicaOperator, hive-federation replicate repair), or drop the named tables on the target: "
        "the next cycle copies them anew. A table that is to be written on the target leaves the policy by "
        "exclude_tables, and the target database first.",
        differences=every,
    )


def foreign_write_ids(table: str, found: ValidWriteIds, known: int) -> list[ForeignWrite]:
    """Name the write ids of a table that no load gave out.

    The source gives the same numbers out later: the rows of two transactions would have one write id.

    :param found: the write ids of the target's table.
    :param known: the highest one that loads of the policy left the table with.
    """
    if found.high_watermark <= known:
        return []
    first, last = known + 1, found.high_watermark
    ids = f"write id {first}" if first == last else f"write ids {first} to {last}"
    states = [
        f"{state}: {', '.join(map(str, some))}"
        for state, every in (("open", found.open_ids), ("aborted", found.aborted_ids))
        if (some := [one for one in every if one > known])
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
    """Files of a table that the last load which was concerned with it did not place as they are.

    Nobody writes to a file of a transactional table whose write id is committed: one of another size than it
    was placed with is damaged, and copied again.

    :param there: the files on the target by canonical URI, with paths below the directory of the table.
    :param placed: the files that were recorded, by canonical URI; of a table without transactions.
    :param known: for a transactional table, its highest write id that loads of the policy know; ``None`` for
        others, of which every file counts.
    :param adopted: the table was a source's before a failover, and has files of its own making.
    """
    based = {before for entry in there.values() if (before := _before_base(entry.path)) is not None}

    def is_suspect(uri: str, entry: FileEntry) -> bool:
        if known is None:
            return uri not in placed or not _is_as_placed(entry, placed[uri])
        write_id = _write_id(entry.path)
        if write_id is None:
            # It is read by everybody, unless a base beside it hides it: then it may have been the source's.
            return not adopted and entry.path.rpartition("/")[0] not in based
        return write_id > known

    return {
        uri: entry for uri, entry in there.items() if not _is_hidden(entry.path) and is_suspect(uri, entry)
    }


def unplaced(
    suspects: Mapping[str, FileEntry], placed: Iterable[tuple[str, PlacedFile]]
) -> dict[str, FileEntry]:
    """The suspects that no other load of the policy may have placed.

    :param placed: files of other loads, finished or killed, by canonical URI; read as far as need be.
    """
    left = dict(suspects)
    for uri, file in placed:
        if uri in left and file.fits(left[uri]):
            del left[uri]
            if not left:
                break
    return left


def foreign_file(table: str, uri: str, entry: FileEntry) -> ForeignWrite:
    """Name a file that no load placed as it is."""
    when = f", modified {_moment(entry.modified_ns // 1_000_000_000)}" if entry.modified_ns else ""
    return ForeignWrite(table=table, what=f"file {uri} ({entry.size_bytes} bytes{when})")


def names_digest(names: Iterable[str]) -> str:
    """Digest of names in any order: equal for equal names."""
    digest = blake2b(digest_size=16)
    for name in sorted(names):
        digest.update(name.encode() + b"\n")
    return digest.hexdigest()


def foreign_functions(there: Collection[str], known: Iterable[str]) -> list[ForeignWrite]:
    """Name the functions that no load made.

    :param known: functions of the source at the last cycles.
    """
    return [ForeignWrite(table="", what=f"function {name}") for name in sorted(set(there) - set(known))]


def _is_as_placed(entry: FileEntry, file: PlacedFile) -> bool:
    times = (entry.modified_ns, file.modified_ns)
    return file.fits(entry) and (0 in times or times[0] == times[1])


def _write_id(path: str) -> int | None:
    """The highest write id of the ACID directory that a file lies in; ``None`` for a file in none."""
    name = next((part for part in path.split("/")[:-1] if is_acid_directory(part)), None)
    if name is None:
        return None
    try:
        return parse_directory(name).max_write_id
    except AcidFormatError:
        # No writer of Hive's or ours gives such a name.
        return UNBOUNDED


def _before_base(path: str) -> str | None:
    """The directory that a base lies in, if the file lies in a base."""
    parts = path.split("/")
    bases = [number for number, part in enumerate(parts[:-1]) if part.startswith("base_")]
    return "/".join(parts[: bases[0]]) if bases else None


def _is_hidden(path: str) -> bool:
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).isoformat(timespec="seconds")
