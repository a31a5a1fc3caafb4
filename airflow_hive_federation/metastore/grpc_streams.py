"""Reads partitions, tables and events as streams of a gateway, without grpcio.

The gateway's pieces hold Thrift structs, which the client decodes in the same way as answers; the queries are
so small that the code encodes them without generated classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from airflow_hive_federation.errors import MetastoreAuthenticationError, MetastoreServerError
from airflow_hive_federation.metastore.channel import Deadline, ForeignProtocol
from airflow_hive_federation.metastore.grpc_wire import fields, length_delimited, number_field
from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from airflow_hive_federation.metastore.struct import Struct
from airflow_hive_federation.metastore.wire import WireFormatError, from_bytes

S = TypeVar("S", bound=Struct)

SERVICE = "hive_federation.metastore.v1.HiveMetastoreStreams"
PARTITIONS = f"/{SERVICE}/stream_partitions"
TABLES = f"/{SERVICE}/stream_tables"
EVENTS = f"/{SERVICE}/stream_events"
FOLLOW = f"/{SERVICE}/follow_events"
#: Number of a piece's field that holds Thrift structs.
THRIFT_NUMBER = 15
#: Number of the field ``as_thrift`` in each query.
_AS_THRIFT = 7
#: Number of the field ``skip_gaps`` in a query for events: calls skip gaps too.
_SKIP_GAPS = 4


class NotStreamed(Exception):  # noqa: N818 - internal signal, never seen by callers
    """The error if the server offers no stream, or the stream broke; the caller then reads by calls."""

    def __init__(self, reason: object, *, offered: bool = True) -> None:
        super().__init__(str(reason))
        self.offered = offered


def read_stream(channel: object, path: str, kind: type[S], query: bytes, deadline: Deadline) -> Iterator[S]:
    """Yield the structs of a stream as they arrive.

    :param channel: a channel of a client, of any transport.
    :param path: path of the stream, a constant of this module.
    :param deadline: end of the whole stream.
    :raises NotStreamed: if the server offers no stream, or the stream broke, even after some structs.
    """
    if (stream := getattr(channel, "stream", None)) is None:
        raise NotStreamed("this is no channel to a gateway", offered=False)
    try:
        for piece in stream(path, query, deadline):
            yield from structs(kind, piece)
    except ForeignProtocol as error:
        raise NotStreamed(error, offered=False) from error
    except (OSError, MetastoreAuthenticationError, MetastoreServerError) as error:
        raise NotStreamed(error) from error
    except (MalformedMessage, WireFormatError) as error:
        raise NotStreamed(error, offered=False) from error


def partitions_query(catalog: str, database: str, table: str) -> bytes:
    """Encode a ``PartitionsQuery`` for all partitions of a table."""
    texts = ((1, catalog), (2, database), (3, table))
    return b"".join(length_delimited(number, text.encode()) for number, text in texts) + number_field(
        _AS_THRIFT, 1
    )


def tables_query(catalog: str, database: str, names: Sequence[str]) -> bytes:
    """Encode a ``TablesQuery`` for the named tables of a database; without names, for all of its tables."""
    texts = ((1, catalog), (2, database), *((4, name) for name in names))
    return b"".join(length_delimited(number, text.encode()) for number, text in texts) + number_field(
        _AS_THRIFT, 1
    )


def events_query(after: int) -> bytes:
    """Encode an ``EventsQuery`` for the events with ids above ``after``."""
    return number_field(1, after) + number_field(_SKIP_GAPS, 1) + number_field(_AS_THRIFT, 1)


def structs(kind: type[S], piece: bytes) -> Iterator[S]:
    """Yield the structs of a piece.

    :raises MalformedMessage: if the bytes are no piece.
    :raises WireFormatError: if the piece holds something other than the structs of this type.
    """
    for number, value in fields(piece):
        # The other fields are numbers: the position of a stream of events.
        if number == THRIFT_NUMBER and isinstance(value, bytes):
            yield from_bytes(kind, value)
