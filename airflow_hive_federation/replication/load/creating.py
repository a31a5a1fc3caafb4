"""Creates tables on the target with their wanted type, even if its metastore changes it, and write ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hive_federation.model.write_ids import ValidWriteIds
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


def seed_write_ids(client: MetastoreClient, database: str, table: str, high_watermark: int) -> None:
    """Give a new table of the target its write ids, before a reader can read it."""
    client.repl_tbl_writeid_state(database, table, seed_text(database, table, high_watermark))


def seed_text(database: str, table: str, high_watermark: int) -> str:
    """Return the write ids with which a table of the target starts, in Hive's text form.

    They leave out aborted ids: with those in the seed, readers see a lower watermark for up to a minute, and
    the metastore forgets them anyway. The copy leaves out the rows of aborted ids instead.
    """
    return ValidWriteIds(table=f"{database}.{table}", high_watermark=high_watermark).text()


def _loaded_from(table: Any) -> str | None:
    dump: str | None = (table.parameters or {}).get(markers.CHECKPOINT)
    return dump
