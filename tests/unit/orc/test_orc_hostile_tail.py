"""Tails of ORC files that are damaged, or made to harm: one typed error, in bounded time and memory."""

from __future__ import annotations

import io
import random
import resource
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc

from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.protobuf import BYTES, VARINT, Field, fields_of, message_of
from airflow_hive_federation.orc.chunks import MAX_CHUNK_BYTES, decompressed
from airflow_hive_federation.orc.tail import read_tail
from airflow_hive_federation.tables.read.footers import row_columns

ZLIB, SNAPPY, LZ4, ZSTD = 1, 2, 4, 5


def with_tail(footer: bytes, codec: int, *, length: int | None = None) -> bytes:
    """A file of nothing but a footer and a postscript."""
    postscript = message_of(
        [(1, VARINT, len(footer) if length is None else length), (2, VARINT, codec), (8000, BYTES, b"ORC")]
    )
    return b"ORC" + footer + postscript + bytes([len(postscript)])


def chunk(body: bytes, *, original: bool = False) -> bytes:
    return (len(body) << 1 | original).to_bytes(3, "little") + body


def deflated(content: bytes) -> bytes:
    made = zlib.compressobj(9, zlib.DEFLATED, -15)
    return made.compress(content) + made.flush()


def zstd_stream(content: bytes) -> bytes:
    """A frame without the size of its content, as whoever compresses a stream writes it."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as made:
        made.write(content)
    file: bytes = sink.getvalue().to_pybytes()
    return file


def zstd_frame(*, window_log: int = 0, size_bytes: int = 0) -> bytes:
    """A frame of one empty block with such a header (RFC 8878, 3.1.1)."""
    head = b"\xe0" + size_bytes.to_bytes(8, "little") if size_bytes else bytes([0, (window_log - 10) << 3])
    return b"\x28\xb5\x2f\xfd" + head + b"\x01\0\0"


def lz4_block(zeros: int) -> bytes:
    """A block whose head claims this number of bytes (LZ4 Block Format Description)."""
    more, last = divmod(zeros, 255)
    return b"\x1f\0\x01\0" + b"\xff" * more + bytes([last]) + b"\x10\0"


def with_types(
    types: Sequence[Sequence[int]], *, rows: int = 0, stripes: Sequence[Sequence[int]] = ()
) -> bytes:
    """A file of structs (lists, but for the first), each with the numbers of those that it is made of."""
    fields: list[Field] = [(6, VARINT, rows)]
    for number, children in enumerate(types):
        kind = 3 if not children else 10 if number else 12
        parts: list[Field] = [(1, VARINT, kind), *((2, VARINT, child) for child in children)]
        parts += [(3, BYTES, b"c%d" % child) for child in children if kind == 12]
        fields.append((4, BYTES, message_of(parts)))
    fields += [
        (3, BYTES, message_of([(n, VARINT, v) for n, v in enumerate(stripe, 1)])) for stripe in stripes
    ]
    return with_tail(message_of(fields), 0)


NEGATIVE = (1 << 64) - 5


ZEROS = 64 << 20
#: Made where they are used: some take a second.
HOSTILE: dict[str, Callable[[], bytes]] = {
    "fields without end": lambda: with_tail(chunk(deflated(b"\x08\x01" * (4 << 20))), ZLIB),
    "a deflate bomb": lambda: with_tail(chunk(deflated(bytes(ZEROS))), ZLIB),
    "a zstd bomb": lambda: with_tail(chunk(pa.Codec("zstd").compress(bytes(ZEROS), asbytes=True)), ZSTD),
    "a zstd bomb that declares no size": lambda: with_tail(chunk(zstd_stream(bytes(ZEROS))), ZSTD),
    "many zstd bombs": lambda: with_tail(chunk(zstd_stream(bytes(MAX_CHUNK_BYTES))) * 100, ZSTD),
    "frames of zstd in one chunk": lambda: with_tail(chunk(zstd_stream(bytes(MAX_CHUNK_BYTES)) * 100), ZSTD),
    "half a frame of zstd": lambda: with_tail(chunk(zstd_stream(b"x" * 1000)[:-5]), ZSTD),
    "a frame of zstd that looks back 2 GiB": lambda: with_tail(chunk(zstd_frame(window_log=31)), ZSTD),
    "a frame of zstd that declares 2^62 bytes": lambda: with_tail(
        chunk(zstd_frame(size_bytes=1 << 62)), ZSTD
    ),
    "a snappy bomb": lambda: with_tail(chunk(b"\xff\xff\xff\xff\x0f" + b"\0" * 50), SNAPPY),
    "an LZ4 bomb": lambda: with_tail(chunk(lz4_block(ZEROS)), LZ4),
    "many deflate bombs": lambda: with_tail(chunk(deflated(bytes(MAX_CHUNK_BYTES))) * 100, ZLIB),
    "a number without end": lambda: with_tail(b"\x08" + b"\xff" * 1_000_000 + b"\x01", 0),
    "a footer longer than the file": lambda: with_tail(b"", 0, length=1 << 60),
    "a footer of negative length": lambda: with_tail(b"", 0, length=(1 << 64) - 5),
    "a codec that there is not": lambda: with_tail(chunk(b"x"), 77),
    "a key that is no text": lambda: with_tail(
        message_of([(5, BYTES, message_of([(1, BYTES, b"\xff"), (2, BYTES, b"v")]))]), 0
    ),
    "a property without a key": lambda: with_tail(
        message_of([(5, BYTES, message_of([(2, BYTES, b"v")]))]), 0
    ),
    "a property without a value": lambda: with_tail(
        message_of([(5, BYTES, message_of([(1, BYTES, b"k")]))]), 0
    ),
    "a stripe that is no message": lambda: with_tail(message_of([(3, BYTES, b"\xff\xff")]), 0),
    "statistics that are no message": lambda: with_tail(message_of([(7, BYTES, b"\x12\x05\0")]), 0),
    "types that are no message": lambda: with_tail(message_of([(4, BYTES, b"\x08")]), 0),
    "half a chunk": lambda: with_tail(chunk(deflated(b"x" * 1000))[:8], ZLIB),
    # These three end the process in pyarrow's reader.
    "types of a hundred thousand levels": lambda: with_types([[n + 1] for n in range(100_000)] + [[]]),
    "stripes of negative lengths": lambda: with_types([[1], []], rows=5, stripes=[[NEGATIVE] * 4 + [5]]),
    "a metadata and footer of negative length": lambda: with_tail(b"", 0, length=(1 << 64) - 5),
    "types that are parts of themselves": lambda: with_types([[1], [1]]),
    "types that there are not": lambda: with_types([[7], []]),
    "a stripe beyond the file": lambda: with_types([[1], []], rows=5, stripes=[[3, 0, 1 << 40, 0, 5]]),
    "a stripe of many rows": lambda: with_types([[1], []], rows=1 << 40, stripes=[[3, 0, 0, 0, 1 << 40]]),
    "rows without stripes": lambda: with_types([[1], []], rows=5),
    "nothing": lambda: b"",
    "one byte": lambda: b"\x05",
}


@cache
def hostile(case: str) -> bytes:
    return HOSTILE[case]()


@pytest.mark.parametrize("case", HOSTILE)
def test_is_refused(case: str) -> None:
    with pytest.raises(AcidFormatError, match="delta_1/bucket_0"):
        read_tail(io.BytesIO(hostile(case)), "delta_1/bucket_0")


@pytest.mark.parametrize(
    ("codec", "body"),
    [
        (ZLIB, deflated(bytes(MAX_CHUNK_BYTES + 1))),
        (ZSTD, zstd_stream(bytes(MAX_CHUNK_BYTES + 1))),
        (SNAPPY, b"\x81\x80\x80\x80\x01" + b"\0" * 50),
        (LZ4, lz4_block(MAX_CHUNK_BYTES)),
    ],
)
def test_a_chunk_is_measured_before_it_is_kept(codec: int, body: bytes) -> None:
    with pytest.raises(ValueError, match=f"a chunk holds more than {MAX_CHUNK_BYTES} bytes"):
        decompressed(chunk(body), codec)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"\x0b\0\0\0\0", "unknown wire type 3"),
        (b"\x0a\x02x", "a field is longer than its message"),
        (b"\x0d\0\0\0", "a field is longer than its message"),
    ],
)
def test_a_message_that_is_not_whole(message: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        fields_of(message)


@pytest.mark.parametrize("length", [1000, (64 << 20) + 1])
def test_a_footer_that_no_file_has_is_not_read(length: int, tmp_path: Path) -> None:
    """Longer than the file, or than any footer is; the second file has a hole of that size."""
    tail = with_tail(b"", 0, length=length)
    path = tmp_path / "bucket_0"
    with path.open("wb") as file:
        file.truncate(min(length, length >> 20 << 20))
        file.seek(0, io.SEEK_END)
        file.write(b"\0" * (length > 1000) + tail[3:])
    with (
        path.open("rb") as file,
        pytest.raises(AcidFormatError, match=f"a footer of {length} bytes in a file"),
    ):
        read_tail(file, "bucket_0")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with all of them."""
    folder = tmp_path_factory.mktemp("hostile")
    for number, case in enumerate(HOSTILE):
        (folder / f"bucket_{number}").write_bytes(hostile(case))
    return folder


