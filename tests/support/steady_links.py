"""A varied database, and the check that a refresh without changes at the remote writes nothing."""

from __future__ import annotations

from pathlib import Path

from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.remotes.statement import Kind, Name
from tests.support.small_source import storage

#: Column, its type, and its statistics.
_COLUMNS: dict[str, tuple[str, types.Struct | None]] = {
    "a": ("int", types.LongColumnStatsData(lowValue=1, highValue=9, numNulls=0, numDVs=5)),
    "b": ("string", types.StringColumnStatsData(maxColLen=8, avgColLen=2.5, numNulls=1, numDVs=5)),
    "c": ("double", types.DoubleColumnStatsData(lowValue=0.1, highValue=1e300, numNulls=0, numDVs=5)),
    "d": (
        "decimal(10,2)",
        types.DecimalColumnStatsData(
            lowValue=types.Decimal(unscaled=b"\x01", scale=2),
            highValue=types.Decimal(unscaled=b"\x7f\xff", scale=2),
            numNulls=0,
            numDVs=3,
        ),
    ),
    "e": (
        "date",
        types.DateColumnStatsData(
            lowValue=types.Date(daysSinceEpoch=-1),
            highValue=types.Date(daysSinceEpoch=20000),
            numNulls=0,
            numDVs=2,
        ),
    ),
    "f": ("boolean", types.BooleanColumnStatsData(numTrues=2, numFalses=1, numNulls=0)),
    "g": ("binary", types.BinaryColumnStatsData(maxColLen=8, avgColLen=2.5, numNulls=0)),
    "h": ("array<struct<x:int,y:map<string,decimal(3,1)>>>", None),
}
#: The member of the union of statistics, by the type of column.
_MEMBERS = {"int": "long", "decimal(10,2)": "decimal"}
_VALUES = (["1", "2026-01-01"], ["2", "a:b/c %25=ä"], ["3", "__HIVE_DEFAULT_PARTITION__"])


def varied_database(client: MetastoreClient, name: str, root: Path) -> None:
    """Make a database without rows: a plain, a partitioned and a transactional table, and a view."""
    client.create_database(types.Database(name=name, description="varied", locationUri=f"file:{root}/db"))
    client.create_table(_table(name, "plain", f"file:{root}/plain"))
    client.create_table(_table(name, "parted", f"file:{root}/parted", keys=("p", "q")))
    client.add_partitions([_partition(name, f"file:{root}/parted", values) for values in _VALUES])
    client.set_column_statistics([_statistics(name, "plain", None)])
    names = sorted(client.list_partition_names(name, "parted"))
    client.set_column_statistics([_statistics(name, "parted", partition) for partition in names[:2]])
    client.create_table(_table(name, "acid", None, keys=("p",)))
    acid = client.get_table(name, "acid")
    partition = _partition(name, str(acid.sd and acid.sd.location), ["x"])
    partition.tableName = "acid"
    client.add_partitions([partition])
    view = types.Table(
        dbName=name,
        tableName="seen",
        owner="root",
        sd=storage(None),
        partitionKeys=[],
        parameters={},
        tableType="VIRTUAL_VIEW",
        viewOriginalText=f"SELECT a FROM {name}.plain",
        viewExpandedText=f"SELECT `plain`.`a` FROM `{name}`.`plain`",
    )
    client.create_table(view)


def check_steady(remotes: Remotes, local: MetastoreSettings, database: str) -> None:
    """Refresh the whole database, and assert that no table and no partition changes locally."""
    with MetastoreClient(local) as client:
        before = client.get_current_notification_event_id()
        report = remotes.refresh(Kind.DATABASE, Name(database=database), whole=True)
        assert (report.whole, report.changed, report.skipped) == (True, False, {})
        written = [
            (event.eventType, event.tableName)
            for event in client.iter_notification_events(before)
            if event.dbName == database and event.tableName
        ]
    assert written == []


def _storage(location: str | None) -> types.StorageDescriptor:
    made = storage(location)
    made.cols = [
        types.FieldSchema(name=name, type=kind, comment=f"größe {name}" if name == "b" else None)
        for name, (kind, _) in _COLUMNS.items()
    ]
    return made


def _table(database: str, name: str, location: str | None, *, keys: tuple[str, ...] = ()) -> types.Table:
    external = {"EXTERNAL": "TRUE", "note": "größe", "empty": ""}
    transactional = {"transactional": "true", "bucketing_version": "2"}
    return types.Table(
        dbName=database,
        tableName=name,
        owner="root",
        sd=_storage(location),
        partitionKeys=[types.FieldSchema(name=key, type="int" if key == "p" else "string") for key in keys],
        parameters=external if location else transactional,
        tableType="EXTERNAL_TABLE" if location else "MANAGED_TABLE",
    )


def _partition(database: str, root: str, values: list[str]) -> types.Partition:
    """A partition with buckets, an order, skewed values, and one column fewer than its table."""
    sd = _storage(f"{root}/{values[0]} of many")
    sd.cols = (sd.cols or [])[:-1]
    sd.numBuckets, sd.bucketCols = 4, ["a"]
    sd.sortCols = [types.Order(col="b", order=1)]
    sd.skewedInfo = types.SkewedInfo(
        skewedColNames=["a"], skewedColValues=[["1"], ["2"]], skewedColValueLocationMaps={}
    )
    return types.Partition(
        dbName=database, tableName="parted", values=values, sd=sd, parameters={"note": "größe", "empty": ""}
    )


def _statistics(database: str, table: str, partition: str | None) -> types.ColumnStatistics:
    return types.ColumnStatistics(
        statsDesc=types.ColumnStatisticsDesc(
            isTblLevel=partition is None, dbName=database, tableName=table, partName=partition
        ),
        statsObj=[
            types.ColumnStatisticsObj(
                colName=name,
                colType=kind,
                statsData=types.ColumnStatisticsData(**{f"{_MEMBERS.get(kind, kind)}Stats": data}),
            )
            for name, (kind, data) in _COLUMNS.items()
            if data is not None
        ],
        engine="hive",
    )
