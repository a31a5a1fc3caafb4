"""Checks every length, type and depth of a Thrift message before the message is decoded.

The compiled decoder trusts its input. A list of two thousand million elements of a type that takes no bytes
keeps it busy for half a minute with the interpreter's lock held; it decodes a negative length, or elements
of another type than in the interface definition, as an empty list. So Python code walks over each message
first without reading values: it follows the lengths, and rejects what the definition does not allow.

For a table of thirty columns, the walk takes some 30 microseconds, the decoding 50, the call 1,000.
"""

from __future__ import annotations

import io
import struct as packing
from typing import Any, Protocol

from airflow_hive_federation.metastore.struct import Spec

#: Bytes of an answer, unless the settings have another limit: some 150,000 partitions.
MAX_MESSAGE_BYTES = 256 << 20
#: Maximum depth of nested structs and containers; Hive's own need less than 12. Thrift's libraries allow 64.
MAX_DEPTH = 48
#: Values that a message of any length may hold. Above it, the message needs eight bytes per value: a value
#: takes a hundred bytes of memory, and an empty struct takes one byte of a message.
FREE_VALUES = 1_000_000
BYTES_PER_VALUE = 8

_CHUNK_BYTES = 1 << 16
_STOP, _STRING, _STRUCT, _MAP, _SET, _LIST = 0, 11, 12, 13, 14, 15
#: The compiled decoder's type of a string of bytes; on the wire it is a string.
_BINARY = 18
#: Bytes per value, by type: bool, byte, double, i16, i32, i64.
_FIXED_BYTES = {2: 1, 3: 1, 4: 8, 6: 2, 8: 4, 10: 8}
_FIXED_LENGTHS = tuple(_FIXED_BYTES.get(ttype, 0) for ttype in range(256))
_ALLOWED = frozenset({*_FIXED_BYTES, _STRING, _STRUCT, _MAP, _SET, _LIST})
_I16 = packing.Struct("!h").unpack_from
_I32 = packing.Struct("!i").unpack_from

Part = tuple[int, Any]
_UNKNOWN: Spec = {}


class Source(Protocol):
    """The source of a message's bytes."""

    def read(self, size: int) -> bytes:
        """Return between 1 and ``size`` bytes; raise an error if the source has no more."""


class MalformedMessage(Exception):  # noqa: N818 - internal signal, never seen by callers
    """The error for bytes that are no Thrift message, or that break a bound."""


class MessageTooLong(MalformedMessage):
    """The error for a message with more bytes than the limit."""


