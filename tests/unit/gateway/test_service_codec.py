"""Every struct of the interface definition becomes a message and comes back, byte for byte."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.gateway.services import layout
from airflow_hive_federation.gateway.services.bounds import FREE_STRUCTS, MAX_STRUCTS_DEEP, BadMessage
from airflow_hive_federation.gateway.services.codec import (
    Codec,
    call_codecs,
    codec,
)
from airflow_hive_federation.gateway.services.pools import ours
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.idl.service import METHODS
from airflow_hive_federation.metastore.protocol import encode
from airflow_hive_federation.metastore.struct import Struct
from airflow_hive_federation.metastore.wire import from_bytes
from tests.support.examples import seeds

ROOT = Path(__file__).parents[3]
STRUCTS = sorted(
    (
        struct
        for struct in vars(types).values()
        if isinstance(struct, type) and issubclass(struct, Struct) and struct.thrift_spec
    ),
    key=lambda struct: struct.__name__,
)
INTEGERS = {layout.BYTE: 7, layout.I16: 15, layout.I32: 31, layout.I64: 63}
#: Text that is no UTF-8 is bytes in a struct that was read.
TEXTS = ("", "a", "0", "caf\xe9", "\0", "\ud7ff\U0010ffff", "two words", b"\xff", b"caf\xe9")
DOUBLES = (0.0, -0.0, 1.5, -1e300, 5e-324, math.inf, -math.inf, math.nan)


class Drawn:
    """Draws values of structs: each field of the outermost one is set in two cases of three, and fewer below.

    :param seed: where the choices come from.
    """

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def struct(self, kind: type[Any], depth: int = 0) -> Any:
        value = kind()
        for field in kind.thrift_spec.values():
            inner = field[2] if len(field) == 4 else None
            if self._random.randint(0, 2 + 2 * depth) < 2 and (
                depth < 3 or field[0] not in {*layout.CONTAINERS, layout.STRUCT}
            ):
                setattr(value, field[1], self._value(field[0], inner, depth))
        return value

    def choice(self, values: Sequence[Any]) -> Any:
        return self._random.choice(values)

    def _value(self, ttype: int, inner: Any, depth: int) -> Any:
        if ttype == layout.STRUCT:
            return self.struct(inner, depth + 1)
        if ttype in {layout.LIST, layout.SET}:
            return [self._part(inner, depth) for _ in range(self._random.randint(0, 2))]
        if ttype == layout.MAP:
            keys = (self._part(inner[0], depth) for _ in range(self._random.randint(0, 3)))
            return {tuple(key) if isinstance(key, list) else key: self._part(inner[1], depth) for key in keys}
        return self._scalar(ttype, inner)

    def _part(self, inner: Any, depth: int) -> Any:
        return self._value(*layout.pair(inner), depth)

    def _scalar(self, ttype: int, inner: Any) -> Any:
        if ttype in INTEGERS:
            if inner is not None:
                return self.choice([value.value for value in inner])
            bound = 1 << INTEGERS[ttype]
            ends = (0, 1, -1, bound - 1, -bound)
            return self.choice((*ends, self._random.randint(-bound, bound - 1)))
        return {
            layout.BOOL: lambda: self.choice((False, True)),
            layout.DOUBLE: lambda: self.choice((*DOUBLES, self._random.uniform(-1e9, 1e9))),
            layout.STRING: lambda: self.choice(TEXTS),
            layout.BINARY: lambda: self._random.randbytes(self._random.randint(0, 4)),
        }[ttype]()


def assert_comes_back(translator: Codec, value: Struct) -> None:
    sent = encode(value)
    assert encode(translator.from_bytes(translator.to_bytes(from_bytes(type(value), sent)))) == sent


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_a_struct_comes_back_byte_for_byte(kind: type[Struct]) -> None:
    translator = codec(kind, strict=True)
    for seed in seeds(24):
        assert_comes_back(translator, Drawn(f"{kind.__name__} {seed}").struct(kind))


def test_arguments_and_answers_come_back_byte_for_byte() -> None:
    for seed in seeds(1200):
        drawn = Drawn(f"call {seed}")
        method = drawn.choice(sorted(METHODS))
        for kind, translator in zip(message_types(method)[:2], call_codecs(method), strict=True):
            value = drawn.struct(kind)
            for name in {field[1] for field_id, field in kind.thrift_spec.items() if field_id > 0}:
                if translator.name.endswith("_result"):
                    value.__dict__.pop(name, None)
            assert_comes_back(translator, value)


def test_unset_empty_and_zero_are_three_things() -> None:
    empty = types.Table(tableName="", createTime=0, partitionKeys=[], parameters={}, temporary=False)
    message = ours().kind("Table").FromString(codec(types.Table).to_bytes(empty))
    assert sorted(message.empty_) == [8, 9]
    assert message.HasField("tableName")
    assert not message.HasField("owner")
    assert codec(types.Table).from_bytes(codec(types.Table).to_bytes(types.Table())).__dict__ == {}


def test_an_enum_of_a_newer_server_is_kept_and_of_a_caller_refused() -> None:
    newer = types.HiveObjectRef(objectType=77)
    data = codec(types.HiveObjectRef).to_bytes(newer)
    assert codec(types.HiveObjectRef).from_bytes(data) == newer
    with pytest.raises(BadMessage, match="77 is no HiveObjectType"):
        codec(types.HiveObjectRef, strict=True).from_bytes(data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xff\xff\xff", "no get_table_req_args"),
        (b"\x0a\x7f", "no get_table_req_args"),
        (b"\xa2\x06\x01x", "fields that the gateway does not know"),
        (b"\x0a\x05\xa2\xe2\x08\x01x", "fields that the gateway does not know"),
    ],
    ids=["garbage", "cut-short", "unknown-field", "unknown-field-below"],
)
def test_what_is_no_request_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(BadMessage, match=text):
        call_codecs("get_table_req")[0].from_bytes(data)


def nested(levels: int) -> bytes:
    table = ours().kind("Table")()
    below = table
    for _ in range(levels):
        below = below.creationMetadata.sourceTables.add().table
    below.tableName = "t"
    return bytes(table.SerializeToString())


def test_nesting_has_an_end() -> None:
    codec(types.Table).from_bytes(nested((MAX_STRUCTS_DEEP - 1) // 3))
    with pytest.raises(BadMessage, match="nested more than"):
        codec(types.Table).from_bytes(nested(MAX_STRUCTS_DEEP // 3 + 1))
    with pytest.raises(BadMessage, match="is no Table"):
        codec(types.Table).from_bytes(nested(200))


def test_a_request_of_many_empty_messages_is_refused() -> None:
    # Two bytes each: a megabyte would become two hundred.
    with pytest.raises(BadMessage, match="more messages than its length allows for"):
        codec(types.Table).from_bytes(b"\x42\x00" * (2 * FREE_STRUCTS))
    codec(types.Table).from_bytes(b"\x42\x00" * 1000)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda m: m.empty_.append(1), "names 1, which is no list"),
        (lambda m: m.empty_.append(4000), "names 4000"),
        (lambda m: m.raw_.add(key=4000, value=b""), "names 4000, which is no field"),
        (lambda m: m.raw_.add(key=1, value=b"\x0b\x00\x01\x7f\xff\xff\xffx"), "raw_, tableName"),
        (lambda m: m.raw_.add(key=1, value=encode(types.Table(dbName="d"))), "does not hold tableName"),
    ],
    ids=["empty-of-a-text", "empty-of-nothing", "raw-of-nothing", "raw-too-long", "raw-of-another"],
)
def test_what_stands_aside_is_checked(change: Any, text: str) -> None:
    message = ours().kind("Table")()
    change(message)
    with pytest.raises(BadMessage, match=text):
        codec(types.Table).from_bytes(message.SerializeToString())


def test_a_number_that_thrift_has_no_room_for_is_refused() -> None:
    message = ours().kind("get_partitions_args")(max_parts=1 << 15)
    with pytest.raises(BadMessage, match="32768 is not between -32768 and 32767"):
        call_codecs("get_partitions")[0].from_bytes(message.SerializeToString())


def test_the_descriptors_are_those_of_the_interface_definition() -> None:
    command = [sys.executable, "-m", "scripts.generate_grpc_descriptors", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
