"""Encodes and decodes structs in Thrift's binary protocol.

thriftpy2's compiled protocol decodes the bytes that :mod:`.message_bounds` has checked. It has one gap: it
reads every list as a ``list``, which cannot be the key of a map, and
``SkewedInfo.skewedColValueLocationMaps`` is ``map<list<string>, string>``. The code here decodes a message
with such a map in Python, with tuples for keys.
"""

from __future__ import annotations

import io
import struct as packing
from collections.abc import Callable
from typing import Any, ClassVar

from thriftpy2.protocol.cybin.cybin import ProtocolError, TCyBinaryProtocol
from thriftpy2.thrift import TDecodeException, TMessageType, TType
from thriftpy2.transport.memory.cymemory import TCyMemoryBuffer

from airflow_hive_federation.metastore.message_bounds import (
    MAX_MESSAGE_BYTES,
    MalformedMessage,
    Message,
    Source,
)
from airflow_hive_federation.metastore.struct import Fault, Spec, Struct

BUFFER_BYTES = 1 << 16
BIN_TYPES = (TType.STRING, TType.BINARY)
_VERSION_MASK, _VERSION_1 = 0xFFFFFF00, 0x80010000
_LONGEST_NAME = 200


class ApplicationFault(Fault):
    """A Thrift server's answer if it could not call the method at all."""

    message: str | None = None
    type: int | None = None
    thrift_spec: ClassVar[Spec] = {1: (TType.STRING, "message", False), 2: (TType.I32, "type", False)}

    UNKNOWN_METHOD: ClassVar[int] = 1


def encode(value: Struct) -> bytes:
    """Return the bytes of a struct."""
    buffer = TCyMemoryBuffer(buf_size=BUFFER_BYTES)
    _write(TCyBinaryProtocol(buffer), value)
    return bytes(buffer.getvalue())


def encode_call(method: str, arguments: Struct, sequence_id: int, *, oneway: bool) -> bytes:
    """Return the bytes of a request."""
    buffer = TCyMemoryBuffer(buf_size=BUFFER_BYTES)
    protocol = TCyBinaryProtocol(buffer)
    kind = TMessageType.ONEWAY if oneway else TMessageType.CALL
    protocol.write_message_begin(method, kind, sequence_id)
    _write(protocol, arguments)
    return bytes(buffer.getvalue())


def _write(protocol: Any, value: Struct) -> None:
    try:
        protocol.write_struct(value)
    except TDecodeException as error:
        raise TypeError(f"{type(value).__name__} holds a value of the wrong type: {error}") from error


def decode(source: Source, value: Struct) -> None:
    """Fill a struct from bytes that hold this struct and nothing else.

    :raises EOFError: (by the source) if the bytes end too soon.
    :raises MalformedMessage: if more bytes follow the struct, or the bytes are no such struct.
    """
    message = Message(source, max_bytes=MAX_MESSAGE_BYTES)
    end = message.check_struct(0, value.thrift_spec)
    if len(message.buffer) == end:
        try:
            source.read(1)
        except EOFError:
            _fill(value, bytes(message.buffer))
            return
    raise MalformedMessage("something follows the struct")


def decode_reply(
    source: Source, method: str, sequence_id: int, result: Struct, *, max_bytes: int = MAX_MESSAGE_BYTES
) -> None:
    """Fill ``result`` from the server's answer to a call.

    :param max_bytes: longest answer that is accepted.
    :raises ApplicationFault: if the server could not call the method.
    :raises MalformedMessage: if the bytes are no answer to this call, or break a bound.
    """
    message = Message(source, max_bytes=max_bytes)
    kind, start = _reply_header(message, method, sequence_id)
    answer = ApplicationFault() if kind == TMessageType.EXCEPTION else result
    if answer is result:
        end = message.check_answer(start, answer.thrift_spec)
    else:
        end = message.check_struct(start, answer.thrift_spec)
    if len(message.buffer) > end:
        raise MalformedMessage("something follows the answer")
    _fill(answer, bytes(message.buffer[start:end]))
    if isinstance(answer, ApplicationFault):
        raise answer


