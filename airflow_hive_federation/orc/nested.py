"""Prepares nested columns for pyarrow's ORC writer, and changes the columns inside them.

The writer writes the children's values of a null struct too, unless they are null as well or the outermost
struct has nulls; in a sliced struct it assigns nulls to other rows. In both cases all later values of the
column are read in wrong rows. This module therefore sets children to null if their struct is null, and copies
slices.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.orc.arrow_columns import orc_width


def whole_nested(rows: pa.Table) -> pa.Table:
    """Convert nested columns to a form that pyarrow stores correctly."""
    columns = [
        pa.chunked_array([with_leaves(chunk, _without_offset) for chunk in column.chunks], column.type)
        if pa.types.is_nested(column.type)
        else column
        for column in rows.columns
    ]
    return pa.table(columns, names=rows.column_names)


def with_leaves(array: pa.Array, change: Callable[[pa.Array, int], pa.Array], number: int = 0) -> pa.Array:
    """Change the innermost columns of a column, or the column itself if it is not nested.

    :param change: receives an innermost array, which is null if a column around it is null, and its column's
        number in an ORC file; it may change types.
    :param number: the column's number.
    """
    kind = array.type
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            return array
        children = []
        # flatten() applies the struct's nulls to the children.
        for child in array.flatten():
            children.append(with_leaves(child, change, number + 1))
            number += orc_width(child.type)
        fields = [field.with_type(child.type) for field, child in zip(kind, children, strict=True)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    if pa.types.is_list(kind):
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
        values = with_leaves(array.flatten(), change, number + 1)
        made = pa.list_(kind.value_field.with_type(values.type))
        return pa.ListArray.from_arrays(_offsets(lengths), values, type=made, mask=mask)
    if pa.types.is_map(kind):
        offsets = array.offsets.to_numpy()
        lengths = np.diff(offsets)
        keys, items = (
            entries.slice(offsets[0], offsets[-1] - offsets[0]) for entries in (array.keys, array.items)
        )
        if mask is not None:
            # The entries of null maps are removed.
            is_present = ~mask.to_numpy(zero_copy_only=False)
            seen = pa.array(np.repeat(is_present, lengths))
            keys, items, lengths = keys.filter(seen), items.filter(seen), lengths * is_present
        of_items = number + 1 + orc_width(kind.key_type)
        keys, items = with_leaves(keys, change, number + 1), with_leaves(items, change, of_items)
        made = pa.map_(kind.key_field.with_type(keys.type), kind.item_field.with_type(items.type))
        return pa.MapArray.from_arrays(_offsets(lengths), keys, items, type=made, mask=mask)
    return change(array, number)


def _without_offset(array: pa.Array, _number: int) -> pa.Array:
    # concat_arrays copies a slice only if it joins several arrays.
    return pa.concat_arrays([array, array.slice(0, 0)]) if array.offset else array


def _offsets(lengths: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
