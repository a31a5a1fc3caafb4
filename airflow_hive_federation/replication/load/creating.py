"""Creating tables on the target as they are wanted, whatever its metastore makes of them."""

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
    """Create a table, without its foreign keys.

    :param made: wire ``Table``.
    :param constraints: its constraints.
    :raises AlreadyExistsError: there is a table of its name.
    """
    client.create_table(
        made, constraints=without_foreign_keys(constraints), environment=statistics.KEEP_STATISTICS
    )
    keep_managed(client, made)


def keep_managed(client: MetastoreClient, made: Any) -> None:
    """Make a managed table of one that the metastore has created as an external one.

    Hive 4 does so with every managed table without transactions (``MetastoreDefaultTransformer``); what comes
    from older versions, or was altered (``'EXTERNAL'='FALSE'``), stays managed, and so does the replica.

    :param made: wire ``Table`` as it is wanted.
    """
    if table_kind(made) is not TableKind.MANAGED:
        return
    found: Any = client.get_table(made.dbName, made.tableName)
    if table_kind(found) is TableKind.EXTERNAL and _loaded_from(found) == _loaded_from(made):
        made.id = found.id
        client.alter_table(made.dbName, made.tableName, made, environment=statistics.KEEP_STATISTICS)


def _loaded_from(table: Any) -> str | None:
    dump: str | None = (table.parameters or {}).get(markers.CHECKPOINT)
    return dump