class Message:
    """The bytes of one message, read from a source as far as they are needed.

    :param source: source of the bytes.
    :param max_bytes: longest message that is accepted.
    """

    def __init__(self, source: Source, *, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self.buffer = bytearray()
        self._source = source
        self._max_bytes = max_bytes
        self._values = 0

    def need(self, size: int) -> None:
        """Read until the buffer holds ``size`` bytes.

        :raises MalformedMessage: if a message of that length is not accepted.
        """
        if size > self._max_bytes:
            raise MessageTooLong(f"it is longer than {self._max_bytes} bytes, the most that is accepted")
        buffer = self.buffer
        while len(buffer) < size:
            buffer += self._source.read(_CHUNK_BYTES)

    def i32(self, position: int) -> int:
        """Return the 32-bit number at a position."""
        try:
            return int(_I32(self.buffer, position)[0])
        except packing.error:
            self.need(position + 4)
            return int(_I32(self.buffer, position)[0])

    def check_struct(self, position: int, spec: Spec) -> int:
        """Walk over a struct; return the position after it.

        :param position: position of its first field.
        :param spec: its fields in the interface definition.
        :raises MalformedMessage: if the bytes are no such struct, or break a bound.
        """
        return self._checked(self._struct(position, spec, 0))

    def check_answer(self, position: int, spec: Spec) -> int:
        """Walk over a method's answer, which holds one value at most; return the position after it.

        In other structs the client skips an unknown field. In an answer such a field is an error type of a
        newer server, or nonsense: without it, the answer would look like success.

        :param position: position of its first field.
        :param spec: the method's result and errors in the interface definition.
        :raises MalformedMessage: as :meth:`check_struct`, or if it has another field, or more than one.
        """
        if (ttype := self._byte(position)) != _STOP:
            self.need(position + 3)
            number = _I16(self.buffer, position + 1)[0]
            field = spec.get(number)
            if field is None or ttype != (_STRING if field[0] == _BINARY else field[0]):
                raise MalformedMessage(f"it has field {number}, of type {ttype}, which its result lacks")
            position = self._after_field(position, ttype, spec, 0)
            if self._byte(position) != _STOP:
                raise MalformedMessage("it holds more than one answer")
        return self._checked(position + 1)

    def _checked(self, end: int) -> int:
        self.need(end)
        if self._values > FREE_VALUES + end // BYTES_PER_VALUE:
            raise MalformedMessage(f"{end} bytes claim to hold {self._values} values")
        return end

    def _byte(self, position: int) -> int:
        try:
            return self.buffer[position]
        except IndexError:
            self.need(position + 1)
            return self.buffer[position]

    def _size(self, position: int) -> int:
        size = self.i32(position)
        if size < 0:
            raise MalformedMessage(f"a length of {size} at byte {position}")
        # Every element takes at least one byte, so the limit on bytes limits their number too.
        if size > self._max_bytes:
            raise MessageTooLong(f"a length of {size} at byte {position}, and {self._max_bytes} are accepted")
        return size

    def _struct(self, position: int, spec: Spec, depth: int) -> int:
        if depth >= MAX_DEPTH:
            raise MalformedMessage(f"it is nested more than {MAX_DEPTH} levels deep")
        buffer, lengths = self.buffer, _FIXED_LENGTHS
        while True:
            try:
                # The walk spends most of its time here, so that this loop calls no function per simple field.
                while (ttype := buffer[position]) != _STOP:
                    if ttype == _STRING:
                        size = _I32(buffer, position + 3)[0]
                        if size < 0:
                            raise MalformedMessage(f"a text of {size} bytes at byte {position}")
                        position += 7 + size
                    elif length := lengths[ttype]:
                        position += 3 + length
                    else:
                        position = self._field(position, ttype, spec, depth)
                return position + 1
            except IndexError:
                self.need(position + 1)
            except packing.error:
                self.need(position + 7)

    def _after_field(self, position: int, ttype: int, spec: Spec, depth: int) -> int:
        """Return the position after a field, whatever its type."""
        if ttype == _STRING:
            return position + 7 + self._size(position + 3)
        if length := _FIXED_LENGTHS[ttype]:
            return position + 3 + length
        return self._field(position, ttype, spec, depth)

    def _field(self, position: int, ttype: int, spec: Spec, depth: int) -> int:
        self.need(position + 3)
        field = spec.get(_I16(self.buffer, position + 1)[0])
        # The walk skips a field whose type differs from the definition, as every Thrift library does.
        inner = field[2] if field is not None and field[0] == ttype and len(field) == 4 else None
        return self._nested(position + 3, ttype, inner, depth + 1)

    def _nested(self, position: int, ttype: int, inner: Any, depth: int) -> int:
        if ttype == _STRUCT:
            return self._inner_struct(position, inner, depth)
        if depth >= MAX_DEPTH:
            raise MalformedMessage(f"it is nested more than {MAX_DEPTH} levels deep")
        if ttype in {_LIST, _SET}:
            size = self._size(position + 1)
            part = self._part(position, inner, size)
            return self._values_of(position + 5, size, (part,), depth)
        if ttype == _MAP:
            key, value = inner if inner is not None else (None, None)
            size = self._size(position + 2)
            parts = self._part(position, key, size), self._part(position + 1, value, size)
            return self._values_of(position + 6, size, parts, depth)
        raise MalformedMessage(f"a value of the unknown type {ttype} at byte {position}")

    def _inner_struct(self, position: int, kind: Any, depth: int) -> int:
        return self._struct(position, kind.thrift_spec if kind is not None else _UNKNOWN, depth)

    def _part(self, position: int, expected: object, size: int) -> Part:
        """Return the type of a container's values, and the definition of what they hold."""
        on_wire = self._byte(position)
        if not size:
            return on_wire, None
        ttype, inner = expected if isinstance(expected, tuple) else (expected, None)
        if on_wire not in _ALLOWED or (
            ttype is not None and on_wire != (_STRING if ttype == _BINARY else ttype)
        ):
            raise MalformedMessage(f"a container of values of type {on_wire} at byte {position}")
        return on_wire, inner

    def _values_of(self, position: int, size: int, parts: tuple[Part, ...], depth: int) -> int:
        self._values += size * len(parts)
        if len(parts) == 1:
            ttype, inner = parts[0]
            if length := _FIXED_LENGTHS[ttype]:
                return position + size * length
            if ttype == _STRUCT:
                for _ in range(size):
                    position = self._inner_struct(position, inner, depth + 1)
                return position
        for _ in range(size):
            for ttype, inner in parts:
                if ttype == _STRING:
                    position += 4 + self._size(position)
                elif length := _FIXED_LENGTHS[ttype]:
                    position += length
                else:
                    position = self._nested(position, ttype, inner, depth + 1)
        return position


def check_unambiguous(message: bytes, position: int, spec: Spec) -> None:
    """Reject a call that Hive would read otherwise than a walk by the types in the call itself.

    Thrift's code for Java reads the elements of a container by the interface definition, whatever type the
    call declares for them; of a union it reads one field and the head of another one. Behind a value that
    deviates, Hive would find other names than this walk, or even a second call. Of a field that a struct has
    twice, Java's code keeps the last value.

    :param position: position of the struct with the call's arguments, which end the message.
    :param spec: the arguments in the interface definition.
    :raises MalformedMessage: a container holds values of another type, or is in an unknown field; a union has
        not exactly one field; a struct has a field twice; or the bytes are no such call.
    """
    walk = _UnambiguousMessage(io.BytesIO(), max_bytes=len(message))
    walk.buffer = message  # type: ignore[assignment]
    if walk.check_struct(position, spec) != len(message):
        raise MalformedMessage("something follows the arguments")


class _UnambiguousMessage(Message):
    def need(self, size: int) -> None:
        if size > len(self.buffer):
            raise MalformedMessage("it ends too soon")

    def _struct(self, position: int, spec: Spec, depth: int) -> int:
        if depth >= MAX_DEPTH:
            raise MalformedMessage(f"it is nested more than {MAX_DEPTH} levels deep")
        buffer, lengths, numbers = self.buffer, _FIXED_LENGTHS, set[int]()
        try:
            while (ttype := buffer[position]) != _STOP:
                if (number := _I16(buffer, position + 1)[0]) in numbers:
                    raise MalformedMessage(f"the field {number} twice, again at byte {position}")
                numbers.add(number)
                if ttype == _STRING:
                    if (size := _I32(buffer, position + 3)[0]) < 0:
                        raise MalformedMessage(f"a text of {size} bytes at byte {position}")
                    position += 7 + size
                elif length := lengths[ttype]:
                    position += 3 + length
                else:
                    position = self._field(position, ttype, spec, depth)
        except (IndexError, packing.error) as error:
            raise MalformedMessage("it ends too soon") from error
        return position + 1

    def _inner_struct(self, position: int, kind: Any, depth: int) -> int:
        if kind is None or not kind.is_union:
            return super()._inner_struct(position, kind, depth)
        if (ttype := self._byte(position)) != _STOP:
            end = self._after_field(position, ttype, kind.thrift_spec, depth)
            if self._byte(end) == _STOP:
                return end + 1
        raise MalformedMessage(f"a {kind.__name__} that does not have exactly one field")

    def _part(self, position: int, expected: object, size: int) -> Part:
        if size and expected is None:
            raise MalformedMessage(
                f"a container at byte {position} in a field that this version of the gateway does not know"
            )
        return super()._part(position, expected, size)
