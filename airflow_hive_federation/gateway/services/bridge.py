"""Translates messages of Hive's own proto into Thrift structs, and back.

Nearly all fields of Hive's proto have no presence: an empty string, a zero and an unset field look the same.
In requests, such a field stays unset, so that the server's default applies; only required fields and those of
:data:`ALWAYS_SENT` are set. The gateway refuses a request that sets a field without a counterpart. Responses
lack the fields of a struct that the message does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from airflow_hive_federation.gateway.services.bounds import BadMessage, Bounds
from airflow_hive_federation.gateway.services.layout import (
    BOOL,
    BYTE,
    CONTAINERS,
    DOUBLE,
    I16,
    I32,
    I64,
    LIST,
    MAP,
    SET,
    STRING,
    STRUCT,
    pair,
)
from airflow_hive_federation.gateway.services.matching import match, plain
from airflow_hive_federation.metastore.struct import Spec, Struct

#: Fields that are always sent, by struct. Some are booleans whose default in the interface definition is
#: true, so that false has to be sent. The others are lists and maps which Hive's own clients always send:
#: without them, Hive fails or sees a change, and an empty list of the proto looks unset.
ALWAYS_SENT = {
    "GetOpenTxnsRequest": {"excludeTxnTypes"},
    "Partition": {"values", "parameters"},
    "SerDeInfo": {"parameters"},
    "StorageDescriptor": {"cols", "bucketCols", "sortCols", "parameters"},
    "Table": {"partitionKeys", "parameters"},
    "AddPartitionsRequest": {"needResult"},
    "DropPartitionsRequest": {"ifExists", "needResult"},
    "PartitionValuesRequest": {"applyDistinct", "ascending"},
    "DropDatabaseRequest": {"deleteManagedDir"},
}
_UNSET: dict[int, Any] = {STRING: "", BOOL: False, BYTE: 0, I16: 0, I32: 0, I64: 0, DOUBLE: 0.0}
_WHOLE = {BYTE: 1 << 7, I16: 1 << 15, I32: 1 << 31, I64: 1 << 63}

Take = Callable[[Any, Bounds], Any]
Put = Callable[[Any, str, Any], None]


class NotRepresentable(ValueError):  # noqa: N818 - internal signal, a status to callers
    """An answer that Hive's proto cannot represent."""


class Bridge:
    """Translates between one kind of message of Hive's proto and one kind of struct.

    :param described: the message's descriptor.
    :param spec: the struct's fields.
    :param name: the struct's name.
    :param kind: the struct's class.
    """

    def __init__(self, described: Any, spec: Spec, name: str, kind: type[Struct]) -> None:
        self._described, self._kind = described, kind
        matched = match(described, spec)
        self.lost = matched.only_struct
        self._takes: dict[int, tuple[str, Take]] = {}
        self._puts: list[tuple[str, str, Put]] = []
        self._defaults: list[tuple[str, Callable[[], Any]]] = []
        sent = ALWAYS_SENT.get(name, set())
        for number, proto_name, field in matched.pairs:
            field_type, inner = field[0], field[2] if len(field) == 4 else None
            proto_field = described.fields_by_number[number]
            self._takes[number] = field[1], take_of(proto_field, field_type, inner)
            self._puts.append((field[1], proto_name, put_of(proto_field, field_type, inner)))
            if (field[-1] or field[1] in sent) and (default := _default(field_type, inner)):
                self._defaults.append((field[1], default))

    def read(self, message: Any, bounds: Bounds) -> Struct:
        """Return the struct that a message stands for.

        :raises BadMessage: the message sets a field that the interface definition lacks, has a value of
            another type, or breaks a bound.
        """
        bounds.enter()
        value = self._kind.__new__(self._kind)
        have = value.__dict__
        for proto_field, item in message.ListFields():
            if (target := self._takes.get(proto_field.number)) is None:
                raise BadMessage(f"The metastore has no field for {self._described.name}.{proto_field.name}.")
            have[target[0]] = target[1](item, bounds)
        for name, default in self._defaults:
            if name not in have:
                have[name] = default()
        bounds.leave()
        return value

    def write(self, message: Any, value: Struct) -> None:
        """Write the fields of a struct that the message has, too.

        :raises NotRepresentable: a string is no UTF-8.
        """
        have = value.__dict__
        for name, proto_name, put in self._puts:
            if (item := have.get(name)) is not None:
                try:
                    put(message, proto_name, item)
                except (ValueError, TypeError) as error:
                    if isinstance(error, NotRepresentable):
                        raise
                    raise NotRepresentable(
                        f"{self._described.name}.{proto_name} cannot hold the metastore's value: {error}"
                    ) from error


