"""Compresses encoded ORC stripes with faster codecs than those of pyarrow's writer.

pyarrow's ORC writer deflates with zlib, which takes longer than the rest of its work. ISA-L's deflate takes a
sixth of that time, and its streams are no longer than Spark's or Hive's. pyarrow therefore writes
uncompressed stripes, and this module divides their streams into chunks and compresses these. A row index
holds the place at which a row group begins in each stream: a byte offset in an uncompressed stream, or a
chunk's offset and a byte offset in its content in a compressed stream. The module translates these places.
The type and encoding of a column determine which numbers of its index belong to which stream (ORC
Specification v1, "Row Index"; Java's ``TreeReaderFactory`` reads them in this way).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

import pyarrow as pa

from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.protobuf import (
    BYTES,
    all_of,
    fields_of,
    message_of,
    number_of,
    read_varints,
    varint,
)
from airflow_hive_federation.orc.chunks import CODECS
from airflow_hive_federation.orc.streams import (
    DATA,
    LENGTH,
    PRESENT,
    ROW_INDEX,
    SECONDARY,
    Content,
    Lengths,
    Streams,
)

#: Supported compressions, and their numbers in a postscript; Hive 3 may be unable to read zstd.
COMPRESSIONS = {name: number for number, name in CODECS.items()}

#: Bytes of a stream that are compressed together as one chunk.
BLOCK_BYTES = 262_144

# Level 0 makes much longer streams; levels 2 and 3 take longer and save at most two percent
# (docs/benchmarks.md).
_DEFLATE_LEVEL = 1
_RAW_DEFLATE = -15
# The level that ORC's own writer uses for speed, its default strategy (``CompressionStrategy_SPEED``).
_ZSTD_LEVEL = 1
_DICTIONARIES = {1, 3}

# The streams that have places in an index, each with the count of numbers that follow its place: values to
# skip in a run, and bits to skip in a byte.
_Layout = tuple[tuple[int, int], ...]
_PRESENCE: _Layout = ((PRESENT, 2),)
_BITS: _Layout = ((DATA, 2),)
_RUNS: _Layout = ((DATA, 1),)
_FLOATS: _Layout = ((DATA, 0),)
_TEXTS: _Layout = ((DATA, 0), (LENGTH, 1))
_TIMESTAMPS: _Layout = ((DATA, 1), (SECONDARY, 1))
_DECIMALS: _Layout = ((DATA, 0), (SECONDARY, 1))
_COLLECTIONS: _Layout = ((LENGTH, 1),)
#: Layouts by ``Type.Kind``: boolean, byte, short, int, long, float, double, string, binary, timestamp, list,
#: map, struct, union, decimal, date, varchar, char, timestamp with local time zone.
_LAYOUTS: tuple[_Layout, ...] = (
    *(_BITS, _RUNS, _RUNS, _RUNS, _RUNS, _FLOATS, _FLOATS, _TEXTS, _TEXTS, _TIMESTAMPS, _COLLECTIONS),
    *(_COLLECTIONS, (), _RUNS, _DECIMALS, _RUNS, _TEXTS, _TEXTS, _TIMESTAMPS),
)


def compressed(streams: Streams, kinds: Sequence[int], compression: str) -> tuple[memoryview, Lengths]:
    """Compress the streams and the footer of a stripe; other threads run meanwhile.

    :param kinds: ``Type.Kind`` of each column.
    :param compression: a name of :data:`COMPRESSIONS`.
    :return: body and lengths of the compressed stripe.
    :raises AcidFormatError: if the layout of the stripe's index differs from the specification.
    """
    if compression == "uncompressed":
        return streams.joined()
    compress = _compressor(compression)
    encodings = [number_of(fields_of(message), 1) for message in streams.encodings]
    made = {
        (stream.kind, stream.column): CompressedStream(stream.content, compress)
        for stream in streams.streams
        if stream.kind != ROW_INDEX
    }
    pieces = []
    for kind, column, content in streams.streams:
        if kind != ROW_INDEX:
            pieces.append(made[kind, column].pieces)
            continue
        layout = _layout(kinds[column], encodings[column], has_nulls=(PRESENT, column) in made)
        places = [(made.get((placed, column), _EMPTY), count) for placed, count in layout]
        pieces.append(CompressedStream(_translated(bytes(content), places), compress).pieces)
    return streams.framed(pieces, lambda footer: CompressedStream(footer, compress).pieces)


def framed(streams: Streams, compression: str) -> tuple[memoryview, Lengths]:
    """Join compressed streams to a stripe, and compress its footer."""
    if compression == "uncompressed":
        return streams.joined()
    compress = _compressor(compression)
    pieces = [[stream.content] for stream in streams.streams]
    return streams.framed(pieces, lambda footer: CompressedStream(footer, compress).pieces)


class CompressedStream:
    """A stream in compressed chunks.

    :param content: the uncompressed content.
    :param compress: function that compresses a chunk.
    """

    def __init__(self, content: Content, compress: Callable[[Content], bytes]) -> None:
        self.pieces: list[Content] = []
        self.length = 0
        self._starts: list[int] = []
        for at in range(0, len(content), BLOCK_BYTES):
            chunk: Content = content[at : at + BLOCK_BYTES]
            small = compress(chunk)
            is_original = len(small) >= len(chunk)
            piece = chunk if is_original else small
            self._starts.append(self.length)
            self.pieces += [(len(piece) << 1 | is_original).to_bytes(3, "little"), piece]
            self.length += 3 + len(piece)

    def place(self, offset: int) -> tuple[int, int]:
        """Return the place of a byte of the content: its chunk's offset, and its offset in that chunk.

        The second offset refers to the chunk's uncompressed content. The end of the last chunk counts as a
        place in that chunk.
        """
        if not self._starts:
            return 0, 0
        chunk = min(offset // BLOCK_BYTES, len(self._starts) - 1)
        return self._starts[chunk], offset - chunk * BLOCK_BYTES


_EMPTY = CompressedStream(b"", bytes)


@cache
def _compressor(compression: str) -> Callable[[Content], bytes]:
    if compression == "zlib":
        return _deflate()
    if compression == "zstd":
        codec = pa.Codec("zstd", compression_level=_ZSTD_LEVEL)
    else:
        codec = pa.Codec("lz4_raw" if compression == "lz4" else compression)
    return lambda chunk: codec.compress(chunk, asbytes=True)


def _deflate() -> Callable[[Content], bytes]:
    """Return ISA-L's deflate, or zlib's on an executor that lacks the package ``isal``."""
    try:
        from isal import isal_zlib
    except ImportError:
        return lambda chunk: zlib.compress(chunk, _DEFLATE_LEVEL, _RAW_DEFLATE)
    return lambda chunk: isal_zlib.compress(chunk, _DEFLATE_LEVEL, _RAW_DEFLATE)


def _layout(kind: int, encoding: int, *, has_nulls: bool) -> _Layout:
    layout = _RUNS if encoding in _DICTIONARIES else _LAYOUTS[kind]
    return (*_PRESENCE, *layout) if has_nulls else layout


def _translated(index: bytes, streams: Sequence[tuple[CompressedStream, int]]) -> bytes:
    """Translate the places in a ``RowIndex`` from uncompressed to compressed streams."""
    entries: list[tuple[int, int, int | bytes]] = []
    for entry in all_of(fields_of(index), 1):
        fields = fields_of(entry)
        numbers = read_varints(b"".join(all_of(fields, 1)))
        packed = b"".join(map(varint, _places(numbers, streams)))
        others = [field for field in fields if field[0] != 1]
        # Structs without nulls have no places.
        places = [(1, BYTES, packed)] if packed else []
        entries.append((1, BYTES, message_of([*places, *others])))
    return message_of(entries)


def _places(numbers: Iterator[int], streams: Iterable[tuple[CompressedStream, int]]) -> Iterator[int]:
    try:
        for stream, count in streams:
            yield from stream.place(next(numbers))
            for _ in range(count):
                yield next(numbers)
    except StopIteration:
        pass
    else:
        if next(numbers, None) is None:
            return
    raise AcidFormatError(
        "pyarrow made a row index that is not laid out by the ORC specification.",
        remedy="Use a version of pyarrow that this package is tested with.",
    )
