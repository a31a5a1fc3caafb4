"""What a compaction reads and writes: decided from a listing and write ids, without touching storage.

* **Major**: base (or original files) and all deltas become ``base_<highest write id>_v<transaction>``;
  deleted rows and rows of aborted write ids are gone.
* **Minor**: the deltas become ``delta_<lowest>_<highest>_v<transaction>``, the delete deltas a delete delta
  of the same range; the base stays as it is. Rows of aborted write ids are gone, deletes stay deletes.

Either keeps every row's ``ROW__ID``, the order of rows, and the division into bucket files. The thresholds
are those of Hive's ``AcidCompactionService.isEnoughToCompact`` and ``needsCleaning``, the names those of
``QueryCompactor.Util.getCompactionResultDir``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from airflow_hive_federation.acid.names import (
    DirectoryKind,
    DirectoryName,
    FileKind,
    bucket_file,
    is_acid_directory,
    parse_directory,
    parse_file,
)
from airflow_hive_federation.acid.snapshot import AcidDirectory, AcidState
from airflow_hive_federation.errors import AcidFormatError, ConfigurationError
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import CompactorWriteIds, ValidWriteIds
from airflow_hive_federation.orc.properties import NO_FILTERS, BloomFilters
from airflow_hive_federation.storage.filesystem import join

#: ``BucketCodec.V1`` has twelve bits for a bucket.
MAX_BUCKET = 4095

_STAGING_PREFIX = "_compaction_v"


class CompactionKind(StrEnum):
    """How far a compaction goes."""

    MAJOR = "major"
    MINOR = "minor"

    @classmethod
    def of(cls, text: str) -> CompactionKind:
        """Parse a kind in any case.

        :raises ConfigurationError: there is no such kind.
        """
        try:
            return cls(text.lower())
        except ValueError:
            raise ConfigurationError(
                f"There is no compaction {text!r}.", remedy="Ask for major or minor."
            ) from None


class Decision(StrEnum):
    """What is to be done about a request."""

    COMPACT = "compact"
    CLEAN = "clean"
    """Nothing to merge, but obsolete directories wait for the cleaner."""
    REFUSE = "refuse"


class FileFormat(StrEnum):
    """How the files of a table are merged."""

    ACID = "acid"
    ORC = "orc"
    PARQUET = "parquet"
    TEXT = "text"


@dataclass(frozen=True, kw_only=True)
class CompactedTable:
    """The table or partition that is compacted.

    :param name: ``database.table``.
    :param partition: the partition's name; empty for a table without partitions.
    :param location: URI of its directory.
    :param columns: names and Hive types of the *table's* columns, in order (``MRCompactor.setColumnTypes``: a
        partition's own may be out of date).
    :param file_format: ``ACID`` for a full ACID table, the files' format for an insert-only one.
    :param bucket_count: buckets of the table; 0 if it is not bucketed.
    :param compression: of ORC files, by pyarrow's name.
    :param filters: Bloom filters of ORC files.
    """

    name: str
    partition: str = ""
    location: str
    columns: tuple[tuple[str, str], ...]
    file_format: FileFormat = FileFormat.ACID
    bucket_count: int = 0
    compression: str = "zlib"
    filters: BloomFilters = NO_FILTERS

    @property
    def full_name(self) -> str:
        """``database.table``, and the partition if there is one."""
        return f"{self.name} partition {self.partition}" if self.partition else self.name


@dataclass(frozen=True, kw_only=True)
class MergeInput:
    """A file to read.

    :param path: relative to the table's or partition's location.
    :param size_bytes: its length.
    :param side_file: path of the ``_flush_length`` file that says how much of it counts; empty if none does.
    :param raw: the file has no ACID columns: its rows are numbered by position.
    :param write_id: for a raw file, the write id of its rows.
    :param statement_id: for a raw file, the statement that wrote them.
    """

    path: str
    size_bytes: int
    side_file: str = ""
    raw: bool = False
    write_id: int = 0
    statement_id: int = 0


@dataclass(frozen=True, kw_only=True)
class BucketMerge:
    """One file to make: the unit of parallel work.

    With ``inserts`` the rows of these without what ``deletes`` delete; without, the delete events.

    :param table: what is compacted.
    :param bucket: number of the bucket.
    :param inserts: files with rows, in the order of their write ids.
    :param deletes: files with delete events.
    :param write_ids: rows and deletes of other write ids are left out; in Hive's text form.
    :param output: path of the file to make, relative to the location.
    """

    table: CompactedTable
    bucket: int
    inserts: tuple[MergeInput, ...] = ()
    deletes: tuple[MergeInput, ...] = ()
    write_ids: str
    output: str

    @property
    def size_bytes(self) -> int:
        """Length of the files to read."""
        return sum(one.size_bytes for one in (*self.inserts, *self.deletes))

    @property
    def sources(self) -> list[str]:
        """URIs of the files to read."""
        return [join(self.table.location, one.path) for one in (*self.inserts, *self.deletes)]

    def to_json(self) -> dict[str, Any]:
        """JSON values; :meth:`from_json` reads them."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> BucketMerge:
        """Read what :meth:`to_json` made."""
        table = dict(values["table"])
        table["columns"] = tuple((name, kind) for name, kind in table["columns"])
        table["file_format"] = FileFormat(table["file_format"])
        filters = table["filters"]
        table["filters"] = BloomFilters(columns=tuple(filters["columns"]), fpp=filters["fpp"])
        inputs = {name: tuple(MergeInput(**one) for one in values[name]) for name in ("inserts", "deletes")}
        return cls(**{**values, **inputs, "table": CompactedTable(**table)})


