"""Serves the unary rpcs of two gRPC services: the project's own, made from Hive's Thrift IDL, and Hive's."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import grpc
from google.protobuf.descriptor_pool import DescriptorPool

from airflow_hive_federation.gateway.grpc.calls import Call, Calls
from airflow_hive_federation.gateway.handler import Status, refused
from airflow_hive_federation.gateway.services import layout, pools
from airflow_hive_federation.gateway.services.bounds import BadMessage, check_size
from airflow_hive_federation.gateway.services.bridge import NotRepresentable
from airflow_hive_federation.gateway.services.codec import call_codecs
from airflow_hive_federation.gateway.services.exchange import ask, exchange
from airflow_hive_federation.gateway.services.narrowing import keep
from airflow_hive_federation.gateway.services.rpcs import SERVICE, WITHOUT, rpc, rpc_names
from airflow_hive_federation.gateway.services.statuses import Ending, ending
from airflow_hive_federation.metastore.idl.service import METHODS
from airflow_hive_federation.metastore.struct import Fault

Work = Callable[[Call], bytes]


class TranslatedService:
    """The project's own service: every method of the interface definition, in messages without any loss."""

    @property
    def names(self) -> tuple[str, ...]:
        """See :attr:`.server.Service.names`."""
        return (layout.SERVICE,)

    def handler(self, calls: Calls) -> grpc.GenericRpcHandler:
        """See :meth:`.server.Service.handler`."""
        return Paths(layout.SERVICE, lambda name: _ours(calls, name) if name in METHODS else None)

    def add_to(self, pool: DescriptorPool) -> None:
        """See :meth:`.server.Service.add_to`."""
        pools.add_to(pool, pools.OURS)


class HivesService:
    """Hive's own service, ``org.apache.hadoop.hive.metastore.grpc.GrpcHiveMetastore``."""

    @property
    def names(self) -> tuple[str, ...]:
        """See :attr:`.server.Service.names`."""
        return (f"{pools.hives().package}.{SERVICE}",)

    def handler(self, calls: Calls) -> grpc.GenericRpcHandler:
        """See :meth:`.server.Service.handler`."""
        known = frozenset(rpc_names())
        return Paths(self.names[0], lambda name: _hives(calls, name) if name in known else None)

    def add_to(self, pool: DescriptorPool) -> None:
        """See :meth:`.server.Service.add_to`."""
        pools.add_to(pool, pools.HIVES)


class Paths(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Serves the paths of one gRPC service.

    :param name: the service's full name.
    :param make: makes the rpc handler of a method; returns ``None`` if the service has no such method.
    """

    def __init__(self, name: str, make: Callable[[str], object]) -> None:
        self._prefix = f"/{name}/"
        self._make = cache(make)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return the rpc handler of a path; ``None`` if the service has no such path."""
        path: str = handler_call_details.method
        if not path.startswith(self._prefix) or len(path) > len(self._prefix) + _LONGEST_NAME:
            return None
        return self._make(path.removeprefix(self._prefix))


_LONGEST_NAME = 100


def end_or_return(calls: Calls, context: grpc.ServicerContext, work: Work) -> bytes:
    """Answer a call, or end it with the status of its error."""

    def careful(call: Call) -> bytes | Ending:
        try:
            return work(call)
        except Fault as fault:
            return ending(fault)
        except BadMessage as error:
            raise refused(Status.INVALID, str(error)) from error
        except NotRepresentable as error:
            return Ending(code=grpc.StatusCode.DATA_LOSS, text=str(error))

    response = calls.answer(context, careful)
    if isinstance(response, Ending):
        response.end(context)
    return response  # type: ignore[return-value]


def _ours(calls: Calls, method: str) -> grpc.RpcMethodHandler:
    def work(request: bytes, call: Call) -> bytes:
        arguments, result = call_codecs(method)
        value = arguments.from_bytes(request)
        return result.to_bytes(exchange(calls.handler, call, method, value))

    return _unary(calls, work)


def _hives(calls: Calls, name: str) -> grpc.RpcMethodHandler:
    def work(request: bytes, call: Call) -> bytes:
        if (hives_rpc := rpc(name)) is None:
            raise refused(
                Status.UNKNOWN_METHOD,
                f"No method of the metastore can answer {name}: {WITHOUT.get(name, 'none is like it')}.",
                remedy="Use the gateway's own service.",
            )
        arguments = hives_rpc.read(request)
        keep(hives_rpc.method, arguments, partial(ask, calls.handler, call))
        return hives_rpc.write(exchange(calls.handler, call, hives_rpc.method, arguments))

    return _unary(calls, work)


def _checked(work: Callable[[bytes, Call], bytes], request: bytes, call: Call) -> bytes:
    check_size(request)
    return work(request, call)


def _unary(calls: Calls, work: Callable[[bytes, Call], bytes]) -> grpc.RpcMethodHandler:
    return grpc.unary_unary_rpc_method_handler(
        lambda request, context: end_or_return(calls, context, partial(_checked, work, request))
    )
