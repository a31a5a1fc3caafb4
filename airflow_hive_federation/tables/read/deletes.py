"""Reads the delete deltas of a table into bits in which a scan looks up its rows.

A join with the deletes costs more than reading the rows. Row ids count up from 0 in every file, so one bit
per possible row takes little memory. The driver reads the delete files and makes an array of bits for every
write id and bucket that has deletes; the scan looks its rows up in that array. Rows of files that cannot hold
a deleted row are not looked up at all. If the deletes need too many bits, Spark joins the rows with them; see
:func:`~.scan.without`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import orc
from pyspark.sql import SparkSession

from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.tables.read import footers, scan
from airflow_hive_federation.tables.read.partition_scans import PartitionScan
from airflow_hive_federation.tables.spark_internals import longs_column

Longs = npt.NDArray[np.int64]
_COLUMNS = ["operation", "originalTransaction", "bucket", "rowId", "currentTransaction"]
_DELETE = 2
# A bucket property (BucketCodec.V1) holds the version, the bucket and the statement, with zero bits between.
_VERSION_1, _BUCKET_SHIFT, _TWELVE_BITS = 0x20000000, 16, 0xFFF
_OTHER_BITS = ~(_TWELVE_BITS << _BUCKET_SHIFT | _TWELVE_BITS)
_BITS = "__acid_deleted"
_NO_RUNS = (np.zeros((4, 0), np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))
_MOST_DELETES = 5_000_000
_MOST_WORDS = 4_000_000
_MOST_SLOTS = 1_000_000
# Masks that keep all bits of every slot number, and of every index into the array of bits.
_SLOT_MASK, _WORD_MASK = (1 << 20) - 1, (1 << 23) - 1


@dataclass(frozen=True)
class Deletes:
    """The identities of deleted rows, in runs of equal place, write id, bucket and statement.

    :param keys: a matrix with one column per run; its four rows are place, write id, bucket and statement.
    :param lengths: the number of row ids of each run.
    :param rows: the row ids, run after run.
    """

    keys: Longs
    lengths: Longs
    rows: Longs

    def touch(self, place: int, write_ids: tuple[int, int], bucket: int | None) -> bool:
        """Return whether a file can hold a deleted row.

        :param place: index of the file's place.
        :param write_ids: lowest and highest write id of its directory.
        :param bucket: bucket in the file's name.
        """
        deleted_write_ids = self._by_bucket.get((place, bucket), [])
        first = bisect_left(deleted_write_ids, write_ids[0])
        return first < len(deleted_write_ids) and deleted_write_ids[first] <= write_ids[1]

    def without(self, spark: SparkSession, rows: scan.Rows) -> scan.Rows:
        """Leave the deleted rows out of a scan.

        :param rows: rows with the columns of an identity, and the index of the place if there are several.
        """
        if not len(self.rows):
            return rows
        firsts, words = self._bits()
        # A single array holds both: arrays in arrays would cost one object per row.
        array = longs_column(spark, np.concatenate([firsts + len(firsts), words]))
        slot, row_id = self._slot_text(rows.columns), rows.columns[scan.ROW_ID]
        word = f"(get({_BITS}, {slot}) + shiftright({row_id}, 6))"
        bit = f"getbit(get({_BITS}, cast({word} & {_WORD_MASK}L as int)), cast({row_id} & 63 as int))"
        inside = f"{self._known_text(rows.columns)} and {word} < get({_BITS}, {slot} + 1)"
        remaining = rows.frame.withColumn(_BITS, array).where(f"not coalesce({inside} and {bit} = 1, false)")
        return replace(rows, frame=remaining)

    def _known_text(self, columns: Mapping[str, str]) -> str:
        """Return the condition, in Spark's SQL, that a slot stands for the row's identity."""
        conditions = [f"({columns[scan.BUCKET]} & {_OTHER_BITS}) = {_VERSION_1}"]
        for value, low, size in zip(_key_texts(columns), self._lows, self._sizes, strict=True):
            equal = f"{value} = {low}L"
            conditions.append(equal if size == 1 else f"{value} between {low}L and {low + size - 1}L")
        return " and ".join(conditions)

    def _slot_text(self, columns: Mapping[str, str]) -> str:
        """Return the slot of a row's identity, in Spark's SQL; an unknown identity gets any number.

        Spark may compute the slot of unknown identities too (an AND is no guard for it), and must not run
        into an overflow. The masks do not change the slots of known identities.
        """
        text = "0L"
        for value, low, size in zip(_key_texts(columns), self._lows, self._sizes, strict=True):
            if size > 1:
                offset = f"((({value}) & {_SLOT_MASK}L) - {low & _SLOT_MASK}L & {_SLOT_MASK}L)"
                text = f"({text} * {size}L + {offset})"
        return f"cast({text} & {_SLOT_MASK}L as int)"

    @cached_property
    def _lows(self) -> list[int]:
        return [int(low) for low in self.keys.min(axis=1)]

    @cached_property
    def _sizes(self) -> list[int]:
        return [int(high) - low + 1 for low, high in zip(self._lows, self.keys.max(axis=1), strict=True)]

    @cached_property
    def _by_bucket(self) -> dict[tuple[int, int | None], list[int]]:
        by_bucket: dict[tuple[int, int | None], list[int]] = {}
        if not len(self.rows):
            return by_bucket
        # One run per slot is enough: sorting all runs would take longer than reading them.
        run_of_slot = np.full(int(np.prod(self._sizes)), -1)
        run_of_slot[self._slots] = np.arange(len(self._slots))
        for place, write_id, bucket, _ in self.keys[:, run_of_slot[run_of_slot >= 0]].T:
            by_bucket.setdefault((int(place), int(bucket)), []).append(int(write_id))
        return {key: sorted(write_ids) for key, write_ids in by_bucket.items()}

    @cached_property
    def _slots(self) -> Longs:
        """Return the slot of each run."""
        slots = np.zeros(len(self.lengths), np.int64)
        for values, low, size in zip(self.keys, self._lows, self._sizes, strict=True):
            slots = slots * size + (values - low)
        return slots

    def fits(self) -> bool:
        """Return whether the bits are few enough to be looked up."""
        if not len(self.rows):
            return True
        return math.prod(self._sizes) <= _MOST_SLOTS and int(self._firsts[-1]) <= _MOST_WORDS

    @cached_property
    def _firsts(self) -> Longs:
        """Return the first word of each slot, followed by the number of words."""
        highest = np.full(math.prod(self._sizes), -64, np.int64)
        starts = np.cumsum(self.lengths) - self.lengths
        np.maximum.at(highest, self._slots, np.maximum.reduceat(self.rows, starts))
        return np.concatenate([[0], np.cumsum((highest >> 6) + 1)])

    def _bits(self) -> tuple[Longs, Longs]:
        """Return the first word of each slot, and the words of 64 bits."""
        # np.packbits would save 3 ms of 400,000 dense deletes, but takes 256 MB of bools for the most words.
        words = np.zeros(int(self._firsts[-1]), np.uint64)
        places = np.repeat(self._firsts[self._slots], self.lengths) + (self.rows >> 6)
        np.bitwise_or.at(words, places, np.uint64(1) << (self.rows & 63).astype(np.uint64))
        return self._firsts, words.view(np.int64)


def _key_texts(columns: Mapping[str, str]) -> tuple[str, str, str, str]:
    """Return the place, write id, bucket and statement of a row, in Spark's SQL."""
    bucket = columns[scan.BUCKET]
    return (
        # The rows have this column only if there are several places.
        columns.get(scan.PLACE, "0"),
        columns[scan.WRITE_ID],
        f"(shiftright({bucket}, {_BUCKET_SHIFT}) & {_TWELVE_BITS})",
        f"({bucket} & {_TWELVE_BITS})",
    )


