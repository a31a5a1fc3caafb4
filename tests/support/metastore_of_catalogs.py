"""A metastore of two catalogs, whose table has a copy in another cluster."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.struct import Fault
from tests.support.copied_table import PRIMARY, partition, table


@dataclass
class Metastore:
    """A metastore of Hive 4 with the catalogs ``hive`` and ``spark``; it keeps the arguments of each call.

    :param faults: per catalog, the error of each request of a table there.
    :param table: the table that it describes.
    """

    catalogs: list[str] = field(default_factory=lambda: ["hive", "spark"])
    calls: list[tuple[str, Any]] = field(default_factory=list)
    faults: dict[str | None, Fault] = field(default_factory=dict)
    table: types.Table = field(default_factory=table)

    def __call__(self, method: str, args: Any) -> Any:
        self.calls.append((method, args))
        if method == "get_table_req" and args.req.catName in self.faults:
            raise self.faults[args.req.catName]
        return {
            "get_catalogs": lambda: types.GetCatalogsResponse(names=self.catalogs),
            "get_catalog": lambda: types.GetCatalogResponse(catalog=types.Catalog(name="hive")),
            "get_database_req": lambda: types.Database(
                name="d", catalogName="hive", locationUri="file:/c1/d.db"
            ),
            "get_databases": lambda: ["d", "hidden"],
            "get_partition_names": lambda: ["p=a"],
            "get_partitions": lambda: [partition()],
            "get_partitions_by_expr": lambda: types.PartitionsByExprResult(
                partitions=[partition()], hasUnknownPartitions=False
            ),
            "get_partitions_by_names_req": lambda: types.GetPartitionsByNamesResult(
                partitions=[_of_hive(partition())]
            ),
            "get_partitions_spec_by_expr": lambda: types.PartitionsSpecByExprResult(
                partitionsSpec=[shared_spec()], hasUnknownPartitions=False
            ),
            "get_table_req": lambda: types.GetTableResult(table=_of_hive(deepcopy(self.table))),
            "get_table_objects_by_name_req": lambda: types.GetTablesResult(tables=[deepcopy(self.table)]),
        }.get(method, lambda: None)()

    def arguments(self, method: str) -> Any:
        """The arguments of the last call of a method."""
        return next(args for name, args in reversed(self.calls) if name == method)


def shared_spec() -> types.PartitionSpec:
    """A spec of two partitions below the table's directory, of which the first has a copy."""
    copied = partition(write_id=-1)
    descriptor = types.StorageDescriptor(
        location=PRIMARY, serdeInfo=types.SerDeInfo(parameters={"path": f"{PRIMARY}/p=a"})
    )
    parts = [
        types.PartitionWithoutSD(values=["a"], relativePath="/p=a", parameters=copied.parameters),
        types.PartitionWithoutSD(values=["b"], relativePath="/p=b", parameters={}, createTime=7),
    ]
    shared = types.PartitionSpecWithSharedSD(partitions=parts, sd=descriptor)
    return types.PartitionSpec(
        dbName="d", tableName="t", catName="hive", rootPath=PRIMARY, sharedSDPartitionSpec=shared
    )


def _of_hive(described: Any) -> Any:
    described.catName = "hive"
    return described
