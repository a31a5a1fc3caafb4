"""Streaming ingest, as an Airflow task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_hive_federation.hooks.failing import as_airflow_error
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook

if TYPE_CHECKING:
    from airflow.sdk import Context


class StreamingIngestOperator(BaseOperator):
    """Streams files into a transactional table, exactly once.

    A run takes the files that no earlier run of the same ``name`` has taken, and goes on inside a file where
    the last one stopped: the position is kept with the table, and moved by the commit of the records
    themselves. Returns a mapping ``{"files", "records", "dead_letters", "transactions", "position", …}``.

    :param table: ``database.table``. (templated)
    :param inputs: URIs of files, of directories or prefixes, or with ``*`` in the last part. (templated)
    :param file_format: ``csv`` (delimited, never quoted), ``json``, ``regex`` or ``parquet``.
    :param name: names the position. Two inputs of one table need two names. (templated)
    :param delimiter: of the fields of ``csv``.
    :param header: the first line of each ``csv`` file names its columns.
    :param regex: expression whose groups are the columns, for ``regex``.
    :param partition: values of the one partition to write to; without, they are the records' last fields.
        (templated)
    :param commit_records: commit after so many records, or
    :param commit_bytes: so many bytes of input, or
    :param commit_seconds: so many seconds, whatever comes first.
    :param transaction_batch_size: transactions that share files.
    :param malformed: ``raise``, or ``null`` for nulls in place of what cannot be read.
    :param dead_letters: file of the worker that takes bad records; without, the first one fails the task.
        (templated)
    :param dead_letter_limit: bad records at most in a run.
    :param metastore_conn_id: connection of the metastore. (templated)
    """

    template_fields: Sequence[str] = (
        "table",
        "inputs",
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
        inputs: Sequence[str],
        file_format: str = "csv",
        name: str = "files",
        delimiter: str = ",",
        header: bool = False,
        regex: str | None = None,
        partition: Sequence[str] = (),
        commit_records: int = 1_000_000,
        commit_bytes: int = 256 << 20,
        commit_seconds: float = 60.0,
        transaction_batch_size: int = 1,
        malformed: str = "raise",
        dead_letters: str | None = None,
        dead_letter_limit: int | None = None,
        metastore_conn_id: str = HiveMetastoreHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.inputs = inputs
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
        self.dead_letters = dead_letters
        self.dead_letter_limit = dead_letter_limit
        self.metastore_conn_id = metastore_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_hive_federation.ingest.files import IngestRequest, ingest_files

        hook = HiveMetastoreHook(self.metastore_conn_id)
        request = IngestRequest(
            **{
                field: getattr(self, field)
                for field in IngestRequest.__dataclass_fields__  # every field is one of the operator's
            }
        )
        with as_airflow_error():
            report = ingest_files(hook.settings, request, storage_options=hook.storage_options)
        self.log.info(
            "%s: %d records of %d files in %d transactions, %.1f s; %d bad records put aside",
            report.table,
            report.records,
            report.files,
            report.transactions,
            report.seconds,
            report.dead_letters,
        )
        return report.to_json()
