"""Streaming ingest, as an Airflow task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseHook, BaseOperator

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.hooks.failing import as_airflow_error
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.operators.lineage import Lineage, LineageOperator, TableDataset, namespace

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from airflow.sdk import Context

    from airflow_hive_federation.ingest.runs import IngestReport


class StreamingIngestOperator(LineageOperator, BaseOperator):
    """Streams files, or the rows of a database's query, into a transactional table, exactly once.

    A run takes what no earlier run of the same ``name`` has taken, and goes on where the last one stopped:
    the position is kept with the table, and moved by the commit of the records themselves. Returns a mapping
    ``{"files", "records", "dead_letters", "transactions", "position", …}``.

    :param table: ``database.table``. (templated)
    :param inputs: URIs of files, of directories or prefixes, or with ``*`` in the last part. (templated)
    :param source_conn_id: connection of a database with a hook for SQL, in place of files. (templated)
    :param sql: its query, or the name of its table. (templated)
    :param order_by: columns of the answer: a unique key without nulls that only grows. Those that are no
        columns of the Hive table are not written. (templated)
    :param file_format: ``csv`` (delimited, never quoted), ``json``, ``regex`` or ``parquet``.
    :param name: names the position. Two inputs of one table need two names. By default ``files``, or
        ``query``. (templated)
    :param delimiter: of the fields of ``csv``.
    :param header: the first line of each ``csv`` file names its columns.
    :param regex: expression whose groups are the columns, for ``regex``.
    :param partition: values of the one partition to write to; without, they are the records' last fields.
        (templated)
    :param commit_records: commit after so many records, or
    :param commit_bytes: so many bytes of input, or
    :param commit_seconds: so many seconds, whatever comes first.
    :param transaction_batch_size: transactions that share files.
    :param malformed: of files: ``raise``, or ``null`` for nulls in place of what cannot be read.
    :param max_record_bytes: bytes that a record of a text file may have.
    :param dead_letters: URI of a file that takes bad records, one of each run; without, the first one fails
        the task. (templated)
    :param dead_letter_limit: bad records at most in a run.
    :param compaction: ``minor`` or ``major``: a compaction of what was written to is asked for in the end.
    :param metastore_conn_id: connection of the metastore. (templated)
    :raises ConfigurationError: neither files nor a query, or both.
    """

    template_fields: Sequence[str] = (
        "table",
        "inputs",
        "source_conn_id",
        "sql",
        "order_by",
        "name",
        "partition",
        "dead_letters",
        "metastore_conn_id",
    )
    ui_color = "#e0f0e4"

    def __init__(
        self,
        *,
        table: str,
        inputs: Sequence[str] | None = None,
        source_conn_id: str | None = None,
        sql: str | None = None,
        order_by: Sequence[str] = (),
        file_format: str = "csv",
        name: str | None = None,
        delimiter: str = ",",
        header: bool = False,
        regex: str | None = None,
        partition: Sequence[str] = (),
        commit_records: int = 1_000_000,
        commit_bytes: int = 256 << 20,
        commit_seconds: float = 60.0,
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
        if (inputs is None) == (sql is None) or (sql is None) != (source_conn_id is None):
            raise ConfigurationError(
                f"{self.task_id} needs one source.",
                remedy="Give inputs; or source_conn_id, sql and order_by.",
            )
        self.table = table
        self.inputs = inputs
        self.source_conn_id = source_conn_id
        self.sql = sql
        self.order_by = order_by
        self.file_format = file_format
        self.name = name
        self.delimiter = delimiter
        self.header = header
        self.regex = regex
        self.partition = partition
        self.commit_records = commit_records
        self.commit_bytes = commit_bytes
        self.commit_seconds = commit_seconds
        self.transaction_batch_size = transaction_batch_size
        self.malformed = malformed
        self.max_record_bytes = max_record_bytes
        self.dead_letters = dead_letters
        self.dead_letter_limit = dead_letter_limit
        self.compaction = compaction
        self.metastore_conn_id = metastore_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        with as_airflow_error():
            metastore = HiveMetastoreHook(self.metastore_conn_id)
            ingest = self._ingest_files if self.sql is None else self._ingest_query
            report = ingest(metastore)
            where = namespace(metastore.settings)
        self.log.info(
            "%s: %d records of %s in %d transactions, %.1f s; %d bad records put aside",
            report.table,
            report.records,
            f"{report.files} files" if self.sql is None else f"the query of {self.source_conn_id}",
            report.transactions,
            report.seconds,
            report.dead_letters,
        )
        database, _, table = report.table.partition(".")
        self.lineage = Lineage(
            outputs=[TableDataset(namespace=where, database=database, table=table, rows=report.records)]
        )
        return report.to_json()

    def _ingest_files(self, metastore: HiveMetastoreHook) -> IngestReport:
        from airflow_hive_federation.ingest.files import IngestRequest, ingest_files

        return ingest_files(
            metastore.settings,
            IngestRequest(**self._fields(IngestRequest)),
            storage_options=metastore.storage_options,
        )

    def _ingest_query(self, metastore: HiveMetastoreHook) -> IngestReport:
        from airflow.providers.common.sql.hooks.sql import DbApiHook

        from airflow_hive_federation.ingest.queries import QueryRequest, ingest_query

        source = BaseHook.get_hook(str(self.source_conn_id))
        if not isinstance(source, DbApiHook):
            raise ConfigurationError(
                f"Connection {self.source_conn_id} is of no database that is asked by SQL.",
                remedy="Name one whose hook is a DbApiHook.",
            )
        return ingest_query(
            metastore.settings,
            QueryRequest(**self._fields(QueryRequest)),
            source.get_conn,
            placeholder=source.placeholder,
            storage_options=metastore.storage_options,
        )

    def _fields(self, request: type[DataclassInstance]) -> dict[str, Any]:
        """The fields of a request; each is one of the operator's."""
        found = {field.name: getattr(self, field.name) for field in fields(request)}
        if self.name is None:
            del found["name"]
        return found
