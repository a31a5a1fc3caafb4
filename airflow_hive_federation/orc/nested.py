"""Nested columns as pyarrow's ORC writer needs them, and changes to what is inside of them.

Of a struct that is null it writes the children's values all the same, unless they are null too or the
outermost one has nulls; where a sliced struct has nulls, it takes them for those of other rows. All later
values of the column are then read in wrong rows. So children are made null where their struct is, and slices
are copied.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.orc.arrow_columns import orc_width


def whole_nested(rows: pa.Table) -> pa.Table:
    """Make nested columns such that pyarrow stores them rightly."""
    columns = [
        pa.chunked_array([with_leaves(chunk, _whole) for chunk in column.chunks], column.type)
        if pa.types.is_nested(column.type)
        else column
        for column in rows.columns
    ]
    return pa.table(columns, names=rows.column_names)


def with_leaves(array: pa.Array, change: Callable[[pa.Array, int], pa.Array], number: int = 0) -> pa.Array:
    """Change what is inside of a column that has nothing inside itself, or the column if it is so.

    :param change: is given such an array, null where what is around it is null, and its column's number in an
        ORC file; it may change types.
    :param number: that of the column.
    """
    kind = array.type
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            return array
        children = []
        # flatten() has the struct's nulls in the children.
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
        keys, items = (one.slice(offsets[0], offsets[-1] - offsets[0]) for one in (array.keys, array.items))
        if mask is not None:
            # What a null map hides.
            there = ~mask.to_numpy(zero_copy_only=False)
            seen = pa.array(np.repeat(there, lengths))
            keys, items, lengths = keys.filter(seen), items.filter(seen), lengths * there
        of_items = number + 1 + orc_width(kind.key_type)
        keys, items = with_leaves(keys, change, number + 1), with_leaves(items, change, of_items)
        made = pa.map_(kind.key_field.with_type(keys.type), kind.item_field.with_type(items.type))
        return pa.MapArray.from_arrays(_offsets(lengths), keys, items, type=made, mask=mask)
    return change(array, number)


def _whole(array: pa.Array, _number: int) -> pa.Array:
    # A slice is copied only together with something.
    return pa.concat_arrays([array, array.slice(0, 0)]) if array.offset else array


def _offsets(lengths: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
