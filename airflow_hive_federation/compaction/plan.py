"""Plans the files that a compaction reads and writes, from a listing and write ids and without storage.

* **Major**: base (or original files) and all deltas become ``base_<highest write id>_v<transaction>``;
  deleted rows and rows of aborted write ids are left out.
* **Minor**: the deltas become ``delta_<lowest>_<highest>_v<transaction>``, the delete deltas a delete delta
  of the same range; the base stays as it is. Rows of aborted write ids are left out, deletes stay deletes.

Both kinds keep every row's ``ROW__ID``, the order of rows, and the division into bucket files. The thresholds
are those of Hive's ``AcidCompactionService.isEnoughToCompact`` and ``needsCleaning``, the names those of
``QueryCompactor.Util.getCompactionResultDir``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

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
from airflow_hive_federation.model.json_values import (
    Fields,
    list_of,
    number,
    one_of,
    pair_of,
    reader_of,
    text,
    whole,
)
from airflow_hive_federation.model.write_ids import CompactorWriteIds, ValidTxns, ValidWriteIds
from airflow_hive_federation.orc.properties import NO_FILTERS, BloomFilters
from airflow_hive_federation.storage.filesystem import join

#: ``BucketCodec.V1`` has twelve bits for a bucket.
MAX_BUCKET = 4095

_STAGING_PREFIX = "_compaction_v"


class CompactionKind(StrEnum):
    """The kind of a compaction: major or minor."""

    MAJOR = "major"
    MINOR = "minor"

    @classmethod
    def of(cls, text: str) -> CompactionKind:
        """Parse a kind in any case.

        :raises ConfigurationError: the text is not a kind.
        """
        try:
            return cls(text.lower())
        except ValueError:
            raise ConfigurationError(
                f"There is no compaction {text!r}.", remedy="Ask for major or minor."
            ) from None


class Decision(StrEnum):
    """The decision about a request for a compaction."""

    COMPACT = "compact"
    CLEAN = "clean"
    """Has no files to merge, but leaves obsolete directories to the cleaner."""
    REFUSE = "refuse"


class FileFormat(StrEnum):
    """The way that the files of a table are merged."""

    ACID = "acid"
    ORC = "orc"
    PARQUET = "parquet"
    TEXT = "text"


@dataclass(frozen=True, kw_only=True)
class CompactedTable:
    """The table or partition that is compacted.

    :param name: ``database.table``.
    :param partition: the partition's name; empty for a table without partitions.
    :param location: URI of the table's or partition's directory.
    :param columns: names and Hive types of the *table's* columns, in order (``MRCompactor.setColumnTypes``: a
        partition's own may be out of date).
    :param file_format: ``ACID`` for a full ACID table, the files' format for an insert-only table.
    :param bucket_count: buckets of the table; 0 if it is not bucketed.
    :param compression: compression of ORC files, in pyarrow's names.
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

    @classmethod
    def from_json(cls, value: object) -> CompactedTable:
        """Read a table.

        :raises ValueError: a field is missing, or has another type.
        """
        fields = Fields(value)
        return cls(
            name=fields.needed("name", text),
            partition=fields.needed("partition", text),
            location=fields.needed("location", text),
            columns=fields.needed("columns", list_of(pair_of(text, text))),
            file_format=fields.needed("file_format", one_of(FileFormat)),
            bucket_count=fields.needed("bucket_count", whole),
            compression=fields.needed("compression", text),
            filters=fields.needed("filters", _filters),
        )

    @property
    def full_name(self) -> str:
        """Return ``database.table``, followed by the partition if the table has partitions."""
        return f"{self.name} partition {self.partition}" if self.partition else self.name


@dataclass(frozen=True, kw_only=True)
class MergeInput:
    """A file that a merge reads.

    :param path: path relative to the table's or partition's location.
    :param size_bytes: length of the file.
    :param side_file: path of the ``_flush_length`` file that gives the readable length; empty if none.
    :param raw: the file has no ACID columns, so its rows are numbered by position.
    :param write_id: for a raw file, the write id of its rows.
    :param statement_id: for a raw file, the statement that wrote them.
    """

    path: str
    size_bytes: int
    side_file: str = ""
    raw: bool = False
    write_id: int = 0
    statement_id: int = 0


