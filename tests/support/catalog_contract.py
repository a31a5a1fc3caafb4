"""The suite of tests that every implementation of a catalog has to pass.

The catalog under test has a database ``contract`` with the tables of :func:`tables`.
"""

from __future__ import annotations

from contextlib import suppress

from airflow_hive_federation.catalog.roles import Reader
from airflow_hive_federation.errors import NoSuchObjectError
from airflow_hive_federation.metastore.idl import types

DATABASE = "contract"
PARTITIONS = ("a", "b c", "d/e")
NAMES = ["p=a", "p=b c", "p=d%2Fe"]


def tables(root: str) -> dict[str, tuple[types.Table, list[types.Partition]]]:
    """A plain and a partitioned table below a URI."""
    columns = [types.FieldSchema(name="id", type="int"), types.FieldSchema(name="größe", type="string")]

    def storage(place: str) -> types.StorageDescriptor:
        return types.StorageDescriptor(
            cols=columns,
            location=f"{root}/{place}",
            inputFormat="org.apache.hadoop.mapred.TextInputFormat",
            outputFormat="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
            numBuckets=-1,
            serdeInfo=types.SerDeInfo(
                serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
                parameters={"field.delim": ","},
            ),
            bucketCols=[],
            sortCols=[],
            parameters={},
        )

    def table(name: str, keys: list[str]) -> types.Table:
        return types.Table(
            dbName=DATABASE,
            tableName=name,
            owner="root",
            sd=storage(name),
            partitionKeys=[types.FieldSchema(name=key, type="string") for key in keys],
            parameters={"EXTERNAL": "TRUE", "note": name},
            tableType="EXTERNAL_TABLE",
        )

    partitions = [
        types.Partition(
            dbName=DATABASE,
            tableName="parted",
            values=[value],
            sd=storage(f"parted/{number}"),
            parameters={"number": str(number)},
        )
        for number, value in enumerate(PARTITIONS)
    ]
    return {"plain": (table("plain", []), []), "parted": (table("parted", ["p"]), partitions)}


def check_reader(catalog: Reader, root: str) -> None:
    """Everything a :class:`Reader` promises."""
    assert catalog.get_database(DATABASE).name == DATABASE
    assert sorted(catalog.list_tables(DATABASE)) == ["parted", "plain"]
    with suppress(NoSuchObjectError):
        assert catalog.list_tables("no_such_database") == []
    plain = catalog.get_table(DATABASE, "plain")
    assert (plain.dbName, plain.tableName, plain.tableType) == (DATABASE, "plain", "EXTERNAL_TABLE")
    assert plain.sd is not None
    assert [column.name for column in plain.sd.cols or []] == ["id", "größe"]
    assert plain.sd.location == f"{root}/plain"
    assert (plain.parameters or {})["note"] == "plain"
    tables = catalog.get_tables(DATABASE, ["parted", "no_such_table"])
    assert [table.tableName for table in tables] == ["parted"]
    assert sorted(catalog.list_partition_names(DATABASE, "parted")) == NAMES
    everything = catalog.get_partitions(DATABASE, "parted")
    assert sorted((partition.values or [])[0] for partition in everything) == list(PARTITIONS)
    partitions = catalog.get_partitions(DATABASE, "parted", ["p=d%2Fe", "p=none"])
    assert [partition.values for partition in partitions] == [["d/e"]]
    assert partitions[0].sd is not None
    assert partitions[0].sd.location == f"{root}/parted/2"
    assert (partitions[0].parameters or {})["number"] == "2"
    for database, table in ((DATABASE, "no_such_table"), ("no_such_database", "plain")):
        try:
            catalog.get_table(database, table)
        except NoSuchObjectError:
            continue
        raise AssertionError(f"{database}.{table} was found")
    try:
        catalog.get_database("no_such_database")
    except NoSuchObjectError:
        return
    raise AssertionError("no_such_database was found")
