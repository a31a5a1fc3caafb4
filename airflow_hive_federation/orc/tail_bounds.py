"""Checks a tail against itself and its file before other readers use it, without any input or output.

pyarrow's reader ends the process if a stripe lies outside its file, or if types are nested a hundred thousand
levels deep.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from airflow_hive_federation.model.protobuf import all_of, fields_of, read_varints

#: Most levels of a column's type with the row and ACID's own struct (above ``model.types.MAX_DEPTH``).
MAX_DEPTH = 110
#: Most rows of a stripe (``orc.stripe.row.count`` is an integer of Java).
MAX_STRIPE_ROWS = (1 << 31) - 1
_SUBTYPES = 2


class Stripe(Protocol):
    """The place of a stripe according to the tail."""

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
    """Check that stripes lie inside their file, and together have its number of rows.

    :param end: offset of the file's footer.
    :param rows: number of rows of the file.
    :raises ValueError: if the check fails.
    """
    for stripe in stripes:
        if stripe.offset + stripe.index_bytes + stripe.data_bytes + stripe.footer_bytes > end:
            raise ValueError(f"a stripe at byte {stripe.offset} goes beyond the file's {end} bytes")
        if stripe.rows > MAX_STRIPE_ROWS:
            raise ValueError(f"a stripe of {stripe.rows} rows")
    if sum(stripe.rows for stripe in stripes) != rows:
        raise ValueError(f"it has {rows} rows, and its stripes have {sum(stripe.rows for stripe in stripes)}")


def check_types(types: Sequence[bytes]) -> None:
    """Check that types are a tree of few levels, in which each type follows its parent.

    :param types: serialized ``Type`` messages, in column order.
    :raises ValueError: if the check fails.
    """
    depths = [0] * len(types)
    for number, message in enumerate(types):
        for child in _children(message):
            if not number < child < len(types):
                raise ValueError(f"type {number} has type {child} as its part")
            depths[child] = depths[number] + 1
        if depths[number] > MAX_DEPTH:
            raise ValueError(f"its types are nested more than {MAX_DEPTH} levels deep")


def _children(message: bytes) -> Iterator[int]:
    fields = fields_of(message)
    # The numbers may be packed or not: every reader of protocol buffers accepts both forms.
    for packed in all_of(fields, _SUBTYPES):
        yield from read_varints(packed)
    yield from (value for number, _, value in fields if number == _SUBTYPES and isinstance(value, int))
