"""How much a request may make of the gateway's memory.

A message of two bytes becomes a struct of some hundred; so structs are counted, beside bytes and depth.
"""

from __future__ import annotations

from airflow_hive_federation.gateway.handler import Status, refused
from airflow_hive_federation.metastore.message_bounds import MAX_DEPTH

#: How deep structs may lie in structs; between two of them there may be a container.
MAX_STRUCTS_DEEP = MAX_DEPTH // 2
#: Bytes of a request of a translated service. The raw encoding, which decodes nothing, takes longer ones.
MAX_REQUEST_BYTES = 16 << 20
#: Structs that a request of any length may hold; above them, so many bytes have to come with each.
FREE_STRUCTS, BYTES_PER_STRUCT = 100_000, 16


class BadMessage(ValueError):  # noqa: N818 - internal signal, a status to callers
    """A message that is well formed and still cannot be meant so."""


class Bounds:
    """What is left of the bounds while one message is read.

    :param size: bytes of the message.
    """

    __slots__ = ("_depth", "_left")

    def __init__(self, size: int) -> None:
        self._depth = 0
        self._left = FREE_STRUCTS + size // BYTES_PER_STRUCT

    def enter(self) -> None:
        """Begin a struct.

        :raises BadMessage: if it is one too many, or too deep.
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

    :raises GatewayError: with its limit.
    """
    if len(request) > MAX_REQUEST_BYTES:
        raise refused(
            Status.EXHAUSTED,
            f"The request has {len(request)} bytes; a translated one may have {MAX_REQUEST_BYTES}.",
            remedy="Make smaller batches, or use the raw encoding.",
        )
