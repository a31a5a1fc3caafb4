"""Divides many rows at once into groups per partition and bucket, without any I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.acid.bucketing import bucket_numbers
from airflow_hive_federation.model.partitions import DEFAULT_PARTITION
from airflow_hive_federation.model.types import Column
from airflow_hive_federation.tables.write.columns import stored
from airflow_hive_federation.tables.write.partition_values import (
    decimal_text,
    double_text,
    float_text,
    timestamp_text,
)
from airflow_hive_federation.tables.write.plan import TableLayout

Values = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Group:
    """Rows of one bucket of one partition.

    :param values: value texts of the partition; empty for a table without partitions.
    :param source: rows of all groups, with the table's columns as they are stored.
    :param places: positions of this group's rows in ``source``; ``None`` for all rows.
    """

    values: Values
    bucket: int
    source: pa.RecordBatch
    places: pa.Array | None

    @property
    def row_count(self) -> int:
        """Return the number of rows in the group."""
        return self.source.num_rows if self.places is None else len(self.places)

    def rows(self) -> pa.RecordBatch:
        """Copy the group's rows out of ``source``; each call makes a new copy."""
        return self.source if self.places is None else self.source.take(self.places)


def grouped(layout: TableLayout, rows: pa.RecordBatch, static: Values | None) -> Iterator[Group]:
    """Divide rows into groups; the rows of a group keep their order.

    :param rows: the table's columns, then the partition keys if their values come from the rows.
    :param static: values of the one partition, if the rows have none; ``()`` for a table without partitions.
    """
    width = len(layout.columns)
    arrays = [
        stored(array, column.type, "UTC")
        for array, column in zip(rows.columns[:width], layout.columns, strict=True)
    ]
    data = pa.RecordBatch.from_arrays(arrays, names=[column.name for column in layout.columns])
    # Hive hashes the values that it stores, cut to the column's length.
    buckets = _buckets(layout, data)
    if static is None:
        keys, partitions = _partitions(rows.columns[width:], layout.partition_keys)
    else:
        keys, partitions = np.zeros(rows.num_rows, np.int64), [static]
    codes = keys * max(layout.bucket_count, 1) + buckets
    order, bounds, firsts = _runs(codes)
    places = None if order is None else pa.array(order)
    for start, end, first in zip(bounds, [*bounds[1:], rows.num_rows], firsts, strict=True):
        yield Group(
            values=partitions[int(keys[first])],
            bucket=int(buckets[first]),
            source=data,
            places=None if places is None else places.slice(start, end - start),
        )


def value_texts(array: pa.Array, key: Column) -> pa.Array:
    """Write partition values as Hive does; null and the empty text become the default partition."""
    name = key.type.name
    if name in {"string", "varchar"}:
        texts = pc.utf8_slice_codeunits(array, 0, key.type.arguments[0]) if key.type.arguments else array
    elif name == "char":
        texts = pc.utf8_rtrim(pc.utf8_slice_codeunits(array, 0, key.type.arguments[0]), " ")
    elif name in _TEXTS:
        texts = pa.array([_text(value, _TEXTS[name]) for value in array.to_pylist()], pa.string())
    else:
        texts = array.cast(pa.string())
    filled = texts.fill_null(DEFAULT_PARTITION)
    return pc.if_else(pc.equal(filled, ""), DEFAULT_PARTITION, filled)


def _buckets(layout: TableLayout, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    if not layout.bucket_count:
        return np.zeros(rows.num_rows, np.int64)
    places = {column.name: place for place, column in enumerate(layout.columns)}
    chosen = [places[name] for name in layout.bucket_columns]
    numbers = bucket_numbers(
        [rows.column(place) for place in chosen],
        [layout.columns[place].type for place in chosen],
        buckets=layout.bucket_count,
        version=layout.bucketing_version,
    )
    return numbers.astype(np.int64)


def _partitions(
    arrays: Sequence[pa.Array], keys: Sequence[Column]
) -> tuple[npt.NDArray[np.int64], list[Values]]:
    """Return each row's partition number, and the values of the partitions."""
    codes = np.zeros(len(arrays[0]), np.int64)
    columns: list[tuple[list[str], np.ndarray[Any, Any]]] = []
    for array, key in zip(arrays, keys, strict=True):
        # A partition key usually has few distinct values, and each is converted to text once.
        encoded = array.dictionary_encode(null_encoding="encode")
        texts = value_texts(encoded.dictionary, key).dictionary_encode()
        numbers = texts.indices.to_numpy()[encoded.indices.to_numpy()]
        codes = codes * len(texts.dictionary) + numbers
        columns.append((texts.dictionary.to_pylist(), numbers))
    _, firsts, inverse = np.unique(codes, return_index=True, return_inverse=True)
    values = [tuple(texts[int(numbers[first])] for texts, numbers in columns) for first in firsts]
    return inverse.astype(np.int64).reshape(-1), values


def _runs(codes: npt.NDArray[np.int64]) -> tuple[Any, list[int], list[int]]:
    """Return the order that groups equal codes, the start of each run, and one row of each run."""
    if not len(codes):
        return None, [], []
    if (codes == codes[0]).all():
        return None, [0], [0]
    # Small numbers are sorted in linear time.
    small = codes.astype(np.uint16) if int(codes.max()) < 1 << 16 else codes
    order = np.argsort(small, kind="stable")
    ordered = codes[order]
    bounds = [0, *(int(place) + 1 for place in np.flatnonzero(ordered[1:] != ordered[:-1]))]
    return order, bounds, [int(order[start]) for start in bounds]


def _text(value: object, convert: Callable[[Any], str]) -> str | None:
    return None if value is None else convert(value)


_TEXTS: dict[str, Callable[[Any], str]] = {
    "decimal": decimal_text,
    "float": float_text,
    "double": double_text,
    "timestamp": timestamp_text,
    "binary": lambda value: bytes(value).decode("utf-8", "replace"),
}
