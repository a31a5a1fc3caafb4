"""Generate the descriptor sets of the gRPC front's two translated services.

    python -m scripts.generate_grpc_descriptors
    python -m scripts.generate_grpc_descriptors --hive hive-standalone-metastore-common-4.2.0.jar

The service of ours is made from ``airflow_hive_federation/metastore/idl``; with ``--check`` nothing is
written, and the exit code is 1 if the committed files differ. With ``--hive``, Hive's own service is read out
of the classes that Apache publishes for Java (Maven artifact
``org.apache.hive:hive-standalone-metastore-common:4.2.0``).
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2 as pb

from airflow_hive_federation.gateway.services import layout
from airflow_hive_federation.gateway.services.layout import Field
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.idl.service import METHODS
from airflow_hive_federation.metastore.struct import Fault, Spec, Struct
from scripts.grpc_descriptors import proto_text, streams
from scripts.grpc_descriptors.java_classes import file_descriptor

TARGET = Path(__file__).parents[1] / "airflow_hive_federation" / "gateway" / "services" / "descriptors"
OURS, PROTO, HIVES = "hive_federation.fds.z", "hive_federation.proto", "hive.fds.z"
OUTER_CLASS = "org/apache/hadoop/hive/metastore/grpc/HiveMetastore.class"

F = pb.FieldDescriptorProto
SCALARS = {
    layout.BOOL: F.TYPE_BOOL,
    layout.BYTE: F.TYPE_INT32,
    layout.I16: F.TYPE_INT32,
    layout.I32: F.TYPE_INT32,
    layout.I64: F.TYPE_INT64,
    layout.DOUBLE: F.TYPE_DOUBLE,
    layout.STRING: F.TYPE_STRING,
    layout.BINARY: F.TYPE_BYTES,
}


def main() -> int:
    """Generate, or check, and return the exit code."""
    parser = argparse.ArgumentParser(description="Generate the descriptor sets of the gRPC front.")
    parser.add_argument("--check", action="store_true", help="only compare with the committed files")
    parser.add_argument("--hive", type=Path, help="jar of hive-standalone-metastore-common")
    options = parser.parse_args()
    if options.hive is not None:
        _write(HIVES, _packed(file_descriptor(options.hive, OUTER_CLASS)))
        return 0
    definition = definition_file()
    proto = proto_text.of_file(definition).encode()
    if options.check:
        same = (TARGET / PROTO).read_bytes() == proto
        same = same and zlib.decompress((TARGET / OURS).read_bytes()) == _set(definition)
        print("as committed" if same else "the committed descriptors differ", file=sys.stderr)
        return not same
    _write(OURS, _packed(definition))
    _write(PROTO, proto)
    return 0


def definition_file() -> pb.FileDescriptorProto:
    """Return the definition of our service."""
    file = pb.FileDescriptorProto(name=layout.FILE_NAME, package=layout.PACKAGE, syntax="proto3")
    _Messages(file).add_all()
    service = file.service.add(name=layout.SERVICE.rpartition(".")[2])
    for method in sorted(METHODS):
        service.method.add(
            name=method,
            input_type=f".{layout.PACKAGE}.{method}_args",
            output_type=f".{layout.PACKAGE}.{method}_result",
        )
    streams.add(file)
    return file


class _Messages:
    """Adds messages and enums to a file."""

    def __init__(self, file: pb.FileDescriptorProto) -> None:
        self._file = file
        self._wrappers: dict[str, tuple[int, Any]] = {}
        self._names: set[str] = set()

    def add_all(self) -> None:
        for kind in _classes(Struct):
            self._struct(kind.__name__, kind.thrift_spec)
        for method, (arguments, result, _) in sorted(METHODS.items()):
            self._struct(f"{method}_args", arguments)
            self._struct(f"{method}_result", layout.answer_spec(result))
        while self._wrappers:
            name, (ttype, inner) = self._wrappers.popitem()
            self._wrapper(name, ttype, inner)
        for enum in _classes(types.IntEnum):
            self._enum(enum)

    def _message(self, name: str) -> pb.DescriptorProto:
        if name in self._names:
            raise SystemExit(f"two messages {name}")
        self._names.add(name)
        return self._file.message_type.add(name=name)

    def _struct(self, name: str, spec: Spec) -> None:
        message = self._message(name)
        found = layout.fields(spec)
        for field in found:
            self._field(message, field)
        if any(field.ttype in layout.CONTAINERS for field in found):
            message.field.add(
                name=layout.EMPTY,
                number=layout.EMPTY_NUMBER,
                label=F.LABEL_REPEATED,
                type=F.TYPE_UINT32,
                json_name=_json_name(layout.EMPTY),
            )
        if any(field.holds_text for field in found):
            entry = message.nested_type.add(name=layout.entry_name(layout.RAW))
            entry.options.map_entry = True
            _plain(entry, "key", 1, F.TYPE_UINT32)
            _plain(entry, "value", 2, F.TYPE_BYTES)
            self._repeated_message(message, layout.RAW, layout.RAW_NUMBER, f"{name}.{entry.name}")
        for number, one in enumerate(field for field in message.field if field.proto3_optional):
            one.oneof_index = number
            message.oneof_decl.add(name=f"_{one.name}")

    def _field(self, message: pb.DescriptorProto, field: Field) -> None:
        if field.ttype in {layout.LIST, layout.SET}:
            one = message.field.add(name=field.name, number=field.number, label=F.LABEL_REPEATED)
            self._type(one, *layout.pair(field.inner))
        elif field.ttype == layout.MAP:
            self._map(message, field.name, field.number, field.inner)
            return
        else:
            one = message.field.add(name=field.name, number=field.number, label=F.LABEL_OPTIONAL)
            self._type(one, field.ttype, field.inner)
            if one.type != F.TYPE_MESSAGE:
                one.proto3_optional = True
        one.json_name = _json_name(field.name)

    def _map(self, message: pb.DescriptorProto, name: str, number: int, inner: Any) -> None:
        entry = message.nested_type.add(name=layout.entry_name(name))
        for part, place, ttype in zip(("key", "value"), (1, 2), inner, strict=True):
            self._type(_plain(entry, part, place, F.TYPE_BYTES), *layout.pair(ttype))
        if not layout.is_entry_list(inner):
            entry.options.map_entry = True
        self._repeated_message(message, name, number, f"{message.name}.{entry.name}")

    def _repeated_message(self, message: pb.DescriptorProto, name: str, number: int, kind: str) -> None:
        message.field.add(
            name=name,
            number=number,
            label=F.LABEL_REPEATED,
            type=F.TYPE_MESSAGE,
            type_name=f".{layout.PACKAGE}.{kind}",
            json_name=_json_name(name),
        )

    def _type(self, one: pb.FieldDescriptorProto, ttype: int, inner: Any) -> None:
        if ttype in layout.CONTAINERS:
            name = layout.type_name(ttype, inner)
            if name not in self._names:
                self._wrappers[name] = ttype, inner
            one.type, one.type_name = F.TYPE_MESSAGE, f".{layout.PACKAGE}.{name}"
        elif ttype == layout.STRUCT:
            one.type, one.type_name = F.TYPE_MESSAGE, f".{layout.PACKAGE}.{inner.__name__}"
        elif inner is not None:
            one.type, one.type_name = F.TYPE_ENUM, f".{layout.PACKAGE}.{inner.__name__}"
        else:
            one.type = SCALARS[ttype]

    def _wrapper(self, name: str, ttype: int, inner: Any) -> None:
        self._field(self._message(name), Field(number=1, name=layout.VALUES, ttype=ttype, inner=inner))

    def _enum(self, enum: Any) -> None:
        described = self._file.enum_type.add(name=enum.__name__)
        prefix = _screaming(enum.__name__)
        values = sorted(enum, key=lambda one: (one.value != 0, one.value))
        if values[0].value != 0:
            described.value.add(name=f"{prefix}_UNSPECIFIED", number=0)
        for one in values:
            described.value.add(name=f"{prefix}_{one.name}", number=one.value)


def _classes(base: type) -> Iterator[Any]:
    for kind in vars(types).values():
        if isinstance(kind, type) and issubclass(kind, base) and kind not in {Struct, Fault, types.IntEnum}:
            yield kind


def _plain(message: pb.DescriptorProto, name: str, number: int, kind: Any) -> pb.FieldDescriptorProto:
    return message.field.add(name=name, number=number, label=F.LABEL_OPTIONAL, type=kind, json_name=name)


def _json_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def _screaming(name: str) -> str:
    out = ""
    for place, letter in enumerate(name):
        follows = name[place - 1].islower() if place else False
        begins = place and letter.isupper() and name[place + 1 : place + 2].islower()
        out += ("_" if (letter.isupper() and follows) or begins else "") + letter.upper()
    return out.replace("__", "_")


def _set(file: pb.FileDescriptorProto) -> bytes:
    return pb.FileDescriptorSet(file=[file]).SerializeToString(deterministic=True)


def _packed(file: pb.FileDescriptorProto) -> bytes:
    return zlib.compress(_set(file), 9)


def _write(name: str, data: bytes) -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    (TARGET / name).write_bytes(data)
    print(f"{name}: {len(data)} bytes")


if __name__ == "__main__":
    sys.exit(main())
