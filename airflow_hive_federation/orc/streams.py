"""Divides a stripe into its streams and joins streams to a stripe, copying their content only once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from airflow_hive_federation.model.protobuf import BYTES, VARINT, all_of, fields_of, message_of, number_of

Content = bytes | memoryview
Lengths = tuple[int, int, int]
"""Bytes of a stripe's index, data and footer."""

#: Kinds of streams.
PRESENT, DATA, LENGTH, SECONDARY, ROW_INDEX, BLOOM_FILTER = 0, 1, 2, 5, 6, 8
_OF_INDEX = {ROW_INDEX, BLOOM_FILTER}

_STREAM, _ENCODING = 1, 2


class Stream(NamedTuple):
    """A stream of one column."""

    kind: int
    column: int
    content: Content


@dataclass(frozen=True)
class Streams:
    """The streams of an uncompressed stripe.

    :param streams: streams in their order; those of the index come first.
    :param encodings: one ``ColumnEncoding`` per column.
    :param others: further fields of the stripe's footer.
    """

    streams: Sequence[Stream]
    encodings: Sequence[bytes]
    others: Sequence[tuple[int, int, int | bytes]]

    @classmethod
    def of(cls, body: memoryview, lengths: Lengths, inflated: Callable[[bytes], bytes] = bytes) -> Streams:
        """Divide a stripe into its streams.

        :param body: index, data and footer of the stripe.
        :param inflated: function that decompresses the footer; the streams stay unchanged.
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
        """Join the streams to a stripe, and return its body and lengths."""
        return self.framed([[stream.content] for stream in self.streams], lambda footer: [footer])

    def framed(
        self, pieces: Iterable[Sequence[Content]], frame: Callable[[bytes], Sequence[Content]]
    ) -> tuple[memoryview, Lengths]:
        """Join streams that consist of pieces to a stripe.

        :param pieces: pieces of each stream.
        :param frame: function that makes the pieces of the footer.
        :return: body and lengths of the stripe.
        """
        parts: tuple[list[Content], list[Content]] = ([], [])
        fields: list[tuple[int, int, int | bytes]] = []
        for stream, stream_pieces in zip(self.streams, pieces, strict=True):
            parts[stream.kind not in _OF_INDEX].extend(stream_pieces)
            numbers = ((1, stream.kind), (2, stream.column), (3, sum(map(len, stream_pieces))))
            described = message_of([(number, VARINT, value) for number, value in numbers])
            fields.append((_STREAM, BYTES, described))
        fields += [(_ENCODING, BYTES, encoding) for encoding in self.encodings]
        end = frame(message_of([*fields, *self.others]))
        index, data, footer = (sum(map(len, part)) for part in (*parts, end))
        return memoryview(b"".join([*parts[0], *parts[1], *end])), (index, data, footer)
