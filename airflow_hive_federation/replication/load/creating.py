"""Creates tables on the target with their wanted type, even if its metastore changes the type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.metadata import statistics
from airflow_hive_federation.replication.metadata.constraints import without_foreign_keys
from airflow_hive_federation.replication.metadata.definitions import table_kind
from airflow_hive_federation.replication.replica import markers

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


def create_table(client: MetastoreClient, made: Any, constraints: Any) -> None:
    """Create a table without its foreign keys.

    :param made: wire ``Table``.
    :param constraints: its constraints.
    :raises AlreadyExistsError: a table of its name exists.
    """
    client.create_table(
        made, constraints=without_foreign_keys(constraints), environment=statistics.KEEP_STATISTICS
    )
    keep_managed(client, made)


def keep_managed(client: MetastoreClient, made: Any) -> None:
    """Turn a table back into a managed one if the metastore has created it as an external one.

    Hive 4 creates every managed table without transactions as an external one
    (``MetastoreDefaultTransformer``). Tables from older versions, and altered ones (``'EXTERNAL'='FALSE'``),
    stay managed, and so does the replica.

    :param made: wire ``Table`` as it is wanted.
    """
    if table_kind(made) is not TableKind.MANAGED:
        return
    current: Any = client.get_table(made.dbName, made.tableName)
    if table_kind(current) is TableKind.EXTERNAL and _loaded_from(current) == _loaded_from(made):
        made.id = current.id
        client.alter_table(made.dbName, made.tableName, made, environment=statistics.KEEP_STATISTICS)


def _loaded_from(table: Any) -> str | None:
    dump: str | None = (table.parameters or {}).get(markers.CHECKPOINT)
    return dump
