"""Streams partitions, tables and events to gRPC clients in pieces of bounded size, never as a whole list.

The gateway requests the next piece from the metastore when the client has read the former ones: at any time,
only grpcio's window and the few pieces that :class:`.Calls` holds are waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import grpc
from google.protobuf.descriptor_pool import DescriptorPool

from airflow_hive_federation.errors import MetastoreError
from airflow_hive_federation.gateway.grpc.calls import Call, Calls
from airflow_hive_federation.gateway.handler import Status, refused
from airflow_hive_federation.gateway.services import layout
from airflow_hive_federation.gateway.services.behind import Behind
from airflow_hive_federation.gateway.services.bounds import BadMessage, check_size
from airflow_hive_federation.gateway.services.codec import parsed
from airflow_hive_federation.gateway.services.events import BrokenLog, events, follow
from airflow_hive_federation.gateway.services.pieces import Emit, Pieces
from airflow_hive_federation.gateway.services.pools import ours
from airflow_hive_federation.gateway.services.statuses import Ending, ending
from airflow_hive_federation.gateway.services.unary import Paths
from airflow_hive_federation.metastore.calls.base import batches
from airflow_hive_federation.metastore.calls.objects import TABLES_PER_CALL
from airflow_hive_federation.metastore.calls.partition_pages import Page, pages
from airflow_hive_federation.metastore.grpc_wire import length_delimited
from airflow_hive_federation.metastore.struct import Fault

#: Partitions in the first request, which is small so that the first piece arrives soon, and in all others.
FIRST_PAGE, PAGE = 100, 1000

Stream = Callable[[Behind, Any, Pieces], None]


class StreamsService:
    """The gRPC service with the streams, beside :class:`.TranslatedService`."""

    @property
    def names(self) -> tuple[str, ...]:
        """See :attr:`.server.Service.names`."""
        return (layout.STREAMS,)

    def handler(self, calls: Calls) -> grpc.GenericRpcHandler:
        """See :meth:`.server.Service.handler`."""
        return Paths(layout.STREAMS, lambda name: _stream(calls, name) if name in _STREAMS else None)

    def add_to(self, pool: DescriptorPool) -> None:
        """Add no descriptors: those of :class:`.TranslatedService` include this service."""


def _partitions(behind: Behind, query: Any, out: Pieces) -> None:
    database, table = query.database, query.table
    if query.filter:
        if query.names:
            raise BadMessage("A query has names or a filter, not both.")
        out.add(behind.find_partitions(database, table, query.filter))
        out.flush()
        return
    for page in _pages(behind, database, table, list(query.names) or None):
        out.add(behind.read_page(database, table, page))
        out.flush()


def _pages(behind: Behind, database: str, table: str, names: list[str] | None) -> Iterator[Page]:
    everything = names is None
    selected = behind.partition_names(database, table) if names is None else names
    if everything and len(selected) <= PAGE:
        if selected:
            yield Page(names=selected, everything=True)
        return
    described = behind.get_table(database, table)
    keys = [(key.name or "", key.type or "") for key in described.partitionKeys or ()]
    for part, size in ((selected[:FIRST_PAGE], FIRST_PAGE), (selected[FIRST_PAGE:], PAGE)):
        if part:
            yield from pages(keys, part, size)


def _tables(behind: Behind, query: Any, out: Pieces) -> None:
    names = list(query.names) or behind.list_tables(query.database, pattern=query.pattern or "*")
    if query.names_only:
        for name in names:
            out.add_field(length_delimited(_NAMES, name.encode()))
    else:
        for batch in batches(names, TABLES_PER_CALL):
            out.add(behind.get_tables(query.database, batch))
            out.flush()
    out.flush()


_NAMES = 2
_STREAMS: dict[str, tuple[str, Stream]] = {
    "stream_partitions": ("PartitionsQuery", _partitions),
    "stream_tables": ("TablesQuery", _tables),
    "stream_events": ("EventsQuery", events),
    "follow_events": ("EventsQuery", follow),
}


def _stream(calls: Calls, name: str) -> grpc.RpcMethodHandler:
    query_name, make = _STREAMS[name]

    def work(request: bytes, endings: list[Ending], call: Call, emit: Emit) -> None:
        check_size(request)
        try:
            query = parsed(ours().kind(query_name), request)
            out = Pieces(emit, 1, query.chunk_bytes, as_thrift=query.as_thrift)
            make(Behind(calls.handler, call, getattr(query, "catalog", "")), query, out)
        except BadMessage as error:
            raise refused(Status.INVALID, str(error)) from error
        except BrokenLog as error:
            endings.append(Ending(code=grpc.StatusCode.DATA_LOSS, text=str(error)))
        except MetastoreError as error:
            if not isinstance(error.__cause__, Fault):
                raise
            endings.append(ending(error.__cause__))

    def behave(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        endings: list[Ending] = []
        yield from calls.stream(context, partial(work, request, endings))
        for last_status in endings:
            last_status.end(context)

    return grpc.unary_stream_rpc_method_handler(behave)