@dataclass(frozen=True, kw_only=True)
class CompactionPlan:
    """What a compaction does.

    :param decision: whether there is anything to do.
    :param reason: for the queue, why it is refused.
    :param staging: directory for files being made, relative to the location; hidden from readers.
    :param directories: names of the directories to make.
    :param reads: directories and original files that are read, relative to the location.
    :param merges: files to make, below ``staging``.
    """

    decision: Decision
    reason: str = ""
    staging: str = ""
    directories: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    merges: tuple[BucketMerge, ...] = ()


def compactor_write_ids(write_ids: ValidWriteIds, listing: Iterable[FileEntry]) -> CompactorWriteIds:
    """What a compaction of a directory may read, and so the highest write id that it stands for.

    A streaming batch writes one delta for several transactions. While some of them are open, and until there
    are later write ids, the compactor cannot read it, though its first transactions may be committed below
    the high watermark. A result that was named after that watermark would hide those rows from all readers
    (``QueryCompactor.Util.getCompactionResultDir`` names its results so), so it ends below such a delta.

    :param write_ids: the table's valid write ids.
    :param listing: files of the table or partition.
    """
    allowed = write_ids.for_compactor()
    top = allowed.high_watermark
    names = {
        parse_directory(part)
        for entry in listing
        for part in entry.path.split("/")[:-1]
        if is_acid_directory(part)
    }
    bases = [one.max_write_id for one in names if one.kind is DirectoryKind.BASE and one.max_write_id <= top]
    begun = max(bases, default=0)  # what lies below a base is hidden already
    deltas = [one for one in names if one.kind is not DirectoryKind.BASE and one.min_write_id > begun]
    for delta in sorted(deltas, key=lambda one: one.max_write_id, reverse=True):
        if delta.min_write_id <= top < delta.max_write_id:
            top = delta.min_write_id - 1
    return allowed.cut(top)


def plan_compaction(
    table: CompactedTable,
    state: AcidState,
    write_ids: CompactorWriteIds,
    kind: CompactionKind,
    txn_id: int,
) -> CompactionPlan:
    """Decide what a compaction reads and makes.

    :param table: the table or partition.
    :param state: its snapshot, made with ``write_ids`` and the transactions valid for the compactor.
    :param write_ids: what the compactor may read (:func:`compactor_write_ids`).
    :param kind: major or minor.
    :param txn_id: the compaction's own transaction, on whose commit the result becomes visible.
    :raises AcidFormatError: a file's name tells no bucket, or one the table cannot have.
    """
    if not _is_enough(state, kind):
        obsolete = bool(state.obsolete or state.aborted)
        return CompactionPlan(
            decision=Decision.CLEAN if obsolete else Decision.REFUSE,
            reason="None of the compaction thresholds met, compaction request is refused!",
        )
    planner = _Planner(table, state, write_ids, staging_directory(txn_id))
    top = write_ids.high_watermark
    if kind is CompactionKind.MAJOR:
        return planner.major(_name(DirectoryKind.BASE, top, top, txn_id))
    low = min(one.name.min_write_id for one in (*state.deltas, *state.delete_deltas))
    return planner.minor(
        _name(DirectoryKind.DELTA, low, top, txn_id), _name(DirectoryKind.DELETE_DELTA, low, top, txn_id)
    )


def staging_directory(txn_id: int) -> str:
    """The hidden directory in which a compaction makes its files."""
    return f"{_STAGING_PREFIX}{txn_id:07d}"


def staging_txn(name: str) -> int | None:
    """The transaction in a name made by :func:`staging_directory`; ``None`` for other names."""
    digits = name.removeprefix(_STAGING_PREFIX)
    return int(digits) if digits != name and digits.isdecimal() else None


def _is_enough(state: AcidState, kind: CompactionKind) -> bool:
    deltas = len(state.deltas) + len(state.delete_deltas)
    if kind is CompactionKind.MAJOR:
        return bool(state.originals) or deltas + (state.base is not None) > 1
    # One delta and one delete delta are what a minor compaction leaves.
    return deltas > 2 or (deltas == 2 and len(state.deltas) != 1)


