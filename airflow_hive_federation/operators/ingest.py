"""Streams files and query results into Hive tables, in an Airflow task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseHook

from airflow_hive_federation.errors import ConfigurationError, StreamingCommitUnknownError
from airflow_hive_federation.hooks.error_translation import airflow_error, as_airflow_error, error_text
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.hooks.page_links import WorkLink
from airflow_hive_federation.hooks.published import publisher_of
from airflow_hive_federation.hooks.published_work import IngestStatePublished
from airflow_hive_federation.operators.lineage import (
    Lineage,
    LineageOperator,
    TableDataset,
    copied_columns,
    namespace,
)
from airflow_hive_federation.operators.results import ResultOperator
from airflow_hive_federation.progress.observers import spaced
from airflow_hive_federation.progress.quantities import duration, several
from airflow_hive_federation.runtime.arguments import flag, listed

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from airflow.sdk import Context

    from airflow_hive_federation.ingest.runs import IngestReport
    from airflow_hive_federation.operators.lineage import TaskLineage


class StreamingIngestOperator(LineageOperator, ResultOperator):
    """Streams files, or the rows of a database query, into a transactional Hive table, exactly once.

    A run ingests the records that no earlier run of the same ``name`` has ingested, and begins where the last
    run stopped: the table holds the position, and the transaction that commits the records moves it. Returns
    ``{"table", "files", "records", "dead_letters", "transactions", "created_partitions", "position",
    "seconds"}``.

    :param table: the table, as ``database.table``. (templated)
    :param inputs: URIs of files, of directories or of prefixes, or URIs with ``*`` in the last part.
        (templated)
    :param sql_conn_id: the connection of a database that Airflow has an SQL hook for, instead of files.
        (templated)
    :param sql: the query, or the name of a table, of that database. (templated)
    :param order_by: columns of the query: together a unique key without nulls that only grows. Columns that
        the Hive table lacks are not written. (templated)
    :param file_format: ``csv``, ``json``, ``regex`` or ``parquet``.
    :param name: the name of the position. Two inputs of one table need two names. By default ``files`` or
        ``query``. (templated)
    :param delimiter: the delimiter between the fields of ``csv``.
    :param quote: the quote of fields of ``csv`` that may hold delimiters and line feeds; an empty text reads
        fields as Hive's ``LazySimpleSerDe`` does, for which quotes are text.
    :param header: the first line of each ``csv`` file names its columns.
    :param regex: for ``regex``, the expression whose groups are the columns.
    :param partition: the values of the one partition to write to; by default the last fields of each record.
        (templated)
    :param commit_records: the number of records after which to commit;
    :param commit_bytes: the bytes of input after which to commit;
    :param commit_interval_s: the seconds after which to commit; the first of the three limits that is reached
        counts.
    :param transaction_batch_size: the number of transactions that share files.
    :param malformed: for files: ``raise``, or ``null``, which writes nulls in place of values that cannot be
        read.
    :param max_record_bytes: the most bytes of one record of a text file.
    :param dead_letters: the URI of a file for bad records, one file per run; without it, the first bad record
        fails the task. (templated)
    :param dead_letter_limit: the most bad records per run.
    :param compaction: ``minor`` or ``major``: request such a compaction of the written partitions at the end.
    :param metastore_conn_id: the connection of the metastore. (templated)
    :raises ConfigurationError: neither files nor a query is given, or both are.
    """

    template_fields: Sequence[str] = (
        "table",
        "inputs",
        "sql_conn_id",
        "sql",
        "order_by",
        "name",
        "partition",
        "dead_letters",
        "metastore_conn_id",
    )
    ui_color = "#e0f0e4"
    operator_extra_links = (WorkLink(),)

    def __init__(
        self,
        *,
        table: str,
        inputs: Sequence[str] | None = None,
        sql_conn_id: str | None = None,
        sql: str | None = None,
        order_by: Sequence[str] = (),
        file_format: str = "csv",
        name: str | None = None,
        delimiter: str = ",",
        quote: str = '"',
        header: bool = False,
        regex: str | None = None,
        partition: Sequence[str] = (),
        commit_records: int = 1_000_000,
        commit_bytes: int = 256 << 20,
        commit_interval_s: float = 60.0,
        transaction_batch_size: int = 1,
        malformed: str = "raise",
        max_record_bytes: int = 128 << 20,
        dead_letters: str | None = None,
        dead_letter_limit: int | None = None,
        compaction: Literal["minor", "major"] | None = None,
        metastore_conn_id: str = HiveMetastoreHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if (inputs is None) == (sql is None) or (sql is None) != (sql_conn_id is None):
            raise ConfigurationError(
                f"{self.task_id} does not have exactly one source: files (inputs), or a query (sql) with its "
                "connection (sql_conn_id).",
                remedy="Give inputs; or sql_conn_id, sql and order_by.",
            )
        self.table = table
        self.inputs = inputs
        self.sql_conn_id = sql_conn_id
        self.sql = sql
        self.order_by = order_by
        self.file_format = file_format
        self.name = name
        self.delimiter = delimiter
        self.quote = quote
        self.header = flag("header", header)
        self.regex = regex
        self.partition = partition
        self.commit_records = commit_records
        self.commit_bytes = commit_bytes
        self.commit_interval_s = commit_interval_s
        self.transaction_batch_size = transaction_batch_size
        self.malformed = malformed
        self.max_record_bytes = max_record_bytes
        self.dead_letters = dead_letters
        self.dead_letter_limit = dead_letter_limit
        self.compaction = compaction
        self.metastore_conn_id = metastore_conn_id
        self._stopped = False
        self._columns: dict[str, str] = {}

    def perform(self, context: Context) -> IngestReport:
        state = IngestStatePublished(
            metastore=self.metastore_conn_id,
            table=self.table,
            source=self.sql_conn_id or "files",
            by=publisher_of(context),
            log=self.log,
        )
        with state, as_airflow_error():
            metastore = HiveMetastoreHook(self.metastore_conn_id)
            ingest = self._ingest_files if self.sql is None else self._ingest_query
            try:
                report = ingest(metastore)
            except StreamingCommitUnknownError as error:
                # The next try begins at the position that the table holds then.
                raise airflow_error(error_text(error), retryable=True) from error
            hive_uri = namespace(metastore.settings)
        state.ended(report)
        self.log.info(
            "%s: %s of %s in %s, %s; %s put aside",
            report.table,
            several(report.records, "record"),
            several(report.files, "file") if self.sql is None else f"the query of {self.sql_conn_id}",
            several(report.transactions, "transaction"),
            duration(report.seconds),
            several(report.dead_letters, "bad record"),
        )
        database, _, table = report.table.partition(".")
        self.lineage = Lineage(
            outputs=[TableDataset(namespace=hive_uri, database=database, table=table, rows=report.records)]
        )
        return report

    def _ingest_files(self, metastore: HiveMetastoreHook) -> IngestReport:
        from airflow_hive_federation.ingest.files import IngestRequest, ingest_files

        return ingest_files(
            metastore.settings,
            IngestRequest(**self._fields(IngestRequest)),
            storage_options=metastore.storage_options,
            observer=spaced(self.observer),
            stopped=lambda: self._stopped,
        )

    def _ingest_query(self, metastore: HiveMetastoreHook) -> IngestReport:
        from airflow.providers.common.sql.hooks.sql import DbApiHook

        from airflow_hive_federation.ingest.queries import QueryRequest, ingest_query

        source = BaseHook.get_hook(str(self.sql_conn_id))
        if not isinstance(source, DbApiHook):
            raise ConfigurationError(
                f"Connection {self.sql_conn_id} is not of a SQL database.",
                remedy="Name one whose hook is a DbApiHook.",
            )
        return ingest_query(
            metastore.settings,
            QueryRequest(**self._fields(QueryRequest)),
            source.get_conn,
            placeholder=source.placeholder,
            storage_options=metastore.storage_options,
            stopped=lambda: self._stopped,
            on_columns=self._columns.update,
        )

    def get_openlineage_facets_on_complete(self, task_instance: object) -> TaskLineage:
        """Return the task's lineage, with the tables and columns of a query that are certain."""
        lineage = super().get_openlineage_facets_on_complete(task_instance)
        if self.sql is not None:
            self._add_sources(lineage, self.sql)
        return lineage

    def _add_sources(self, lineage: TaskLineage, sql: str) -> None:
        """Add the sources of a query, under the names that the hook of its database has for them."""
        from airflow.providers.openlineage.sqlparser import get_openlineage_facets_with_sql

        from airflow_hive_federation.ingest.query_sources import dialect_of, query_sources

        conn_id = str(self.sql_conn_id)
        connection, hook = BaseHook.get_connection(conn_id), BaseHook.get_hook(conn_id)
        dialect = dialect_of([hook.get_openlineage_database_dialect(connection), connection.conn_type or ""])
        # A name of a table is no statement.
        query = sql if len(sql.split()) > 1 else f"SELECT * FROM {sql}"  # noqa: S608 - parsed only
        sources = query_sources(query, dialect, self._columns)
        datasets = {}
        for table in sources.tables:
            # Without a connection: the task has ended, and its database need not be asked again.
            read = get_openlineage_facets_with_sql(
                hook,
                f"SELECT * FROM {table}",  # noqa: S608 - parsed only
                conn_id,
                None,
                use_connection=False,
            )
            if read is None or len(read.inputs) != 1:
                return
            datasets[table] = read.inputs[0]
        lineage.inputs = list(datasets.values())
        columns = {
            name: (datasets[source.table].namespace, datasets[source.table].name, source.column)
            for name, source in sources.columns.items()
        }
        for written in lineage.outputs if columns else ():
            written.facets = {**(written.facets or {}), "columnLineage": copied_columns(columns)}

    def on_kill(self) -> None:
        """End the run before its next write or commit; its open transaction is aborted."""
        self._stopped = True

    def _fields(self, request: type[DataclassInstance]) -> dict[str, Any]:
        """Return the fields of a request, each of which is an attribute of the operator."""
        values = {field.name: getattr(self, field.name) for field in fields(request)}
        for name in ("inputs", "order_by", "partition"):
            if name in values:
                values[name] = listed(name, values[name])
        if self.name is None:
            del values["name"]
        return values
