"""A database of ACID tables, as Hive would have written it with one INSERT each, made without Hive.

Hive reads and replicates it: bucket files with the six ACID columns, key index and ``_orc_acid_version``;
partitions with basic and column statistics, accurate at the write id of the insert. The files of one table
have equal bytes; nothing that is measured notices.
"""

from __future__ import annotations

import base64
import io
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
from pyarrow import orc

from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.orc.tail import read_tail, replace_footer

_BUCKET_PROPERTY = 0x20000000
_NOTE_BYTES = 48
_ROW_BYTES = 65  # what a row takes in a file, about
_ORC = "org.apache.hadoop.hive.ql.io.orc"
_COLUMNS = {"id": "bigint", "item": "string", "price": "double", "note": "string"}


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The size of a database.

    :param file_bytes: length of a partition's one bucket file, about.
    """

    tables: int
    partitions: int
    file_bytes: int

    def times_partitions(self, factor: int) -> Scale:
        """The same with more partitions of the same size."""
        return Scale(tables=self.tables, partitions=self.partitions * factor, file_bytes=self.file_bytes)

    @property
    def all_partitions(self) -> int:
        return self.tables * self.partitions

    def __str__(self) -> str:
        size_mb = self.all_partitions * self.file_bytes / 1e6
        return f"{self.tables} ACID tables x {self.partitions} partitions, about {size_mb:,.0f} MB"


def make_database(client: MetastoreClient, warehouse: Path, name: str, scale: Scale) -> None:
    """Make a database that may be replicated, and fill it in one transaction.

    :param client: client of the metastore.
    :param warehouse: directory of the metastore's managed tables.
    """
    client.create_database(
        types.Database(name=name, parameters={"repl.source.for": "benchmark"}, ownerName="root")
    )
    (txn_id,) = client.open_txns(1)
    for number in range(scale.tables):
        _fill_table(client, warehouse / f"{name}.db", _table(name, f"t{number:03}"), txn_id, scale)
    client.commit_txn(txn_id)


def _fill_table(
    client: MetastoreClient, directory: Path, table: types.Table, txn_id: int, scale: Scale
) -> None:
    database, name = str(table.dbName), str(table.tableName)
    client.create_table(table)
    write_id = client.allocate_table_write_ids(database, name, [txn_id])[txn_id]
    rows = scale.file_bytes // _ROW_BYTES
    content = _bucket_file(write_id, rows, seed=name)
    partitions = list(_partitions(table, directory / name, scale.partitions, write_id, rows, len(content)))
    for partition in partitions:
        delta = directory / name / f"day={_day(partition)}" / f"delta_{write_id:07}_{write_id:07}_0000"
        delta.mkdir(parents=True)
        (delta / "bucket_00000_0").write_bytes(content)
        (delta / "_orc_acid_version").write_bytes(b"2")
    client.add_partitions(partitions, environment={"DO_NOT_UPDATE_STATS": "true"})
    client.set_column_statistics(
        (_partition_statistics(table, _day(partition), rows) for partition in partitions),
        write_id=write_id,
        valid_write_ids=f"{database}.{name}:{write_id}:9223372036854775807::",
    )


def _day(partition: types.Partition) -> str:
    (day,) = partition.values or []
    return day


def _table(database: str, name: str) -> types.Table:
    return types.Table(
        dbName=database,
        tableName=name,
        owner="root",
        sd=_storage(None),
        partitionKeys=[types.FieldSchema(name="day", type="string")],
        parameters={"transactional": "true", "transactional_properties": "default", "bucketing_version": "2"},
        tableType="MANAGED_TABLE",
    )


def _storage(location: str | None) -> types.StorageDescriptor:
    return types.StorageDescriptor(
        cols=[types.FieldSchema(name=column, type=kind) for column, kind in _COLUMNS.items()],
        location=location,
        inputFormat=f"{_ORC}.OrcInputFormat",
        outputFormat=f"{_ORC}.OrcOutputFormat",
        numBuckets=-1,
        serdeInfo=types.SerDeInfo(
            serializationLib=f"{_ORC}.OrcSerde", parameters={"serialization.format": "1"}
        ),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )


def _partitions(
    table: types.Table, directory: Path, count: int, write_id: int, rows: int, size_bytes: int
) -> Iterator[types.Partition]:
    accurate = {"BASIC_STATS": "true", "COLUMN_STATS": dict.fromkeys(_COLUMNS, "true")}
    for number in range(count):
        day = (date(2020, 1, 1) + timedelta(days=number)).isoformat()
        yield types.Partition(
            dbName=table.dbName,
            tableName=table.tableName,
            values=[day],
            sd=_storage(f"file:{directory}/day={day}"),
            parameters={
                "COLUMN_STATS_ACCURATE": json.dumps(accurate, separators=(",", ":")),
                "numFiles": "1",
                "numRows": str(rows),
                "rawDataSize": "0",
                "totalSize": str(size_bytes),
            },
            writeId=write_id,
        )


def _partition_statistics(table: types.Table, day: str, rows: int) -> types.ColumnStatistics:
    texts = types.StringColumnStatsData(maxColLen=64, avgColLen=40.0, numNulls=0, numDVs=rows)
    data = {
        "id": types.ColumnStatisticsData(
            longStats=types.LongColumnStatsData(lowValue=0, highValue=rows - 1, numNulls=0, numDVs=rows)
        ),
        "item": types.ColumnStatisticsData(stringStats=texts),
        "price": types.ColumnStatisticsData(
            doubleStats=types.DoubleColumnStatsData(lowValue=0.0, highValue=99.75, numNulls=0, numDVs=400)
        ),
        "note": types.ColumnStatisticsData(stringStats=texts),
    }
    return types.ColumnStatistics(
        statsDesc=types.ColumnStatisticsDesc(
            isTblLevel=False,
            dbName=table.dbName,
            tableName=table.tableName,
            partName=f"day={day}",
            catName="hive",
        ),
        statsObj=[
            types.ColumnStatisticsObj(colName=column, colType=kind, statsData=data[column])
            for column, kind in _COLUMNS.items()
        ],
        isStatsCompliant=True,
        engine="hive",
    )


def _bucket_file(write_id: int, rows: int, *, seed: str) -> bytes:
    """One bucket file of an INSERT, with Hive's user metadata."""
    chance = random.Random(seed)
    row = pa.StructArray.from_arrays(
        [
            pa.array(range(rows), pa.int64()),
            pa.array([f"item {number % 97}" for number in range(rows)], pa.string()),
            pa.array([number % 400 * 0.25 for number in range(rows)], pa.float64()),
            pa.array([base64.b64encode(chance.randbytes(_NOTE_BYTES)).decode() for _ in range(rows)]),
        ],
        names=list(_COLUMNS),
    )
    table = pa.table(
        {
            "operation": pa.array([0] * rows, pa.int32()),
            "originalTransaction": pa.array([write_id] * rows, pa.int64()),
            "bucket": pa.array([_BUCKET_PROPERTY] * rows, pa.int32()),
            "rowId": pa.array(range(rows), pa.int64()),
            "currentTransaction": pa.array([write_id] * rows, pa.int64()),
            "row": row,
        }
    )
    file = io.BytesIO()
    orc.write_table(table, file, compression="zlib", row_index_stride=10_000)
    made = io.BytesIO(file.getvalue())  # the writer has closed the other
    tail = read_tail(made, "bucket file")
    metadata = {
        "hive.acid.key.index": f"{write_id},{_BUCKET_PROPERTY},{rows - 1};".encode(),
        "hive.acid.stats": f"{rows},0,0".encode(),
        "hive.acid.version": b"2",
    }
    replace_footer(made, "bucket file", types=tail.types, calendar=tail.calendar, user_metadata=metadata)
    return made.getvalue()
