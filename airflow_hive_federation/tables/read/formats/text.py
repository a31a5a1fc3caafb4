"""Delimited text as Hive's ``LazySimpleSerDe`` reads and writes it, without escapes.

What such text cannot tell apart (a delimiter or the end of a line inside a value, a text that says null) is
refused by whoever writes; Hive itself would write it and read other rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model.types import Column, HiveType

_SERDE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
_DELIMITER, _NULL = "\x01", "\\N"
_UNUSUAL = {"escape.delim", "serialization.last.column.takes.rest", "line.delim"}
_LINE_ENDS = ("\n", "\r")
_TEXTS = ("string", "varchar", "char")
_INTEGERS = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True, kw_only=True)
class TextForm:
    """How lines are made.

    :param delimiter: what is between fields.
    :param null: what stands for null.
    """

    delimiter: str
    null: str

    def lines(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Join texts to lines, without their ends.

        :raises ValueError: a text cannot be written; the message names it.
        """
        for texts in columns:
            for mark in (self.delimiter, *_LINE_ENDS):
                self._refuse(texts, pc.match_substring(texts, mark), f"a field cannot hold {mark!r}")
            self._refuse(texts, pc.equal(texts, self.null), f"{self.null!r} stands for null")
        filled = [pc.fill_null(texts, self.null) for texts in columns]
        return pc.binary_join_element_wise(*filled, self.delimiter)

    def _refuse(self, texts: pa.Array, found: pa.Array, why: str) -> None:
        at = pc.index(found, True).as_py()
        if at >= 0:
            raise ValueError(f"the text {texts[at].as_py()[:80]!r} cannot be written: {why} in this table")


def text_form(table: Any, columns: Sequence[Column], storage: Any | None = None) -> TextForm:
    """Take from the metastore's table how its text files are.

    :param storage: storage descriptor of a partition, whose settings come before the table's
        (``MetaStoreUtils.getPartSchemaFromTableSchema``).
    :raises ConfigurationError: if they are in a form that is neither read nor written here.
    """
    serde = (storage or table.sd).serdeInfo
    settings: dict[str, str] = {}
    for some in (table.parameters, table.sd.serdeInfo.parameters, serde.parameters):
        settings |= some or {}
    unusual = _UNUSUAL & {key for key, value in settings.items() if (key, value) != ("line.delim", "\n")}
    unfit = [column.name for column in columns if not _fits(column.type)]
    delimiter = _delimiter(settings.get("field.delim", settings.get("serialization.format", "")))
    header = settings.get("skip.header.line.count", "0")
    if serde.serializationLib != _SERDE or unusual or unfit or header != "0" or not delimiter.isascii():
        raise ConfigurationError(
            f"{table.dbName}.{table.tableName} is text in a form that is not supported here.",
            remedy="Supported is LazySimpleSerDe without escapes, header lines, nested and zoned columns.",
            columns=unfit,
        )
    return TextForm(delimiter=delimiter, null=settings.get("serialization.null.format", _NULL))


def parsed_types(own: Sequence[Column], columns: Sequence[Column]) -> list[HiveType | None]:
    """Say by which types the fields of lines are parsed, to be shown as a table's columns.

    Hive parses a partition's lines by the columns that the partition had when it was made, and converts the
    values to those of the table (``MapOperator``, ``ObjectInspectorConverters``). Columns are matched by
    position; a column that the partition does not have is null, whatever its lines hold.

    :param own: columns of the partition.
    :param columns: columns of the table.
    :return: a type for each of the table's columns; ``None`` for one that the partition does not have.
    :raises ConfigurationError: a conversion is not known to give the same here as in Hive.
    """
    unfit = [
        f"{mine.name}: {mine.type} to {column.type}"
        for mine, column in zip(own, columns, strict=False)
        if not _converts(mine.type, column.type)
    ]
    if unfit:
        raise ConfigurationError(
            f"A partition has columns of other types than its table, which are not converted here: "
            f"{', '.join(unfit)}.",
            remedy="Write the partition anew (INSERT OVERWRITE), so that it has the types of its table.",
            columns=unfit,
        )
    types = [
        column.type if _is_text(mine.type) else mine.type for mine, column in zip(own, columns, strict=False)
    ]
    return [*types, *[None] * (len(columns) - len(types))]


def _converts(mine: HiveType, wanted: HiveType) -> bool:
    if mine == wanted or _is_text(mine):
        return True
    if mine.name in _INTEGERS:
        wider = _INTEGERS[_INTEGERS.index(mine.name) :]
        return wanted.name in {*wider, "double", "decimal"} or _is_text(wanted)
    if mine.name == wanted.name == "decimal":
        (precision, scale), (others, other_scale) = mine.arguments, wanted.arguments
        return scale <= other_scale and precision - scale <= others - other_scale
    return (mine.name, wanted.name) == ("float", "double") or (mine.name == "date" and _is_text(wanted))


def _is_text(one: HiveType) -> bool:
    return one.name in _TEXTS


def _delimiter(text: str) -> str:
    """Read a delimiter: a character's number, or the character itself (``LazyUtils.getByte``)."""
    if re.fullmatch(r"[+-]?\d+", text) and -128 <= int(text) <= 127:
        return chr(int(text) & 0xFF)
    return text[:1] or _DELIMITER


def _fits(hive_type: HiveType) -> bool:
    nested = hive_type.fields or hive_type.children
    return not nested and hive_type.name != "timestamp with local time zone"
