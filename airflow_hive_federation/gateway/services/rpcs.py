"""Finds the Thrift method for each rpc of Hive's own gRPC service, and translates requests and responses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from airflow_hive_federation.gateway.services import layout
from airflow_hive_federation.gateway.services.bounds import Bounds
from airflow_hive_federation.gateway.services.bridge import Bridge, put_of
from airflow_hive_federation.gateway.services.codec import parsed
from airflow_hive_federation.gateway.services.matching import match, plain, single_struct
from airflow_hive_federation.gateway.services.pools import hives
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl.service import METHODS
from airflow_hive_federation.metastore.struct import Spec, Struct

SERVICE = "GrpcHiveMetastore"
#: Rpcs whose message lacks a field that the Thrift method needs.
WITHOUT = {
    "UpdateCompactorState": "it has no place for the transaction (txn_id)",
    "ReplTblWriteidState": "it has no place for the table's name",
}


@dataclass(frozen=True, kw_only=True)
class Rpc:
    """An rpc of Hive's service, with the Thrift method that answers it.

    :param name: name of the rpc.
    :param method: name of the method in the interface definition.
    :param read: makes the method's arguments from a request's bytes; raises :class:`.BadMessage`.
    :param write: makes a response's bytes from the method's result; raises :class:`.NotRepresentable`.
    """

    name: str
    method: str
    read: Callable[[bytes], Struct]
    write: Callable[[Struct], bytes]


@dataclass(frozen=True)
class _Shape:
    """A struct that a request may stand for, below structs around it that Hive's proto leaves out.

    :param path: names of the fields that lead to the struct.
    :param spec: fields of the struct.
    :param kind: class of the struct.
    """

    path: tuple[str, ...]
    spec: Spec
    kind: type[Struct]


@cache
def rpc(name: str) -> Rpc | None:
    """Return an rpc by its name; ``None`` if no Thrift method answers it.

    :raises KeyError: Hive's service has no such rpc.
    """
    described = hives().service(SERVICE).methods_by_name[name]
    if name in WITHOUT:
        return None
    best: tuple[tuple[bool, int], str, _Shape] | None = None
    for method in _methods(name):
        for shape in _shapes(message_types(method)[0]):
            rank = _rank(described.input_type, shape.spec)
            if best is None or rank < best[0]:
                best = rank, method, shape
    if best is None:
        return None
    _, method, shape = best
    return Rpc(
        name=name,
        method=method,
        read=_reader(described.input_type, shape, message_types(method)[0]),
        write=_writer(described.output_type, layout.answer_spec(METHODS[method][1])),
    )


def rpc_names() -> list[str]:
    """Return the names of all rpcs of Hive's service."""
    return [method.name for method in hives().service(SERVICE).methods]


def _methods(name: str) -> Iterator[str]:
    methods = _by_plain_name()
    for key in (plain(name), plain(name) + "req"):
        if key in methods:
            yield methods[key]


@cache
def _by_plain_name() -> dict[str, str]:
    return {plain(method): method for method in METHODS}


def _shapes(arguments: type[Struct]) -> Iterator[_Shape]:
    path: tuple[str, ...] = ()
    kind: type[Struct] | None = arguments
    while kind is not None:
        spec = kind.thrift_spec
        yield _Shape(path, spec, kind)
        kind = single_struct(spec)
        if kind is not None:
            ((_, name, *_),) = spec.values()
            path = (*path, name)


def _rank(described: Any, spec: Spec) -> tuple[bool, int]:
    """Return the distance between a message and a struct; less is better."""
    if not described.fields:
        # A message without fields stands for the innermost struct, with no field set.
        return single_struct(spec) is not None, 0
    matched = match(described, spec)
    distance = matched.distance
    for number, _, field in matched.pairs:
        below = described.fields_by_number[number].message_type
        if field[0] == layout.STRUCT and below is not None:
            distance += match(below, field[2].thrift_spec).distance
    return bool(spec) and not matched.pairs, distance


def _reader(described: Any, shape: _Shape, arguments: type[Struct]) -> Callable[[bytes], Struct]:
    bridge = Bridge(described, shape.spec, shape.kind.__name__, shape.kind)
    kind = hives().kind(described.name)
    around: list[tuple[type[Struct], str]] = []
    holder = arguments
    for name in shape.path:
        around.append((holder, name))
        holder = single_struct(holder.thrift_spec) or holder

    def read(data: bytes) -> Struct:
        value = bridge.read(parsed(kind, data), Bounds(len(data)))
        for outer, name in reversed(around):
            value = outer(**{name: value})
        return value

    return read


def _writer(described: Any, answer: Spec) -> Callable[[Struct], bytes]:
    kind = hives().kind(described.name)
    fill = _fill(described, answer)

    def write(result: Struct) -> bytes:
        message = kind()
        success = result.__dict__.get("success")
        if fill is not None and success is not None:
            fill(message, success)
        return bytes(message.SerializeToString())

    return write


def _fill(described: Any, answer: Spec) -> Callable[[Any, Any], None] | None:
    if not answer:
        return None
    struct, (field,) = single_struct(answer), answer.values()
    only = described.fields[0] if len(described.fields) == 1 else None
    if struct is not None:
        wrapped = only is not None and only.message_type is not None and not only.is_repeated
        fits = not match(described, struct.thrift_spec).pairs
        if not (wrapped and fits):
            return Bridge(described, struct.thrift_spec, struct.__name__, struct).write
    if only is None:
        return None
    name, put = only.name, put_of(only, field[0], field[2] if len(field) == 4 else None)

    def fill(message: object, success: object) -> None:
        if success not in ([], {}):
            put(message, name, success)

    return fill
