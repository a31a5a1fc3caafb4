"""Reads and writes delimited text as Hive's ``LazySimpleSerDe`` does, without escapes.

Such text has no form for some values: a delimiter or the end of a line inside a value, or a text that equals
the mark of null. The writer refuses them; Hive itself would write them and read other rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.types import Column, HiveType

_SERDE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
_DELIMITER, _NULL = "\x01", "\\N"
_UNUSUAL = {"escape.delim", "serialization.last.column.takes.rest", "line.delim"}
_LINE_ENDS = ("\n", "\r")
_TEXTS = ("string", "varchar", "char")
_INTEGERS = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True, kw_only=True)
class TextForm:
    """The form of the lines of text files.

    :param delimiter: the delimiter between fields.
    :param null: the text that stands for null.
    """

    delimiter: str
    null: str

    def lines(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Join the texts of each row to a line, without its end.

        :raises ValueError: if a text cannot be written; the message names it.
        """
        for texts in columns:
            for mark in (self.delimiter, *_LINE_ENDS):
                self._refuse(texts, pc.match_substring(texts, mark), f"a field cannot hold {mark!r}")
            self._refuse(texts, pc.equal(texts, self.null), f"{self.null!r} stands for null")
        filled = [pc.fill_null(texts, self.null) for texts in columns]
        return pc.binary_join_element_wise(*filled, self.delimiter)

    def _refuse(self, texts: pa.Array, refused: pa.Array, why: str) -> None:
        row = pc.index(refused, True).as_py()
        if row >= 0:
            raise ValueError(f"the text {texts[row].as_py()[:80]!r} cannot be written: {why} in this table")


def text_form(
    table: types.Table, columns: Sequence[Column], storage: types.StorageDescriptor | None = None
) -> TextForm:
    """Return the form of a table's text files, according to the metastore.

    :param storage: storage descriptor of a partition, whose settings take precedence over the table's
        (``MetaStoreUtils.getPartSchemaFromTableSchema``).
    :raises ConfigurationError: if the files are in an unsupported form.
    """
    serde = (storage or table.sd).serdeInfo
    settings: dict[str, str] = {}
    for level in (table.parameters, table.sd.serdeInfo.parameters, serde.parameters):
        settings |= level or {}
    unusual = _UNUSUAL & {key for key, value in settings.items() if (key, value) != ("line.delim", "\n")}
    unfit = [column.name for column in columns if not _fits(column.type)]
    delimiter = _delimiter(settings.get("field.delim", settings.get("serialization.format", "")))
    skips = any(settings.get(f"skip.{lines}.line.count", "0") != "0" for lines in ("header", "footer"))
    if serde.serializationLib != _SERDE or unusual or unfit or skips or not delimiter.isascii():
        raise ConfigurationError(
            f"{table.dbName}.{table.tableName} is text in a form that is not supported here.",
            remedy="Supported is LazySimpleSerDe without escapes, header and footer lines, nested and zoned "
            "columns.",
            columns=unfit,
        )
    return TextForm(delimiter=delimiter, null=settings.get("serialization.null.format", _NULL))


def parsed_types(own: Sequence[Column], columns: Sequence[Column]) -> list[HiveType | None]:
    """Return the types by which the fields of a partition's lines are parsed for the table's columns.

    Hive parses a partition's lines by the columns that the partition had at its creation, and converts the
    values to the table's types (``MapOperator``, ``ObjectInspectorConverters``). Columns are matched by
    position; a column that the partition does not have is null, whatever its lines hold.

    :param own: columns of the partition.
    :param columns: columns of the table.
    :return: one type per column of the table; ``None`` for a column that the partition does not have.
    :raises ConfigurationError: if a conversion is not known to give the same values here as in Hive.
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


def _is_text(kind: HiveType) -> bool:
    return kind.name in _TEXTS


def _delimiter(text: str) -> str:
    """Return the delimiter that a setting gives as a number or a character (``LazyUtils.getByte``)."""
    if re.fullmatch(r"[+-]?\d+", text) and -128 <= int(text) <= 127:
        return chr(int(text) & 0xFF)
    return text[:1] or _DELIMITER


def _fits(hive_type: HiveType) -> bool:
    nested = hive_type.fields or hive_type.children
    return not nested and hive_type.name != "timestamp with local time zone"
