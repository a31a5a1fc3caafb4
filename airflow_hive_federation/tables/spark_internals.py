"""Reaches into Spark's JVM: Catalyst's plans and expressions, and classes of Java, Hadoop and Spark.

Spark has no stable API for any of this, and changes it between minor versions. No other module of the package
uses it, and each function checks Spark's version first. Every call of the JVM takes a fraction of a
millisecond, and so does every item of a Python list that is passed to it: functions make few calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias
from weakref import WeakSet

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType

from airflow_hive_federation.errors import ConfigurationError, SparkEnvironmentError

SUPPORTED_VERSIONS = ("3.5", "4.0", "4.1", "4.2")
"""Minor versions of Spark whose internals this module knows."""

JavaObject: TypeAlias = Any
"""An object in the JVM, for instance a Catalyst expression or plan."""

#: Applications whose version was checked.
_CHECKED: WeakSet[Any] = WeakSet()
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"
_LONG_AGO_MS = -62_000_000_000_000
_SEPARATOR = "\x01"
#: Commands that name their table, and the method that returns the name.
_BY_IDENTIFIER = {
    "LoadDataCommand": "table",
    "TruncateTableCommand": "tableName",
    "AlterTableAddPartitionCommand": "tableName",
    "AlterTableDropPartitionCommand": "tableName",
    "AnalyzeTableCommand": "tableIdent",
    "AnalyzeColumnCommand": "tableIdent",
}
#: Commands whose query is not among the children of the plan.
_WITH_QUERY = {
    "CreateDataSourceTableAsSelectCommand",
    "CreateHiveTableAsSelectCommand",
    "SaveIntoDataSourceCommand",
    "InsertIntoDataSourceCommand",
}


def check_version(version: str) -> None:
    """Check that this module knows the internals of a version of Spark.

    :param version: the version, as a session has it, e.g. ``4.2.0``.
    :raises SparkEnvironmentError: it does not; ``version`` and ``supported`` name the versions.
    """
    if ".".join(version.split(".")[:2]) not in SUPPORTED_VERSIONS:
        known = f"{', '.join(SUPPORTED_VERSIONS[:-1])} and {SUPPORTED_VERSIONS[-1]}"
        raise SparkEnvironmentError(
            f"Spark {version} is not supported: this package reads and writes ACID tables by internals of "
            f"Spark, which it knows of {known} only.",
            remedy=f"Run Spark {SUPPORTED_VERSIONS[-1]}, or another of these.",
            version=version,
            supported=SUPPORTED_VERSIONS,
        )


def check_session(spark: SparkSession) -> None:
    """Check that a session has a JVM, and that this module knows its version of Spark.

    :raises ConfigurationError: it is a session of Spark Connect.
    :raises SparkEnvironmentError: the version is not supported.
    """
    context = getattr(spark, "_sc", None)
    if context is None:
        raise ConfigurationError(
            "A session of Spark Connect has no JVM of its own.",
            remedy="Use a session of Spark's driver itself.",
        )
    if context not in _CHECKED:
        check_version(spark.version)
        _CHECKED.add(context)


# -- values ------------------------------------------------------------------------------------------------


def time_zone(spark: SparkSession) -> str:
    """Return the JVM's time zone, by which our reader and Spark's ORC reader convert wall clocks."""
    return str(_java_class(spark, "java.util.TimeZone").getDefault().getID())


def standard_offset_s(spark: SparkSession, zone: str) -> int:
    """Return the seconds by which ``java.util.TimeZone`` has a zone's clock ahead of UTC before 1900."""
    return int(_java_class(spark, "java.util.TimeZone").getTimeZone(zone).getOffset(_LONG_AGO_MS)) // 1_000


def qualified_path(spark: SparkSession, location: str) -> tuple[str, str]:
    """Return a location as a qualified Hadoop path, once as the path's text and once as its URI's."""
    path = _java_class(spark, "org.apache.hadoop.fs.Path")(location)
    path = path.getFileSystem(_java_session(spark).sessionState().newHadoopConf()).makeQualified(path)
    return str(path.toString()), str(path.toUri().toString())


