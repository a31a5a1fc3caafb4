"""Handles tables that Spark has created as its own data sources (``CREATE TABLE … USING parquet``). Pure.

Spark's ``HiveExternalCatalog`` keeps such a table's format in the parameter ``spark.sql.sources.provider``,
and its directory in the SerDe property ``path``. Spark reads that directory, whatever the table's location
is. If Hive cannot read the format (CSV, JSON, text), the location of an external table is a placeholder that
does not exist. Formats that keep lists of their own files (Delta, Hudi, Iceberg) name files of the source in
them, and are not copied.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.filesystem import (
    Location,
    canonical,
    is_below,
    join,
    parse_location,
    relative,
)

PROVIDER = "spark.sql.sources.provider"
_PARTITION_PROVIDER = "spark.sql.partitionProvider"
_PARTITION_COLUMNS = "spark.sql.sources.schema.numPartCols"
#: Suffix of the location of an external table that Hive cannot read
#: (``HiveExternalCatalog.saveTableIntoHive``).
_PLACEHOLDER = "-__PLACEHOLDER__"
_PATH = "path"
#: Options of Spark's file formats that name places beside ``path``.
_PLACES = frozenset({"basepath", "avroschemaurl"})
#: A path with one of these characters is a pattern to Spark (``org.apache.hadoop.fs.Globber``).
_PATTERN = frozenset("*?[]{}")
_FORMATS = frozenset({"parquet", "orc", "csv", "json", "text", "avro"})
#: Packages of the classes that stand for a format (``DataSource.backwardCompatibilityMap``).
_PACKAGES = (
    "org.apache.spark.sql.execution.datasources.",
    "org.apache.spark.sql.hive.",
    "org.apache.spark.sql.",
    "com.databricks.spark.",
)
#: Parts of the class names of input formats whose files name other files, each with the format's name.
_INPUT_FORMATS = {
    "io.delta.": "Delta Lake",
    ".hudi.": "Hudi",
    "com.uber.hoodie.": "Hudi",
    "SymlinkTextInputFormat": "symbolic links",
}


def provider_of(table: types.Table | types.Partition) -> str | None:
    """Return the data source of a wire ``Table``, in lower case; ``None`` for a table of Hive's."""
    provider = str((table.parameters or {}).get(PROVIDER, "")).lower()
    return None if provider in {"", "hive"} else provider


def data_location(table: types.Table | types.Partition) -> str | None:
    """Return the URI of the directory that holds a table's data: its location, if that is no placeholder."""
    if table.sd is None:
        return None
    path = _path(table) if provider_of(table) else None
    location = table.sd.location
    return path if path and (location or "").endswith(_PLACEHOLDER) else location


def at_its_data(table: types.Table) -> types.Table:
    """Set a wire ``Table``'s location to the directory of its data, in place, and return the table."""
    if table.sd is not None:
        table.sd.location = data_location(table)
    return table


def reason_to_leave_out(table: types.Table) -> str | None:
    """Return the reason for which a copy of a table's directory is no replica; ``None`` if it is one."""
    if table.sd is None:
        return None
    for part, name in _INPUT_FORMATS.items():
        if part in (table.sd.inputFormat or ""):
            return (
                f"its input format {table.sd.inputFormat} ({name}) reads files that name files of the source"
            )
    provider = provider_of(table)
    if provider is None:
        return None
    if _format(provider) is None:
        return (
            f"it is a table of Spark's data source {provider}, which may name its own files; "
            "replicate it by that format's own means"
        )
    return _untracked(table) or _unclear_place(table)


def moved_properties(
    properties: Mapping[str, str] | None, source: str | None, target: str | None
) -> dict[str, str] | None:
    """Return the SerDe properties of a table or partition that is moved: ``path`` and its like follow.

    :param source: URI of the directory on the source.
    :param target: URI of the directory on the target.
    :return: ``None`` if none names a place.
    """
    if not properties or not source or not target:
        return None
    changed = {
        key: moved
        for key, value in properties.items()
        if key.lower() in {_PATH, *_PLACES} and (moved := _moved(value, source, target))
    }
    return {**properties, **changed} if changed else None


def comparable_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return SerDe properties in which each place has its canonical spelling (``s3a`` is ``s3``)."""
    return {
        key: _canonical(value) if key.lower() in {_PATH, *_PLACES} else value
        for key, value in properties.items()
    }


def _canonical(value: str) -> str:
    try:
        return canonical(value) if "/" in value else value
    except ConfigurationError:
        return value


def _moved(value: str, source: str, target: str) -> str | None:
    """Return the new value of a place below a moved directory, or above it, at the same distance."""
    try:
        if _same_place(value, source):
            return target
        if is_below(value, source):
            return join(target, relative(value, source))
        if is_below(source, value):
            # The value of a partition's property may be the table's directory.
            inside = f"/{relative(source, value)}"
            return target.removesuffix(inside) if target.endswith(inside) else None
    except ConfigurationError:
        pass  # It is a property of another SerDe, and no place.
    return None


def _untracked(table: types.Table) -> str | None:
    """Return the reason to leave out a managed table with partitions that the metastore may not know.

    The files of a managed table are found by its partitions, so the metastore must know all of them.
    """
    parameters = table.parameters or {}
    partitioned = table.partitionKeys or parameters.get(_PARTITION_COLUMNS, "0") != "0"
    external = table.tableType == "EXTERNAL_TABLE"
    if partitioned and not external and parameters.get(_PARTITION_PROVIDER, "").lower() != "catalog":
        return "Spark finds its partitions in its directory alone; run MSCK REPAIR TABLE in Spark"
    return None


def _unclear_place(table: types.Table) -> str | None:
    path = _path(table)
    if not path or table.sd is None:
        return None
    location = table.sd.location
    if _PATTERN.intersection(path):
        return f"Spark reads it by a pattern, {path}; create it anew with the path of a directory"
    if not (location or "").endswith(_PLACEHOLDER) and not _same_place(path, location or ""):
        return (
            f"Spark reads it from {path}, Hive from {location}; "
            "run ALTER TABLE … SET LOCATION in Spark, which changes both"
        )
    for key, value in _properties(table).items():
        if key.lower() in _PLACES and not is_below(value, path):
            return f"its option {key} names {value}, outside of its directory {path}"
    return None


def _path(table: types.Table | types.Partition) -> str | None:
    return next((value for key, value in _properties(table).items() if key.lower() == _PATH), None)


def _properties(table: types.Table | types.Partition) -> Mapping[str, str]:
    """Return the SerDe properties of a table."""
    serde = table.sd.serdeInfo if table.sd is not None else None
    return (serde.parameters if serde is not None else None) or {}


def _format(provider: str) -> str | None:
    """Return the file format for which a provider's name or class stands."""
    name = next(
        (provider.removeprefix(package) for package in _PACKAGES if provider.startswith(package)), provider
    )
    short_name = name.partition(".")[0]
    return short_name if short_name in _FORMATS else None


def _same_place(location: str, other: str) -> bool:
    """Return whether two URIs name one directory; a URI without scheme and authority takes the other's."""
    try:
        if canonical(location) == canonical(other):
            return True
        first, second = parse_location(location), parse_location(other)
    except ConfigurationError:
        return False
    bare = "" in {_authority(first, location), _authority(second, other)}
    return bare and first.path == second.path


def _authority(location: Location, uri: str) -> str:
    """Return scheme and authority of a URI; empty if it has none of its own."""
    if ":" not in uri.partition("/")[0]:
        return ""
    return location.authority if location.scheme == "hdfs" else f"{location.scheme}:{location.authority}"
