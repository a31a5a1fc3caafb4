"""Replaces transactional tables in an SQL statement with DataFrames that this package's reader makes.

The text of the statement stays unchanged. Spark parses it; then the relations of these tables in its plan are
replaced, before Spark analyses the plan. Temporary views stand for names without a database, which common
table expressions may hide. The session is guarded: it refuses transactional tables that were not replaced,
for instance those in the text of a view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from airflow_hive_federation.acid.markers import chosen
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import WireFormatError, from_json
from airflow_hive_federation.model.types import Column
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.storage.listing import list_many
from airflow_hive_federation.tables.read import scan
from airflow_hive_federation.tables.read.formats.plain import plain_table
from airflow_hive_federation.tables.read.partition_scans import PartitionState
from airflow_hive_federation.tables.read.reader import visible_rows

_CATALOG = "spark_catalog"
_SEPARATOR = "\x01"


def acid_frames(
    spark: SparkSession, described: Sequence[Mapping[str, Any]], options: Mapping[str, Any] | None = None
) -> dict[tuple[str, str], DataFrame]:
    """Make a DataFrame of each transactional table.

    :param described: descriptions from :func:`airflow_hive_federation.clusters.acid_inputs.acid_inputs`.
    :return: DataFrames by database and table, in lower case.
    :raises ConfigurationError: a description cannot be read, or this package cannot read a table's format.
    :raises AcidFormatError: directories break Hive's layout.
    """
    frames = {}
    for item in described:
        try:
            table = from_json(types.Table, item["table"])
            frame = scan.union([_rows(spark, table, read, options) for read in item["reads"]])
        except (WireFormatError, KeyError, TypeError) as error:
            raise ConfigurationError(
                f"The description of a transactional table cannot be read: {error}.",
                remedy="Run the task again.",
            ) from error
        frames[str(table.dbName).lower(), str(table.tableName).lower()] = frame
    return frames


def _rows(
    spark: SparkSession, table: types.Table, read: Mapping[str, Any], options: Mapping[str, Any] | None
) -> DataFrame:
    """Return the rows of all directories that one snapshot covers."""
    write_ids, txns = ValidWriteIds.parse(read["write_ids"]), ValidTxns.parse(read["txns"])
    places = read["places"]
    listings = list_many(
        [item["location"] for item in places], options=options, missing_ok=True, empty_directories=True
    )
    directories = [
        PartitionState(
            location=item["location"],
            state=chosen(item["location"], listings[item["location"]], write_ids, txns, options),
            values=tuple(item["values"]),
            storage=table.sd
            if item["storage"] is None
            else from_json(types.StorageDescriptor, item["storage"]),
        )
        for item in places
    ]
    storage: Any = table.sd
    columns = [Column.of(item.name, item.type) for item in storage.cols]
    keys = [Column.of(str(item.name), str(item.type)) for item in table.partitionKeys or ()]
    properties = str((table.parameters or {}).get("transactional_properties", ""))
    if properties.lower() == "insert_only":
        return plain_table(spark, table, directories, columns, keys, storage_options=options)
    return visible_rows(
        spark, directories, columns, write_ids=write_ids, partition_keys=keys, storage_options=options
    )


def sql_with_frames(
    spark: SparkSession, sql: str, frames: Mapping[tuple[str, str], DataFrame], database: str
) -> DataFrame:
    """Run a statement in which DataFrames stand for tables.

    :param spark: a guarded session, whose temporary views this function may replace.
    :param sql: the statement.
    :param frames: DataFrames by database and table, in lower case.
    :param database: database of table names without one.
    """
    if not frames:
        return spark.sql(sql)
    for (home, name), frame in frames.items():
        if home == database.lower():
            frame.createOrReplaceTempView(f"`{name}`")
    jvm: Any = spark._jvm  # noqa: SLF001
    session: Any = spark._jsparkSession  # noqa: SLF001
    plan = session.sessionState().sqlParser().parsePlan(sql)
    replaced = _Replacing(jvm, frames).plan(plan)
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, replaced), spark)


class _Replacing:
    """A Scala ``PartialFunction[LogicalPlan, LogicalPlan]`` that replaces relations with DataFrames."""

    def __init__(self, jvm: Any, frames: Mapping[tuple[str, str], DataFrame]) -> None:
        self._jvm = jvm
        self._frames = frames

    def plan(self, plan: Any) -> Any:
        return plan.transformDownWithSubqueries(self)

    def applyOrElse(self, node: Any, _otherwise: Any) -> Any:  # noqa: N802 - Scala's name
        kind = node.getClass().getSimpleName()
        if kind == "UnresolvedRelation":
            return self._relation(node)
        # Common table expressions are not children of their node, so the transformation skips them.
        return self._with(node) if kind == "UnresolvedWith" else node

    class Java:
        implements = ["scala.PartialFunction"]  # noqa: RUF012 - as py4j wants it

    def _relation(self, node: Any) -> Any:
        parts = [item.lower() for item in node.multipartIdentifier().mkString(_SEPARATOR).split(_SEPARATOR)]
        if len(parts) == 3 and parts[0] == _CATALOG:
            del parts[0]
        frame = self._frames.get((parts[0], parts[1])) if len(parts) == 2 else None
        if frame is None:
            return node
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        name = catalyst.AliasIdentifier(parts[1], self._seq([_CATALOG, parts[0]]))
        return catalyst.plans.logical.SubqueryAlias(name, frame._jdf.logicalPlan())  # noqa: SLF001

    def _with(self, node: Any) -> Any:
        arguments = [node.productElement(index) for index in range(node.productArity())]
        relations = []
        for index in range(node.cteRelations().size()):
            item = node.cteRelations().apply(index)
            parts = [item.productElement(at) for at in range(item.productArity())]
            parts[1] = self.plan(parts[1])
            relations.append(getattr(self._jvm.scala, f"Tuple{len(parts)}")(*parts))
        arguments[1] = self._seq(relations)
        array = self._jvm.org.apache.spark.api.python.PythonUtils.toArray(arguments)
        return node.makeCopy(array)

    def _seq(self, items: list[Any]) -> Any:
        return self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(items)