@cache
def bridge(described: Any, kind: Any) -> Bridge:
    """Return the bridge between a message and a struct."""
    return Bridge(described, kind.thrift_spec, kind.__name__, kind)


def take_of(descriptor: Any, ttype: int, inner: Any) -> Take:
    """Return the function that reads a field of a message as a value of a Thrift type.

    :param descriptor: descriptor of the field.
    :param ttype: Thrift's type of the value.
    :param inner: struct, enum or types of values, as in a ``thrift_spec``.
    """
    if ttype in CONTAINERS:
        if not descriptor.is_repeated:
            # The container lies in a message of its own.
            below = _only_field(descriptor)
            take_below = take_of(below, ttype, inner)
            return lambda item, bounds: take_below(getattr(item, below.name), bounds)
        return _take_map(descriptor, inner) if ttype == MAP else _take_list(descriptor, inner)
    return _take_one(descriptor, ttype, inner)


def put_of(descriptor: Any, ttype: int, inner: Any) -> Put:
    """Return the function that writes a value of a Thrift type into a field of a message."""
    if ttype in CONTAINERS:
        if not descriptor.is_repeated:
            below = _only_field(descriptor)
            put_below = put_of(below, ttype, inner)

            def put_wrapped(message: object, name: str, item: object) -> None:
                holder = getattr(message, name)
                holder.SetInParent()
                put_below(holder, below.name, item)

            return put_wrapped
        return _put_map(descriptor, inner) if ttype == MAP else _put_list(descriptor, inner)
    if ttype == STRUCT:

        def put_struct(message: Any, name: str, item: Any) -> None:
            below = getattr(message, name)
            below.SetInParent()
            bridge(descriptor.message_type, inner).write(below, item)

        return put_struct
    give = _give(descriptor, inner)
    return lambda message, name, item: setattr(message, name, give(item))


def _take_one(descriptor: Any, ttype: int, inner: Any) -> Take:
    if ttype == STRUCT:
        return lambda item, bounds: bridge(descriptor.message_type, inner).read(item, bounds)
    if descriptor.enum_type is not None and inner is not None:
        return _take_enum(descriptor, inner)
    if descriptor.type == descriptor.TYPE_STRING and ttype in _WHOLE:
        return _take_number_in_text(descriptor)
    if ttype in _WHOLE:
        return _take_whole(descriptor, _WHOLE[ttype])
    return lambda item, _bounds: item


def _take_list(descriptor: object, inner: object) -> Take:
    ttype, deeper = pair(inner)
    if ttype in CONTAINERS:
        below = _only_field(descriptor)
        take_below = take_of(below, ttype, deeper)
        return lambda items, bounds: [take_below(getattr(item, below.name), bounds) for item in items]
    take = _take_one(descriptor, ttype, deeper)
    return lambda items, bounds: [take(item, bounds) for item in items]


def _take_map(descriptor: Any, inner: Any) -> Take:
    key_of, value_of = (descriptor.message_type.fields_by_name[name] for name in ("key", "value"))
    key_take, value_take = (
        take_of(place, *pair(part)) for place, part in zip((key_of, value_of), inner, strict=True)
    )
    hashable = pair(inner[0])[0] not in {LIST, SET}

    def take(entries: Any, bounds: Bounds) -> dict[Any, Any]:
        items = {}
        for entry in entries:
            key = key_take(entry.key, bounds)
            items[key if hashable else tuple(key)] = value_take(entry.value, bounds)
        return items

    return take


