"""Answers of a metastore: a whole value, which is written as it was read, or a malformed message."""

from __future__ import annotations

import io
import struct

from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from airflow_hive_federation.metastore.protocol import decode, decode_reply, encode
from airflow_hive_federation.metastore.struct import Fault, Struct

METHODS = (
    "get_table_req",
    "get_next_notification",
    "get_valid_write_ids",
    "get_partitions_by_names",
    "abort_txn",
    "get_all_databases",
    "get_database",
)
ALLOWED = (MalformedMessage, EOFError, Fault)
TRACED = (
    "airflow_hive_federation.metastore.message_bounds",
    "airflow_hive_federation.metastore.protocol",
)
INPUTS = 1500


def _seed(place: int, value: object) -> bytes:
    _, result, _ = message_types(METHODS[place])
    return bytes([place]) + encode(result(success=value))


_SKEWED = types.SkewedInfo(skewedColValueLocationMaps={("1", "a"): "file:/x"})
_STORAGE = types.StorageDescriptor(
    cols=[types.FieldSchema(name="a", type="int")] * 3,
    location="file:/t",
    parameters={"a": "b"},
    skewedInfo=_SKEWED,
)
_EVENT = types.NotificationEvent(eventId=1, eventTime=2, eventType="INSERT", dbName="d", message="{}")
_WRITE_IDS = types.TableValidWriteIds(
    fullTableName="d.t", writeIdHighWaterMark=5, invalidWriteIds=[1, 2], abortedBits=b"\1"
)
SEEDS = [
    _seed(0, types.GetTableResult(table=types.Table(tableName="t", sd=_STORAGE, parameters={"é": "x"}))),
    _seed(1, types.NotificationEventResponse(events=[_EVENT] * 2)),
    _seed(2, types.GetValidWriteIdsResponse(tblValidWriteIds=[_WRITE_IDS])),
    _seed(3, [types.Partition(values=["a"], sd=_STORAGE)] * 2),
    b"\4\0",
    _seed(5, ["a", "b"]),
    _seed(6, types.Database(name="d", parameters={"a": "b"}, privileges=types.PrincipalPrivilegeSet())),
]
TOKENS = [
    *(
        struct.pack("!bh", kind, number)
        for kind in (2, 8, 10, 11, 12, 13, 14, 15)
        for number in (0, 1, 2, 99)
    ),
    *(struct.pack("!bi", kind, size) for kind in (2, 11, 12, 15) for size in (-1, 1, 3, 2**31 - 1)),
    *(struct.pack("!bbi", key, value, 3) for key in (2, 11) for value in (2, 11, 12)),
]


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self._stream = io.BytesIO(data)

    def read(self, size: int) -> bytes:
        if not (data := self._stream.read(size)):
            raise EOFError
        return data


def run(data: bytes) -> None:
    """Read an answer, to the method that the first byte names."""
    method = METHODS[data[0] % len(METHODS) if data else 0]
    head = struct.pack("!Ii", 0x80010002, len(method)) + method.encode() + struct.pack("!i", 1)
    _, kind, _ = message_types(method)
    decoded: Struct = kind()
    decode_reply(_Bytes(head + data[1:]), method, 1, decoded, max_bytes=1 << 24)
    again: Struct = kind()
    decode(_Bytes(encode(decoded)), again)
    # As text, for NaN is not itself.
    assert repr(again) == repr(decoded)
