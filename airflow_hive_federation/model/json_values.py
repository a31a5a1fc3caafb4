"""Reads values of JSON documents as typed values, and refuses all others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from enum import Enum
from typing import TypeVar

T = TypeVar("T")
D = TypeVar("D")
K = TypeVar("K")
E = TypeVar("E", bound=Enum)

#: A reader returns a value of JSON as a typed one, or raises a ``ValueError`` that describes the error in it.
Reader = Callable[[object], T]
JsonObject = Mapping[str, object]


def text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} is no text")
    return value


def whole(value: object) -> int:
    # ``bool`` is a subclass of ``int``.
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{shown(value)} is no whole number")
    return value


def count(value: object) -> int:
    read = whole(value)
    if read < 0:
        raise ValueError(f"{read} is less than 0")
    return read


def number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"{shown(value)} is no number")
    return value


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{shown(value)} is neither true nor false")
    return value


def json_object(value: object) -> JsonObject:
    if not isinstance(value, dict):
        raise ValueError(f"{shown(value)} is no object")
    return value


def one_of(kind: type[E]) -> Reader[E]:
    """Make a reader of a member of an enumeration, by its value."""
    members = {str(member.value): member for member in kind}

    def read(value: object) -> E:
        member = members.get(value) if isinstance(value, str) else None
        if member is None:
            raise ValueError(f"{shown(value)} is none of {', '.join(sorted(members))}")
        return member

    return read


class Fields:
    """Reads the fields of a JSON object, which may have other fields too.

    :param value: the object.
    :raises ValueError: it is no object.
    """

    __slots__ = ("_values",)

    def __init__(self, value: object) -> None:
        self._values = json_object(value)

    def __contains__(self, field: str) -> bool:
        return field in self._values

    def needed(self, field: str, read: Reader[T]) -> T:
        """Read a field that the object must have."""
        if field not in self._values:
            raise ValueError(f"it has no {field!r}")
        return self._read(field, read)

    def optional(self, field: str, read: Reader[T], *, default: D) -> T | D:
        """Read a field; if the object lacks it, return the default."""
        return self._read(field, read) if field in self._values else default

    def refuse_others(self, known: frozenset[str]) -> None:
        """Refuse an object that has a field with another name."""
        if unknown := self._values.keys() - known:
            raise ValueError(f"it has unknown fields {sorted(unknown)}")

    def _read(self, field: str, read: Reader[T]) -> T:
        try:
            return read(self._values[field])
        except ValueError as error:
            raise ValueError(f"{field}: {error}") from error


def reader_of(
    kind: type[T], *, strictly: bool = False, readers: Mapping[str, Reader[object]] | None = None
) -> Reader[T]:
    """Make a reader of a dataclass from its annotations; a field that is missing has its default.

    :param kind: a dataclass of texts, numbers, flags and tuples of texts.
    :param strictly: refuse objects that have other fields, too.
    :param readers: the readers of fields that have other types, by the names of the fields.
    """
    given_readers = readers or {}
    parts = {
        part.name: (given_readers.get(part.name) or _BY_TYPE[str(part.type)], _is_needed(part))
        for part in fields(kind)  # type: ignore[arg-type]
    }
    names = frozenset(parts)

    def read(value: object) -> T:
        given = Fields(value)
        if strictly:
            given.refuse_others(names)
        return kind(
            **{
                name: given.needed(name, read_part)
                for name, (read_part, is_needed) in parts.items()
                if is_needed or name in given
            }
        )

    return read


def _is_needed(part: Field[object]) -> bool:
    return part.default is MISSING and part.default_factory is MISSING


def list_of(read: Reader[T]) -> Reader[tuple[T, ...]]:
    def read_list(value: object) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise ValueError(f"{shown(value)} is no list")
        return tuple(map(read, value))

    return read_list


def pair_of(first: Reader[K], second: Reader[T]) -> Reader[tuple[K, T]]:
    def read_pair(value: object) -> tuple[K, T]:
        left, right = items(value, 2)
        return first(left), second(right)

    return read_pair


def map_of(key: Reader[K], read: Reader[T]) -> Reader[Mapping[K, T]]:
    def read_map(value: object) -> Mapping[K, T]:
        return {key(field): read(item) for field, item in json_object(value).items()}

    return read_map


def or_none(read: Reader[T]) -> Reader[T | None]:
    def read_it(value: object) -> T | None:
        return None if value is None else read(value)

    return read_it


def items(value: object, size: int) -> list[object]:
    """Read a list of so many values."""
    if not isinstance(value, list) or len(value) != size:
        raise ValueError(f"{shown(value)} is no list of {size} values")
    return value


def shown(value: object) -> str:
    """Return a value as a message names it: at most 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


#: The readers of a record's fields, by the texts of their annotations.
_BY_TYPE: Mapping[str, Reader[object]] = {
    "str": text,
    "str | None": or_none(text),
    "int": whole,
    "int | None": or_none(whole),
    "float": number,
    "float | None": or_none(number),
    "bool": flag,
    "tuple[str, ...]": list_of(text),
}