def in_a_process(function: str, files: Path) -> None:
    call = f"from tests.unit.orc import test_orc_hostile_tail as module; module.{function}({str(files)!r})"
    done = subprocess.run(
        [sys.executable, "-c", call],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr[-2000:]) == (0, ""), done.stdout


def test_takes_little_memory(files: Path) -> None:
    # In a process of its own, whose memory is bounded: pyarrow takes a gigabyte of addresses itself.
    in_a_process("read_all", files)


def test_is_refused_before_pyarrow_reads_it(files: Path) -> None:
    in_a_process("open_all", files)


def open_all(folder: str) -> None:
    """Run in the child process of the test."""
    for number, case in enumerate(HOSTILE):
        path = Path(folder, f"bucket_{number}")
        print(case, flush=True)
        with pytest.raises(AcidFormatError, match=str(path)):
            row_columns([f"file:{path}"], None)


def read_all(folder: str) -> None:
    """Run in the child process of the test."""
    contents = [Path(folder, f"bucket_{number}").read_bytes() for number in range(len(HOSTILE))]
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (700 << 20), used + (700 << 20)))
    for case, content in zip(HOSTILE, contents, strict=True):
        print(case, flush=True)
        with pytest.raises(AcidFormatError):
            read_tail(io.BytesIO(content), case)


