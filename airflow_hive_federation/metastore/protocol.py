"""Structs to bytes and back, in Thrift's binary protocol.

thriftpy2's compiled protocol does the work. It has one gap: it reads a list always as a ``list``, which
cannot be the key of a map, and ``SkewedInfo.skewedColValueLocationMaps`` is ``map<list<string>, string>``.
An answer that holds one fails in the middle; :func:`read` then decodes the same bytes again in Python, with
tuples for keys.
"""

from __future__ import annotations

import struct as packing
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from thriftpy2.protocol.cybin.cybin import ProtocolError, TCyBinaryProtocol
from thriftpy2.thrift import TDecodeException, TMessageType, TType
from thriftpy2.transport.buffered.cybuffered import TCyBufferedTransport
from thriftpy2.transport.memory.cymemory import TCyMemoryBuffer

from airflow_hive_federation.metastore.struct import Fault, Spec, Struct

BUFFER_BYTES = 1 << 16
BIN_TYPES = (TType.STRING, TType.BINARY)


class Source(Protocol):
    """Where bytes come from."""

    def read(self, size: int) -> bytes:
        """Return between 1 and ``size`` bytes; raise where there are no more."""


class ApplicationFault(Fault):
    """What a Thrift server answers where it could not call the method at all."""

    message: str | None = None
    type: int | None = None
    thrift_spec: ClassVar[Spec] = {1: (TType.STRING, "message", False), 2: (TType.I32, "type", False)}

    UNKNOWN_METHOD: ClassVar[int] = 1


class MalformedMessage(Exception):  # noqa: N818 - internal signal, never seen by callers
    """The bytes are no Thrift message."""


def encode(value: Struct) -> bytes:
    """Return a struct's bytes."""
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
    """Fill a struct from bytes that hold it and nothing else.

    :raises EOFError: (the source's) if they end too soon.
    :raises MalformedMessage: if something follows.
    """
    tape = _Tape(source)
    transport = TCyBufferedTransport(tape, BUFFER_BYTES)
    read = transport.read
    try:
        TCyBinaryProtocol(transport).read_struct(value)
    except TypeError as error:
        _expect_unhashable(error)
        tape.rewind()
        _read_struct(tape.read_exactly, value)
        read = tape.read_exactly
    try:
        read(1)
    except EOFError:
        return
    raise MalformedMessage("something follows the struct")


def decode_reply(source: Source, method: str, sequence_id: int, result: Struct) -> None:
    """Fill ``result`` from the server's answer to a call.

    :raises ApplicationFault: if the server could not call the method.
    :raises MalformedMessage: if the bytes are no answer to this call.
    """
    tape = _Tape(source)
    protocol = TCyBinaryProtocol(TCyBufferedTransport(tape, BUFFER_BYTES))
    try:
        name, kind, sequence = protocol.read_message_begin()
    except ProtocolError as error:
        raise MalformedMessage(f"{error}; it begins {tape.head()!r}") from error
    if name != method or sequence != sequence_id or kind not in {TMessageType.REPLY, TMessageType.EXCEPTION}:
        raise MalformedMessage(f"an answer to {name!r} ({sequence}), not to {method!r} ({sequence_id})")
    if kind == TMessageType.EXCEPTION:
        fault = ApplicationFault()
        protocol.read_struct(fault)
        raise fault
    try:
        protocol.read_struct(result)
    except TypeError as error:
        _expect_unhashable(error)
        tape.rewind()
        tape.read_exactly(12 + len(method))  # version and type, length and name, sequence id
        _read_struct(tape.read_exactly, result)


def _expect_unhashable(error: TypeError) -> None:
    if "unhashable" not in str(error):
        raise error


class _Tape:
    """A source that can be heard again from the start."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._chunks: list[bytes] = []
        self._replay: memoryview | None = None

    def read(self, size: int) -> bytes:
        chunk = self._source.read(size)
        self._chunks.append(chunk)
        return chunk

    def head(self, size: int = 32) -> bytes:
        return b"".join(self._chunks)[:size]

    def rewind(self) -> None:
        self._replay = memoryview(b"".join(self._chunks))

    def read_exactly(self, size: int) -> bytes:
        """Read on after :meth:`rewind`: first what is recorded, then what the source still has."""
        if size < 0:
            raise MalformedMessage(f"a length of {size}")
        replay = self._replay if self._replay is not None else memoryview(b"")
        data, self._replay = bytes(replay[:size]), replay[size:]
        while len(data) < size:
            data += self._source.read(size - len(data))
        return data


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
    if ttype != TType.STRUCT:
        raise MalformedMessage(f"type {ttype} in a struct")
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


def _read_list(read: Read, inner: Any) -> list[Any]:
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


def _element(part: Any, on_wire: int) -> tuple[int, Any]:
    ttype, inner = part if isinstance(part, tuple) else (part, None)
    if ttype is None or not _same(on_wire, ttype):
        return on_wire, None
    return ttype, inner
