"""Creates tables on the target with their wanted type, even if its metastore changes it, and write ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import AlreadyExistsError, TargetChangedError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.load.replay import Replay
from airflow_hive_federation.replication.metadata import statistics
from airflow_hive_federation.replication.metadata.constraints import without_foreign_keys
from airflow_hive_federation.replication.metadata.definitions import table_kind
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.differences import Difference, definition_differences
from airflow_hive_federation.replication.replica.foreign_writes import other_write_ids, refuse_foreign_writes
from airflow_hive_federation.transactions.write_id_counts import max_allocated_write_id

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


def create_table(
    client: MetastoreClient, made: types.Table, constraints: types.SQLAllTableConstraints
) -> None:
    """Create a table without its foreign keys.

    :param made: wire ``Table``.
    :param constraints: its constraints.
    :raises AlreadyExistsError: a table of its name exists.
    """
    client.create_table(
        made, constraints=without_foreign_keys(constraints), environment=statistics.KEEP_STATISTICS
    )
    keep_managed(client, made)


def create_or_keep(
    client: MetastoreClient,
    policy: ReplicationPolicy,
    made: types.Table,
    constraints: types.SQLAllTableConstraints,
) -> bool:
    """Create a table unless an earlier run of the load has created it; return whether the call created it.

    A metastore writes column statistics after it has committed the table (``CreateTableHandler``). If that
    fails, it repeats its call, and finds the table without them.

    :param made: wire ``Table``.
    :param constraints: its constraints.
    :raises TargetChangedError: a table of its name has another definition, and the policy adopts none.
    """
    try:
        create_table(client, made, constraints)
        return True
    except AlreadyExistsError:
        keep_managed(client, made)
        current = client.get_table(made.dbName, made.tableName)
        differences = definition_differences(made, current)
        if not differences and (is_ours(current, policy) or not policy.into_existing):
            return False
        if not policy.into_existing:
            raise changed_by_others(f"Table {made.dbName}.{made.tableName}", differences) from None
        made.id = current.id
        client.alter_table(made.dbName, made.tableName, made, environment=statistics.KEEP_STATISTICS)
        return False


def changed_by_others(subject: str, differences: Sequence[Difference]) -> TargetChangedError:
    """Return the error about a part of the target that differs from what the policy has made."""
    lines = "\n  ".join(map(str, differences))
    return TargetChangedError(
        f"{subject} was changed on the target, by somebody else than this policy:\n  {lines}",
        remedy="Undo the changes, or drop the target database and bootstrap it anew.",
        differences=[str(difference) for difference in differences],
    )


def keep_managed(client: MetastoreClient, made: types.Table) -> None:
    """Turn a table back into a managed one if the metastore has created it as an external one.

    Hive 4 creates every managed table without transactions as an external one
    (``MetastoreDefaultTransformer``). Tables from older versions, and altered ones (``'EXTERNAL'='FALSE'``),
    stay managed, and so does the replica.

    :param made: wire ``Table`` as it is wanted.
    """
    if table_kind(made) is not TableKind.MANAGED:
        return
    current = client.get_table(made.dbName, made.tableName)
    if table_kind(current) is TableKind.EXTERNAL and _loaded_from(current) == _loaded_from(made):
        made.id = current.id
        client.alter_table(made.dbName, made.tableName, made, environment=statistics.KEEP_STATISTICS)


def give_write_ids(
    client: MetastoreClient, policy: ReplicationPolicy, table: str, high_watermark: int
) -> None:
    """Give a table of the target its write ids, before a reader reads it by this load's definition.

    A metastore accepts initial write ids for a name only once (``TxnHandler.replTableWriteIdState``). If a
    load that was given up, or another replication, has given the name lower ones, transactions of the target
    get the others, one each: rows of files with these write ids would not be visible else. Repeated after a
    kill, it finds the transactions that it has opened, by the number of their write id.

    :param high_watermark: the highest write id that readers of the source see.
    :raises TargetChangedError: the table has higher write ids, or some that are not visible.
    """
    database = policy.target_database
    seed_write_ids(client, database, table, high_watermark)
    present = _write_ids(client, database, table)
    if present.high_watermark < high_watermark or present.invalid_ids:
        replay = Replay(client, policy, table=table)
        reached = max_allocated_write_id(client, database, table)
        writes = {table: [(number, number) for number in range(reached + 1, high_watermark + 1)]}
        replay.open(writes)
        replay.allocate(writes)
        for number in sorted({*present.invalid_ids, *range(present.high_watermark + 1, high_watermark + 1)}):
            replay.end(number)
        present = _write_ids(client, database, table)
    if present.high_watermark != high_watermark or present.invalid_ids:
        refuse_foreign_writes(database, policy.name, [other_write_ids(table, present, high_watermark)])


def _write_ids(client: MetastoreClient, database: str, table: str) -> ValidWriteIds:
    name = f"{database}.{table}"
    answer = client.get_valid_write_ids([name])[name]
    return ValidWriteIds.of(
        name,
        high_watermark=answer.writeIdHighWaterMark or 0,
        invalid_ids=answer.invalidWriteIds or (),
        aborted_bits=answer.abortedBits or b"",
    )


def seed_write_ids(client: MetastoreClient, database: str, table: str, high_watermark: int) -> None:
    """Give a new table of the target its initial write ids."""
    client.repl_tbl_writeid_state(database, table, seed_text(database, table, high_watermark))


def seed_text(database: str, table: str, high_watermark: int) -> str:
    """Return the write ids with which a table of the target starts, in Hive's text form.

    They leave out aborted ids: with those in the seed, readers see a lower watermark for up to a minute, and
    the metastore forgets them anyway. The copy leaves out the rows of aborted ids instead.
    """
    return ValidWriteIds(table=f"{database}.{table}", high_watermark=high_watermark).text()


def is_ours(table: types.Table, policy: ReplicationPolicy) -> bool:
    """Return whether a load of the policy has made or adopted a table."""
    return (table.parameters or {}).get(markers.POLICY) == policy.name


def _loaded_from(table: types.Table) -> str | None:
    dump: str | None = (table.parameters or {}).get(markers.CHECKPOINT)
    return dump
