"""Thrift messages, byte by byte."""

from __future__ import annotations

import struct

STOP = b"\0"


LIST, SET, MAP, STRUCT, STRING, I32, I64 = 15, 14, 13, 12, 11, 8, 10


def field(ttype: int, number: int, body: bytes = b"") -> bytes:
    return struct.pack("!bh", ttype, number) + body


def listing(ttype: int, size: int, body: bytes = b"") -> bytes:
    return struct.pack("!bi", ttype, size) + body


def text(value: bytes, size: int | None = None) -> bytes:
    return struct.pack("!i", len(value) if size is None else size) + value
