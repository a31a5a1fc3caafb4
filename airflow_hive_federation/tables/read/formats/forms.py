"""Decides in which form the files of an insert-only or non-transactional table are written. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.types import Column, HiveType
from airflow_hive_federation.tables.read.formats.text import TextForm, parsed_types, text_form

_FORMATS = {
    "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat": "orc",
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat": "parquet",
    "org.apache.hadoop.mapred.TextInputFormat": "text",
}


@dataclass(frozen=True)
class FileForm:
    """The form in which files are written.

    :param file_format: Spark's name of the format: ``orc``, ``parquet`` or ``text``.
    :param text: the form of the lines of text files.
    :param types: the type by which each column of text files is parsed; ``None`` if the lines lack it.
    """

    file_format: str
    text: TextForm | None = None
    types: tuple[HiveType | None, ...] = ()


def file_form(
    table: types.Table, location: str, storage: types.StorageDescriptor | None, columns: Sequence[Column]
) -> FileForm:
    """Return the form of a directory's files; ``ALTER TABLE`` changes only the form of later partitions.

    ORC and Parquet files have the table's columns (``Utilities.isInputFileFormatSelfDescribing``); text files
    have the partition's.

    :param location: URI of the directory.
    :param storage: the storage descriptor of the partition; ``None`` stands for the table's.
    :param columns: the table's columns, without partition keys.
    :raises ConfigurationError: if the files are in an unsupported form.
    """
    input_format = (storage or table.sd).inputFormat
    file_format = _FORMATS.get(input_format)
    if file_format is None:
        raise ConfigurationError(
            f"{table.dbName}.{table.tableName} is in a format that cannot be read: {input_format} "
            f"({location}).",
            remedy="Convert the table to ORC, Parquet or delimited text.",
        )
    if file_format != "text":
        return FileForm(file_format)
    own = [Column.of(field.name, field.type) for field in (storage and storage.cols) or ()] or columns
    return FileForm(file_format, text_form(table, own, storage), tuple(parsed_types(own, columns)))
