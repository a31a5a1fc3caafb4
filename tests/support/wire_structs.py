"""Structs of tables, partitions and statistics."""

from __future__ import annotations

import copy
from typing import Any

from airflow_hive_federation.metastore.idl import types

DATABASE = "metastore_client"


ORC = "org.apache.hadoop.hive.ql.io.orc.Orc"


def table(name: str, *, external: bool = False, **fields: Any) -> types.Table:
    storage = types.StorageDescriptor(
        cols=[
            types.FieldSchema(name="id", type="int"),
            types.FieldSchema(name="name", type="string", comment="Straße"),
        ],
        inputFormat=f"{ORC}InputFormat",
        outputFormat=f"{ORC}OutputFormat",
        serdeInfo=types.SerDeInfo(serializationLib=f"{ORC}Serde", parameters={}),
        numBuckets=-1,
        bucketCols=[],
        sortCols=[],
        parameters={},
    )
    return types.Table(
        tableName=name,
        dbName=DATABASE,
        owner="tester",
        sd=storage,
        partitionKeys=fields.pop("keys", []),
        parameters={"EXTERNAL": "TRUE"} if external else {"transactional": "true"},
        tableType="EXTERNAL_TABLE" if external else "MANAGED_TABLE",
        **fields,
    )


def partition(of: types.Table, *values: str) -> types.Partition:
    storage = copy.deepcopy(of.sd)
    storage.location = None
    return types.Partition(
        values=list(values), dbName=of.dbName, tableName=of.tableName, sd=storage, parameters={"v": values[0]}
    )


def column_statistics(of: str, partition_name: str | None = None) -> types.ColumnStatistics:
    numbers = types.LongColumnStatsData(lowValue=1, highValue=9, numNulls=0, numDVs=9)
    return types.ColumnStatistics(
        statsDesc=types.ColumnStatisticsDesc(
            isTblLevel=partition_name is None,
            dbName=DATABASE,
            tableName=of,
            partName=partition_name,
            catName="hive",
        ),
        statsObj=[
            types.ColumnStatisticsObj(
                colName="id", colType="int", statsData=types.ColumnStatisticsData(longStats=numbers)
            )
        ],
        engine="hive",
    )


def insert_lock(name: str) -> types.LockComponent:
    """Return the lock of an ``INSERT`` into a table of :data:`DATABASE`."""
    return types.LockComponent(
        type=types.LockType.SHARED_WRITE,
        level=types.LockLevel.TABLE,
        dbname=DATABASE,
        tablename=name,
        operationType=types.DataOperationType.INSERT,
        isTransactional=True,
    )
