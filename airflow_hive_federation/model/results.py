"""Turns results into JSON values: the XComs of operators, and what commands print for ``--json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def result_json(result: DataclassInstance) -> dict[str, Any]:
    """Return a result as a dictionary of JSON values, under the names of its fields.

    :raises TypeError: a field holds a value that JSON does not have.
    """
    return {field.name: _value(getattr(result, field.name)) for field in fields(result)}


def _value(value: object) -> Any:
    if isinstance(value, Enum):
        return _value(value.value)
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(name): _value(entry) for name, entry in value.items()}
    if isinstance(value, Sequence):
        return [_value(entry) for entry in value]
    if is_dataclass(value) and not isinstance(value, type):
        return result_json(value)
    raise TypeError(f"{type(value).__name__} is no value of JSON.")
