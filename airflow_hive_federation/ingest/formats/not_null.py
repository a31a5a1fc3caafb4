"""Finds records with a null in a column for which the table has an enabled NOT NULL constraint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.ingest.errors import SerializationError
from airflow_hive_federation.ingest.formats.columns import BadRecord
from airflow_hive_federation.ingest.formats.writers import Parsed

_REASON = "it is null, but the column is NOT NULL"


def without_nulls(parsed: Parsed, not_null: Sequence[str], count: int) -> Parsed:
    """Turn the rows with a null in one of the columns into bad records.

    :param not_null: names of columns of the rows.
    :param count: the number of records that were parsed.
    """
    rows = parsed.rows
    nulls = _nulls(rows, not_null)
    if not nulls:
        return parsed
    bad_before = {bad_record.index for bad_record in parsed.bad}
    places = [index for index in range(count) if index not in bad_before]
    bad = [BadRecord(index=places[row], column=name, reason=_REASON) for row, name in nulls.items()]
    mask = pa.array([row not in nulls for row in range(rows.num_rows)])
    return replace(
        parsed,
        rows=rows.filter(mask),
        bad=sorted([*parsed.bad, *bad], key=lambda bad_record: bad_record.index),
    )


def refuse_nulls(batch: pa.RecordBatch, not_null: Sequence[str]) -> None:
    """Refuse a batch with a null in one of the columns.

    :raises SerializationError: ``column`` and ``record_number`` (from 1) locate the first row with one.
    """
    nulls = _nulls(batch, not_null)
    if nulls:
        row = min(nulls)
        raise SerializationError(
            f"Row {row + 1} of the batch, column {nulls[row]}: {_REASON}.",
            remedy="Give it a value; nothing of the batch was written.",
            column=nulls[row],
            record_number=row + 1,
        )


def _nulls(rows: pa.RecordBatch, not_null: Sequence[str]) -> dict[int, str]:
    """Return the rows with a null, each with its first column that has one."""
    found: dict[int, str] = {}
    for name in not_null:
        column = rows.column(name)
        if column.null_count:
            for row in pc.indices_nonzero(pc.is_null(column)).to_pylist():
                found.setdefault(row, name)
    return found
