"""The definition of a service, out of the classes that protoc made for Java.

protoc writes a file's serialized descriptor into the outer class, as text constants of a class file with a
character for each byte.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

from google.protobuf import descriptor_pb2 as pb
from google.protobuf.message import DecodeError

#: Bytes of a constant's value by its tag (Java Virtual Machine Specification, 4.4).
_SIZES = {
    3: 4,
    4: 4,
    5: 8,
    6: 8,
    7: 2,
    8: 2,
    9: 4,
    10: 4,
    11: 4,
    12: 4,
    15: 3,
    16: 2,
    17: 4,
    18: 4,
    19: 2,
    20: 2,
}
_UTF8, _WIDE = 1, {5, 6}


def file_descriptor(jar: Path, outer_class: str) -> pb.FileDescriptorProto:
    """Return the definition that an outer class holds.

    :param outer_class: its path in the jar.
    """
    with zipfile.ZipFile(jar) as archive:
        texts = list(_texts(archive.read(outer_class)))
    for first, text in enumerate(texts):
        if text.startswith("\n") and ".proto" in text[:200]:
            for last in range(len(texts), first, -1):
                found = pb.FileDescriptorProto()
                try:
                    found.ParseFromString("".join(texts[first:last]).encode("latin-1"))
                except (DecodeError, UnicodeEncodeError):
                    continue
                return found
    raise SystemExit(f"no definition in {outer_class}")


def _texts(data: bytes) -> Iterator[str]:
    (count,) = struct.unpack_from("!H", data, 8)
    position, number = 10, 1
    while number < count:
        tag = data[position]
        if tag == _UTF8:
            (size,) = struct.unpack_from("!H", data, position + 1)
            yield _modified_utf8(data[position + 3 : position + 3 + size])
            position += 3 + size
        else:
            position += 1 + _SIZES[tag]
        number += 2 if tag in _WIDE else 1


def _modified_utf8(data: bytes) -> str:
    return data.replace(b"\xc0\x80", b"\x00").decode("utf-8", "surrogatepass")
