"""Partitions, tables and events as streams, where a gateway offers them; grpcio is not imported.

The gateway's pieces hold Thrift structs, so that the client decodes them as it decodes answers, and the query
is a message so small that it is written by hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from airflow_hive_federation.errors import MetastoreAuthenticationError, MetastoreServerError
from airflow_hive_federation.metastore.grpc_wire import fields, length_delimited, number_field
from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from airflow_hive_federation.metastore.struct import Struct
from airflow_hive_federation.metastore.transport import Deadline, ForeignProtocol
from airflow_hive_federation.metastore.wire import WireFormatError, from_bytes

S = TypeVar("S", bound=Struct)

SERVICE = "hive_federation.metastore.v1.HiveMetastoreStreams"
PARTITIONS = f"/{SERVICE}/stream_partitions"
TABLES = f"/{SERVICE}/stream_tables"
EVENTS = f"/{SERVICE}/stream_events"
FOLLOW = f"/{SERVICE}/follow_events"
#: Number of the field of a piece that holds Thrift structs.
THRIFT_NUMBER = 15
#: ``as_thrift`` of each query.
_AS_THRIFT = 7
#: ``skip_gaps`` of a query of events: calls skip them, too.
_SKIP_GAPS = 4


class NotStreamed(Exception):  # noqa: N818 - internal signal, never seen by callers
    """The server offers no stream, or it broke: the list is read by calls."""

    def __init__(self, reason: object, *, offered: bool = True) -> None:
        super().__init__(str(reason))
        self.offered = offered


def read_stream(channel: Any, path: str, kind: type[S], query: bytes, deadline: Deadline) -> Iterator[S]:
    """Yield the structs of a stream as they come.

    :param channel: a channel of a client, of whatever kind.
    :param path: one of this module's.
    :param deadline: end of the whole stream.
    :raises NotStreamed: before the first struct or after any.
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
    """Return a ``PartitionsQuery`` for all partitions of a table."""
    texts = ((1, catalog), (2, database), (3, table))
    return b"".join(length_delimited(number, text.encode()) for number, text in texts) + number_field(
        _AS_THRIFT, 1
    )


def tables_query(catalog: str, database: str, names: Sequence[str]) -> bytes:
    """Return a ``TablesQuery`` for tables by their names; without any, for all tables of a database."""
    texts = ((1, catalog), (2, database), *((4, name) for name in names))
    return b"".join(length_delimited(number, text.encode()) for number, text in texts) + number_field(
        _AS_THRIFT, 1
    )


def events_query(after: int) -> bytes:
    """Return an ``EventsQuery`` for the events after one."""
    return number_field(1, after) + number_field(_SKIP_GAPS, 1) + number_field(_AS_THRIFT, 1)


def structs(kind: type[S], piece: bytes) -> Iterator[S]:
    """Yield the structs of a piece.

    :raises MalformedMessage: if it is none.
    :raises WireFormatError: if it holds something else.
    """
    for number, value in fields(piece):
        # Numbers say where a stream of events has come to.
        if number == THRIFT_NUMBER and isinstance(value, bytes):
            yield from_bytes(kind, value)
