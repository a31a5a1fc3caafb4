"""Maps Hive types to Arrow types, and converts columns of older files to the table's types."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.types import HiveType
from airflow_hive_federation.orc.nanosecond_times import NANOSECOND_TIME, of_timestamps

_PRIMITIVES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "char": pa.string(),
    "varchar": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
}
#: A unit of timestamps that stands for the type of :mod:`.orc.nanosecond_times`.
WIDE_NANOSECONDS = "wide ns"
_ZONES = {"timestamp": None, "timestamp with local time zone": "UTC"}


def in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, which is a copy only if the column has several chunks."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def arrow_type(hive: HiveType, time_unit: str = "us") -> pa.DataType:
    """Map a Hive type to the Arrow type that pyarrow reads from, and writes to, ORC.

    :param time_unit: Arrow's name of the unit of timestamps, or :data:`WIDE_NANOSECONDS`. Spark has
        microseconds, ORC files nanoseconds.
    :raises KeyError: if pyarrow cannot write the type to ORC (unions, intervals).
    """
    if hive.name == "decimal":
        return pa.decimal128(*hive.arguments)
    if hive.name in _ZONES:
        return (
            NANOSECOND_TIME if time_unit == WIDE_NANOSECONDS else pa.timestamp(time_unit, _ZONES[hive.name])
        )
    if hive.name == "array":
        return pa.list_(arrow_type(hive.children[0], time_unit))
    if hive.name == "map":
        return pa.map_(*(arrow_type(child, time_unit) for child in hive.children))
    if hive.name == "struct":
        return pa.struct([(field.name, arrow_type(field.type, time_unit)) for field in hive.fields])
    return _PRIMITIVES[hive.name]


def conforming(array: pa.Array, wanted: pa.DataType, *, by_position: bool = False) -> pa.Array:
    """Convert a column to the table's type: missing fields become null, numbers are widened.

    Fields are matched by name, but columns of a row by position, as in ORC's reader (``SchemaEvolution``).

    :param by_position: the column is a row.
    :raises AcidFormatError: if the types differ in another way, or a value does not fit.
    """
    if array.type.equals(wanted):
        return array
    if pa.types.is_struct(wanted) and pa.types.is_struct(array.type):
        # Unlike field(), flatten() would also mask the children; the new struct gets the mask below.
        children = [
            pa.nulls(len(array), field.type) if place is None else conforming(array.field(place), field.type)
            for field, place in zip(wanted, _places(array.type, wanted, by_position), strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=_mask(array))
    if pa.types.is_list(wanted) and pa.types.is_list(array.type):
        values = conforming(array.values, wanted.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=wanted, mask=_mask(array))
    if pa.types.is_map(wanted) and pa.types.is_map(array.type):
        keys = conforming(array.keys, wanted.key_type)
        items = conforming(array.items, wanted.item_type)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=wanted, mask=_mask(array))
    if not _widens(array.type, wanted):
        raise AcidFormatError(f"{array.type} cannot become {wanted}.")
    try:
        return of_timestamps(array) if wanted == NANOSECOND_TIME else pc.cast(array, wanted)
    except pa.ArrowInvalid as error:
        raise AcidFormatError(f"a value of {array.type} does not fit {wanted}: {error}.") from error


def conforms(have: pa.DataType, wanted: pa.DataType, *, by_position: bool = False) -> bool:
    """Return whether the types alone permit :func:`conforming` to succeed."""
    if have.equals(wanted):
        return True
    if pa.types.is_struct(wanted) and pa.types.is_struct(have):
        return all(
            place is None or conforms(have.field(place).type, field.type)
            for field, place in zip(wanted, _places(have, wanted, by_position), strict=True)
        )
    if pa.types.is_list(wanted) and pa.types.is_list(have):
        return conforms(have.value_type, wanted.value_type)
    if pa.types.is_map(wanted) and pa.types.is_map(have):
        return conforms(have.key_type, wanted.key_type) and conforms(have.item_type, wanted.item_type)
    return _widens(have, wanted)


def _places(have: pa.StructType, wanted: pa.StructType, by_position: bool) -> list[int | None]:
    """Return the place of each wanted field in the existing type; ``None`` for a missing field."""
    if by_position:
        return [place if place < have.num_fields else None for place in range(wanted.num_fields)]
    places = {field.name.lower(): place for place, field in enumerate(have)}
    return [places.get(field.name.lower()) for field in wanted]


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _widens(have: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_signed_integer(have):
        wider = pa.types.is_signed_integer(wanted) and wanted.bit_width >= have.bit_width
        return bool(wider or pa.types.is_decimal(wanted) or pa.types.is_string(wanted))
    if pa.types.is_float32(have):
        return bool(pa.types.is_float64(wanted))
    if pa.types.is_decimal(have):
        # A smaller scale would round values.
        return bool(pa.types.is_decimal(wanted) and wanted.scale >= have.scale)
    if wanted == NANOSECOND_TIME:
        return bool(pa.types.is_timestamp(have))
    return bool(have.equals(wanted))


def orc_width(kind: pa.DataType) -> int:
    """Count the columns of a type in an ORC file: the type itself and all types below it."""
    if pa.types.is_map(kind):
        # Arrow has a struct between a map and its keys and values; ORC has none.
        return 1 + orc_width(kind.key_type) + orc_width(kind.item_type)
    if pa.types.is_run_end_encoded(kind):
        return orc_width(kind.value_type)
    return 1 + sum(orc_width(kind.field(place).type) for place in range(kind.num_fields))
