"""JSON and bytes keep every field of every struct."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import pytest

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.protocol import _read_struct
from airflow_hive_federation.metastore.struct import Struct
from airflow_hive_federation.metastore.wire import WireFormatError, from_bytes, from_json, to_bytes, to_json

SEED = 20260101
STRUCTS = sorted(
    (
        cls
        for cls in vars(types).values()
        if isinstance(cls, type) and issubclass(cls, Struct) and cls.thrift_spec
    ),
    key=lambda cls: cls.__name__,
)
TEXTS = ("", "a", "é漢😀", '"quoted"\n', "\x00", " ", "x" * 300)
NUMBERS = {3: 7, 6: 15, 8: 31, 10: 63}


class Maker:
    """Random structs; ``filled`` is the chance that a field is set."""

    def __init__(self, seed: int, filled: float) -> None:
        self.random = random.Random(seed)
        self.filled = filled

    def struct(self, cls: type[Any], depth: int = 0) -> Any:
        value = cls()
        for field in cls.thrift_spec.values():
            if self.random.random() < self.filled:
                inner = field[2] if len(field) == 4 else None
                if (made := self.value(field[0], inner, depth)) is not None:
                    setattr(value, field[1], made)
        return value

    def value(self, ttype: int, inner: Any, depth: int) -> Any:
        if ttype == 12:
            return self.struct(inner, depth + 1) if depth < 5 else inner()
        if ttype in (14, 15):
            return [self.element(inner, depth) for _ in range(self.size(depth))]
        if ttype == 13:
            return {self.key(inner[0], depth): self.element(inner[1], depth) for _ in range(self.size(depth))}
        return self.scalar(ttype, inner)

    def scalar(self, ttype: int, inner: Any) -> Any:
        if ttype in NUMBERS:
            if isinstance(inner, type):
                return self.random.choice(list(inner)).value
            limit = 1 << NUMBERS[ttype]
            return self.random.choice([0, -1, 1, limit - 1, -limit, self.random.randrange(-limit, limit)])
        if ttype == 2:
            return self.random.random() < 0.5
        if ttype == 4:
            return self.random.choice([0.0, -1.5, 1e300, float("inf"), -float("inf"), 1 / 3])
        if ttype == 18:
            return self.random.randbytes(self.random.randrange(5))
        return self.random.choice(TEXTS)

    def element(self, part: Any, depth: int) -> Any:
        return self.value(*(part if isinstance(part, tuple) else (part, None)), depth + 1)

    def key(self, part: Any, depth: int) -> Any:
        made = self.element(part, depth)
        return tuple(made) if isinstance(made, list) else made

    def size(self, depth: int) -> int:
        return self.random.randrange(4 if depth < 3 else 2)


@pytest.mark.parametrize("filled", [0.2, 1.0])
@pytest.mark.parametrize("cls", STRUCTS, ids=lambda cls: cls.__name__)
def test_json_and_bytes_give_back_what_they_were_given(cls: type[Any], filled: float) -> None:
    print(f"seed {SEED}")
    maker = Maker(SEED, filled)
    for _ in range(3):
        value = maker.struct(cls)
        assert from_json(cls, json.loads(json.dumps(to_json(value), allow_nan=False))) == value
        assert from_bytes(cls, to_bytes(value)) == value


def test_python_decoder_reads_what_the_compiled_one_reads() -> None:
    maker = Maker(SEED, 0.8)
    for cls in STRUCTS:
        value = maker.struct(cls)
        again = cls()
        _read_struct(io.BytesIO(to_bytes(value)).read, again)
        assert again == value, cls.__name__


def test_unset_and_empty_are_two_things() -> None:
    empty = types.Table(parameters={}, partitionKeys=[], viewOriginalText="")
    assert to_json(empty) == {"parameters": {}, "partitionKeys": [], "viewOriginalText": ""}
    assert to_json(types.Table()) == {}
    assert from_json(types.Table, {}).parameters is None
    assert from_bytes(types.Table, to_bytes(empty)).parameters == {}


def test_skewed_values_are_keys() -> None:
    skewed = types.SkewedInfo(skewedColValueLocationMaps={("1", "a"): "file:/x", ("2",): "file:/y"})
    tables = types.GetTablesResult(
        tables=[
            types.Table(tableName=f"t{i}", sd=types.StorageDescriptor(skewedInfo=skewed), owner="é" * i)
            for i in range(200)
        ]
    )
    assert from_bytes(types.GetTablesResult, to_bytes(tables)) == tables
    assert to_json(skewed) == {"skewedColValueLocationMaps": [[["1", "a"], "file:/x"], [["2"], "file:/y"]]}
    assert from_json(types.SkewedInfo, to_json(skewed)) == skewed


def test_text_that_is_no_utf_8_survives() -> None:
    odd = types.FieldSchema(name="a", comment=b"\xff\xfe")  # type: ignore[arg-type]
    assert from_bytes(types.FieldSchema, to_bytes(odd)) == odd
    assert from_json(types.FieldSchema, to_json(odd)) == odd


def test_not_a_number_has_a_name() -> None:
    document = to_json(types.DoubleColumnStatsData(lowValue=float("nan"), highValue=float("inf")))
    assert document == {"lowValue": "NaN", "highValue": "Infinity"}


def test_fields_of_a_newer_server_are_skipped() -> None:
    newer = to_bytes(types.Catalog(name="c", parameters={"a": "b"}))
    assert from_bytes(types.CreateCatalogRequest, newer) == types.CreateCatalogRequest()


@pytest.mark.parametrize("cut", range(0, 40, 3))
def test_bytes_cut_short_are_refused(cut: int) -> None:
    encoded = to_bytes(types.FieldSchema(name="a name", type="string", comment="a comment"))
    with pytest.raises(WireFormatError, match="no whole FieldSchema"):
        from_bytes(types.FieldSchema, encoded[:cut])


@pytest.mark.parametrize(
    "value", [types.FieldSchema(name="a"), types.SkewedInfo(skewedColValueLocationMaps={("a",): ""})]
)
def test_bytes_that_go_on_are_refused(value: Struct) -> None:
    with pytest.raises(WireFormatError, match="something follows"):
        from_bytes(type(value), to_bytes(value) + b"\x00")


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({"nmae": "x"}, "no field 'nmae'"),
        ({"cols": "x"}, "StorageDescriptor.cols"),
        ({"numBuckets": "4"}, "StorageDescriptor.numBuckets"),
        ({"numBuckets": True}, "StorageDescriptor.numBuckets"),
        ({"compressed": 1}, "StorageDescriptor.compressed"),
        ({"location": 1}, "StorageDescriptor.location"),
        ({"cols": [{"nmae": "x"}]}, "FieldSchema has no field 'nmae'"),
        ({"serdeInfo": []}, "StorageDescriptor.serdeInfo"),
    ],
)
def test_json_of_another_shape_is_refused(data: dict[str, Any], complaint: str) -> None:
    with pytest.raises(WireFormatError, match=complaint):
        from_json(types.StorageDescriptor, data)
