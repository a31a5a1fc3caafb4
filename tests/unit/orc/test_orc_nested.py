"""Nested columns are read as they were, whatever lies hidden in them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_hive_federation.orc.assembly import encode
from tests.support.examples import examples
from tests.support.orc_stripes import read_stripe

_LEAVES = st.sampled_from([pa.int32(), pa.string(), pa.float64(), pa.bool_(), pa.date32()])
_TYPES = st.recursive(
    _LEAVES,
    lambda below: (
        below.map(pa.list_)
        | below.map(lambda kind: pa.map_(pa.string(), kind))
        | st.lists(below, min_size=1, max_size=2).map(
            lambda kinds: pa.struct([(f"f{place}", kind) for place, kind in enumerate(kinds)])
        )
    ),
    max_leaves=4,
)


def column(kind: pa.DataType, count: int, chance: np.random.Generator) -> pa.Array:
    """Random values; what is null may hide values of its own, and be a slice of something longer."""
    before, after = chance.integers(0, 3, 2)
    size = int(before + count + after)
    mask = pa.array(chance.random(size) < chance.choice([0.0, 0.4]))
    if pa.types.is_struct(kind):
        children = [column(field.type, size, chance) for field in kind]
        made = pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        ends = np.concatenate([[0], np.cumsum(chance.integers(0, 3, size))])
        offsets = pa.array(ends, pa.int32())
        if pa.types.is_list(kind):
            values = column(kind.value_type, int(ends[-1]), chance)
            made = pa.ListArray.from_arrays(offsets, values, type=kind, mask=mask)
        else:
            keys = pa.array([str(number) for number in range(ends[-1])], pa.string())
            items = column(kind.item_type, int(ends[-1]), chance)
            made = pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask)
    else:
        made = pa.array(chance.integers(0, 100, size), pa.int32()).cast(kind)
        made = pc.if_else(mask, pa.scalar(None, kind), made)
    return made.slice(int(before), count)


@examples(40)
@given(kind=_TYPES, counts=st.lists(st.integers(1, 30), min_size=1, max_size=3), seed=st.integers(0, 2**32))
@example(kind=pa.struct([("f0", pa.int32())]), counts=[20], seed=1)
@example(kind=pa.list_(pa.struct([("f0", pa.int32())])), counts=[20, 20], seed=2)
def test_they_are_read_as_they_were(kind: pa.DataType, counts: list[int], seed: int) -> None:
    chance = np.random.default_rng(seed)
    chunks = [column(kind, count, chance) for count in counts]
    inner = pa.chunked_array(chunks, kind)
    # As a column of the table, and as one of the struct without nulls that ACID files have.
    rows = pa.chunked_array([pa.StructArray.from_arrays([chunk], ["only"]) for chunk in chunks])
    table = pa.table({"first": inner, "row": rows, "last": inner})
    for dictionaries in (True, False):
        (stripe,) = encode(table, "zlib", dictionaries=dictionaries)
        assert read_stripe(stripe, table, "zlib").to_pylist() == table.to_pylist()
