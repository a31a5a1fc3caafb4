"""Holds a long list of strings as the Thrift message it arrived in, and decodes each string on access."""

from __future__ import annotations

import struct as packing
from array import array
from collections.abc import Sequence
from typing import Self, overload

from airflow_hive_federation.gateway.handler import Status, refused
from airflow_hive_federation.gateway.messages import LIST, REPLY, STRING, read_head
from airflow_hive_federation.metastore.message_bounds import MalformedMessage

_I32 = packing.Struct("!i")
#: Id of the field ``success``, as bytes on the wire.
_RESULT = b"\0\0"


class Texts(Sequence[str]):
    """The strings of an answer whose result is a list of strings; each is decoded on access.

    :param reply: a whole Thrift message, which is not copied.
    :param starts: positions of the strings in the message; see :meth:`of`.
    """

    def __init__(self, reply: bytes, starts: array[int]) -> None:
        self._reply, self._starts = reply, starts

    @classmethod
    def of(cls, reply: bytes) -> Self:
        """Find the positions of the strings in a message.

        :raises MalformedMessage: the message has another result, or none.
        """
        head = read_head(reply)
        body, start = head.body, head.body + 8
        if head.kind != REPLY or reply[body : body + 3] != bytes([LIST]) + _RESULT or len(reply) < start:
            raise MalformedMessage("it is not a list")
        (count,) = _I32.unpack_from(reply, body + 4)
        if count and reply[body + 3] != STRING:
            raise MalformedMessage("it is not a list of strings")
        end, starts = len(reply), array("Q")
        for _ in range(count):
            if start + 4 > end or (size := _I32.unpack_from(reply, start)[0]) < 0:
                raise MalformedMessage("it ends too soon")
            starts.append(start)
            start += 4 + size
        if count < 0 or reply[start:] != b"\0":
            raise MalformedMessage("its length does not fit its strings")
        return cls(reply, starts)

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...

    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return Texts(self._reply, self._starts[index])
        start = self._starts[index]
        (size,) = _I32.unpack_from(self._reply, start)
        data = self._reply[start + 4 : start + 4 + size]
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            # A replacement character would turn it into another object's name.
            raise refused(
                Status.FAILED, f"The metastore's answer has a name that is not UTF-8: {data!r}."
            ) from error
