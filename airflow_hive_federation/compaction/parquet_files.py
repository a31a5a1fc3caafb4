"""Merges several Parquet files into one, whether Hive, Spark or this package wrote them.

Dates become proleptic, and timestamps become the wall-clock time that the writer's clock showed. If one file
has timestamps as INT96, the merged file has INT96: in files that Java's library has not written, Hive reads
INT96 as wall-clock time, and its days before 15 October 1582 as days of the Julian calendar
(``NanoTimeUtils``), whatever the file's metadata states about dates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from airflow_hive_federation.compaction.plan import BucketMerge, MergeInput
from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.orc.arrow_columns import in_one_piece
from airflow_hive_federation.orc.calendars import julian_days, proleptic_dates, proleptic_days
from airflow_hive_federation.orc.nested import with_leaves
from airflow_hive_federation.storage.filesystem import join, reading
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.permissions import creation_mode
from airflow_hive_federation.storage.publishing import publishing

_WRITER, _PROLEPTIC = b"writer.model.name", b"writer.date.proleptic"
_ZONE, _STANDARD = b"writer.time.zone", b"writer.zone.conversion.legacy"
_SAID = {_PROLEPTIC: b"true", _ZONE: b"UTC", _STANDARD: b"false"}
_LEGACY_SPARK = {b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"}
_UTC = {"UTC", "Z", "GMT", "Etc/UTC", "Etc/GMT"}
_Numbers = npt.NDArray[np.int64]
_DAY_US = 86_400 * 10**6
_1900_US = -2_208_988_800 * 10**6
_NANOSECONDS_US = (-(2**63) // 1_000, 2**63 // 1_000)


@dataclass(frozen=True, kw_only=True)
class _Source:
    """A source file, with the facts of its footer.

    :param int96: names of columns that are INT96 or contain INT96.
    :param zone: time zone of the writer's clock for INT96 columns; ``None`` if they hold wall-clock times.
    :param by_standard_time: the writer's clock used standard time before 1900.
    :param julian: dates before 15 October 1582 are dates of the Julian calendar.
    """

    input: MergeInput
    schema: pa.Schema
    compression: str
    int96: frozenset[str]
    zone: str | None
    by_standard_time: bool
    julian: bool


def append_parquet(merge: BucketMerge, options: StorageOptions | None) -> tuple[int, int]:
    """Write the merged file with the first file's compression; return its row count and its length in bytes.

    :raises AcidFormatError: a file is not whole, or does not fit the others.
    :raises StorageError: a file cannot be read or written.
    """
    merging = _Merging(merge, options)
    rows = 0
    with publishing(
        join(merge.table.location, merge.output), options, mode=creation_mode(merge.sources, options)
    ) as file:
        with parquet.ParquetWriter(file, merging.schema, store_schema=False, **merging.settings) as writer:
            for table in merging.tables():
                rows += table.num_rows
                writer.write_table(table)
            # The writer drops the schema's metadata because it does not store the Arrow schema.
            writer.add_key_value_metadata(_SAID)
        return rows, int(file.tell())


class _Merging:
    """A merge of several files into one.

    :param merge: the files to read and the file to write.
    """

    def __init__(self, merge: BucketMerge, options: StorageOptions | None) -> None:
        self._merge = merge
        self._options = options
        self._sources = [self._looked_at(source) for source in merge.inserts]
        self._has_int96 = any(source.int96 for source in self._sources)
        self._units = self._common_units()
        self.settings = {
            "compression": self._sources[0].compression,
            "use_deprecated_int96_timestamps": self._has_int96,
            "write_page_checksum": True,
        }
        schemas = [
            pa.schema([field.with_type(self._type(field)) for field in source.schema])
            for source in self._sources
        ]
        try:
            # Hive matches Parquet columns by name.
            self.schema = pa.unify_schemas(schemas)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise self._wrong(merge.inserts[-1], f"and those before it differ: {error}") from error

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows of all files in their order."""
        for source in self._sources:
            coarse = frozenset(name for name in source.int96 if self._units.get(name) == "us")
            for group in self._groups(source, coarse=coarse):
                by_name = {
                    name: self._common(group.column(name), name, source) for name in group.column_names
                }
                columns = [
                    by_name[field.name] if field.name in by_name else pa.nulls(len(group), field.type)
                    for field in self.schema
                ]
                yield pa.table(columns, schema=self.schema)

    def _looked_at(self, source: MergeInput) -> _Source:
        with reading(join(self._merge.table.location, source.path), self._options) as content:
            opened = self._opened(source, content)
            metadata = opened.metadata.metadata or {}
            leaves = [opened.schema.column(index) for index in range(len(opened.schema))]
            int96 = {leaf.path.partition(".")[0] for leaf in leaves if leaf.physical_type == "INT96"}
            compression = "none"
            if opened.num_row_groups and leaves:
                compression = str(opened.metadata.row_group(0).column(0).compression).lower()
            if not _LEGACY_SPARK.isdisjoint(metadata):
                raise self._wrong(source, "was written by Spark in its legacy mode, by mixed calendars")
            zone = None
            if int96 and str(opened.metadata.created_by).startswith("parquet-mr"):
                if _ZONE not in metadata:
                    raise self._wrong(source, "has timestamps, but no time zone of its writer")
                zone = metadata[_ZONE].decode()
            return _Source(
                input=source,
                schema=opened.schema_arrow.remove_metadata(),
                compression="none" if compression == "uncompressed" else compression,
                int96=frozenset(int96),
                zone=None if zone in _UTC else zone,
                by_standard_time=metadata.get(_STANDARD) != b"false",
                julian=_WRITER in metadata and metadata.get(_PROLEPTIC) != b"true",
            )

    def _common_units(self) -> dict[str, str]:
        """Choose the timestamp unit of columns that have several units, or are INT96 in one file."""
        units: dict[str, set[str]] = {}
        for source in self._sources:
            for field in source.schema:
                kinds = set(_timestamps(field.type))
                if self._has_int96 and any(kind.tz for kind in kinds):
                    raise self._wrong(source.input, "has instants, where others have wall-clock times")
                units.setdefault(field.name, set()).update(kind.unit for kind in kinds)
        int96 = frozenset[str]().union(*(source.int96 for source in self._sources))
        ambiguous = {name for name, column_units in units.items() if name in int96 or len(column_units) > 1}
        wide = {name for source in self._sources for name in self._wide_columns(source, ambiguous)}
        for source in self._sources:
            for name in wide.intersection(source.schema.names):
                self._check_digits(source, name)
        return {name: "us" if name in wide else "ns" for name in ambiguous}

    def _wide_columns(self, source: _Source, names: set[str]) -> set[str]:
        """Return the columns whose timestamps lie outside the range of nanoseconds."""
        wide: set[str] = set()
        wanted = [name for name in source.schema.names if name in names]
        for group in self._groups(source, coarse=source.int96, only=wanted) if wanted else ():
            for name in wanted:
                if any(map(_is_wide, _timestamp_arrays(group.column(name)))):
                    wide.add(name)
        return wide

    def _check_digits(self, source: _Source, name: str) -> None:
        """Refuse timestamps that microseconds would truncate, because a column has one unit in Arrow."""
        for fine, coarse in zip(
            self._groups(source, coarse=frozenset(), only=[name]),
            self._groups(source, coarse=source.int96, only=[name]),
            strict=True,
        ):
            arrays = map(_timestamp_arrays, (fine.column(name), coarse.column(name)))
            for exact, cut in zip(*arrays, strict=True):
                if (_nanoseconds(exact) - _nanoseconds(cut, cut=True)).any():
                    reason = (
                        f"or another one has timestamps outside the years 1677 to 2262 in the column {name}, "
                        "beside some that are finer than microseconds: these cannot be written here together"
                    )
                    raise self._wrong(source.input, reason)

    def _groups(
        self, source: _Source, *, coarse: frozenset[str], only: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """Read a file's row groups.

        :param coarse: columns whose INT96 is read as microseconds instead of nanoseconds.
        :param only: columns to read; ``None`` means all.
        """
        wanted = source.schema.names if only is None else list(only)
        with reading(join(self._merge.table.location, source.input.path), self._options) as content:
            fine = self._opened(source.input, content)
            by_unit = fine
            if coarse:
                by_unit = self._opened(
                    source.input, content, coerce_int96_timestamp_unit="us", metadata=fine.metadata
                )
            for group in range(fine.num_row_groups):
                try:
                    parts = (
                        fine.read_row_group(group, columns=[name for name in wanted if name not in coarse]),
                        by_unit.read_row_group(group, columns=[name for name in wanted if name in coarse]),
                    )
                except (pa.ArrowException, OSError) as error:
                    raise self._wrong(source.input, f"cannot be read: {error}") from error
                by_name = {name: part.column(name) for part in parts for name in part.column_names}
                yield pa.table({name: by_name[name] for name in wanted})

    def _common(self, column: pa.ChunkedArray, name: str, source: _Source) -> pa.Array:
        def changed(array: pa.Array, _number: int) -> pa.Array:
            if pa.types.is_date32(array.type) and source.julian:
                return proleptic_dates(array)
            if not pa.types.is_timestamp(array.type) or array.type.tz:
                return array
            if source.zone is not None and name in source.int96:
                # The clock of a time zone uses the proleptic calendar.
                array = _with_days(self._shown(_with_days(array, proleptic_days), source), julian_days)
            elif self._has_int96 and name not in source.int96:
                array = _with_days(array, julian_days)
            return array.cast(pa.timestamp(self._units.get(name, array.type.unit)))

        return with_leaves(in_one_piece(column), changed)

    def _shown(self, instants: pa.Array, source: _Source) -> pa.Array:
        """Convert instants to the times that the writer's clock showed."""
        first = pc.min(instants.cast(pa.timestamp("us"), safe=False).cast(pa.int64())).as_py()
        if source.by_standard_time and first is not None and first < _1900_US:
            reason = "has timestamps before 1900 of an older Hive's, which are not merged here"
            raise self._wrong(source.input, reason)
        try:
            zoned = pc.assume_timezone(instants, "UTC").cast(pa.timestamp(instants.type.unit, source.zone))
            return pc.local_timestamp(zoned)
        except pa.ArrowInvalid as error:
            reason = f"was written in a time zone that is not known here: {error}"
            raise self._wrong(source.input, reason) from error

    def _type(self, field: pa.Field) -> pa.DataType:
        """Return the type that :meth:`_common` gives a column."""
        unit = self._units.get(field.name)

        def changed(array: pa.Array, _number: int) -> pa.Array:
            is_clock = pa.types.is_timestamp(array.type) and not array.type.tz
            return array.cast(pa.timestamp(unit)) if unit and is_clock else array

        return with_leaves(pa.array([], field.type), changed).type

    def _opened(self, source: MergeInput, content: object, **settings: object) -> parquet.ParquetFile:
        try:
            return parquet.ParquetFile(content, page_checksum_verification=True, **settings)
        except (pa.ArrowException, OSError) as error:
            raise self._wrong(source, f"is not a whole Parquet file: {error}") from error

    def _wrong(self, source: MergeInput, why: str) -> AcidFormatError:
        table = self._merge.table
        path = join(table.location, source.path)
        return AcidFormatError(
            f"{table.full_name}: {path} {why}.",
            remedy="Compact it with Hive's own worker; nothing was changed by this compaction.",
            table=table.name,
            partition=table.partition,
            path=path,
        )


def _timestamps(kind: pa.DataType) -> Iterator[pa.TimestampType]:
    """Yield the timestamp types that a type is or contains."""
    if pa.types.is_timestamp(kind):
        yield kind
    for place in range(kind.num_fields):
        yield from _timestamps(kind.field(place).type)


def _timestamp_arrays(column: pa.ChunkedArray) -> list[pa.Array]:
    """Return the timestamp arrays that a column is or contains, without nulls."""
    timestamps = []

    def look(array: pa.Array, _number: int) -> pa.Array:
        if pa.types.is_timestamp(array.type):
            timestamps.append(array.drop_null())
        return array

    with_leaves(in_one_piece(column), look)
    return timestamps


def _is_wide(timestamps: pa.Array) -> bool:
    if not len(timestamps):
        return False
    counts = timestamps.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).to_numpy()
    low, high = _NANOSECONDS_US
    # One day of tolerance covers the clocks of all time zones.
    return bool(counts.min() < low + _DAY_US or counts.max() > high - _DAY_US)


def _nanoseconds(timestamps: pa.Array, *, cut: bool = False) -> _Numbers:
    """Count nanoseconds since 1970, modulo 2^64.

    :param cut: truncate to microseconds.
    """
    if cut and timestamps.type.unit == "ns":
        timestamps = timestamps.cast(pa.timestamp("us"), safe=False)
    factors = {"ns": 1, "us": 1_000, "ms": 10**6, "s": 10**9}
    numbers: _Numbers = timestamps.cast(pa.int64()).to_numpy()
    return numbers * np.int64(factors[timestamps.type.unit])


def _with_days(clocks: pa.Array, numbered: Callable[[_Numbers], _Numbers]) -> pa.Array:
    """Renumber days before 15 October 1582, which are outside the range of nanoseconds."""
    if clocks.type.unit == "ns":
        return clocks
    counts = clocks.cast(pa.timestamp("us")).cast(pa.int64())
    numbers = pc.fill_null(counts, 0).to_numpy()
    days = numbers // _DAY_US
    moved = numbers + (numbered(days) - days) * _DAY_US
    nulls = clocks.is_null().to_numpy(zero_copy_only=False)
    return pa.array(moved, pa.int64(), mask=nulls).cast(pa.timestamp("us"))
