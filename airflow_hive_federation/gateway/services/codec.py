"""Translates Thrift structs into messages of the project's own gRPC service, and back, without loss.

The functions for a struct are made once from its ``thrift_spec``, when the struct first occurs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from airflow_hive_federation.gateway.services import layout
from airflow_hive_federation.gateway.services.bounds import BadMessage, Bounds
from airflow_hive_federation.gateway.services.layout import Field, pair
from airflow_hive_federation.gateway.services.pools import ours
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from airflow_hive_federation.metastore.protocol import decode, encode
from airflow_hive_federation.metastore.struct import Spec, Struct

_RANGES = {layout.BYTE: 1 << 7, layout.I16: 1 << 15}

Put = Callable[[Any, Any], None]
Take = Callable[[Any, Bounds], Any]


class Codec:
    """Translates one kind of struct.

    :param kind: the struct's class.
    :param name: the message's name.
    :param spec: fields of the struct that the message has.
    :param strict: refuse numbers that an enum does not have, since no server accepts them in a call; without
        it, the codec keeps such numbers, since a newer server may return them.
    """

    def __init__(self, kind: type[Struct], name: str, spec: Spec, *, strict: bool) -> None:
        self._kind, self.name, self._strict = kind, name, strict
        self._puts: dict[str, Put] = {}
        self._takes: dict[int, Callable[[Any, dict[str, Any], Bounds], None]] = {}
        fields = layout.fields(spec)
        self._fields = {field.number: field for field in fields}
        for field in fields:
            self._puts[field.name] = _guarded(field, kind)
            self._takes[field.number] = _into(field.name, _take(field.ttype, field.inner, strict))
        self._takes[layout.EMPTY_NUMBER] = self._take_empty
        self._takes[layout.RAW_NUMBER] = self._take_raw

    def to_bytes(self, value: Struct) -> bytes:
        """Return a struct as the bytes of a message."""
        message = ours().kind(self.name)()
        self.fill(message, value)
        return bytes(message.SerializeToString())

    def from_bytes(self, data: bytes) -> Struct:
        """Return the struct that a message's bytes hold.

        :raises BadMessage: the bytes are no such message, or hold fields that the gateway does not know.
        """
        message = parsed(ours().kind(self.name), data)
        return self.read(message, Bounds(len(data)))

    def fill(self, message: object, value: Struct) -> None:
        """Write a struct's set fields into a message."""
        puts = self._puts
        for name, item in value.__dict__.items():
            if item is not None and name in puts:
                puts[name](message, item)

    def read(self, message: Any, bounds: Bounds) -> Struct:
        """Return a message as a struct.

        :raises BadMessage: the message breaks a bound, or a value is out of its range.
        """
        bounds.enter()
        value = self._kind.__new__(self._kind)
        have, takes = value.__dict__, self._takes
        for described, item in message.ListFields():
            takes[described.number](item, have, bounds)
        bounds.leave()
        return value

    def _take_empty(self, numbers: Any, have: dict[str, Any], _bounds: Bounds) -> None:
        for number in numbers:
            field = self._fields.get(number)
            if field is None or field.ttype not in layout.CONTAINERS:
                raise BadMessage(f"{self.name}.{layout.EMPTY} names {number}, which is no list, set or map.")
            have.setdefault(field.name, {} if field.ttype == layout.MAP else [])

    def _take_raw(self, entries: Any, have: dict[str, Any], _bounds: Bounds) -> None:
        for entry in entries:
            if (field := self._fields.get(entry.key)) is None:
                raise BadMessage(f"{self.name}.{layout.RAW} names {entry.key}, which is no field.")
            value = self._kind()
            try:
                decode(_Bytes(entry.value), value)
            except (EOFError, MalformedMessage) as error:
                raise BadMessage(f"{self.name}.{layout.RAW}, {field.name}: {error}") from error
            if list(value.__dict__) != [field.name]:
                raise BadMessage(f"{self.name}.{layout.RAW} does not hold {field.name}.")
            have[field.name] = value.__dict__[field.name]


