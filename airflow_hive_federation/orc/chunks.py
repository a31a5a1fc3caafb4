"""Decompresses the chunks of ORC streams and footers (ORC Specification v1, "Compression")."""

from __future__ import annotations

import zlib

import pyarrow as pa

from airflow_hive_federation.model.protobuf import read_varint

#: Numbers of codecs in a postscript.
UNCOMPRESSED, _ZLIB, _SNAPPY, _LZ4, _ZSTD = 0, 1, 2, 4, 5
#: pyarrow's names of the codecs.
CODECS = {UNCOMPRESSED: "uncompressed", _ZLIB: "zlib", _SNAPPY: "snappy", _LZ4: "lz4", _ZSTD: "zstd"}


#: Most bytes of a chunk: lengths of chunks have 23 bits (Java's writer refuses longer chunks).
MAX_CHUNK_BYTES = 1 << 23


def inflated(body: bytes, compression: str) -> bytes:
    """Decompress the chunks of a stream, with a codec by name.

    :param compression: pyarrow's name of the codec.
    :raises ValueError: if the codec is unknown.
    """
    codec = next((number for number, name in CODECS.items() if name == compression), -1)
    return decompressed(body, codec)


def decompressed(body: bytes, codec: int, *, limit: int | None = None) -> bytes:
    """Decompress the chunks of a stream, with a codec by number.

    :param codec: the codec's number in a postscript.
    :param limit: most bytes of the result; without it, the chunks' sizes are the only limit.
    :raises ValueError: if the codec is unknown, a chunk is broken, or the result exceeds the limit.
    """
    if codec == UNCOMPRESSED:
        return body
    out: list[bytes] = []
    at = size = 0
    while at < len(body):
        header = int.from_bytes(body[at : at + 3], "little")
        chunk = body[at + 3 : at + 3 + (header >> 1)]
        at += 3 + (header >> 1)
        out.append(chunk if header & 1 else _inflate(chunk, codec))
        size += len(out[-1])
        if limit is not None and size > limit:
            raise ValueError(f"it holds more than {limit} bytes")
    return b"".join(out)


def _inflate(chunk: bytes, codec: int) -> bytes:
    """Decompress a chunk, without allocating memory for more bytes than a chunk may hold."""
    if codec == _ZLIB:
        made = zlib.decompressobj(wbits=-15)
        content = made.decompress(chunk, MAX_CHUNK_BYTES + 1)
        if not made.eof and len(content) <= MAX_CHUNK_BYTES:
            raise ValueError("a chunk ends too soon")
        return content[: _checked(len(content))]
    if codec == _ZSTD:
        content = bytes(pa.input_stream(pa.py_buffer(chunk), compression="zstd").read(MAX_CHUNK_BYTES + 1))
        return content[: _checked(len(content))]
    if codec == _SNAPPY:
        size = _checked(read_varint(chunk, 0)[0])
        return bytes(pa.Codec("snappy").decompress(chunk, decompressed_size=size, asbytes=True))
    if codec == _LZ4:
        size = _checked(_lz4_size(chunk))
        return bytes(pa.Codec("lz4_raw").decompress(chunk, decompressed_size=size, asbytes=True))
    raise ValueError(f"compression {CODECS.get(codec, codec)} is not supported")


def _checked(size: int) -> int:
    if size > MAX_CHUNK_BYTES:
        raise ValueError(f"a chunk holds more than {MAX_CHUNK_BYTES} bytes")
    return size


def _lz4_size(block: bytes) -> int:
    """Compute the decompressed size of a block, which LZ4 does not store (LZ4 Block Format Description)."""
    size = at = 0
    while True:
        token = block[at]
        literals, at = _lz4_length(block, at + 1, token >> 4)
        size += literals
        at += literals
        # The last sequence has no match.
        if at >= len(block):
            return size
        matched, at = _lz4_length(block, at + 2, token & 0xF)
        size += matched + 4


def _lz4_length(block: bytes, at: int, length: int) -> tuple[int, int]:
    if length < 0xF:
        return length, at
    while True:
        length += block[at]
        at += 1
        if block[at - 1] < 0xFF:
            return length, at


def uncompressed_chunks(body: bytes, block: int) -> bytes:
    """Divide bytes into chunks without compression.

    :param block: most bytes of a chunk.
    """
    pieces = (body[at : at + block] for at in range(0, len(body), block))
    return b"".join((len(piece) << 1 | 1).to_bytes(3, "little") + piece for piece in pieces)
