"""The raw encoding of gRPC calls: what is unwrapped is what protobuf reads, and one whole Thrift call."""

from __future__ import annotations

import struct

from google.protobuf.wrappers_pb2 import BytesValue

from airflow_hive_federation.errors import GatewayError
from airflow_hive_federation.gateway.grpc import raw
from airflow_hive_federation.gateway.messages import CALL, MessageReader
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.grpc_wire import unwrap, wrap
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from airflow_hive_federation.metastore.protocol import encode_call
from tests.fuzz.targets.gateway_thrift import _source

ALLOWED = (GatewayError, MalformedMessage)
TRACED = (
    "airflow_hive_federation.metastore.grpc_wire",
    "airflow_hive_federation.gateway.grpc.raw",
    "airflow_hive_federation.gateway.messages",
)
INPUTS = 1500


def _seed(method: str, **arguments: object) -> bytes:
    return wrap(encode_call(method, message_types(method)[0](**arguments), 1, oneway=False))


SEEDS = [
    _seed("get_all_databases"),
    _seed("get_table", dbname="d", tbl_name="t"),
    _seed("create_table", tbl=types.Table(dbName="d", tableName="t" * 300, parameters={"a": "b"})),
    b"",
    wrap(b""),
]
TOKENS = [
    b"\x0a",
    b"\x0a\x00",
    b"\x12\x00",
    b"\x0a\xff\xff\xff\xff\x0f",
    b"\x80\x01\0\1",
    b"\x80\x01\0\2",
    *(struct.pack("!bh", kind, number) for kind in (2, 8, 11, 12, 13, 15) for number in (0, 1, 2)),
]


def run(data: bytes) -> None:
    """Unwrap, and read the call."""
    message = unwrap(data)
    assert BytesValue.FromString(data).value == message
    assert unwrap(wrap(message)) == message
    head = raw._read(message)
    again, same_message = MessageReader(_source(message)).message()
    assert (again, same_message) == (head, message)
    assert head.kind == CALL
