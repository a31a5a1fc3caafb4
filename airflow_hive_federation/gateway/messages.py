"""Thrift messages as bytes: where a message ends, which method it names, and how a refusal is written.

Nothing here decodes a value. The gateway passes on what it need not change, so it only follows lengths; each
byte is looked at once, and a message never has to be in memory as a whole.
"""

from __future__ import annotations

import struct as packing
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from airflow_hive_federation.metastore.message_bounds import MAX_DEPTH, MAX_MESSAGE_BYTES, MalformedMessage

CALL, REPLY, EXCEPTION, ONEWAY = 1, 2, 3, 4
STOP, BOOL, I32, STRING, STRUCT, MAP, SET, LIST = 0, 2, 8, 11, 12, 13, 14, 15

#: Bytes that are read at once, and bytes that are kept back before the first ones are passed on.
CHUNK_BYTES = 1 << 16
#: Hive's longest name of a method has 58 bytes.
LONGEST_NAME = 200

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
    :param sequence_id: number that the answer repeats.
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

    :raises MalformedMessage: if the bytes do not begin a Thrift message of the strict binary protocol.
    """
    try:
        version, length = _TWO_I32.unpack_from(message)
        if version & _VERSION_MASK == _VERSION_1 and 0 <= length <= LONGEST_NAME:
            name = message[8 : 8 + length].decode(errors="replace")
            return Head(name, version & _KIND_MASK, _i32(message, 8 + length)[0], 12 + length)
    except packing.error:
        pass
    # Says what is wrong with it.
    return Walk(_no_more).over(message).head()


def numbered(message: bytes, head: Head, sequence_id: int) -> bytes:
    """Return the message with another number.

    :param head: the message's own head.
    """
    return b"".join([message[: head.body - 4], _I32.pack(sequence_id), message[head.body :]])


def head_bytes(method: str, kind: int, sequence_id: int) -> bytes:
    """Write the head of a message."""
    name = method.encode()
    return (_VERSION_1 | kind).to_bytes(4, "big") + _I32.pack(len(name)) + name + _I32.pack(sequence_id)


def read_fields(message: bytes | bytearray, position: int) -> Iterator[Field]:
    """Yield the fields of the struct that begins at a position; values are not decoded.

    :raises MalformedMessage: if there is no such struct.
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


def end_of(message: bytes | bytearray, position: int) -> int:
    """Return the position behind the struct that begins at a position; values are not decoded.

    :raises MalformedMessage: if there is no such struct.
    """
    walk = Walk(_no_more).over(message)
    return walk.need(walk.struct(position, 0), 0)


def field_bytes(number: int, ttype: int, value: bytes) -> bytes:
    """Write a field whose value is bytes of the wire already."""
    return bytes([ttype]) + _I16.pack(number) + value


def text_bytes(text: str) -> bytes:
    """Write a text as a value."""
    data = text.encode()
    return _I32.pack(len(data)) + data


class MessageReader:
    """The messages of one connection, one after another.

    :param receive: returns between 1 and so many bytes; raises where there are no more.
    :param max_bytes: longest message that is accepted.
    """

    def __init__(self, receive: Receive, *, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._walk = Walk(receive, max_bytes)

    @property
    def pending(self) -> int:
        """How many bytes have arrived of what comes next."""
        return len(self._walk.buffer)

    def peek(self, size: int) -> bytes:
        """Return the next bytes, which stay."""
        self._walk.begin(None)
        self._walk.need(0, size)
        return bytes(self._walk.buffer[:size])

    def take(self, size: int) -> bytes:
        """Return the next bytes, which are of no message."""
        self.peek(size)
        return self._walk.take(size)

    def message(self, max_bytes: int | None = None) -> tuple[Head, bytes]:
        """Read one whole message.

        :param max_bytes: longest message that is accepted from now on.
        :raises MalformedMessage: if what arrives is none, or a longer one than is accepted.
        """
        walk = self._walk
        walk.max_bytes = max_bytes or walk.max_bytes
        walk.begin(None)
        head = walk.head()
        end = walk.need(walk.struct(head.body, 0), 0)
        return head, walk.take(end)

    def relay(self, emit: Emit, check: Callable[[Head], None], sequence_id: int) -> None:
        """Pass one message on while it arrives; at most some :data:`CHUNK_BYTES` of it are kept.

        :param emit: takes the bytes.
        :param check: looks at the head before anything is passed on, and raises if it is a wrong one.
        :param sequence_id: the number that is passed on instead of the message's own.
        :raises MalformedMessage: as :meth:`message`; some bytes may have been passed on then.
        """
        walk = self._walk
        walk.begin(None)
        head = walk.head()
        check(head)
        walk.buffer[head.body - 4 : head.body] = _I32.pack(sequence_id)
        walk.begin(emit)
        end = walk.need(walk.struct(head.body, 0), 0)
        emit(walk.take(end))


class Walk:
    """Follows one message through a window of bytes, which moves when they are passed on.

    Only the innermost function that is at work holds a position: it gets a new one when the window moves.
    """

    def __init__(self, receive: Receive, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self.buffer = bytearray()
        self._receive = receive
        self._emit: Emit | None = None
        self.max_bytes = max_bytes
        self._passed = 0

    def over(self, message: bytes | bytearray) -> Walk:
        # Never longer than it is: its source has no more.
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
        """Wait until so many bytes from a position on are there; return the position in the moved window."""
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
                # Nearly all of the time goes by here: no calls for what takes two bytes of a message.
                while (ttype := buffer[position]) != STOP:
                    if ttype == STRING:
                        if (size := _i32(buffer, position + 3)[0]) < 0:
                            raise MalformedMessage(f"a text of {size} bytes")
                        position += 7 + size
                    elif length := lengths[ttype]:
                        position += 3 + length
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
        position = self.need(position, before + 4)
        size: int = _i32(self.buffer, position + before)[0]
        # No value takes less than a byte.
        if not 0 <= size <= self.max_bytes:
            raise MalformedMessage(f"a length of {size}")
        return position, size

    def _values(self, position: int, size: int, ttypes: tuple[int, ...], depth: int) -> int:
        if all(_LENGTHS[ttype] for ttype in ttypes):
            return position + size * sum(_LENGTHS[ttype] for ttype in ttypes)
        if ttypes == (STRUCT,):
            for _ in range(size):
                position = self.struct(position, depth + 1)
            return position
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