def java_texts(spark: SparkSession, texts: Sequence[str]) -> JavaObject:
    """Return a list of texts in the JVM, made in one call instead of one call per item."""
    strings = _java_class(spark, "org.apache.hadoop.util.StringUtils")
    return strings.getStringCollection("\0".join(texts), "\0")


def longs_column(spark: SparkSession, values: npt.NDArray[np.int64]) -> Column:
    """Make a constant column of one array of longs, without nulls.

    The array is a literal of the plan: Spark would run a subquery on its own, and then the plan in stages.
    """
    java = partial(_java_class, spark)
    first = java("org.apache.spark.unsafe.Platform").BYTE_ARRAY_OFFSET
    array = java(f"{_EXPRESSIONS}.UnsafeArrayData").fromPrimitiveArray(
        values.tobytes(), first, len(values), values.itemsize
    )
    types = java("org.apache.spark.sql.types.DataTypes")
    longs = types.createArrayType(types.LongType, False)
    return column_of(spark, java(f"{_EXPRESSIONS}.Literal")(array, longs))


def arrow_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Make a DataFrame of an Arrow table, which Spark takes as it is from version 4 on."""
    if not _is_spark_3(spark):
        return spark.createDataFrame(table)
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return spark.createDataFrame(list(rows), from_arrow_schema(table.schema))


# -- expressions -------------------------------------------------------------------------------------------


def conjuncts(spark: SparkSession, condition: str) -> list[JavaObject]:
    """Parse a condition, and return the expressions that AND connects in it.

    :raises ParseException: Spark cannot parse the condition.
    """
    return list(_conjuncts(_java_session(spark).sessionState().sqlParser().parseExpression(condition)))


def column_of(spark: SparkSession, expression: JavaObject) -> Column:
    """Wrap a Catalyst expression of the JVM as a PySpark column."""
    if _is_spark_3(spark):
        return Column(_java_class(spark, "org.apache.spark.sql.Column")(expression))
    return Column(_java_class(spark, "org.apache.spark.sql.classic.ExpressionUtils").column(expression))


def cast_strictly(spark: SparkSession, value: Column, wanted: DataType) -> Column:
    """Cast a column by the session's rules; on Spark 3, whose rules silently make nulls, by ANSI rules."""
    return _cast_by(spark, value, wanted, "ANSI") if _is_spark_3(spark) else value.cast(wanted)


def cast_or_null(spark: SparkSession, value: Column, wanted: DataType) -> Column:
    """Cast a column by ANSI rules, with null for a value that does not fit; Spark's ``try_cast``."""
    return _cast_by(spark, value, wanted, "TRY") if _is_spark_3(spark) else value.try_cast(wanted)


def _cast_by(spark: SparkSession, value: Any, wanted: DataType, mode: str) -> Column:
    java = partial(_java_class, spark)
    java_type = _java_session(spark).parseDataType(wanted.json())
    evaluation = getattr(java(f"{_EXPRESSIONS}.EvalMode"), mode)()
    cast = java(f"{_EXPRESSIONS}.Cast")
    return column_of(spark, cast(value._jc.expr(), java_type, java("scala.Option").empty(), evaluation))


def names_in(expression: JavaObject) -> set[str]:
    """Return the names of the columns in an expression; an unknown column is the empty name."""
    kind = _kind(expression)
    if kind == "UnresolvedAttribute":
        parts = expression.nameParts()
        # a.b may be a field of a column, or a column of a table.
        return {parts.head().lower()} if parts.size() == 1 else {""}
    if "Star" in kind or "Subquery" in kind or kind in {"Exists", "ListQuery", "InSubquery"}:
        return {""}
    return {name for child in _items(expression.children()) for name in names_in(child)}


