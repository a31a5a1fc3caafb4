"""Converts structs to JSON and to bytes and back without loss, for dumps and manifests.

Unset fields are left out and stay unset; a set field keeps its value, empty or not. Enums are numbers.
"""

from __future__ import annotations

import base64
import math
from typing import Any, TypeVar

from thriftpy2.thrift import TType

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from airflow_hive_federation.metastore.protocol import decode, encode
from airflow_hive_federation.metastore.struct import Struct

S = TypeVar("S", bound=Struct)


class WireFormatError(HiveFederationError, ValueError):
    """The error for JSON or bytes that do not hold the expected struct."""


def to_json(value: Struct) -> dict[str, Any]:
    """Return a struct as a JSON object, field names as keys.

    Binary is base64. A map with text keys is an object, any other map a list of ``[key, value]`` pairs. A
    string that is no UTF-8, which the server returns unchanged, becomes ``{"base64": …}``; a double that
    JSON has no number for becomes ``"NaN"``, ``"Infinity"`` or ``"-Infinity"``.
    """
    return {
        field[1]: _value_to_json(field[0], _inner(field), item)
        for _, field in sorted(value.thrift_spec.items())
        if (item := getattr(value, field[1], None)) is not None
    }


def from_json(cls: type[S], data: dict[str, Any]) -> S:
    """Return the struct that :func:`to_json` wrote.

    :raises WireFormatError: if the object has a field that the struct lacks, or a field of another type.
    """
    fields = {field[1]: field for field in cls.thrift_spec.values()}
    value = cls()
    for name, item in data.items():
        if name not in fields:
            raise WireFormatError(
                f"{cls.__name__} has no field {name!r}.",
                remedy="Use a newer version of airflow-hive-federation.",
            )
        field = fields[name]
        try:
            setattr(value, name, _value_from_json(field[0], _inner(field), item))
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            if isinstance(error, WireFormatError):
                raise
            raise WireFormatError(f"{cls.__name__}.{name}: {item!r} is of the wrong type.") from error
    return value


def to_bytes(value: Struct) -> bytes:
    """Return the bytes of a struct in Thrift's binary protocol."""
    return encode(value)


def from_bytes(cls: type[S], data: bytes) -> S:
    """Return the struct that :func:`to_bytes` wrote.

    :raises WireFormatError: if the bytes are truncated, continue after the struct or hold no such struct.
    """
    value = cls()
    source = _Bytes(data)
    try:
        decode(source, value)
    except (EOFError, MalformedMessage) as error:
        raise WireFormatError(f"These {len(data)} bytes are no whole {cls.__name__}: {error}") from error
    return value


def _inner(field: tuple[object, ...]) -> Any:
    return field[2] if len(field) == 4 else None


def _pair(part: object) -> tuple[int, Any]:
    return part if isinstance(part, tuple) else (part, None)


def _value_to_json(ttype: int, inner: Any, value: Any) -> Any:
    if ttype == TType.STRUCT:
        return to_json(value)
    if ttype in {TType.LIST, TType.SET}:
        return [_value_to_json(*_pair(inner), item) for item in value]
    if ttype == TType.MAP:
        return _map_to_json(inner, value)
    return _scalar_to_json(ttype, value)


def _scalar_to_json(ttype: int, value: Any) -> Any:
    if ttype == TType.BINARY:
        return base64.b64encode(value).decode("ascii")
    if ttype == TType.DOUBLE:
        return _double_to_json(value)
    if ttype == TType.STRING:
        return value if isinstance(value, str) else {"base64": base64.b64encode(value).decode("ascii")}
    return bool(value) if ttype == TType.BOOL else int(value)


def _map_to_json(inner: Any, value: dict[Any, Any]) -> Any:
    (key_type, key_inner), (value_type, value_inner) = _pair(inner[0]), _pair(inner[1])
    pairs = [
        (_value_to_json(key_type, key_inner, key), _value_to_json(value_type, value_inner, item))
        for key, item in value.items()
    ]
    if all(isinstance(key, str) for key, _ in pairs) and key_type == TType.STRING:
        return dict(pairs)
    return [list(pair) for pair in pairs]


def _double_to_json(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(value)


def _value_from_json(ttype: int, inner: Any, data: Any) -> Any:
    if ttype == TType.STRUCT:
        return from_json(inner, data)
    if ttype in {TType.LIST, TType.SET}:
        _expect(data, list)
        return [_value_from_json(*_pair(inner), item) for item in data]
    if ttype == TType.MAP:
        return _map_from_json(inner, data)
    return _scalar_from_json(ttype, data)


def _scalar_from_json(ttype: int, data: Any) -> Any:
    if ttype == TType.BINARY:
        return base64.b64decode(data, validate=True)
    if ttype == TType.DOUBLE:
        return float(data)
    if ttype == TType.STRING:
        return (
            base64.b64decode(data["base64"], validate=True) if isinstance(data, dict) else _expect(data, str)
        )
    return _expect(data, bool if ttype == TType.BOOL else int)


def _map_from_json(inner: Any, data: Any) -> dict[Any, Any]:
    (key_type, key_inner), (value_type, value_inner) = _pair(inner[0]), _pair(inner[1])
    pairs = data.items() if isinstance(data, dict) else data
    result = {}
    for key, item in pairs:
        read = _value_from_json(key_type, key_inner, key)
        result[tuple(read) if isinstance(read, list) else read] = _value_from_json(
            value_type, value_inner, item
        )
    return result


def _expect(data: object, kind: type) -> Any:
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise TypeError(f"{data!r} is no {kind.__name__}")
    return data


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self._rest = memoryview(data)

    def read(self, size: int) -> bytes:
        if not self._rest:
            raise EOFError("they end too soon")
        data, self._rest = bytes(self._rest[:size]), self._rest[size:]
        return data