@cache
def codec(kind: type[Any], *, strict: bool = False) -> Codec:
    """Return the codec of a struct of the interface definition."""
    return Codec(kind, kind.__name__, kind.thrift_spec, strict=strict)


@cache
def call_codecs(method: str) -> tuple[Codec, Codec]:
    """Return the strict codec of a method's arguments, and the codec of its result.

    :raises ConfigurationError: the interface definition has no such method.
    """
    arguments, result, _ = message_types(method)
    return (
        Codec(arguments, f"{method}_args", arguments.thrift_spec, strict=True),
        Codec(result, f"{method}_result", layout.answer_spec(result.thrift_spec), strict=False),
    )


def parsed(kind: Any, data: bytes) -> Any:
    """Return a message of a kind, parsed from bytes.

    :raises BadMessage: the bytes are no such message, or hold fields that the gateway does not know. Without
        these fields, the message could have another meaning.
    """
    from google.protobuf.message import DecodeError

    message = kind()
    name = kind.DESCRIPTOR.name
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise BadMessage(f"The request is no {name}: {error}") from error
    before = message.ByteSize()
    message.DiscardUnknownFields()
    if message.ByteSize() != before:
        raise BadMessage(f"The {name} has fields that the gateway does not know. Use its own .proto.")
    return message


def _guarded(field: Field, kind: type[Struct]) -> Put:
    """Return the function that writes a field; it puts values that no message can hold into ``raw_``."""
    put, name, number = _put(field.ttype, field.inner, field.name), field.name, field.number

    def put_raw(message: Any, item: Any) -> None:
        message.ClearField(name)
        getattr(message, layout.RAW).add(key=number, value=encode(kind(**{name: item})))

    if field.ttype in layout.CONTAINERS:

        def put_container(message: object, item: object) -> None:
            if not item:
                getattr(message, layout.EMPTY).append(number)
                return
            put(message, item)

        writes: Put = put_container
    else:
        writes = put
    if not field.holds_text:
        return writes

    def put_text(message: object, item: object) -> None:
        try:
            writes(message, item)
        except (ValueError, TypeError):
            # The struct holds a string that is no UTF-8 as bytes.
            put_raw(message, item)

    return put_text


def _put(ttype: int, inner: object, name: str) -> Put:
    """Return the function that writes a value into the field ``name`` of a message."""
    if ttype == layout.STRUCT:
        return _put_struct(inner, name)
    if ttype in {layout.LIST, layout.SET}:
        return _put_list(inner, name)
    if ttype == layout.MAP:
        return _put_map(inner, name)

    def put(message: object, item: object) -> None:
        setattr(message, name, item)

    def put_text(message: object, item: object) -> None:
        _check_text((item,))
        setattr(message, name, item)

    return put_text if ttype == layout.STRING else put


def _check_text(items: Any) -> None:
    """Reject bytes among strings here, since protobuf 5 raises a ``SystemError`` for bytes that are no UTF-8.

    :raises TypeError: an item is bytes.
    """
    "".join(items)


def _put_struct(kind: Any, name: str) -> Put:
    def put(message: Any, item: Any) -> None:
        below = getattr(message, name)
        below.SetInParent()
        codec(kind).fill(below, item)

    return put


def _put_list(inner: Any, name: str) -> Put:
    ttype, deeper = pair(inner)
    if ttype == layout.STRUCT:

        def put_structs(message: Any, items: Any) -> None:
            fill, add = codec(deeper).fill, getattr(message, name).add
            for item in items:
                fill(add(), item)

        return put_structs
    if ttype in layout.CONTAINERS:
        put_value = _put(ttype, deeper, layout.VALUES)

        def put_containers(message: Any, items: Any) -> None:
            add = getattr(message, name).add
            for item in items:
                put_value(add(), item)

        return put_containers

    def put_scalars(message: object, items: object) -> None:
        getattr(message, name).extend(items)

    def put_texts(message: object, items: object) -> None:
        _check_text(items)
        getattr(message, name).extend(items)

    return put_texts if ttype == layout.STRING else put_scalars


