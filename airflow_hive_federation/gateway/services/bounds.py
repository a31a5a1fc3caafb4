"""Limits the memory that a decoded request may take in the gateway.

A message of two bytes becomes a struct of some hundred bytes. So the gateway limits the number of structs, in
addition to bytes and depth.
"""

from __future__ import annotations

from airflow_hive_federation.gateway.handler import Status, refused
from airflow_hive_federation.metastore.message_bounds import MAX_DEPTH

#: Greatest depth of structs in structs; a container may lie between two of them.
MAX_STRUCTS_DEEP = MAX_DEPTH // 2
#: Longest request of a translated service. The raw encoding, which decodes no values, accepts longer ones.
MAX_REQUEST_BYTES = 16 << 20
#: Structs that a request of any length may hold; a request with more needs 16 bytes per further struct.
FREE_STRUCTS, BYTES_PER_STRUCT = 100_000, 16


class BadMessage(ValueError):  # noqa: N818 - internal signal, a status to callers
    """A request that is a well-formed message and yet has no valid meaning."""


class Bounds:
    """Counts the structs of one message, and their depth, against the limits.

    :param size: bytes of the message.
    """

    __slots__ = ("_depth", "_left")

    def __init__(self, size: int) -> None:
        self._depth = 0
        self._left = FREE_STRUCTS + size // BYTES_PER_STRUCT

    def enter(self) -> None:
        """Begin a struct.

        :raises BadMessage: the message holds too many structs, or this struct lies too deep.
        """
        self._depth += 1
        self._left -= 1
        if self._depth > MAX_STRUCTS_DEEP:
            raise BadMessage(f"Messages are nested more than {MAX_STRUCTS_DEEP} levels deep.")
        if self._left < 0:
            raise BadMessage("The request holds more messages than its length allows for. Make smaller ones.")

    def leave(self) -> None:
        """End a struct."""
        self._depth -= 1


def check_size(request: bytes) -> None:
    """Refuse a request that is too long to be decoded.

    :raises GatewayError: the request is longer than :data:`MAX_REQUEST_BYTES`.
    """
    if len(request) > MAX_REQUEST_BYTES:
        raise refused(
            Status.EXHAUSTED,
            f"The request has {len(request)} bytes; a translated one may have {MAX_REQUEST_BYTES}.",
            remedy="Make smaller batches, or use the raw encoding.",
        )