@pytest.mark.parametrize("codec", ["zlib", "zstd", "snappy", "lz4", "uncompressed"])
def test_damaged_tails_are_refused_or_read(codec: str) -> None:
    seed = 20260201
    print(f"seed {seed}")
    chance = random.Random(seed)
    sink = io.BytesIO()
    orc.write_table(pa.table({"a": list(range(100)), "b": ["x"] * 100}), sink, compression=codec)
    content = sink.getvalue()
    refused = 0
    for _ in range(500):
        damaged = bytearray(content)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(max(0, len(damaged) - 400), len(damaged))
            damaged[at : at + 1] = chance.choice(
                [b"", b"\xff", b"\0", chance.randbytes(1), chance.randbytes(4)]
            )
        try:
            read_tail(io.BytesIO(bytes(damaged)), "f")
        except AcidFormatError:
            refused += 1
    assert refused > 50


def test_a_stream_of_many_chunks_has_no_limit_of_its_own() -> None:
    content = bytes(MAX_CHUNK_BYTES)
    assert decompressed(chunk(deflated(content)) * 3, ZLIB) == content * 3
    with pytest.raises(ValueError, match="more than"):
        decompressed(chunk(deflated(content)) * 3, ZLIB, limit=2 * MAX_CHUNK_BYTES)
