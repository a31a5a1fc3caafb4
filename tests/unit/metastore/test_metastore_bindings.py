"""The generated bindings agree with real Hive classes, and cost little to import."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.idl.service import METHODS

LISTING = Path(__file__).with_name("hive_4_2_1_wire.txt")
SCALARS = {2: "bool", 3: "i8", 4: "double", 6: "i16", 8: "i32", 10: "i64", 11: "string", 18: "binary"}


def listed(kind: str) -> Iterator[tuple[str, list[str]]]:
    for line in LISTING.read_text(encoding="utf-8").splitlines():
        tokens = line.split()
        if tokens[0] == kind:
            yield tokens[1], tokens[2:]


def wire_type(ttype: int, inner: Any) -> str:
    if isinstance(inner, type):
        return inner.__name__
    if ttype in SCALARS:
        return SCALARS[ttype]
    parts = inner if ttype == 13 else (inner,)
    names = [wire_type(*part) if isinstance(part, tuple) else wire_type(part, None) for part in parts]
    return f"{ {13: 'map', 14: 'set', 15: 'list'}[ttype] }<{','.join(names)}>".replace(" ", "")


def fields(spec: dict[int, tuple[Any, ...]]) -> set[str]:
    return {
        f"{number}:{field[1]}:{wire_type(field[0], field[2] if len(field) == 4 else None)}"
        for number, field in spec.items()
    }


def missing(name: str, expected: list[str], spec: dict[int, tuple[Any, ...]]) -> list[str]:
    # Hive's class only has of one field that it is a list of structs.
    ours = fields(spec) | {"7:sourceTables:list<struct>"} & set(expected)
    return [f"{name} {field}" for field in expected if field not in ours]


def test_every_field_that_hive_4_2_1_knows_is_bound_with_its_id_and_type() -> None:
    gaps = [
        gap
        for name, want in listed("struct")
        for gap in missing(name, want, getattr(types, name).thrift_spec)
    ]
    assert gaps == []


def test_every_method_of_hive_4_2_1_is_bound() -> None:
    gaps = []
    for name, want in listed("method"):
        method, _, part = name.rpartition("_")
        arguments, result, _ = METHODS[method]
        gaps += missing(name, want, arguments if part == "args" else result)
    assert gaps == []


def test_every_enum_value_of_hive_4_2_1_is_bound() -> None:
    for name, want in listed("enum"):
        ours = {f"{member.name}={member.value}" for member in getattr(types, name)}
        assert set(want) <= ours, name


def test_at_least_280_methods_and_the_base_service_are_there() -> None:
    assert len(METHODS) >= 280 + 13
    assert {"getVersion", "getStatus", "aliveSince"} <= set(METHODS)


def test_unset_fields_are_none_and_unknown_ones_are_refused() -> None:
    table = types.Table(tableName="t")
    assert table.sd is None
    assert table.temporary is None  # the interface's default is the server's business
    with pytest.raises(TypeError, match="no field 'tabelName'"):
        types.Table(tabelName="t")


def test_equality_looks_at_set_fields_only() -> None:
    assert types.FieldSchema(name="a", comment=None) == types.FieldSchema(name="a")
    assert types.FieldSchema(name="a") != types.FieldSchema(name="a", comment="")
    assert repr(types.FieldSchema(name="a")) == "FieldSchema(name='a')"


def test_importing_the_package_or_the_types_loads_no_thrift() -> None:
    script = (
        "import sys, airflow_hive_federation.metastore, airflow_hive_federation.metastore.idl.types;"
        "from airflow_hive_federation.metastore import MetastoreSettings;"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('thriftpy2', 'thrift', 'hmsclient')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
