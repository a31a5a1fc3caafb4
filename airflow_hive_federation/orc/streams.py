"""The streams of a stripe, taken apart and put together again; what they hold is copied once, at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from airflow_hive_federation.orc.protobuf import BYTES, VARINT, all_of, fields_of, message_of, number_of

Content = bytes | memoryview
Lengths = tuple[int, int, int]
"""Bytes of a stripe's index, data and footer."""

#: Kinds of streams.
PRESENT, DATA, LENGTH, SECONDARY, ROW_INDEX, BLOOM_FILTER = 0, 1, 2, 5, 6, 8
_OF_INDEX = {ROW_INDEX, BLOOM_FILTER}

_STREAM, _ENCODING = 1, 2


class Stream(NamedTuple):
    """One stream of a column."""

    kind: int
    column: int
    content: Content


@dataclass(frozen=True)
class Streams:
    """A stripe that is not compressed.

    :param streams: in their order; those of the index come first.
    :param encodings: a ``ColumnEncoding`` a column.
    :param others: further fields of its footer.
    """

    streams: Sequence[Stream]
    encodings: Sequence[bytes]
    others: Sequence[tuple[int, int, int | bytes]]

    @classmethod
    def of(cls, body: memoryview, lengths: Lengths, inflated: Callable[[bytes], bytes] = bytes) -> Streams:
        """Take a stripe apart.

        :param body: index, data and footer.
        :param inflated: decompresses the footer; the streams are left as they are.
        """
        footer = fields_of(inflated(bytes(body[lengths[0] + lengths[1] :])))
        streams = []
        at = 0
        for message in all_of(footer, _STREAM):
            kind, column, length = (number_of(fields_of(message), number) for number in (1, 2, 3))
            streams.append(Stream(kind, column, body[at : at + length]))
            at += length
        others = [field for field in footer if field[0] not in {_STREAM, _ENCODING}]
        return cls(streams, all_of(footer, _ENCODING), others)

    def joined(self) -> tuple[memoryview, Lengths]:
        """Put the stripe together; return body and lengths."""
        return self.framed([[one.content] for one in self.streams], lambda footer: [footer])

    def framed(
        self, pieces: Iterable[Sequence[Content]], frame: Callable[[bytes], Sequence[Content]]
    ) -> tuple[memoryview, Lengths]:
        """Put the stripe together, of streams that come in pieces.

        :param pieces: of each stream.
        :param frame: makes the pieces of the footer.
        :return: body and lengths.
        """
        parts: tuple[list[Content], list[Content]] = ([], [])
        fields: list[tuple[int, int, int | bytes]] = []
        for stream, some in zip(self.streams, pieces, strict=True):
            parts[stream.kind not in _OF_INDEX].extend(some)
            told = ((1, stream.kind), (2, stream.column), (3, sum(map(len, some))))
            described = message_of([(number, VARINT, value) for number, value in told])
            fields.append((_STREAM, BYTES, described))
        fields += [(_ENCODING, BYTES, one) for one in self.encodings]
        end = frame(message_of([*fields, *self.others]))
        index, data, footer = (sum(map(len, some)) for some in (*parts, end))
        return memoryview(b"".join([*parts[0], *parts[1], *end])), (index, data, footer)
