"""What a tail says is compared with itself, and with its file, before other readers believe it. Pure.

pyarrow's reader ends the process where a stripe lies outside of its file, or where types are nested a hundred
thousand deep.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from airflow_hive_federation.orc.protobuf import all_of, fields_of, read_varints

#: Levels of a column's type, the row and ACID's own struct included (``model.types.MAX_DEPTH`` and some).
MAX_DEPTH = 110
#: Rows of a stripe (``orc.stripe.row.count`` is an integer of Java).
MAX_STRIPE_ROWS = (1 << 31) - 1
_SUBTYPES = 2


class Stripe(Protocol):
    """Where a stripe lies, as the tail says."""

    @property
    def offset(self) -> int: ...
    @property
    def index_bytes(self) -> int: ...
    @property
    def data_bytes(self) -> int: ...
    @property
    def footer_bytes(self) -> int: ...
    @property
    def rows(self) -> int: ...


def check_stripes(stripes: Sequence[Stripe], end: int, rows: int) -> None:
    """Make sure that stripes lie in their file, and have the rows that it has.

    :param end: where the file's footer begins.
    :param rows: rows of the file.
    :raises ValueError: they do not.
    """
    for one in stripes:
        if one.offset + one.index_bytes + one.data_bytes + one.footer_bytes > end:
            raise ValueError(f"a stripe at byte {one.offset} goes beyond the file's {end} bytes")
        if one.rows > MAX_STRIPE_ROWS:
            raise ValueError(f"a stripe of {one.rows} rows")
    if sum(one.rows for one in stripes) != rows:
        raise ValueError(f"it has {rows} rows, and its stripes have {sum(one.rows for one in stripes)}")


def check_types(types: Sequence[bytes]) -> None:
    """Make sure that types are a tree of few levels: each lies behind the one that it is part of.

    :param types: serialized ``Type`` messages, in column order.
    :raises ValueError: they are not.
    """
    depths = [0] * len(types)
    for number, one in enumerate(types):
        for child in _children(one):
            if not number < child < len(types):
                raise ValueError(f"type {number} has type {child} as its part")
            depths[child] = depths[number] + 1
        if depths[number] > MAX_DEPTH:
            raise ValueError(f"its types are nested more than {MAX_DEPTH} levels deep")


def _children(one: bytes) -> Iterator[int]:
    fields = fields_of(one)
    # Packed or not, as every reader of protocol buffers takes them.
    for packed in all_of(fields, _SUBTYPES):
        yield from read_varints(packed)
    yield from (value for number, _, value in fields if number == _SUBTYPES and isinstance(value, int))