def _name(kind: DirectoryKind, low: int, high: int, txn_id: int) -> str:
    return str(DirectoryName(kind=kind, min_write_id=low, max_write_id=high, visibility_txn_id=txn_id))


@dataclass(frozen=True)
class _Planner:
    table: CompactedTable
    state: AcidState
    write_ids: CompactorWriteIds
    staging: str

    def major(self, base: str) -> CompactionPlan:
        state = self.state
        rows = [
            *self._originals(),
            *self._inputs([state.base] if state.base else []),
            *self._inputs(state.deltas),
        ]
        inserts = self._by_bucket(rows)
        deletes = self._by_bucket(self._inputs(state.delete_deltas))
        merges = [
            self._merge(base, bucket, inserts=files, deletes=deletes.get(bucket, ()))
            for bucket, files in sorted(inserts.items())
        ]
        reads = [*(one.path for one in state.directories), *(one.path for one in state.originals)]
        return self._plan([base], reads, merges)

    def minor(self, delta: str, delete_delta: str) -> CompactionPlan:
        inserts = self._by_bucket(self._inputs(self.state.deltas))
        deletes = self._by_bucket(self._inputs(self.state.delete_deltas))
        merges = [self._merge(delta, bucket, inserts=files) for bucket, files in sorted(inserts.items())]
        merges += [
            self._merge(delete_delta, bucket, deletes=files) for bucket, files in sorted(deletes.items())
        ]
        made = [delta] * bool(self.state.deltas) + [delete_delta] * bool(self.state.delete_deltas)
        read = [one.path for one in (*self.state.deltas, *self.state.delete_deltas)]
        return self._plan(made, read, merges)

    def _plan(
        self, directories: Sequence[str], reads: Sequence[str], merges: Sequence[BucketMerge]
    ) -> CompactionPlan:
        return CompactionPlan(
            decision=Decision.COMPACT,
            staging=self.staging,
            directories=tuple(directories),
            reads=tuple(reads),
            merges=tuple(merges),
        )

    def _merge(
        self,
        directory: str,
        bucket: int,
        *,
        inserts: Sequence[MergeInput] = (),
        deletes: Sequence[MergeInput] = (),
    ) -> BucketMerge:
        acid = self.table.file_format is FileFormat.ACID
        name = bucket_file(bucket) if acid else f"{bucket:06d}_0"
        return BucketMerge(
            table=self.table,
            bucket=bucket,
            inserts=tuple(inserts),
            deletes=tuple(deletes),
            write_ids=self.write_ids.text(),
            output=f"{self.staging}/{directory}/{name}",
        )

    def _originals(self) -> Iterator[MergeInput]:
        for entry in self.state.originals:
            yield MergeInput(path=entry.path, size_bytes=entry.size_bytes, raw=True)

    def _inputs(self, directories: Iterable[AcidDirectory]) -> Iterator[MergeInput]:
        for directory in directories:
            for entry in directory.files:
                yield self._input(directory, entry)

    def _input(self, directory: AcidDirectory, entry: FileEntry) -> MergeInput:
        side_file = self.state.side_files.get(entry.path, "")
        if not directory.raw:
            return MergeInput(path=entry.path, size_bytes=entry.size_bytes, side_file=side_file)
        return MergeInput(
            path=entry.path,
            size_bytes=entry.size_bytes,
            raw=True,
            write_id=directory.name.max_write_id,
            statement_id=directory.name.statement_id or 0,
        )

    def _by_bucket(self, inputs: Iterable[MergeInput]) -> dict[int, list[MergeInput]]:
        found: defaultdict[int, list[MergeInput]] = defaultdict(list)
        for one in inputs:
            bucket = self._bucket(one.path)
            if one.size_bytes:
                found[bucket].append(one)
        return found

    def _bucket(self, path: str) -> int:
        name = parse_file(path.rpartition("/")[2])
        bucket = name.bucket
        if bucket is None or name.kind not in {FileKind.BUCKET, FileKind.ORIGINAL}:
            raise self._wrong(path, "its name tells no bucket", "Move it away, and load it by LOAD DATA.")
        count = self.table.bucket_count
        # An insert-only table's files are numbered by the tasks that wrote them.
        if self.table.file_format is FileFormat.ACID and bucket > MAX_BUCKET:
            raise self._wrong(path, f"there is no bucket above {MAX_BUCKET}", "Move it away.")
        if 0 < count <= bucket:
            raise self._wrong(
                path,
                f"the table has {count} buckets",
                "Compare CLUSTERED BY with the files; move the file away.",
            )
        return bucket

    def _wrong(self, path: str, why: str, remedy: str) -> AcidFormatError:
        return AcidFormatError(
            f"{self.table.full_name}: {path} cannot be compacted: {why}.",
            remedy=remedy,
            table=self.table.name,
            partition=self.table.partition,
            path=f"{self.table.location}/{path}",
        )
