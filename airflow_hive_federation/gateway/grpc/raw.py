"""Serves the raw encoding: gRPC messages with Thrift messages in them, passed on without decoding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.wrappers_pb2 import BytesValue

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.gateway.grpc.calls import Call, Calls
from airflow_hive_federation.gateway.handler import Status, refusal, refused, status_of
from airflow_hive_federation.gateway.messages import (
    CALL as CALL_KIND,
)
from airflow_hive_federation.gateway.messages import (
    LIST,
    REPLY,
    STOP,
    STRING,
    Head,
    field_bytes,
    head_bytes,
    read_head,
    text_bytes,
)
from airflow_hive_federation.metastore.grpc_wire import (
    CALL,
    CALL_IN_PIECES,
    CONVERSE,
    PACKAGE,
    SERVICE,
    unwrap,
    wrap,
)
from airflow_hive_federation.metastore.message_bounds import MalformedMessage

#: Refusals that become Thrift answers, since they concern the call; the others become gRPC statuses.
_ANSWERS = frozenset({Status.UNKNOWN_METHOD, Status.DENIED, Status.FAILED})
_GREETING = "set_ugi"


_Field = FieldDescriptorProto
_QUESTION = DescriptorProto(
    name="Question",
    field=[
        _Field(name="message", number=1, type=_Field.TYPE_BYTES, label=_Field.LABEL_OPTIONAL),
        _Field(name="timeout_ms", number=2, type=_Field.TYPE_UINT64, label=_Field.LABEL_OPTIONAL),
        _Field(name="traceparent", number=3, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL),
        _Field(name="tracestate", number=4, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL),
    ],
)
_ANSWER = DescriptorProto(
    name="Answer",
    field=[
        _Field(name="message", number=1, type=_Field.TYPE_BYTES, label=_Field.LABEL_OPTIONAL),
        _Field(name="code", number=2, type=_Field.TYPE_UINT32, label=_Field.LABEL_OPTIONAL),
        _Field(name="status", number=3, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL),
        _Field(name="text", number=4, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL),
    ],
)


class RawService:
    """The gRPC service that carries the Thrift messages of every method of the interface definition."""

    names = (SERVICE,)

    def handler(self, calls: Calls) -> grpc.GenericRpcHandler:
        """Return the rpc handlers of the service's paths."""

        def call(request: bytes, context: grpc.ServicerContext) -> bytes:
            return calls.answer(context, lambda under_way: wrap(_answer(calls, _value(request), under_way)))

        def call_in_pieces(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            return calls.stream(context, lambda under_way, emit: _relay(calls, request, under_way, emit))

        def converse(questions: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            return calls.converse(context, questions, lambda message, call: _answer(calls, message, call))

        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                CALL: grpc.unary_unary_rpc_method_handler(call),
                CALL_IN_PIECES: grpc.unary_stream_rpc_method_handler(call_in_pieces),
                CONVERSE: grpc.stream_stream_rpc_method_handler(converse),
            },
        )

    def add_to(self, pool: DescriptorPool) -> None:
        """Add the service's descriptors to the pool of the reflection service."""
        wrappers = FileDescriptorProto()
        BytesValue.DESCRIPTOR.file.CopyToProto(wrappers)
        pool.AddSerializedFile(wrappers.SerializeToString())
        kind, question, answer = ".google.protobuf.BytesValue", f".{PACKAGE}.Question", f".{PACKAGE}.Answer"
        methods = [
            MethodDescriptorProto(name=CALL, input_type=kind, output_type=kind),
            MethodDescriptorProto(
                name=CALL_IN_PIECES, input_type=kind, output_type=kind, server_streaming=True
            ),
            MethodDescriptorProto(
                name=CONVERSE,
                input_type=question,
                output_type=answer,
                client_streaming=True,
                server_streaming=True,
            ),
        ]
        file = FileDescriptorProto(
            name="airflow_hive_federation/gateway/v1/thrift.proto",
            package=PACKAGE,
            dependency=[wrappers.name],
            message_type=[_QUESTION, _ANSWER],
            service=[ServiceDescriptorProto(name=SERVICE.rpartition(".")[2], method=methods)],
            syntax="proto3",
        )
        pool.AddSerializedFile(file.SerializeToString())


def _answer(calls: Calls, message: bytes, call: Call) -> bytes:
    head = _read(message)
    if head.method == _GREETING:
        return _greet(head, call)
    try:
        return calls.handler.ask(call.of(head.method, message))
    except HiveFederationError as error:
        if status_of(error) not in _ANSWERS:
            raise
        return refusal(head.method, head.sequence_id, error)


def _relay(calls: Calls, request: bytes, call: Call, emit: Any) -> None:
    message = _value(request)
    head = _read(message)
    if head.method == _GREETING:
        emit(wrap(_greet(head, call)))
        return
    begun = False

    def pass_on(piece: bytes) -> None:
        nonlocal begun
        begun = True
        emit(wrap(piece))

    try:
        calls.handler.relay(call.of(head.method, message), pass_on)
    except HiveFederationError as error:
        if begun or status_of(error) not in _ANSWERS:
            raise
        emit(wrap(refusal(head.method, head.sequence_id, error)))


def _value(request: bytes) -> bytes:
    try:
        return unwrap(request)
    except MalformedMessage as error:
        raise _no_call(error) from error


def _read(message: bytes) -> Head:
    """Read the head of a Thrift message; the handler checks that the bytes are exactly one call."""
    try:
        head = read_head(message)
        if head.kind != CALL_KIND:
            raise MalformedMessage("it is not a call")
    except MalformedMessage as error:
        raise _no_call(error) from error
    return head


def _no_call(error: MalformedMessage) -> HiveFederationError:
    return refused(Status.INVALID, f"The call is not a Thrift message: {error}.")


def _greet(head: Head, call: Call) -> bytes:
    """Answer ``set_ugi`` with the authenticated user, whatever name the client sends."""
    names = [call.caller.user, *call.caller.groups]
    encoded_names = bytes([STRING]) + len(names).to_bytes(4, "big") + b"".join(map(text_bytes, names))
    body = field_bytes(0, LIST, encoded_names) + bytes([STOP])
    return head_bytes(head.method, REPLY, head.sequence_id) + body
