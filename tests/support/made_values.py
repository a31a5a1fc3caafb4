"""Makes values of dataclasses and named tuples by the types of their fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import UTC, date, datetime
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from tests.support.dump_documents import a_few, counts, maps, texts

numbers = st.floats(allow_nan=False, allow_infinity=False)
times = st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9000, 1, 1)).map(  # noqa: DTZ001
    lambda time: time.replace(microsecond=0, tzinfo=UTC)
)
SIMPLE: Mapping[object, st.SearchStrategy[Any]] = {
    str: texts,
    int: counts,
    float: numbers,
    bool: st.booleans(),
    date: st.dates(),
    datetime: times,
    object: texts,
}


def made(kind: Any, /, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Make values of a type: of a dataclass, all fields, so that a new field cannot be forgotten."""
    if kind in SIMPLE:
        return SIMPLE[kind]
    arguments = get_args(kind)
    if get_origin(kind) in {Union, UnionType}:
        return st.one_of(*map(made, arguments))
    if kind is NoneType:
        return st.none()
    if arguments and arguments[-1] is not Ellipsis and get_origin(kind) is tuple:
        return st.tuples(*map(made, arguments))
    if get_origin(kind) is tuple or (arguments and len(arguments) == 1):
        return a_few(made(arguments[0]))
    if arguments:
        return maps(*map(made, arguments))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    hints = get_type_hints(kind)
    parts = {name: made(hints[name]) for name in names_of(kind) if name not in fields}
    return st.builds(kind, **parts, **fields)


def names_of(kind: Any) -> tuple[str, ...]:
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return tuple(kind._fields)