def _put_list(descriptor: Any, inner: Any) -> Put:
    ttype, deeper = pair(inner)
    if ttype == STRUCT:

        def put_structs(message: Any, name: str, items: Any) -> None:
            write, add = bridge(descriptor.message_type, deeper).write, getattr(message, name).add
            for item in items:
                write(add(), item)

        return put_structs
    if ttype in CONTAINERS:
        below = _only_field(descriptor)
        put_below = put_of(below, ttype, deeper)

        def put_containers(message: Any, name: str, items: Any) -> None:
            add = getattr(message, name).add
            for item in items:
                put_below(add(), below.name, item)

        return put_containers
    give = _give(descriptor, deeper)
    if deeper is not None:
        # An enum; values that Hive's enum lacks are left out here, too.
        return lambda message, name, items: getattr(message, name).extend(filter(None, map(give, items)))
    return lambda message, name, items: getattr(message, name).extend([give(item) for item in items])


def _put_map(descriptor: Any, inner: Any) -> Put:
    key_put, value_put = (
        put_of(descriptor.message_type.fields_by_name[name], *pair(part))
        for name, part in zip(("key", "value"), inner, strict=True)
    )

    def put(message: Any, name: str, items: Any) -> None:
        add = getattr(message, name).add
        for key, value in items.items():
            entry = add()
            key_put(entry, "key", key)
            value_put(entry, "value", value)

    return put


def _only_field(descriptor: Any) -> Any:
    (below,) = descriptor.message_type.fields
    return below


def _default(ttype: int, inner: object) -> Callable[[], Any] | None:
    if ttype == STRUCT or (ttype in _WHOLE and inner is not None):
        return None
    if ttype in CONTAINERS:
        return dict if ttype == MAP else list
    value = _UNSET.get(ttype, b"")
    return lambda: value


def enum_numbers(described: Any, enum: Any) -> dict[int, int]:
    """Return Thrift's number for each number of Hive's enum; the two enums number values differently."""
    names = {plain(enum.__name__) + plain(member.name): member.value for member in enum}
    numbers = {}
    for value in described.values:
        name = plain(value.name)
        # Hive adds "unspecified" to the name of a meaningful zero: QUERY_STATE_INITED_UNSPECIFIED.
        number = names.get(name, names.get(name.removesuffix("unspecified")))
        if number is not None:
            numbers[value.number] = number
    return numbers


def _take_enum(descriptor: Any, enum: Any) -> Take:
    numbers = enum_numbers(descriptor.enum_type, enum)

    def take(item: Any, _bounds: Bounds) -> int:
        if item not in numbers:
            raise BadMessage(f"{item} is no {enum.__name__} of {descriptor.enum_type.name}.")
        return numbers[item]

    return take


def _take_whole(descriptor: Any, bound: int) -> Take:
    def take(item: Any, _bounds: Bounds) -> Any:
        if not -bound <= item < bound:
            raise BadMessage(f"{descriptor.name}: {item} is not between {-bound} and {bound - 1}.")
        return item

    return take


def _take_number_in_text(descriptor: Any) -> Take:
    def take(item: Any, _bounds: Bounds) -> int:
        try:
            return int(item)
        except ValueError as error:
            raise BadMessage(f"{descriptor.name}: {item!r} is no number.") from error

    return take


def _give(descriptor: Any, inner: Any) -> Callable[[Any], Any]:
    if descriptor.enum_type is not None and inner is not None:
        numbers = {theirs: hives for hives, theirs in enum_numbers(descriptor.enum_type, inner).items()}
        # A value that Hive's enum lacks is left out, like a field that its message lacks.
        return lambda item: numbers.get(item, 0)
    if descriptor.type == descriptor.TYPE_STRING:
        return lambda item: item if isinstance(item, str) else _text(item)
    return lambda item: item


def _text(item: object) -> str:
    if isinstance(item, bytes):
        raise ValueError(
            f"it is not UTF-8: {item[:40]!r}. Use the raw encoding, or the project's own service."
        )
    return str(item)