def read_deletes(
    places: Sequence[PartitionScan], write_ids: ValidWriteIds, options: StorageOptions | None
) -> Deletes | None:
    """Read the identities of the rows that the delete deltas of places delete.

    :return: the deletes; ``None`` if they are too many to be looked up.
    :raises FileVanishedError: if a file is gone.
    :raises AcidFormatError: if a file is not a whole ACID file.
    """
    files = {
        place.full(entry): (index, directory.mixed)
        for index, place in enumerate(places)
        for directory in place.state.delete_deltas
        for entry in directory.files
    }

    def count(file: orc.ORCFile, path: str) -> int:
        footers.check_acid(file, path)
        return int(file.nrows)

    def read(file: orc.ORCFile, path: str) -> tuple[Longs, Longs, Longs]:
        index, mixed = files[path]
        return _events(file.read(columns=_COLUMNS), index, write_ids if mixed else None)

    if sum(footers.each(list(files), options, count)) > _MOST_DELETES:
        return None
    events = footers.each(list(files), options, read)
    keys, lengths, rows = (np.concatenate(parts, axis=-1) for parts in zip(_NO_RUNS, *events, strict=True))
    deletes = Deletes(keys, lengths, rows)
    # Negative row ids mark runs whose bucket property lacks the version bits, as in files of Hive 2: such a
    # property does not hold bucket and statement.
    return deletes if (rows >= 0).all() and deletes.fits() else None


def _events(table: pa.Table, place: int, write_ids: ValidWriteIds | None) -> tuple[Longs, Longs, Longs]:
    """Return the keys, lengths and row ids of one delete file, as :class:`Deletes` has them."""
    columns = [table.column(name).to_numpy().astype(np.int64, copy=False) for name in _COLUMNS]
    operation, written, property_, rows, current = columns
    kept = operation == _DELETE
    if write_ids is not None:
        kept &= (current <= write_ids.high_watermark) & ~np.isin(current, np.array(write_ids.invalid_ids))
    if not kept.all():
        written, property_, rows = written[kept], property_[kept], rows[kept]
    if not len(rows):
        return _NO_RUNS
    changes = (written[1:] != written[:-1]) | (property_[1:] != property_[:-1])
    starts = np.concatenate([[0], np.flatnonzero(changes) + 1])
    written, property_ = written[starts], property_[starts]
    if ((property_ & _OTHER_BITS) != _VERSION_1).any():
        rows = np.full(len(rows), -1)
    keys = np.stack(
        [
            np.full(len(starts), place),
            written,
            property_ >> _BUCKET_SHIFT & _TWELVE_BITS,
            property_ & _TWELVE_BITS,
        ]
    )
    return keys, np.diff(starts, append=len(rows)), rows
