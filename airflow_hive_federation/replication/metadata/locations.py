"""Maps locations of the source to locations of the target. Pure."""

from __future__ import annotations

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.storage.filesystem import is_below, join, join_below, parse_location, relative


def managed_table_location(database_location: str, table: str) -> str:
    """Return the location of a managed table: its default directory below the target database."""
    return join_below(database_location, table)


def external_location(
    source_location: str,
    base: str | None,
    *,
    table: str,
    prefix: str | None = None,
    authority: bool = False,
) -> str:
    """Return the location of an external table: ``<base>/ext_loc/x`` for ``/ext_loc/x`` of the source.

    The design of replication V2 prescribes this mapping.

    :param prefix: URI of a directory of the source; locations below it land below ``base`` without the
        prefix.
    :param authority: put the source's store between: ``s3a://a/x`` lies at ``<base>/a/x``.
    :raises ConfigurationError: the base directory is not set.
    """
    if not base:
        raise ConfigurationError(
            f"External table {table} needs a base directory on the target.",
            remedy="Set the policy's external_base (hive.repl.replica.external.table.base.dir).",
        )
    inside = relative_to(source_location, prefix) if prefix else None
    if inside is not None:
        return join(base, inside)
    path = parse_location(source_location).path
    return join(base, store_directory(source_location), path) if authority else join(base, path)


def store_directory(location: str) -> str:
    """Return the name of the directory that stands for a location's store below a base directory.

    It is the bucket, or the host and its port: ``nn_8020``, because HDFS refuses names with a colon.
    """
    place = parse_location(location)
    return place.authority.replace(":", "_") or place.scheme


def partition_location(
    partition_source: str, table_source: str, table_target: str, partition_name: str
) -> str:
    """Return the location of a managed partition: its place inside the table, or else the default place."""
    inside = relative_to(partition_source, table_source)
    return join_below(table_target, partition_name) if inside is None else join(table_target, inside)


def relative_to(location: str, parent: str) -> str | None:
    """Return the part of ``location`` below ``parent`` (empty if equal), or ``None`` if it lies elsewhere."""
    prefix = f"{parent.rstrip('/')}/"
    if location.startswith(prefix):
        inside = location[len(prefix) :]
        # Nearly all locations share the spelling of their parent; these need no parsing, for every file of a
        # large table.
        if all(inside.split("/")):
            return inside
    return relative(location, parent) if is_below(location, parent) else None
