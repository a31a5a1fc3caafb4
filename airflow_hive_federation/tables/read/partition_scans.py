"""Holds the directories of a read, and adds partition values to their rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql import types as spark_types

from airflow_hive_federation.acid.side_files import read_flushed_length
from airflow_hive_federation.acid.snapshot import AcidDirectory, AcidState
from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.partitions import DEFAULT_PARTITION
from airflow_hive_federation.model.types import Column, HiveType
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.tables.read import scan
from airflow_hive_federation.tables.spark_internals import arrow_frame
from airflow_hive_federation.tables.spark_types import spark_type

_ONE_SLASH = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):/(?!/)")
_EMPTY_AUTHORITY = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):///")
_PARTITION = "__acid_partition_"


@dataclass(frozen=True, kw_only=True)
class PartitionState:
    """The snapshot of one directory: a partition, or the table itself.

    :param location: URI of the directory.
    :param state: its snapshot.
    :param values: texts of the partition's values, as in the metastore.
    :param storage: the metastore's storage descriptor of the partition; ``None`` stands for the table's.
    """

    location: str
    state: AcidState
    values: tuple[str, ...] = ()
    storage: types.StorageDescriptor | None = None


@dataclass(frozen=True)
class PartitionScan:
    """A directory to read, with its location in Spark's notation."""

    path: str
    uri: str
    state: AcidState
    values: tuple[str, ...]

    @classmethod
    def of(cls, spark: SparkSession, directory: PartitionState) -> PartitionScan:
        path, uri = scan.qualified(spark, directory.location)
        return cls(path, uri, directory.state, directory.values)

    def with_rows(self, options: StorageOptions | None) -> PartitionScan:
        """Return the place without its files of no bytes, which to Hive have no rows.

        Hive's rule is ``ReaderImpl.buildEmptyTail``.

        :param options: storage options for reading ``_flush_length`` files. HDFS lists a file that is being
            written as empty until its first block is full, however much was flushed.
        """

        def has_rows(_: AcidDirectory | None, entry: FileEntry) -> bool:
            side = self.state.side_files.get(entry.path)
            if entry.size_bytes or side is None:
                return entry.size_bytes > 0
            # A length of None means that the file was closed meanwhile.
            return read_flushed_length(f"{self.path}/{side}", options) != 0

        place = self._only(has_rows, True)
        deletes = [
            replace(directory, files=tuple(entry for entry in directory.files if has_rows(directory, entry)))
            for directory in self.state.delete_deltas
        ]
        with_files = tuple(directory for directory in deletes if directory.files)
        return replace(place, state=replace(place.state, delete_deltas=with_files))

    def split(
        self, belongs: Callable[[AcidDirectory | None, FileEntry], bool]
    ) -> tuple[PartitionScan, PartitionScan]:
        """Split the insert files into two places: those for which ``belongs`` returns true, and the others.

        :param belongs: receives the directory (``None`` for an original file) and the file.
        """
        return self._only(belongs, True), self._only(belongs, False)

    def _only(
        self, belongs: Callable[[AcidDirectory | None, FileEntry], bool], wanted: bool
    ) -> PartitionScan:
        state = self.state

        def narrowed(directory: AcidDirectory) -> AcidDirectory:
            files = tuple(entry for entry in directory.files if belongs(directory, entry) is wanted)
            return replace(directory, files=files)

        narrow = replace(
            state,
            base=None if state.base is None else narrowed(state.base),
            originals=tuple(entry for entry in state.originals if belongs(None, entry) is wanted),
            deltas=tuple(narrowed(delta) for delta in state.deltas),
        )
        return replace(self, state=narrow)

    def full(self, entry: FileEntry) -> str:
        return f"{self.path}/{entry.path}"


