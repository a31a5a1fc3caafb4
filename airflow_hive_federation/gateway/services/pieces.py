"""Pieces of a stream, bounded in bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from airflow_hive_federation.gateway.services.codec import codec
from airflow_hive_federation.metastore.grpc_streams import THRIFT_NUMBER
from airflow_hive_federation.metastore.grpc_wire import length_delimited
from airflow_hive_federation.metastore.protocol import encode
from airflow_hive_federation.metastore.struct import Struct

#: Bytes of a piece, unless the query says otherwise, and the most it may ask for: gRPC's clients accept 4 MiB
#: at most.
CHUNK_BYTES, MOST_CHUNK_BYTES = 512 << 10, 3 << 20

Emit = Callable[[bytes], None]


class Pieces:
    """Collects structs, and emits them as pieces.

    :param emit: takes a piece's bytes, and waits while the client does not read.
    :param number: of the field that holds the structs.
    :param chunk_bytes: a piece is emitted when it has so many; it is longer only if one struct is.
    :param as_thrift: the structs are Thrift's bytes, for clients that have a decoder of those.
    """

    def __init__(self, emit: Emit, number: int, chunk_bytes: int, *, as_thrift: bool) -> None:
        self._emit, self._number, self._as_thrift = emit, number, as_thrift
        self._limit = min(chunk_bytes or CHUNK_BYTES, MOST_CHUNK_BYTES)
        self._buffer = bytearray()

    def add(self, structs: Iterable[Struct]) -> None:
        """Add structs of one kind."""
        for one in structs:
            kind: Any = type(one)
            if self._as_thrift:
                self._append(length_delimited(THRIFT_NUMBER, encode(one)))
            else:
                self._append(length_delimited(self._number, codec(kind).to_bytes(one)))

    def add_field(self, field: bytes) -> None:
        """Add a field of the piece that is none of the structs."""
        self._append(field)

    def flush(self) -> None:
        """Emit what is left."""
        if self._buffer:
            self._emit(bytes(self._buffer))
            self._buffer.clear()

    def _append(self, field: bytes) -> None:
        if self._buffer and len(self._buffer) + len(field) > self._limit:
            self.flush()
        self._buffer += field
