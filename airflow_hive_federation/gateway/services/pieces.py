"""Collects structs into the pieces of a gRPC stream, each of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from airflow_hive_federation.gateway.services.codec import codec
from airflow_hive_federation.metastore.grpc_streams import THRIFT_NUMBER
from airflow_hive_federation.metastore.grpc_wire import length_delimited
from airflow_hive_federation.metastore.protocol import encode
from airflow_hive_federation.metastore.struct import Struct

#: Default size of a piece, and the greatest size that a query may set: gRPC clients accept 4 MiB at most.
CHUNK_BYTES, MOST_CHUNK_BYTES = 512 << 10, 3 << 20

Emit = Callable[[bytes], None]


class Pieces:
    """Collects structs, and emits them as pieces.

    :param emit: receives a piece's bytes, and blocks while the client does not read.
    :param number: number of the field that holds the structs.
    :param chunk_bytes: greatest size of a piece; only a single struct may exceed it.
    :param as_thrift: write the structs in Thrift's encoding, for clients with a Thrift decoder.
    """

    def __init__(self, emit: Emit, number: int, chunk_bytes: int, *, as_thrift: bool) -> None:
        self._emit, self._number, self._as_thrift = emit, number, as_thrift
        self._limit = min(chunk_bytes or CHUNK_BYTES, MOST_CHUNK_BYTES)
        self._buffer = bytearray()

    def add(self, structs: Iterable[Struct]) -> None:
        """Add structs of one kind."""
        for struct in structs:
            kind: object = type(struct)
            if self._as_thrift:
                self._append(length_delimited(THRIFT_NUMBER, encode(struct)))
            else:
                self._append(length_delimited(self._number, codec(kind).to_bytes(struct)))

    def add_field(self, field: bytes) -> None:
        """Add a field that is not one of the structs."""
        self._append(field)

    def flush(self) -> None:
        """Emit the collected bytes as a piece, if there are any."""
        if self._buffer:
            self._emit(bytes(self._buffer))
            self._buffer.clear()

    def _append(self, field: bytes) -> None:
        if self._buffer and len(self._buffer) + len(field) > self._limit:
            self.flush()
        self._buffer += field