def _reply_header(message: Message, method: str, sequence_id: int) -> tuple[int, int]:
    """Return the type of the message that answers a call, and the position of its struct."""
    version = message.i32(0) & 0xFFFFFFFF
    if version & _VERSION_MASK != _VERSION_1:
        raise MalformedMessage(f"it does not begin as a Thrift message does: {bytes(message.buffer[:32])!r}")
    length = message.i32(4)
    if not 0 <= length <= _LONGEST_NAME:
        raise MalformedMessage(f"a method's name of {length} bytes")
    message.need(12 + length)
    kind, name = version & 0xFF, message.buffer[8 : 8 + length].decode(errors="replace")
    sequence = message.i32(8 + length)
    known = kind in {TMessageType.REPLY, TMessageType.EXCEPTION}
    if name != method or sequence != sequence_id or not known:
        raise MalformedMessage(f"an answer to {name!r} ({sequence}), not to {method!r} ({sequence_id})")
    return kind, 12 + length


def _fill(value: Struct, data: bytes) -> None:
    """Fill a struct from bytes that :mod:`.message_bounds` has checked."""
    try:
        try:
            TCyBinaryProtocol(TCyMemoryBuffer(data)).read_struct(value)
        except TypeError:  # the compiled protocol cannot read map keys that are structs or lists
            _read_struct(io.BytesIO(data).read, value)
    except (TypeError, ValueError, ArithmeticError, RecursionError, ProtocolError, packing.error) as error:
        raise MalformedMessage(f"{type(value).__name__}: {error}") from error


Read = Callable[[int], bytes]

_NUMBERS = {
    TType.BOOL: packing.Struct("!?"),
    TType.BYTE: packing.Struct("!b"),
    TType.I16: packing.Struct("!h"),
    TType.I32: packing.Struct("!i"),
    TType.I64: packing.Struct("!q"),
    TType.DOUBLE: packing.Struct("!d"),
}


def _number(read: Read, ttype: int) -> Any:
    form = _NUMBERS[ttype]
    return form.unpack(read(form.size))[0]


def _read_struct(read: Read, value: Struct) -> None:
    spec: Spec = value.thrift_spec
    while (ttype := _number(read, TType.BYTE)) != TType.STOP:
        field_id = _number(read, TType.I16)
        field = spec.get(field_id)
        if field is None or not _same(ttype, field[0]):
            _read_value(read, ttype, None)
            continue
        inner = field[2] if len(field) == 4 else None
        setattr(value, field[1], _read_value(read, field[0], inner))


def _same(on_wire: int, expected: int) -> bool:
    return on_wire == expected or (on_wire in BIN_TYPES and expected in BIN_TYPES)


def _read_value(read: Read, ttype: int, inner: Any, *, as_key: bool = False) -> Any:
    if ttype in _NUMBERS:
        return _number(read, ttype)
    if ttype in BIN_TYPES:
        return _read_text(read, ttype)
    if ttype in {TType.LIST, TType.SET}:
        values = _read_list(read, inner)
        return tuple(values) if as_key else values
    if ttype == TType.MAP:
        return _read_map(read, inner)
    value = inner() if inner is not None else Struct()
    _read_struct(read, value)
    return value


def _read_text(read: Read, ttype: int) -> str | bytes:
    data = read(_number(read, TType.I32))
    if ttype == TType.BINARY:
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data


def _read_list(read: Read, inner: object) -> list[Any]:
    on_wire, size = _number(read, TType.BYTE), _number(read, TType.I32)
    ttype, deeper = _element(inner, on_wire)
    return [_read_value(read, ttype, deeper) for _ in range(size)]


def _read_map(read: Read, inner: Any) -> dict[Any, Any]:
    key_wire, value_wire = _number(read, TType.BYTE), _number(read, TType.BYTE)
    size = _number(read, TType.I32)
    key, value = inner if inner is not None else (None, None)
    (key_type, key_inner), (value_type, value_inner) = _element(key, key_wire), _element(value, value_wire)
    return {
        _read_value(read, key_type, key_inner, as_key=True): _read_value(read, value_type, value_inner)
        for _ in range(size)
    }


def _element(part: object, on_wire: int) -> tuple[int, Any]:
    ttype, inner = part if isinstance(part, tuple) else (part, None)
    if ttype is None or not _same(on_wire, ttype):
        return on_wire, None
    return ttype, inner
