"""Checks Arrow record batches and casts them to the column types of a Hive table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from airflow_hive_federation.ingest.errors import InvalidColumn, SerializationError
from airflow_hive_federation.ingest.formats.exact_casts import can_become, exact_cast
from airflow_hive_federation.ingest.formats.writers import AbstractRecordWriter, check_names, unstorable
from airflow_hive_federation.model.types import Column
from airflow_hive_federation.orc.arrow_columns import arrow_type


class ArrowRecordWriter(AbstractRecordWriter):
    """A writer for connections that receive record batches only (``write_batch``); it refuses single records.

    :param schema: schema of the batches, if known; connecting then checks it.
    """

    def __init__(self, schema: pa.Schema | None = None) -> None:
        super().__init__()
        self._schema = schema

    def bind(self, columns: Sequence[Column]) -> None:
        """Set the columns as :meth:`AbstractRecordWriter.bind` does, and check the schema."""
        super().bind(columns)
        if self._schema is not None:
            conforming_batch(pa.RecordBatch.from_pylist([], schema=self._schema), columns)

    def encode(self, record: bytes) -> Sequence[object]:
        """Refuse the record, because this writer parses no format."""
        raise ValueError(f"this connection takes Arrow batches, and not {len(record)} bytes")


def conforming_batch(batch: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """Convert a batch to the table's columns, which are matched by name without regard to case.

    Types are cast if no value changes, as :func:`.exact_cast` does.

    :param columns: the table's columns, then the dynamic partition keys.
    :raises InvalidColumn: the batch lacks a column, has an unknown one, has one twice, or has one whose type
        cannot be cast.
    :raises SerializationError: a value does not fit its column; ``column`` and ``record_number`` (from 1)
        locate it.
    """
    by_name = {name.lower(): place for place, name in enumerate(batch.schema.names)}
    wanted = [column.name for column in columns]
    if len(by_name) != batch.num_columns:
        raise InvalidColumn("The batch has a column twice.")
    if set(by_name) != set(wanted):
        check_names(batch.schema.names, columns)
    arrays = [_cast(batch.column(by_name[column.name]), column) for column in columns]
    for array, column in zip(arrays, columns, strict=True):
        for bad_value in unstorable(array, column):
            raise SerializationError(
                f"Row {bad_value.index + 1} of the batch, column {column.name}: {bad_value.reason}.",
                remedy="Correct the value; nothing of the batch was written.",
                column=column.name,
                record_number=bad_value.index + 1,
            )
    return pa.RecordBatch.from_arrays(arrays, names=wanted)


def _cast(array: pa.Array, column: Column) -> pa.Array:
    kind = arrow_type(column.type)
    if array.type.equals(kind):
        return array
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    _check_type(array.type, column, kind)
    try:
        return exact_cast(array, kind)
    except ValueError as error:
        place = _first_unfit(array, kind)
        raise SerializationError(
            f"Row {place + 1} of the batch, column {column.name} ({column.type}): {error}",
            remedy="Correct the value; nothing of the batch was written.",
            column=column.name,
            record_number=place + 1,
        ) from error


def _check_type(given: pa.DataType, column: Column, wanted: pa.DataType) -> None:
    refused = InvalidColumn(
        f"Column {column.name} is {column.type}, which {given} cannot become.",
        remedy="Convert it before it is written.",
        column=column.name,
    )
    if not can_become(given, wanted):
        raise refused
    try:
        pa.nulls(0, given).cast(wanted)
    except pa.ArrowNotImplementedError as error:
        raise refused from error


def _first_unfit(array: pa.Array, kind: pa.DataType) -> int:
    low, high = 0, len(array)
    # array[:low] casts; array[:high] does not.
    while high - low > 1:
        middle = (low + high) // 2
        try:
            # Of a slice, Arrow casts the values of all lists.
            exact_cast(array.take(pa.array(range(low, middle), pa.int64())), kind)
            low = middle
        except ValueError:
            high = middle
    return low
