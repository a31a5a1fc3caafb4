"""Which rows are deleted, as bits that a scan looks up.

A join with the deletes costs more than reading the rows. Row ids count up from 0 in every file, so one bit
for each possible row is little: the driver reads the delete files and makes an array of bits for every write
id and bucket that has deletes, and the scan looks its rows up in it. Files that cannot hold a deleted row are
not asked at all. Deletes that would need too many bits are joined; see :func:`~.scan.without`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import orc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from airflow_hive_federation.acid import footers, scan
from airflow_hive_federation.acid.places import Place
from airflow_hive_federation.model.write_ids import ValidWriteIds

Longs = np.ndarray[Any, np.dtype[np.int64]]
_COLUMNS = ["operation", "originalTransaction", "bucket", "rowId", "currentTransaction"]
_DELETE = 2
# A bucket property (BucketCodec.V1): version, bucket and statement, and bits between them that are 0.
_VERSION_1, _BUCKET_SHIFT, _TWELVE_BITS = 0x20000000, 16, 0xFFF
_OTHER_BITS = ~(_TWELVE_BITS << _BUCKET_SHIFT | _TWELVE_BITS)
_MOST_DELETES = 5_000_000
_MOST_WORDS = 4_000_000
_MOST_SLOTS = 1_000_000


@dataclass(frozen=True)
class Deletes:
    """The identities of deleted rows.

    :param keys: place, write id, bucket and statement, a row each.
    :param rows: row ids.
    """

    keys: Longs
    rows: Longs

    def touch(self, place: int, write_ids: tuple[int, int], bucket: int | None) -> bool:
        """Whether a file can hold a deleted row.

        :param place: index of its place.
        :param write_ids: lowest and highest write id of its directory.
        :param bucket: its bucket, as its name tells.
        """
        some = self._by_bucket.get((place, bucket), [])
        first = bisect_left(some, write_ids[0])
        return first < len(some) and some[first] <= write_ids[1]

    def without(self, spark: SparkSession, rows: DataFrame) -> DataFrame:
        """Leave out deleted rows.

        :param rows: with the columns of an identity, and the index of the place if there are several.
        """
        if not len(self.rows):
            return rows
        property_ = fn.col(scan.BUCKET)
        values = [
            fn.col(scan.PLACE),
            fn.col(scan.WRITE_ID),
            fn.shiftright(property_, _BUCKET_SHIFT).bitwiseAND(fn.lit(_TWELVE_BITS)),
            property_.bitwiseAND(fn.lit(_TWELVE_BITS)),
        ]
        known = property_.bitwiseAND(fn.lit(_OTHER_BITS)) == _VERSION_1
        slot = fn.lit(0).cast("bigint")
        for value, low, size in zip(values, self._lows, self._sizes, strict=True):
            known &= value == low if size == 1 else value.between(low, low + size - 1)
            if size > 1:
                slot = slot * size + (value - low)
        bits = spark.createDataFrame(pa.table({"bits": self._bits()})).scalar()
        word = fn.get(fn.get(bits, slot.cast("int")), fn.shiftright(scan.ROW_ID, 6).cast("int"))
        bit = fn.getbit(word, fn.col(scan.ROW_ID).bitwiseAND(fn.lit(63)).cast("int"))
        return rows.where(~fn.coalesce(known & (bit == 1), fn.lit(False)))

    @cached_property
    def _lows(self) -> list[int]:
        return [int(low) for low in self.keys.min(axis=1)]

    @cached_property
    def _sizes(self) -> list[int]:
        return [int(high) - low + 1 for low, high in zip(self._lows, self.keys.max(axis=1), strict=True)]

    @cached_property
    def _by_bucket(self) -> dict[tuple[int, int | None], list[int]]:
        found: dict[tuple[int, int | None], list[int]] = {}
        if not len(self.rows):
            return found
        # One key of each slot: sorting all keys would take longer than reading them.
        one_each = np.full(int(np.prod(self._sizes)), -1)
        one_each[self._slots] = np.arange(len(self.rows))
        for place, write_id, bucket, _ in self.keys[:, one_each[one_each >= 0]].T:
            found.setdefault((int(place), int(bucket)), []).append(int(write_id))
        return {key: sorted(write_ids) for key, write_ids in found.items()}

    @cached_property
    def _slots(self) -> Longs:
        slots = np.zeros(len(self.rows), np.int64)
        for values, low, size in zip(self.keys, self._lows, self._sizes, strict=True):
            slots = slots * size + (values - low)
        return slots

    def fits(self) -> bool:
        """Whether the bits are few enough."""
        if not len(self.rows):
            return True
        count = 1
        for size in self._sizes:
            count *= size
        if count > _MOST_SLOTS:
            return False
        highest = np.full(count, -64, np.int64)
        np.maximum.at(highest, self._slots, self.rows)
        return int(((highest >> 6) + 1).sum()) <= _MOST_WORDS

    def _bits(self) -> pa.Array:
        """One row: for every slot, words of 64 bits, or null."""
        order = np.argsort(self._slots, kind="stable")
        slots, firsts = np.unique(self._slots[order], return_index=True)
        lengths = np.zeros(int(np.prod(self._sizes)), np.int64)
        words = []
        for slot, mine in zip(slots, np.split(self.rows[order], firsts[1:]), strict=True):
            flags = np.zeros(((int(mine.max()) >> 6) + 1) * 64, np.uint8)
            flags[mine] = 1
            words.append(np.packbits(flags, bitorder="little").view("<i8"))
            lengths[slot] = len(words[-1])
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        slotted = pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()), pa.array(np.concatenate(words)), mask=pa.array(lengths == 0)
        )
        return pa.ListArray.from_arrays(pa.array([0, len(lengths)], pa.int32()), slotted)


def read_deletes(
    places: Sequence[Place], write_ids: ValidWriteIds, options: Mapping[str, Any] | None
) -> Deletes | None:
    """Read what the delete deltas of places delete.

    :return: ``None`` if that is too much to be looked up.
    :raises FileVanishedError: if a file is gone.
    :raises AcidFormatError: if one is no whole ACID file.
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

    def read(file: orc.ORCFile, path: str) -> tuple[Longs, Longs]:
        index, mixed = files[path]
        return _events(file.read(columns=_COLUMNS), index, write_ids if mixed else None)

    if sum(footers.each(list(files), options, count)) > _MOST_DELETES:
        return None
    found = footers.each(list(files), options, read)
    keys = np.concatenate([keys for keys, _ in found], axis=1) if found else np.zeros((4, 0), np.int64)
    rows = np.concatenate([rows for _, rows in found]) if found else np.zeros(0, np.int64)
    deletes = Deletes(keys, rows)
    # Without the bits of version 1, as Hive 2 wrote them, a property says nothing of bucket and statement.
    return deletes if (rows >= 0).all() and deletes.fits() else None


def _events(table: pa.Table, place: int, write_ids: ValidWriteIds | None) -> tuple[Longs, Longs]:
    columns = [table.column(name).to_numpy().astype(np.int64) for name in _COLUMNS]
    operation, written, property_, rows, current = columns
    kept = operation == _DELETE
    if write_ids is not None:
        kept &= (current <= write_ids.high_watermark) & ~np.isin(current, np.array(write_ids.invalid_ids))
    odd = (property_ & _OTHER_BITS) != _VERSION_1
    rows = np.where(odd, -1, rows)
    keys = np.stack(
        [
            np.full(len(rows), place),
            written,
            property_ >> _BUCKET_SHIFT & _TWELVE_BITS,
            property_ & _TWELVE_BITS,
        ]
    )
    return keys[:, kept], rows[kept]
