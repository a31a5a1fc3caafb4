"""Column statistics of a replica: many in one call, and never called accurate where the source's are not.

Whatever way column statistics reach a metastore, it marks them accurate from then on
(``StatsSetupConst.setColumnStatsState``), and Hive answers ``min`` and ``max`` from accurate ones without
reading a row. Where the source's own flag, ``COLUMN_STATS_ACCURATE``, says less, it is put back afterwards.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.replication.metadata.definitions import name_of

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient

_FLAG = "COLUMN_STATS_ACCURATE"
_ENGINE = "hive"  # whose column statistics are meant; Impala keeps its own

#: The metastore must not count files to replace the statistics that come with a definition.
KEEP_STATISTICS = {"DO_NOT_UPDATE_STATS": "true"}


def iter_partitions(client: MetastoreClient, table: Any) -> Iterator[Any]:
    """Yield all partitions of a table, ``colStats`` filled with what the metastore has, stale or not.

    It is asked without write ids: given those, it judges every partition by itself, which takes ten times as
    long, and says no more than the partition's own write id and flag say. The statistics are read before the
    partitions: should somebody write in between, the partition has the later write id, by which they are left
    out again (:func:`.definitions.with_honest_statistics`); the other way round they would pass for older.

    :param table: wire ``Table``.
    """
    database, name = table.dbName, table.tableName
    columns_wanted = [column.name for column in (table.sd and table.sd.cols) or ()]
    for page in client.partition_pages(database, name, with_column_stats=True):
        statistics = client.get_partitions_column_statistics(
            database, name, page.names, columns=columns_wanted
        )
        partitions: list[Any] = list(client.read_page(database, name, page))
        for partition in partitions:
            partition_name = name_of(table, partition)
            if partition_name in statistics:
                partition.colStats = types.ColumnStatistics(
                    statsDesc=types.ColumnStatisticsDesc(
                        isTblLevel=False,
                        dbName=database,
                        tableName=name,
                        partName=partition_name,
                        catName=table.catName,
                    ),
                    statsObj=statistics.pop(partition_name),
                    engine=_ENGINE,
                )
        yield from partitions


def add_partitions(
    client: MetastoreClient,
    partitions: Sequence[Any],
    *,
    valid_write_ids: str | None,
    insert_only: bool = False,
    replace: bool = False,
) -> None:
    """Create the partitions that do not exist yet, then write the column statistics of all.

    Statistics come by themselves because the metastore takes those that ride on a new partition one
    partition at a time: 4 ms each, where a call for many takes 0.6.

    :param partitions: wire ``Partition`` objects of one table, with ``colStats`` where there are any; these
        are taken off them.
    :param valid_write_ids: for a transactional table, its write ids on this metastore, in Hive's text form.
    :param insert_only: the table is an insert-only one: with column statistics, a metastore gives its
        partitions no write id.
    :param replace: give partitions that exist already the definition they have here.
    """
    if not partitions:
        return
    database, table = partitions[0].dbName, partitions[0].tableName
    statistics = take_statistics(partitions, transactional=valid_write_ids is not None)
    client.add_partitions(partitions, if_not_exists=True, environment=KEEP_STATISTICS)
    if replace:
        client.alter_partitions(database, table, partitions, environment=KEEP_STATISTICS)
    for write_id, described in statistics.items():
        client.set_column_statistics(
            [found for _, found in described], write_id=write_id, valid_write_ids=valid_write_ids
        )
        stale = [one for one, found in described if not is_accurate(one.parameters, columns(found))]
        client.alter_partitions(
            database,
            table,
            stale,
            environment=KEEP_STATISTICS,
            valid_write_ids=valid_write_ids,
            write_id=write_id,
        )
    if valid_write_ids is not None:
        described_ids = set() if insert_only else {id(one) for some in statistics.values() for one, _ in some}
        _put_write_ids(client, [one for one in partitions if id(one) not in described_ids], valid_write_ids)


def _put_write_ids(client: MetastoreClient, partitions: Sequence[Any], valid_write_ids: str) -> None:
    """Give partitions the write ids under which their statistics hold: created, they have none."""
    found: defaultdict[int, list[Any]] = defaultdict(list)
    for one in partitions:
        if (one.writeId or 0) > 0 and is_accurate(one.parameters, ()):
            found[one.writeId].append(one)
    for write_id, some in found.items():
        client.alter_partitions(
            some[0].dbName,
            some[0].tableName,
            some,
            environment=KEEP_STATISTICS,
            valid_write_ids=valid_write_ids,
            write_id=write_id,
        )


def delete_column_statistics(client: MetastoreClient, wanted: Any, found: Any, partition: str = "") -> None:
    """Delete statistics of columns that the source has none of (any more).

    :param wanted: wire ``Table`` or ``Partition`` with the source's.
    :param found: the target's, not of a transactional table: of those a metastore deletes none.
    :param partition: name of the partition.
    """
    kept = set(columns(wanted.colStats)) if wanted.colStats else set()
    for column in columns(found.colStats) if found.colStats else ():
        if column not in kept and partition:
            call = "delete_partition_column_statistics"
            client.call(call, found.dbName, found.tableName, partition, column, _ENGINE)
        elif column not in kept:
            client.call("delete_table_column_statistics", found.dbName, found.tableName, column, _ENGINE)


def take_statistics(
    partitions: Sequence[Any], *, transactional: bool
) -> Mapping[int | None, Sequence[tuple[Any, Any]]]:
    """Take the column statistics off partitions; return both, by the write id under which they hold.

    :param transactional: statistics of a transactional table without a write id hold for no reader
        (``TxnUtils``/``ObjectStore.isCurrentStatsValidForTheQuery``), and are left out.
    """
    found: defaultdict[int | None, list[tuple[Any, Any]]] = defaultdict(list)
    for partition in partitions:
        statistics, partition.colStats = partition.colStats, None
        write_id = partition.writeId if transactional else None
        if statistics is not None and (write_id or 0) >= int(transactional):
            found[write_id].append((partition, statistics))
    return found


def without_stale_statistics(table: Any) -> Any:
    """Take the column statistics off a wire ``Table`` that its own flag does not call accurate.

    A metastore drops those when the flag is put back by altering the table, so there is no keeping them.
    """
    if table.colStats is not None and not is_accurate(table.parameters, columns(table.colStats)):
        table.colStats = None
    return table


def is_accurate(parameters: Mapping[str, str] | None, names: Sequence[str]) -> bool:
    """Whether the flag calls basic statistics and those of all these columns accurate.

    :param parameters: of a table or partition.
    """
    try:
        flag = bounded_json.loads((parameters or {}).get(_FLAG) or "{}")
    except ValueError:  # "true", before Hive 2.1
        return False
    if not isinstance(flag, dict):
        return False
    accurate = flag.get("COLUMN_STATS") or {}
    return flag.get("BASIC_STATS") == "true" and all(accurate.get(name.lower()) == "true" for name in names)


def accurate_claims(one: Any) -> dict[str, str]:
    """What the flag of a wire ``Table`` or ``Partition`` calls accurate: rows, and columns that are there.

    Numbers and sizes of files stay outside: they are each side's own.
    """
    parameters = one.parameters or {}
    if not is_accurate(parameters, []):
        return {}
    described = (one.colStats and one.colStats.statsObj) or ()
    return {
        "numRows": str(parameters.get("numRows")),
        **{
            f"of column {column.colName}": json.dumps(to_json(column), sort_keys=True)
            for column in described
            if is_accurate(parameters, [column.colName])
        },
    }


def columns(statistics: Any) -> list[str]:
    """Names of the columns that a wire ``ColumnStatistics`` describes."""
    return [str(one.colName) for one in statistics.statsObj or ()]
