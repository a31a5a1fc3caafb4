"""Random structs of Hive's interface definition: any field, set or not, of any value."""

from __future__ import annotations

import random
from typing import Any, TypeVar

from thriftpy2.thrift import TType

from airflow_hive_federation.metastore.struct import Struct

S = TypeVar("S", bound=Struct)


def random_struct(kind: type[S], rng: random.Random, depth: int = 0) -> S:
    """Make a struct of which about half of the fields are set."""
    share = 0.6 if depth < 4 else 0.2
    fields = {
        field[1]: _value(field[0], field[2] if len(field) == 4 else None, rng, depth)
        for field in kind.thrift_spec.values()
        if rng.random() < share and not (depth >= 5 and field[0] in {TType.STRUCT, TType.LIST, TType.MAP})
    }
    return kind(**fields)


def _value(ttype: int, inner: Any, rng: random.Random, depth: int) -> Any:
    if ttype == TType.STRUCT:
        return random_struct(inner, rng, depth + 1)
    if ttype in {TType.LIST, TType.SET}:
        return [_value(*_pair(inner), rng, depth + 1) for _ in range(rng.randint(0, 3))]
    if ttype == TType.MAP:
        pairs = [
            (_key(*_pair(inner[0]), rng), _value(*_pair(inner[1]), rng, depth + 1))
            for _ in range(rng.randint(0, 3))
        ]
        return dict(pairs)
    return _scalar(ttype, rng)


def _key(ttype: int, inner: Any, rng: random.Random) -> Any:
    if ttype in {TType.LIST, TType.SET}:
        return tuple(_scalar(_pair(inner)[0], rng) for _ in range(2))
    return _scalar(ttype, rng)


def _scalar(ttype: int, rng: random.Random) -> Any:
    if ttype == TType.STRING:
        return "".join(rng.choices("aé日\0 x", k=rng.choice([0, 1, 8, 60])))
    if ttype == TType.BINARY:
        return rng.randbytes(rng.choice([0, 5, 300]))
    if ttype == TType.BOOL:
        return rng.random() < 0.5
    if ttype == TType.DOUBLE:
        return rng.random()
    bits = {TType.BYTE: 7, TType.I16: 15, TType.I32: 31, TType.I64: 63}[ttype]
    return rng.choice([0, -1, (1 << bits) - 1, -(1 << bits)])


def _pair(part: Any) -> tuple[int, Any]:
    return part if isinstance(part, tuple) else (part, None)