_INPUTS = list_of(reader_of(MergeInput))


@dataclass(frozen=True, kw_only=True)
class BucketMerge:
    """The merge of one file, which is the unit of parallel work.

    With ``inserts`` the file gets their rows except those that ``deletes`` delete; without ``inserts`` it
    gets the delete events.

    :param table: the table or partition.
    :param bucket: number of the bucket.
    :param inserts: files with rows, in the order of their write ids.
    :param deletes: files with delete events.
    :param write_ids: valid write ids in Hive's text form; rows and deletes of other write ids are left out.
    :param output: path of the new file, relative to the location.
    """

    table: CompactedTable
    bucket: int
    inserts: tuple[MergeInput, ...] = ()
    deletes: tuple[MergeInput, ...] = ()
    write_ids: str
    output: str

    @property
    def size_bytes(self) -> int:
        """Return the total length of the files to read."""
        return sum(source.size_bytes for source in (*self.inserts, *self.deletes))

    @property
    def sources(self) -> list[str]:
        """Return the URIs of the files to read."""
        return [join(self.table.location, source.path) for source in (*self.inserts, *self.deletes)]

    def to_json(self) -> dict[str, object]:
        """Return the merge as JSON values, which :meth:`from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: object) -> BucketMerge:
        """Read a merge.

        :raises ValueError: a field is missing, or has another type.
        """
        fields = Fields(value)
        return cls(
            table=fields.needed("table", CompactedTable.from_json),
            bucket=fields.needed("bucket", whole),
            inserts=fields.needed("inserts", _INPUTS),
            deletes=fields.needed("deletes", _INPUTS),
            write_ids=fields.needed("write_ids", text),
            output=fields.needed("output", text),
        )


@dataclass(frozen=True, kw_only=True)
class CompactionPlan:
    """The plan of a compaction.

    :param decision: the decision about the request.
    :param reason: reason of a refusal, for the queue.
    :param staging: hidden directory for unfinished files, relative to the location.
    :param directories: names of the new directories.
    :param reads: directories and original files that are read, relative to the location.
    :param merges: merges of the new files below ``staging``.
    """

    decision: Decision
    reason: str = ""
    staging: str = ""
    directories: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    merges: tuple[BucketMerge, ...] = ()


def compactor_write_ids(
    write_ids: ValidWriteIds, listing: Iterable[FileEntry], txns: ValidTxns
) -> CompactorWriteIds:
    """Return the write ids that a compaction of a directory may read, whose highest one names its result.

    A streaming batch writes one delta for several transactions. The compactor cannot read the delta while
    some of them are open, and before later write ids exist, though its first transactions may be committed
    below the high watermark. ``QueryCompactor.Util.getCompactionResultDir`` names results after that
    watermark, and such a result would hide those rows from all readers. So the result ends below the delta.

    Hive's compactor may have left a base that ends inside the delta's range. Its readers still read the delta
    (``AcidUtils.findBestWorkingDeltas``), and need that base: the result then ends where the base does.

    :param write_ids: the table's valid write ids.
    :param listing: files of the table or partition.
    :param txns: the current transactions. Nobody reads the base of a compaction whose transaction is open, or
        was aborted.
    """
    allowed = write_ids.for_compactor()
    top = allowed.high_watermark
    names = {
        parse_directory(part)
        for entry in listing
        for part in entry.path.split("/")[:-1]
        if is_acid_directory(part)
    }
    bases = [name.max_write_id for name in names if _is_read(name, allowed, txns)]
    deltas = [name for name in names if name.kind is not DirectoryKind.BASE]
    for delta in sorted(deltas, key=lambda delta_name: delta_name.max_write_id, reverse=True):
        if delta.min_write_id <= top < delta.max_write_id:
            top = max([delta.min_write_id - 1, *bases])
    return allowed.cut(top)


def plan_compaction(
    table: CompactedTable,
    state: AcidState,
    write_ids: CompactorWriteIds,
    kind: CompactionKind,
    txn_id: int,
) -> CompactionPlan:
    """Plan the files that a compaction reads and writes.

    :param table: the table or partition.
    :param state: snapshot of the directory, with ``write_ids`` and the transactions valid for the compactor.
    :param write_ids: write ids that the compactor may read (:func:`compactor_write_ids`).
    :param kind: major or minor.
    :param txn_id: the compaction's own transaction, whose commit makes the result visible.
    :raises AcidFormatError: a file's name has no bucket, or a bucket that the table cannot have.
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
    low = min(delta.name.min_write_id for delta in (*state.deltas, *state.delete_deltas))
    return planner.minor(
        _name(DirectoryKind.DELTA, low, top, txn_id), _name(DirectoryKind.DELETE_DELTA, low, top, txn_id)
    )


