"""Nested columns as pyarrow's ORC writer needs them.

Of a struct that is null it writes the children's values all the same, unless they are null too or the
outermost one has nulls; where a sliced struct has nulls, it takes them for those of other rows. All later
values of the column are then read in wrong rows. So children are made null where their struct is, and slices
are copied.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def whole_nested(rows: pa.Table) -> pa.Table:
    """Make nested columns such that pyarrow stores them rightly."""
    columns = [
        pa.chunked_array([_whole(chunk) for chunk in column.chunks], column.type)
        if pa.types.is_nested(column.type)
        else column
        for column in rows.columns
    ]
    return pa.table(columns, names=rows.column_names)


def _whole(array: pa.Array) -> pa.Array:
    kind = array.type
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            return array
        # flatten() has the struct's nulls in the children.
        children = [_whole(child) for child in array.flatten()]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if pa.types.is_list(kind):
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
        return pa.ListArray.from_arrays(_offsets(lengths), _whole(array.flatten()), type=kind, mask=mask)
    if pa.types.is_map(kind):
        offsets = array.offsets.to_numpy()
        lengths = np.diff(offsets)
        keys, items = (one.slice(offsets[0], offsets[-1] - offsets[0]) for one in (array.keys, array.items))
        if mask is not None:
            # What a null map hides.
            there = ~mask.to_numpy(zero_copy_only=False)
            seen = pa.array(np.repeat(there, lengths))
            keys, items, lengths = keys.filter(seen), items.filter(seen), lengths * there
        return pa.MapArray.from_arrays(_offsets(lengths), _whole(keys), _whole(items), type=kind, mask=mask)
    # A slice is copied only together with something.
    return pa.concat_arrays([array, array.slice(0, 0)]) if array.offset else array


def _offsets(lengths: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