def operands_equal_to(expression: JavaObject, name: str) -> list[JavaObject]:
    """Return the operands with which an expression compares a column for equality, if it does."""
    kind = _kind(expression)
    if kind not in {"EqualTo", "In"}:
        return []
    first, *others = _items(expression.children())
    if kind == "EqualTo" and _kind(first) != "UnresolvedAttribute":
        first, others = others[0], [first]
    return others if _kind(first) == "UnresolvedAttribute" and names_in(first) == {name} else []


def is_deterministic(frame: DataFrame) -> bool:
    """Return whether the last step of a frame has the same result for the same row, each time."""
    check_session(frame.sparkSession)
    return bool(frame._jdf.queryExecution().analyzed().deterministic())


# -- plans -------------------------------------------------------------------------------------------------


def rebalanced(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """Distribute rows by columns, in tasks of equal sizes; pyspark 3 takes texts alone, and no columns."""
    if not _is_spark_3(rows.sparkSession):
        return rows.hint("rebalance", *names)
    java = partial(_java_class, rows.sparkSession)
    columns = [java("org.apache.spark.sql.functions").col(name).expr() for name in names]
    hinted = rows._jdf.hint("rebalance", java("org.apache.spark.api.python.PythonUtils").toSeq(columns))
    return DataFrame(hinted, rows.sparkSession)


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A DataFrame that stands for a table in a statement.

    :param qualifier: catalog and database, by which columns of the table may be qualified.
    """

    name: str
    qualifier: tuple[str, ...]
    frame: DataFrame


def sql_with_relations(
    spark: SparkSession, sql: str, relation_of: Callable[[tuple[str, ...]], Relation | None]
) -> DataFrame:
    """Run a statement in which DataFrames stand for tables.

    Spark parses the text as it is; the relations are replaced in the plan, before Spark analyses it.

    :param relation_of: receives the parts of a table's name, and returns what stands for the table, or
        ``None`` for tables that stay.
    :raises ParseException: Spark cannot parse the statement.
    """
    _start_callbacks(spark)
    session = _java_session(spark)
    plan = _Replacing(spark, relation_of).plan(session.sessionState().sqlParser().parsePlan(sql))
    dataset = "org.apache.spark.sql.Dataset" if _is_spark_3(spark) else "org.apache.spark.sql.classic.Dataset"
    return DataFrame(_java_class(spark, dataset).ofRows(session, plan), spark)


class _Replacing:
    """A Scala ``PartialFunction[LogicalPlan, LogicalPlan]`` that replaces relations with DataFrames."""

    def __init__(
        self, spark: SparkSession, relation_of: Callable[[tuple[str, ...]], Relation | None]
    ) -> None:
        self._java = partial(_java_class, spark)
        self._relation_of = relation_of

    def plan(self, plan: JavaObject) -> JavaObject:
        return plan.transformDownWithSubqueries(self)

    def applyOrElse(self, node: JavaObject, _otherwise: JavaObject) -> JavaObject:  # noqa: N802 - Scala's name
        kind = _kind(node)
        if kind == "UnresolvedRelation":
            return self._relation(node)
        # Common table expressions are not children of their node, so the transformation skips them.
        return self._with(node) if kind == "UnresolvedWith" else node

    class Java:
        implements = ["scala.PartialFunction"]  # noqa: RUF012 - py4j requires this form

    def _relation(self, node: JavaObject) -> JavaObject:
        parts = str(node.multipartIdentifier().mkString(_SEPARATOR)).split(_SEPARATOR)
        relation = self._relation_of(tuple(parts))
        if relation is None:
            return node
        alias = self._java("org.apache.spark.sql.catalyst.AliasIdentifier")
        name = alias(relation.name, self._sequence(relation.qualifier))
        subquery = self._java("org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias")
        return subquery(name, relation.frame._jdf.logicalPlan())

    def _with(self, node: JavaObject) -> JavaObject:
        arguments = [node.productElement(index) for index in range(node.productArity())]
        relations = []
        for item in _items(node.cteRelations()):
            parts = [item.productElement(index) for index in range(item.productArity())]
            parts[1] = self.plan(parts[1])
            relations.append(self._java(f"scala.Tuple{len(parts)}")(*parts))
        arguments[1] = self._sequence(relations)
        return node.makeCopy(self._java("org.apache.spark.api.python.PythonUtils").toArray(arguments))

    def _sequence(self, items: Iterable[JavaObject]) -> JavaObject:
        return self._java("org.apache.spark.api.python.PythonUtils").toSeq(list(items))


@dataclass(frozen=True)
class CatalogTable:
    """A table of Spark's catalog that a plan reads or writes."""

    _table: JavaObject

    @property
    def name(self) -> str:
        return str(self._table.identifier().unquotedString())

    def property(self, key: str) -> str | None:
        """Return the value of one of the table's properties; ``None`` if the table does not have it."""
        properties = self._table.properties()
        return str(properties.apply(key)) if properties.contains(key) else None


@dataclass(frozen=True)
class Directory:
    """A directory that a plan reads or writes, or one below it."""

    _path: JavaObject
    _session: JavaObject

    @property
    def path(self) -> str:
        return str(self._path.toString())

    @property
    def name(self) -> str:
        return str(self._path.getName())

    def directories(self) -> list[Directory]:
        """Return the directories in it; none, if it is missing, forbidden or in no known store."""
        try:
            system = self._path.getFileSystem(self._session.sessionState().newHadoopConf())
            entries = list(system.listStatus(self._path))
        except Py4JJavaError:
            # Spark reports that itself when it runs the plan.
            return []
        return [Directory(entry.getPath(), self._session) for entry in entries if entry.isDirectory()]


@dataclass(frozen=True, kw_only=True)
class Access:
    """A table or directory that a plan reads or writes."""

    target: CatalogTable | Directory
    writes: bool


def check_plans(
    spark: SparkSession, objections: Callable[[Access], Iterable[str]], *, trusted_option: str
) -> None:
    """Add a check to the analyzer of all new sessions of an application.

    The session itself stays without the check. If there is an objection to a plan, its analysis raises
    pyspark's ``IllegalArgumentException`` with the first one. The JVM calls Python back for every plan, which
    takes some milliseconds per statement.

    :param objections: returns the objections to one access of a plan.
    :param trusted_option: a reader option; directories that are read with it are not checked.
    """
    _start_callbacks(spark)
    session = _java_session(spark)
    # A session builds its rules when it first analyses a plan. The caller's session does so here, before the
    # check is added, and stays without it.
    session.sessionState().analyzer()
    session.extensions().injectCheckRule(_CheckBuilder(spark, objections, trusted_option))


class _CheckBuilder:
    """Scala function ``SparkSession => LogicalPlan => Unit``."""

    def __init__(
        self, spark: SparkSession, objections: Callable[[Access], Iterable[str]], trusted_option: str
    ) -> None:
        self._spark = spark
        self._objections = objections
        self._trusted_option = trusted_option

    def apply(self, session: JavaObject) -> _Check:
        return _Check(self._spark, session, self._objections, self._trusted_option)

    class Java:
        implements = ["scala.Function1"]  # noqa: RUF012


class _Check:
    """Scala function ``LogicalPlan => Unit``, for one session."""

    def __init__(
        self,
        spark: SparkSession,
        session: JavaObject,
        objections: Callable[[Access], Iterable[str]],
        trusted_option: str,
    ) -> None:
        self._java = partial(_java_class, spark)
        self._session = session
        self._objections = objections
        self._trusted_option = trusted_option

    def apply(self, plan: JavaObject) -> None:
        for access in self._accesses(plan):
            for objection in self._objections(access):
                refusal = self._java("java.lang.IllegalArgumentException")(objection)
                raise Py4JJavaError(objection, refusal)

    class Java:
        implements = ["scala.Function1"]  # noqa: RUF012

    def _accesses(self, plan: JavaObject) -> Iterator[Access]:
        kind = _kind(plan)
        if kind in _BY_IDENTIFIER:
            yield from self._named(getattr(plan, _BY_IDENTIFIER[kind])())
        elif kind == "InsertIntoHiveTable":
            yield Access(target=CatalogTable(plan.table()), writes=True)
        elif kind == "InsertIntoHadoopFsRelationCommand":
            yield from _optional(plan.catalogTable(), writes=True)
            yield self._directory(plan.outputPath(), writes=True)
        elif kind == "SaveIntoDataSourceCommand" and plan.options().contains("path"):
            yield self._directory(self._path(plan.options().apply("path")), writes=True)
        elif kind == "InsertIntoHiveDirCommand" and plan.storage().locationUri().isDefined():
            text = plan.storage().locationUri().get().toString()
            is_bare = plan.isLocal() and text.startswith("/")
            yield self._directory(self._path(f"file:{text}" if is_bare else text), writes=True)
        if kind in _WITH_QUERY:
            yield from self._accesses(plan.query())
        for leaf in _items(plan.collectLeaves()):
            yield from self._reads(leaf)

    def _reads(self, leaf: JavaObject) -> Iterator[Access]:
        kind = _kind(leaf)
        if kind == "HiveTableRelation":
            yield Access(target=CatalogTable(leaf.tableMeta()), writes=False)
        elif kind == "LogicalRelation":
            yield from _optional(leaf.catalogTable(), writes=False)
            relation = leaf.relation()
            if _kind(relation) == "HadoopFsRelation" and not relation.options().contains(
                self._trusted_option
            ):
                for root in _items(relation.location().rootPaths()):
                    yield self._directory(root, writes=False)

    def _named(self, identifier: JavaObject) -> Iterator[Access]:
        catalog = self._session.sessionState().catalog()
        if not catalog.isTempView(identifier) and catalog.tableExists(identifier):
            yield Access(target=CatalogTable(catalog.getTableMetadata(identifier)), writes=True)

    def _path(self, text: str) -> JavaObject:
        return self._java("org.apache.hadoop.fs.Path")(text)

    def _directory(self, path: JavaObject, *, writes: bool) -> Access:
        return Access(target=Directory(path, self._session), writes=writes)


def _optional(table: JavaObject, *, writes: bool) -> Iterator[Access]:
    if table.isDefined():
        yield Access(target=CatalogTable(table.get()), writes=writes)


# -- the JVM -----------------------------------------------------------------------------------------------


def _conjuncts(expression: JavaObject) -> Iterator[JavaObject]:
    if _kind(expression) == "And":
        yield from _conjuncts(expression.left())
        yield from _conjuncts(expression.right())
    else:
        yield expression


def _kind(node: JavaObject) -> str:
    return str(node.getClass().getSimpleName())


def _items(sequence: JavaObject) -> list[JavaObject]:
    """Return the items of a Scala sequence."""
    return [sequence.apply(index) for index in range(sequence.size())]


def _is_spark_3(spark: SparkSession) -> bool:
    """Return whether the session is from before Spark 4, which moved the classes of its JVM."""
    check_session(spark)
    return spark.version.startswith("3.")


def _java_session(spark: SparkSession) -> JavaObject:
    check_session(spark)
    return spark._jsparkSession


def _java_class(spark: SparkSession, name: str) -> JavaObject:
    """Return a class of the JVM without the one call per part of its name that ``spark._jvm`` makes."""
    check_session(spark)
    java: Any = spark._jvm
    return JavaClass(name, java._gateway_client)


def _start_callbacks(spark: SparkSession) -> None:
    """Let the JVM call objects of Python, whose exceptions arrive unchanged."""
    check_session(spark)
    gateway: Any = spark._sc._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    gateway.callback_server_parameters.propagate_java_exceptions = True