def staging_directory(txn_id: int) -> str:
    """Return the name of the hidden directory in which a compaction writes its files."""
    return f"{_STAGING_PREFIX}{txn_id:07d}"


def staging_txn(name: str) -> int | None:
    """Return the transaction in a name of :func:`staging_directory`; ``None`` for other names."""
    digits = name.removeprefix(_STAGING_PREFIX)
    return int(digits) if digits != name and digits.isdecimal() else None


def _is_read(name: DirectoryName, write_ids: CompactorWriteIds, txns: ValidTxns) -> bool:
    """Return whether a directory is a base that readers may use."""
    if name.kind is not DirectoryKind.BASE or name.max_write_id > write_ids.high_watermark:
        return False
    # Without a transaction in its name, INSERT OVERWRITE has made it, or Hive 3's compactor.
    return txns.is_valid(name.visibility_txn_id) and (
        name.visibility_txn_id > 0 or not write_ids.is_aborted(name.max_write_id)
    )


def _filters(value: object) -> BloomFilters:
    fields = Fields(value)
    return BloomFilters(columns=fields.needed("columns", list_of(text)), fpp=fields.needed("fpp", number))


def _is_enough(state: AcidState, kind: CompactionKind) -> bool:
    deltas = len(state.deltas) + len(state.delete_deltas)
    if kind is CompactionKind.MAJOR:
        return bool(state.originals) or deltas + (state.base is not None) > 1
    # A minor compaction leaves one delta and one delete delta, which need no further one.
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
        reads = [
            *(directory.path for directory in state.directories),
            *(original.path for original in state.originals),
        ]
        return self._plan([base], reads, merges)

    def minor(self, delta: str, delete_delta: str) -> CompactionPlan:
        inserts = self._by_bucket(self._inputs(self.state.deltas))
        deletes = self._by_bucket(self._inputs(self.state.delete_deltas))
        merges = [self._merge(delta, bucket, inserts=files) for bucket, files in sorted(inserts.items())]
        merges += [
            self._merge(delete_delta, bucket, deletes=files) for bucket, files in sorted(deletes.items())
        ]
        made = [delta] * bool(self.state.deltas) + [delete_delta] * bool(self.state.delete_deltas)
        read = [directory.path for directory in (*self.state.deltas, *self.state.delete_deltas)]
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
        by_bucket: defaultdict[int, list[MergeInput]] = defaultdict(list)
        for source in inputs:
            bucket = self._bucket(source.path)
            if source.size_bytes:
                by_bucket[bucket].append(source)
        return by_bucket

    def _bucket(self, path: str) -> int:
        name = parse_file(path.rpartition("/")[2])
        bucket = name.bucket
        if bucket is None or name.kind not in {FileKind.BUCKET, FileKind.ORIGINAL}:
            raise self._wrong(path, "its name has no bucket", "Move it away, and load it by LOAD DATA.")
        count = self.table.bucket_count
        # The number of an insert-only table's file is that of its task, not of a bucket.
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