def with_partition_values(
    spark: SparkSession,
    rows: DataFrame,
    places: Sequence[PartitionScan],
    keys: Sequence[Column],
    *,
    texts_too: bool = False,
) -> DataFrame:
    """Add the typed partition keys and the index of the place to rows.

    :param rows: rows that have a column with their file or directory, or come from one place.
    :param texts_too: add :data:`scan.PARTITION`, too, by which the metastore finds the partition.
    """
    texts = [tuple(_value_or_none(value) for value in place.values) for place in places]
    if len(places) == 1:
        values = {key.name: typed_value(fn.lit(text), key) for key, text in zip(keys, texts[0], strict=True)}
        if texts_too:
            values[scan.PARTITION] = fn.array(*map(fn.lit, places[0].values))
        return rows.withColumns({**values, scan.PLACE: fn.lit(0)})
    names = [f"{_PARTITION}{index}" for index in range(len(keys))]
    by_uri = {place.uri: index for index, place in enumerate(places)}
    # Spark writes a URI without authority with one slash or three.
    homes = {**by_uri, **{_one_slash(file): _home(_one_slash(file), by_uri) for file in rows.inputFiles()}}
    homes |= {_ONE_SLASH.sub(r"\1:///", file): home for file, home in homes.items()}
    columns = {
        scan.FILE: pa.array(list(homes), pa.string()),
        scan.PLACE: pa.array(list(homes.values()), pa.int32()),
        **{
            name: pa.array([texts[home][index] for home in homes.values()], pa.string())
            for index, name in enumerate(names)
        },
    }
    if texts_too:
        lists = [list(places[home].values) for home in homes.values()]
        columns[scan.PARTITION] = pa.array(lists, pa.list_(pa.string()))
    typed = arrow_frame(spark, pa.table(columns)).select(
        scan.FILE,
        scan.PLACE,
        *([scan.PARTITION] if texts_too else []),
        *(typed_value(fn.col(name), key).alias(key.name) for name, key in zip(names, keys, strict=True)),
    )
    return rows.join(fn.broadcast(typed), scan.FILE)


def typed_value(text: SparkColumn, key: Column) -> SparkColumn:
    """Return the value that a reader shows for the text of a partition value; null stands for the default."""
    return text.cast(spark_type(key.type))


def _home(file: str, by_uri: Mapping[str, int]) -> int:
    """Return the index of the innermost place that contains a file, at any depth."""
    parent = file
    while "/" in parent:
        parent = parent.rpartition("/")[0]
        if parent in by_uri:
            return by_uri[parent]
    raise AcidFormatError(f"{file} lies in none of the directories that are read.", path=file)


def _one_slash(uri: str) -> str:
    return _EMPTY_AUTHORITY.sub(r"\1:/", uri)


def _value_or_none(value: str) -> str | None:
    return None if value == DEFAULT_PARTITION else value


def shown(column: Column, text: str) -> str:
    """Return a column in Spark's SQL as Hive shows it, with ``char`` and ``varchar`` of the column's length.

    Files lack the spaces at the end of a ``char``, and their texts may be longer than the column: fields of
    text files, and rows that are older than an ``ALTER TABLE``. Hive's readers cut them
    (``LazyHiveVarchar``, ORC's ``VarcharTreeReader``).

    :param text: the column's value, in Spark's SQL.
    """
    return _of_length(column.type, text, 0)


def _of_length(kind: HiveType, text: str, depth: int) -> str:
    if kind.name == "char":
        return f"rpad({text}, {kind.arguments[0]}, ' ')"
    if kind.name == "varchar":
        return f"substring({text}, 1, {kind.arguments[0]})"
    if not _has_length(kind):
        return text
    if kind.name == "struct":
        fields = (
            f"{_literal(field.name)}, {_of_length(field.type, f'{text}.{scan.quoted(field.name)}', depth)}"
            for field in kind.fields
        )
        return f"if({text} is null, null, named_struct({', '.join(fields)}))"
    item = f"__acid_{depth}"
    parts = [text] if kind.name == "array" else [f"map_keys({text})", f"map_values({text})"]
    made = [
        f"transform({part}, {item} -> {_of_length(child, item, depth + 1)})"
        for part, child in zip(parts, kind.children, strict=True)
    ]
    return made[0] if kind.name == "array" else f"map_from_arrays({', '.join(made)})"


def _has_length(kind: HiveType) -> bool:
    inside = (*kind.children, *(field.type for field in kind.fields))
    return kind.name in {"char", "varchar"} or any(map(_has_length, inside))


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def no_rows(spark: SparkSession, schema: spark_types.StructType) -> DataFrame:
    """Make an empty frame with the columns of a scan."""
    frame = spark.createDataFrame([], schema)
    return frame.select(
        *schema.names,
        fn.lit(None).cast("bigint").alias(scan.WRITE_ID),
        fn.lit(None).cast("int").alias(scan.BUCKET),
        fn.lit(None).cast("bigint").alias(scan.ROW_ID),
        fn.lit(None).cast("string").alias(scan.FILE),
    )
