"""Parses Hive's column types from the metastore's text, and formats them back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from airflow_hive_federation.errors import ConfigurationError

PRIMITIVES = frozenset(
    {
        "boolean",
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "decimal",
        "string",
        "char",
        "varchar",
        "binary",
        "date",
        "timestamp",
        "timestamp with local time zone",
        "interval_year_month",
        "interval_day_time",
        "void",
    }
)
_SYNONYMS = {
    "integer": "int",
    "double precision": "double",
    "timestamplocaltz": "timestamp with local time zone",
}
_COMPLEX = frozenset({"array", "map", "struct", "uniontype"})
_WORD = re.compile(r"\s*([A-Za-z_][A-Za-z_0-9]*(?:\s+[A-Za-z]+)*)")
_SHOWN = 1000
#: Characters of a type's text. A struct of 10,000 fields has some 300,000.
_LONGEST = 1 << 21
#: Bounds of a type's arguments (``HiveDecimalUtils``, ``BaseCharUtils``).
_MAX_PRECISION, _MAX_LENGTHS = 38, {"char": 255, "varchar": 65_535}
#: Maximum depth of a nested type; the parsers of Hive and Spark overflow their stacks somewhat later.
MAX_DEPTH = 100
_ARGUMENTS = re.compile(r"\s*\(\s*([^)]*)\)")


class Field(NamedTuple):
    """A field of a struct."""

    name: str
    type: HiveType


@dataclass(frozen=True, kw_only=True)
class HiveType:
    """A parsed column type.

    :param name: Hive's name in lower case, synonyms resolved.
    :param arguments: precision and scale of a decimal, length of a char or varchar.
    :param children: element of an array, key and value of a map, members of a union.
    :param fields: fields of a struct.
    """

    name: str
    arguments: tuple[int, ...] = ()
    children: tuple[HiveType, ...] = ()
    fields: tuple[Field, ...] = ()

    def __str__(self) -> str:
        if self.name == "struct":
            return f"struct<{','.join(f'{field.name}:{field.type}' for field in self.fields)}>"
        if self.children:
            return f"{self.name}<{','.join(map(str, self.children))}>"
        if self.arguments:
            return f"{self.name}({','.join(map(str, self.arguments))})"
        return self.name


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table, or a partition key."""

    name: str
    type: HiveType

    @classmethod
    def of(cls, name: str, type_text: str) -> Column:
        """Create a column from the metastore's texts.

        :raises ConfigurationError: if Hive has no such type.
        """
        return cls(name=name, type=parse_type(type_text))


def parse_type(text: str) -> HiveType:
    """Parse a type in the same way as ``TypeInfoUtils.getTypeInfoFromTypeString``.

    :raises ConfigurationError: if Hive has no such type, or the type is nested more than 100 levels deep or
        longer than two million characters.
    """
    if len(text) > _LONGEST:
        raise ConfigurationError(
            f"A type is {len(text)} characters long: {text[:80]!r}….",
            remedy=f"At most {_LONGEST} are read. Leave the table out, or split the column.",
        )
    parser = _Parser(text)
    parsed = parser.type()
    parser.end()
    return parsed


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def type(self) -> HiveType:
        match = _WORD.match(self._text, self._at)
        if match is None:
            raise self._wrong()
        name = " ".join(match[1].lower().split())
        name = _SYNONYMS.get(name, name)
        if name not in PRIMITIVES | _COMPLEX:
            raise self._wrong()
        self._at = match.end()
        if name not in _COMPLEX:
            return HiveType(name=name, arguments=self._arguments(name))
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ConfigurationError(
                f"A type is nested more than {MAX_DEPTH} levels deep: {self._text[:80]!r}….",
                remedy="Leave the table out, or flatten the column.",
            )
        parsed = HiveType(name=name, fields=self._fields()) if name == "struct" else self._with_children(name)
        self._depth -= 1
        return parsed

    def end(self) -> None:
        if self._text[self._at :].strip():
            raise self._wrong()

    def _fields(self) -> tuple[Field, ...]:
        self._expect("<")
        fields = []
        while True:
            # A field's name may have any character but the colon.
            colon = self._text.find(":", self._at)
            if colon < 0:
                raise self._wrong()
            name = self._text[self._at : colon].strip().strip("`")
            self._at = colon + 1
            fields.append(Field(name, self.type()))
            if self._expect(",>") == ">":
                return tuple(fields)

    def _with_children(self, name: str) -> HiveType:
        self._expect("<")
        children = [self.type()]
        while self._expect(",>") == ",":
            children.append(self.type())
        if len(children) != {"array": 1, "map": 2}.get(name, len(children)):
            raise self._wrong()
        return HiveType(name=name, children=tuple(children))

    def _arguments(self, name: str) -> tuple[int, ...]:
        match = _ARGUMENTS.match(self._text, self._at)
        if match is None:
            if name in {"char", "varchar"}:
                raise self._wrong()
            return (10, 0) if name == "decimal" else ()
        try:
            numbers = tuple(int(part) for part in match[1].split(","))
        except ValueError as error:
            raise self._wrong() from error
        most = {"decimal": 2, "char": 1, "varchar": 1}.get(name, 0)
        if len(numbers) > most:
            raise self._wrong()
        arguments = (*numbers, 0) if name == "decimal" and len(numbers) == 1 else numbers
        if not _are_in_bounds(name, arguments):
            raise self._wrong()
        self._at = match.end()
        return arguments

    def _expect(self, characters: str) -> str:
        while self._text[self._at : self._at + 1].isspace():
            self._at += 1
        character = self._text[self._at : self._at + 1]
        if not character or character not in characters:
            raise self._wrong()
        self._at += 1
        return character

    def _wrong(self) -> ConfigurationError:
        shown = self._text if len(self._text) <= _SHOWN else f"{self._text[:_SHOWN]}…"
        return ConfigurationError(
            f"Not a Hive type: {shown!r}, at character {self._at}.",
            remedy="See Hive's language manual for the types it has.",
        )


def _are_in_bounds(name: str, arguments: tuple[int, ...]) -> bool:
    if name == "decimal":
        precision, scale = arguments
        return 1 <= precision <= _MAX_PRECISION and 0 <= scale <= precision
    return 1 <= arguments[0] <= _MAX_LENGTHS[name]
