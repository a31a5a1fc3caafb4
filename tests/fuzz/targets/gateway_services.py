"""Requests of the translated services and of streams: a value that Thrift has room for, or a refusal."""

from __future__ import annotations

import random

from airflow_hive_federation.gateway.services import pools
from airflow_hive_federation.gateway.services.bounds import BadMessage
from airflow_hive_federation.gateway.services.bridge import NotRepresentable
from airflow_hive_federation.gateway.services.codec import call_codecs, parsed
from airflow_hive_federation.gateway.services.rpcs import SERVICE, WITHOUT, rpc, rpc_names
from airflow_hive_federation.gateway.services.streams import _STREAMS
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.protocol import decode, encode
from tests.fuzz.targets.gateway_thrift import _Bytes
from tests.support.structs import random_struct

METHODS = (
    *("create_table", "get_table_req", "add_partitions_req", "alter_table_req", "lock"),
    *("get_partitions_by_names_req", "create_database", "update_table_column_statistics_req"),
)
RPCS = sorted(set(rpc_names()) - set(WITHOUT))
QUERIES = sorted({name for name, _ in _STREAMS.values()})
_OURS, _HIVES, _STREAM = range(3)
ALLOWED = (BadMessage, NotRepresentable)
TRACED = (
    "airflow_hive_federation.gateway.services.codec",
    "airflow_hive_federation.gateway.services.bridge",
    "airflow_hive_federation.gateway.services.rpcs",
    "airflow_hive_federation.gateway.services.bounds",
)
INPUTS = 700


def _ours(place: int) -> bytes:
    arguments = message_types(METHODS[place])[0]
    value = random_struct(arguments, random.Random(place))
    return bytes([_OURS, place]) + call_codecs(METHODS[place])[0].to_bytes(value)


def _hives(place: int) -> bytes:
    kind = pools.hives().kind(pools.hives().service(SERVICE).methods_by_name[RPCS[place]].input_type.name)
    message, chance = kind(), random.Random(place)
    for field in kind.DESCRIPTOR.fields:
        if field.message_type is None and not field.is_repeated and field.cpp_type == field.CPPTYPE_STRING:
            setattr(
                message, field.name, "x" * chance.randint(1, 9) if field.type != field.TYPE_BYTES else b"x"
            )
        elif field.message_type is not None and not field.is_repeated:
            getattr(message, field.name).SetInParent()
    return bytes([_HIVES, place]) + bytes(message.SerializeToString())


SEEDS = [
    *map(_ours, range(len(METHODS))),
    *map(_hives, range(len(RPCS))),
    *(bytes([_STREAM, place]) + b"\x0a\x01d\x12\x01t" for place in range(len(QUERIES))),
]
TOKENS = [
    *(bytes([number << 3 | kind]) for number in range(1, 16) for kind in (0, 2)),
    b"\xa2\x06\x01x",
    b"\x0a\x00" * 9,
    b"\xc2\x80",
    b"\xff\xff\xff\xff\x0f",
    b"\xff" * 9 + b"\x01",
]


def run(data: bytes) -> None:
    """Read a request; the first byte names the service, the second one the method."""
    service, place, request = (data[0] if data else 0) % 3, data[1] if len(data) > 1 else 0, data[2:]
    if service == _STREAM:
        parsed(pools.ours().kind(QUERIES[place % len(QUERIES)]), request)
        return
    if service == _OURS:
        method = METHODS[place % len(METHODS)]
        codec = call_codecs(method)[0]
        value = codec.from_bytes(request)
        # As text, for NaN is not itself.
        assert repr(codec.from_bytes(codec.to_bytes(value))) == repr(value)
    else:
        known = rpc(RPCS[place % len(RPCS)])
        assert known is not None
        method, value = known.method, known.read(request)
    again = message_types(method)[0]()
    decode(_Bytes(encode(value)), again)
    assert encode(again) == encode(value)
