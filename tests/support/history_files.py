"""Writes ACID tables without an engine: partitions, withdrawn statistics, delta files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import orc

from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.partitions import partition_name
from airflow_hive_federation.orc.tail import read_tail, replace_footer
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.tables.write.plan import table_layout
from airflow_hive_federation.tables.write.publish import claiming_accuracy, new_partition, withdraw_accuracy
from airflow_hive_federation.transactions.locks import WriteKind, operation_type
from airflow_hive_federation.transactions.transaction import Transaction

Row = Mapping[str, Any]
BUCKET = 0x20000000  # bucket property of bucket 0, statement 0
#: As Hive 4 names it; Hive 3.1 reads no attempt in a name.
BUCKET_FILE = "bucket_00000_0"


def prepare_partitions(
    client: MetastoreClient, transaction: Transaction, database: str, name: str, values: Sequence[str]
) -> dict[str, Path]:
    """Make the partitions, and have their statistics believed no more; return directories by value.

    :param values: of the partition key; an empty one for a table without.
    """
    table: Any = client.get_table(database, name)
    if not table.partitionKeys:
        _disclaim(client, transaction, table, [table])
        return {"": _path(table)}
    write_id = transaction.write_id(database, name)
    names = {value: partition_name(["p"], [value]) for value in values}
    there: dict[str, Any] = _partitions(client, table, list(names.values()))
    made = [
        new_partition(table, [value], f"{table.sd.location}/{name}", write_id)
        for value, name in names.items()
        if value not in there
    ]
    if made:
        client.add_partitions(made, environment={"DO_NOT_UPDATE_STATS": "true"})
        there = _partitions(client, table, list(names.values()))
    _disclaim(client, transaction, table, list(there.values()))
    request = types.AddDynamicPartitions(
        txnid=transaction.id,
        writeid=write_id,
        dbname=database,
        tablename=name,
        partitionnames=list(names.values()),
        operationType=operation_type(WriteKind.INSERT),
    )
    client.call("add_dynamic_partitions", request)
    return {value: _path(there[value]) for value in values}


def insert_rows(
    place: Path,
    write_id: int,
    rows: Sequence[Row],
    schema: pa.Schema,
    *,
    acid: bool,
    bucket: str = BUCKET_FILE,
) -> None:
    """Write a delta.

    :param acid: of a full ACID table; else of an insert-only one.
    :param bucket: name of the file of bucket 0.
    """
    directory = place / f"delta_{write_id:07}_{write_id:07}_0000"
    if acid:
        identities = [(write_id, number) for number in range(len(rows))]
        _write_bucket(directory / bucket, 0, identities, write_id, rows, schema)
    else:
        directory.mkdir(parents=True)
        orc.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema), directory / "000000_0")


def delete_rows(
    place: Path, write_id: int, gone: tuple[int, int], schema: pa.Schema, *, bucket: str = BUCKET_FILE
) -> None:
    """Write a delete delta for one row: the write id that inserted it, and its number."""
    directory = place / f"delete_delta_{write_id:07}_{write_id:07}_0000"
    _write_bucket(directory / bucket, 2, [gone], write_id, None, schema)


def _write_bucket(
    file: Path,
    operation: int,
    identities: Sequence[tuple[int, int]],
    write_id: int,
    rows: Sequence[Row] | None,
    schema: pa.Schema,
) -> None:
    count, kind = len(identities), pa.struct(list(schema))
    columns = {
        "operation": pa.array([operation] * count, pa.int32()),
        "originalTransaction": pa.array([identity for identity, _ in identities], pa.int64()),
        "bucket": pa.array([BUCKET] * count, pa.int32()),
        "rowId": pa.array([number for _, number in identities], pa.int64()),
        "currentTransaction": pa.array([write_id] * count, pa.int64()),
        "row": pa.nulls(count, kind) if rows is None else pa.array([dict(row) for row in rows], kind),
    }
    file.parent.mkdir(parents=True)
    (file.parent / "_orc_acid_version").write_bytes(b"2")
    orc.write_table(pa.table(columns), file, compression="zlib")
    last = f"{identities[-1][0]},{BUCKET},{identities[-1][1]};"
    counts = {0: f"{count},0,0", 2: f"0,0,{count}"}[operation]
    # Hive 3.1 does not read a file without them.
    metadata = {"hive.acid.key.index": last, "hive.acid.stats": counts, "hive.acid.version": "2"}
    with file.open("r+b") as made:
        tail = read_tail(made, file.name)
        encoded = {name: value.encode() for name, value in metadata.items()}
        replace_footer(made, file.name, types=tail.types, calendar=tail.calendar, user_metadata=encoded)


def _disclaim(
    client: MetastoreClient, transaction: Transaction, table: Any, described: Sequence[Any]
) -> None:
    stale = claiming_accuracy(described)
    if stale:
        seen = transaction.snapshot(table.dbName, table.tableName).write_ids.text()
        write_id = transaction.write_id(table.dbName, table.tableName)
        withdraw_accuracy(client, table_layout(table), stale, write_id=write_id, seen=seen)


def _partitions(client: MetastoreClient, table: Any, names: Sequence[str]) -> dict[str, Any]:
    partitions: Any = client.iter_partitions(table.dbName, table.tableName, names=names)
    return {partition.values[0]: partition for partition in partitions}


def _path(described: Any) -> Path:
    return Path(local_path(described.sd.location) or "")