def _put_map(inner: Any, name: str) -> Put:
    put_key, put_value = (_put_part(part, place) for part, place in zip(inner, ("key", "value"), strict=True))

    def put(message: object, items: Mapping[object, object]) -> None:
        add = getattr(message, name).add
        for key, value in items.items():
            entry = add()
            put_key(entry, key)
            put_value(entry, value)

    return put


def _put_part(part: object, place: str) -> Put:
    ttype, inner = pair(part)
    if ttype not in layout.CONTAINERS:
        return _put(ttype, inner, place)
    put_values = _put(ttype, inner, layout.VALUES)

    def put(entry: object, item: object) -> None:
        below = getattr(entry, place)
        below.SetInParent()
        put_values(below, item)

    return put


def _into(name: str, take: Take | None) -> Callable[[Any, dict[str, Any], Bounds], None]:
    if take is None:

        def as_it_is(item: object, have: dict[str, Any], _bounds: Bounds) -> None:
            have[name] = item

        return as_it_is

    def taken(item: object, have: dict[str, Any], bounds: Bounds) -> None:
        have[name] = take(item, bounds)

    return taken


def _take(ttype: int, inner: object, strict: bool) -> Take | None:
    """Return the function that reads a field's value; ``None`` if the value needs no translation."""
    if ttype == layout.STRUCT:
        return lambda item, bounds: codec(inner, strict=strict).read(item, bounds)
    if ttype in {layout.LIST, layout.SET}:
        return _take_list(inner, strict)
    if ttype == layout.MAP:
        return _take_map(inner, strict)
    if inner is not None:
        return _take_enum(inner) if strict else None
    return _take_small(_RANGES[ttype]) if ttype in _RANGES else None


def _take_part(part: object, strict: bool) -> Take | None:
    """Return the function that reads a container's element; an inner container has a message of its own."""
    ttype, inner = pair(part)
    take = _take(ttype, inner, strict)
    if take is None or ttype not in layout.CONTAINERS:
        return take
    return lambda item, bounds: take(getattr(item, layout.VALUES), bounds)


def _take_list(inner: object, strict: bool) -> Take:
    take = _take_part(inner, strict)
    if take is None:
        return lambda items, _bounds: list(items)
    return lambda items, bounds: [take(item, bounds) for item in items]


def _take_map(inner: Any, strict: bool) -> Take:
    key_take, value_take = (_take_part(part, strict) for part in inner)
    hashable = pair(inner[0])[0] not in layout.CONTAINERS

    def take(entries: Any, bounds: Bounds) -> dict[Any, Any]:
        items: dict[Any, Any] = {}
        for entry in entries:
            key = entry.key if key_take is None else key_take(entry.key, bounds)
            value = entry.value if value_take is None else value_take(entry.value, bounds)
            items[key if hashable else tuple(key)] = value
        return items

    return take


def _take_enum(enum: Any) -> Take:
    numbers = frozenset(member.value for member in enum)

    def take(item: Any, _bounds: Bounds) -> Any:
        if item not in numbers:
            raise BadMessage(f"{item} is no {enum.__name__}.")
        return item

    return take


def _take_small(bound: int) -> Take:
    def take(item: Any, _bounds: Bounds) -> Any:
        if not -bound <= item < bound:
            raise BadMessage(f"{item} is not between {-bound} and {bound - 1}.")
        return item

    return take


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self._rest = data

    def read(self, size: int) -> bytes:
        if not self._rest:
            raise EOFError("they end too soon")
        data, self._rest = self._rest[:size], self._rest[size:]
        return data
