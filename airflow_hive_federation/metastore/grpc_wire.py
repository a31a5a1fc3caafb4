"""Names of the raw encoding of Thrift in gRPC, which client and gateway share; grpcio is not imported.

A call is a whole Thrift message in the strict binary protocol, inside of ``google.protobuf.BytesValue``; so
is its answer, or each piece of it. The message names the method.
"""

from __future__ import annotations

from airflow_hive_federation.metastore.message_bounds import MalformedMessage

PACKAGE = "airflow_hive_federation.gateway.v1"
SERVICE = f"{PACKAGE}.HiveMetastoreThrift"
#: One message in, one out.
CALL = "Call"
#: One message in, the answer in pieces out: neither side keeps a long answer whole.
CALL_IN_PIECES = "CallInPieces"

#: Metadata with the user in whose name an unauthenticated client asks, as in Hive's HTTP transport.
USER_KEY = "x-actor-username"
#: Trailing metadata with the kind of a refusal, which says more than gRPC's codes: it has the words of
#: :class:`airflow_hive_federation.gateway.refusals.Status`.
STATUS_KEY = "hive-federation-status"
#: The text with which grpcio's server refuses a call that is one too many, before it looks at it.
TOO_MANY_CALLS = "Concurrent RPC limit exceeded!"

_VALUE_TAG = 0x0A  # field 1, of a length


def wrap(message: bytes) -> bytes:
    """Return the bytes of a ``BytesValue``."""
    length, head = len(message), bytearray([_VALUE_TAG])
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + message


def unwrap(data: bytes) -> bytes:
    """Return the value of a ``BytesValue``.

    :raises MalformedMessage: if the bytes are none, or hold more than that.
    """
    if not data:
        return b""
    if data[0] != _VALUE_TAG:
        raise MalformedMessage("it is no google.protobuf.BytesValue")
    length = shift = 0
    for position in range(1, min(len(data), 6)):
        length |= (data[position] & 0x7F) << shift
        shift += 7
        if not data[position] & 0x80:
            if len(data) != position + 1 + length:
                break
            return data[position + 1 :]
    raise MalformedMessage("it is no google.protobuf.BytesValue of that length")
