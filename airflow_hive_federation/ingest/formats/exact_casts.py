"""Casts Arrow arrays to other types without a change of their values.

Arrow's own checks let some changes pass: a number that is too large for a float becomes infinite, a time of
day is dropped from a date, 2 becomes true, a decimal of a float is rounded, a field of a struct is dropped,
and a number becomes the microseconds of a timestamp.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

#: Arrow's conversion of a decimal to a double may miss the nearest double by this much.
_ULPS = 2


def can_become(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether values of a type have the same meaning in another type."""
    if given.equals(wanted) or types.is_null(given) or types.is_dictionary(given):
        return True
    if types.is_null(wanted):
        return False
    pairs = _inner(given, wanted)
    if pairs is not None:
        return all(can_become(one, other) for one, other in pairs)
    if _is_text(given) or _is_text(wanted):
        return True
    if types.is_time(given) or types.is_duration(given):
        return False
    return bool(types.is_temporal(given) == types.is_temporal(wanted))


def _inner(given: pa.DataType, wanted: pa.DataType) -> list[tuple[pa.DataType, pa.DataType]] | None:
    """Return the pairs of the types inside two nested types; ``None`` if they are not of one kind."""
    if types.is_struct(wanted) and types.is_struct(given):
        fields = {field.name: field.type for field in wanted}
        # Arrow drops a field that is not wanted.
        return [(field.type, fields.get(field.name, pa.null())) for field in given]
    if _is_list(wanted) and _is_list(given):
        return [(given.value_type, wanted.value_type)]
    if types.is_map(wanted) and types.is_map(given):
        return [(given.key_type, wanted.key_type), (given.item_type, wanted.item_type)]
    return None


def exact_cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Cast an array; only numbers with a fraction are rounded, to the nearest float or double.

    :param array: its type :func:`can_become` the wanted one.
    :raises ValueError: a value would change (``pa.ArrowInvalid`` is one).
    """
    made = array.cast(wanted)
    for one, other in _leaves(array, made):
        _check(one, other)
    return made


def _leaves(given: pa.Array, made: pa.Array) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Yield the arrays of an array's innermost values, before and after a cast."""
    if given.type.equals(made.type):
        return
    if types.is_struct(given.type) and types.is_struct(made.type):
        known = {field.name for field in made.type}
        for name in (field.name for field in given.type if field.name in known):
            yield from _leaves(_field(given, name), _field(made, name))
    elif _is_list(given.type) and _is_list(made.type):
        yield from _leaves(given.flatten(), made.flatten())
    elif types.is_map(given.type) and types.is_map(made.type):
        # A slice has the entries of the whole map.
        every = pa.array(range(len(given)), pa.int64())
        given, made = given.take(every), made.take(every)
        yield from _leaves(given.keys, made.keys)
        yield from _leaves(given.items, made.items)
    else:
        yield given, made


def _check(given: pa.Array, made: pa.Array) -> None:
    kind, wanted = given.type, made.type
    if _is_text(kind) or _is_text(wanted) or types.is_null(kind) or types.is_dictionary(kind):
        return
    if types.is_floating(wanted):
        _check_floats(given, made)
    elif types.is_floating(kind) and types.is_decimal(wanted):
        before, after = (np.asarray(one.cast(pa.float64()).drop_null()) for one in (given, made))
        _refuse(bool((np.abs(before - after) > _ULPS * np.spacing(np.abs(before))).any()), made)
    elif types.is_timestamp(kind) and types.is_date(wanted):
        clock = given if kind.tz is None else pc.local_timestamp(given)
        _refuse(_differ(made.cast(clock.type), clock), made)
    elif types.is_boolean(wanted) or (types.is_decimal(kind) and types.is_decimal(wanted)):
        # Arrow cuts some fractions off between widths of decimals. As integers, it refuses all of them, but
        # it casts no integer back to a decimal with fewer digits than the integer's type has.
        _refuse(_differ(made.cast(kind), given), made)


def _check_floats(given: pa.Array, made: pa.Array) -> None:
    kind = given.type
    if types.is_decimal32(kind) or types.is_decimal64(kind):
        # Arrow's functions do not take them.
        kind = pa.decimal128(kind.precision, kind.scale)
        given = given.cast(kind)
    infinite = pc.is_inf(made)
    if types.is_floating(kind):
        infinite = pc.and_(infinite, pc.is_finite(given))
    _refuse(bool(pc.any(infinite).as_py()), made)
    if types.is_decimal(kind):
        is_whole = given.is_valid() if kind.scale <= 0 else pc.equal(pc.trunc(given), given)
        _refuse(_differ(made.filter(is_whole).cast(kind), given.filter(is_whole)), made)


def _differ(one: pa.Array, other: pa.Array) -> bool:
    return bool(pc.any(pc.not_equal(one, other)).as_py())


def _refuse(is_changed: bool, made: pa.Array) -> None:
    if is_changed:
        raise ValueError(f"a value would change as {made.type}")


def _field(array: pa.StructArray, name: str) -> pa.Array:
    """Return a field with the nulls of the structs."""
    return array.flatten()[array.type.get_field_index(name)]


def _is_list(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )
