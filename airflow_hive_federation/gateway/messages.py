"""Reads and writes Thrift messages as bytes: finds their heads, fields and ends without decoding values.

The gateway passes most bytes on unchanged, so it only follows the lengths of values. It looks at each byte
once, and never needs a whole message in memory.
"""

from __future__ import annotations

import struct as packing
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore.message_bounds import MAX_DEPTH, MAX_MESSAGE_BYTES, MalformedMessage

CALL, REPLY, EXCEPTION, ONEWAY = 1, 2, 3, 4
STOP, BOOL, I32, I64, STRING, STRUCT, MAP, SET, LIST = 0, 2, 8, 10, 11, 12, 13, 14, 15

#: Size of one read, and number of bytes that the reader holds before it passes the first ones on.
CHUNK_BYTES = 1 << 16
#: Longest accepted name of a method; the longest in Hive has 58 bytes.
LONGEST_NAME = 200

#: Bytes of the longest call that Hive's metastore accepts (default of ``metastore.server.max.message.size``).
HIVES_REQUEST_BYTES = 100 << 20

_VERSION_MASK, _VERSION_1 = 0xFFFF0000, 0x80010000
_KIND_MASK = 0xFF
_FIXED = {2: 1, 3: 1, 4: 8, 6: 2, 8: 4, 10: 8}
_LENGTHS = tuple(_FIXED.get(ttype, 0) for ttype in range(256))
_TWO_I32 = packing.Struct("!ii")
_I16, _I32 = packing.Struct("!h"), packing.Struct("!i")
_i32 = _I32.unpack_from

Receive = Callable[[int], bytes]
Emit = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a message.

    :param method: name of the method.
    :param kind: ``CALL``, ``REPLY``, ``EXCEPTION`` or ``ONEWAY``.
    :param sequence_id: number of the call, which its answer repeats.
    :param body: position of the first byte after the head.
    """

    method: str
    kind: int
    sequence_id: int
    body: int


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct, as positions in a buffer.

    :param number: the field's id in the interface definition.
    :param ttype: its type on the wire.
    :param start: position of its value.
    :param end: position behind its value.
    """

    number: int
    ttype: int
    start: int
    end: int


def read_head(message: bytes | bytearray) -> Head:
    """Read the head of a message that is in memory.

    :raises MalformedMessage: the bytes do not begin a Thrift message of the strict binary protocol.
    """
    try:
        version, length = _TWO_I32.unpack_from(message)
        if version & _VERSION_MASK == _VERSION_1 and 0 <= length <= LONGEST_NAME:
            name = message[8 : 8 + length].decode(errors="replace")
            return Head(name, version & _KIND_MASK, _i32(message, 8 + length)[0], 12 + length)
    except packing.error:
        pass
    # Reads the head again in small steps, and raises an error that names the fault.
    return Walk(_no_more).over(message).head()


def numbered(message: bytes, head: Head, sequence_id: int) -> bytes:
    """Return the message with another sequence id.

    :param head: the message's own head.
    """
    return b"".join([message[: head.body - 4], _I32.pack(sequence_id), message[head.body :]])


def head_bytes(method: str, kind: int, sequence_id: int) -> bytes:
    """Write the head of a message."""
    name = method.encode()
    return (_VERSION_1 | kind).to_bytes(4, "big") + _I32.pack(len(name)) + name + _I32.pack(sequence_id)


def read_fields(message: bytes | bytearray, position: int) -> Iterator[Field]:
    """Yield the fields of the struct that begins at a position, without decoding their values.

    :raises MalformedMessage: the bytes at the position are no struct.
    """
    walk = Walk(_no_more).over(message)
    while True:
        walk.need(position, 1)
        if (ttype := message[position]) == STOP:
            return
        walk.need(position, 3)
        (number,) = _I16.unpack_from(message, position + 1)
        end = walk.value(position + 3, ttype, 0)
        walk.need(end, 0)
        yield Field(number, ttype, position + 3, end)
        position = end


def field_bytes(number: int, ttype: int, value: bytes) -> bytes:
    """Write a field whose value is encoded already."""
    return bytes([ttype]) + _I16.pack(number) + value


def text_bytes(text: str) -> bytes:
    """Write a string as a value."""
    data = text.encode()
    return _I32.pack(len(data)) + data


def check_request_size(front: str, size: int) -> None:
    """Refuse a limit of a front's calls that is above Hive's own.

    The metastore stops reading in the middle of a longer call, and might take its rest for another call,
    which no rule of the gateway has seen.

    :raises ConfigurationError: the limit is below 1 or above :data:`HIVES_REQUEST_BYTES`.
    """
    if not 1 <= size <= HIVES_REQUEST_BYTES:
        raise ConfigurationError(
            f"max_request_bytes of the {front} front is {size}.",
            remedy=f"Give a number from 1 to {HIVES_REQUEST_BYTES}: Hive's metastore reads no longer call.",
        )


class MessageReader:
    """Reads the messages of one connection, one after another.

    :param receive: returns at least 1 byte and at most the number it is called with; raises at the end.
    :param max_bytes: size of the longest message that the reader accepts.
    """

    def __init__(self, receive: Receive, *, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._walk = Walk(receive, max_bytes)

    @property
    def pending(self) -> int:
        """Number of bytes that have arrived and are not read yet."""
        return len(self._walk.buffer)

    def peek(self, size: int) -> bytes:
        """Return the next bytes without consuming them."""
        self._walk.need(0, size)
        return bytes(self._walk.buffer[:size])

    def take(self, size: int) -> bytes:
        """Return and consume the next bytes, which belong to no message."""
        self.peek(size)
        return self._walk.take(size)

    def message(self) -> tuple[Head, bytes]:
        """Read one whole message.

        :raises MalformedMessage: the bytes are no message, or the message is too long.
        """
        walk = self._walk
        head = walk.head()
        end = walk.need(walk.struct(head.body, 0), 0)
        return head, walk.take(end)

    def relay(self, emit: Emit, check: Callable[[Head], None], sequence_id: int) -> None:
        """Pass one message on while it arrives; hold only some :data:`CHUNK_BYTES` of it in memory.

        :param emit: receives the bytes.
        :param check: receives the head before the first byte is passed on, and raises if the head is wrong.
        :param sequence_id: sequence id to write in place of the message's own.
        :raises MalformedMessage: as :meth:`message`, possibly after some bytes have been passed on.
        """
        walk = self._walk
        head = walk.head()
        check(head)
        walk.buffer[head.body - 4 : head.body] = _I32.pack(sequence_id)
        walk.begin(emit)
        end = walk.need(walk.struct(head.body, 0), 0)
        walk.begin(None)
        emit(walk.take(end))


class Walk:
    """Follows one message through a window of bytes, which moves when bytes are passed on.

    Only the innermost running function holds a position; it gets a new position when the window moves.
    """

    def __init__(self, receive: Receive, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self.buffer = bytearray()
        self._receive = receive
        self._emit: Emit | None = None
        self.max_bytes = max_bytes
        self._passed = 0

    def over(self, message: bytes | bytearray) -> Walk:
        # Nothing extends this buffer: the source of such a walk raises instead of returning bytes.
        self.buffer = message  # type: ignore[assignment]
        return self

    def begin(self, emit: Emit | None) -> None:
        self._emit = emit
        self._passed = 0

    def take(self, end: int) -> bytes:
        data = bytes(self.buffer[:end])
        del self.buffer[:end]
        return data

    def head(self) -> Head:
        self.need(0, 8)
        version = _i32(self.buffer, 0)[0] & 0xFFFFFFFF
        if version & _VERSION_MASK != _VERSION_1:
            raise MalformedMessage("it does not begin as a message of Thrift's strict binary protocol does")
        length = _i32(self.buffer, 4)[0]
        if not 0 <= length <= LONGEST_NAME:
            raise MalformedMessage(f"a method's name of {length} bytes")
        self.need(0, 12 + length)
        name = self.buffer[8 : 8 + length].decode(errors="replace")
        return Head(name, version & _KIND_MASK, _i32(self.buffer, 8 + length)[0], 12 + length)

    def need(self, position: int, size: int) -> int:
        """Receive until ``size`` bytes behind the position are in the window; return the moved position."""
        buffer = self.buffer
        if self._passed + position + size > self.max_bytes:
            raise MalformedMessage(f"it is longer than {self.max_bytes} bytes, the most that is accepted")
        while len(buffer) < position + size:
            if self._emit is not None and len(buffer) >= CHUNK_BYTES:
                passed = min(position, len(buffer))
                self._emit(bytes(buffer[:passed]))
                del buffer[:passed]
                self._passed += passed
                position -= passed
            buffer += self._receive(CHUNK_BYTES)
        return position

    def struct(self, position: int, depth: int) -> int:
        if depth >= MAX_DEPTH:
            raise MalformedMessage(f"it is nested more than {MAX_DEPTH} levels deep")
        buffer, lengths = self.buffer, _LENGTHS
        while True:
            try:
                # Nearly all time is spent here: function calls for values of two bytes would be too slow.
                while (ttype := buffer[position]) != STOP:
                    if ttype == STRING:
                        if (size := _i32(buffer, position + 3)[0]) < 0:
                            raise MalformedMessage(f"a text of {size} bytes")
                        position += 7 + size
                    elif length := lengths[ttype]:
                        position += 3 + length
                    elif ttype == STRUCT:
                        position = self.struct(position + 3, depth + 1)
                    else:
                        position = self.value(position + 3, ttype, depth + 1)
                return position + 1
            except IndexError:
                position = self.need(position, 1)
            except packing.error:
                position = self.need(position, 7)

    def value(self, position: int, ttype: int, depth: int) -> int:
        if ttype == STRUCT:
            return self.struct(position, depth)
        if length := _LENGTHS[ttype]:
            return position + length
        if ttype == STRING:
            position, size = self._size(position, 0)
            return position + 4 + size
        if depth >= MAX_DEPTH:
            raise MalformedMessage(f"it is nested more than {MAX_DEPTH} levels deep")
        if ttype in {LIST, SET}:
            position, size = self._size(position, 1)
            return self._values(position + 5, size, (self.buffer[position],), depth)
        if ttype == MAP:
            position, size = self._size(position, 2)
            return self._values(position + 6, size, (self.buffer[position], self.buffer[position + 1]), depth)
        raise MalformedMessage(f"a value of the unknown type {ttype}")

    def _size(self, position: int, before: int) -> tuple[int, int]:
        try:
            size: int = _i32(self.buffer, position + before)[0]
        except packing.error:
            position = self.need(position, before + 4)
            size = _i32(self.buffer, position + before)[0]
        # Each element takes at least one byte.
        if not 0 <= size <= self.max_bytes:
            raise MalformedMessage(f"a length of {size}")
        return position, size

    def _values(self, position: int, size: int, ttypes: tuple[int, ...], depth: int) -> int:
        if not size:
            return position
        if ttypes == (STRUCT,):
            for _ in range(size):
                position = self.struct(position, depth + 1)
            return position
        if all(_LENGTHS[ttype] for ttype in ttypes):
            return position + size * sum(_LENGTHS[ttype] for ttype in ttypes)
        buffer, limit = self.buffer, self.max_bytes
        for _ in range(size):
            for ttype in ttypes:
                if ttype != STRING:
                    position = self.value(position, ttype, depth + 1)
                    continue
                try:
                    length = _i32(buffer, position)[0]
                except packing.error:
                    position, length = self._size(position, 0)
                if not 0 <= length <= limit:
                    raise MalformedMessage(f"a text of {length} bytes")
                position += 4 + length
        return position


def _no_more(_size: int) -> bytes:
    raise MalformedMessage("it ends too soon")
