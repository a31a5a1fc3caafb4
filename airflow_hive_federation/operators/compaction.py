"""Compacts Hive ACID tables in Airflow tasks, without a Hive engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.hooks.error_translation import airflow_error, as_airflow_error
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.hooks.page_links import SparkLink, WorkLink
from airflow_hive_federation.hooks.published import publisher_of
from airflow_hive_federation.hooks.published_work import CompactionStatePublished
from airflow_hive_federation.hooks.spark import SparkPipelineHook
from airflow_hive_federation.operators.lineage import Lineage, LineageOperator, TableDataset, namespace
from airflow_hive_federation.operators.results import ResultOperator
from airflow_hive_federation.progress.quantities import duration, several, size
from airflow_hive_federation.runtime.arguments import flag, texts

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_hive_federation.compaction.requests import CompactionCounts, CompactionResult
    from airflow_hive_federation.compaction.worker import CompactionReport, CompactionWorker, MergeRunner


class _CompactionOperator(LineageOperator, ResultOperator):
    """Base of the operators of compaction, which need a metastore and Spark.

    :param metastore_conn_id: the connection of the metastore. (templated)
    :param spark_conn_id: the connection of the apache-spark provider; ``None`` merges in the task's own
        process.
    :param compression: the compression of ORC files: ``zlib``, ``zstd`` (not for Hive 3), ``snappy`` or
        ``lz4``; by default the table's property ``orc.compress``.
    """

    template_fields: Sequence[str] = ("metastore_conn_id",)
    ui_color = "#e4e0f0"
    operator_extra_links = (WorkLink(), SparkLink())

    def __init__(
        self,
        *,
        metastore_conn_id: str = HiveMetastoreHook.default_conn_name,
        spark_conn_id: str | None = "spark_default",
        compression: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.metastore_conn_id = metastore_conn_id
        self.spark_conn_id = spark_conn_id
        self.compression = compression
        self._spark: SparkPipelineHook | None = None
        self._killed = False

    def merge_runner(self, hook: HiveMetastoreHook) -> MergeRunner:
        """Return the function that merges the bucket files."""
        options = hook.storage_options
        if self.spark_conn_id is None:
            from airflow_hive_federation.compaction.runners import in_threads

            return in_threads(options=options, compression=self.compression)
        from airflow_hive_federation.spark.compact import by_spark

        spark = SparkPipelineHook(self.spark_conn_id, storage_options=options)
        self._spark = spark
        if self._killed:
            spark.on_kill()
        return by_spark(
            lambda job, arguments, report_uri: spark.submit(job, arguments, report_uri=report_uri),
            options=options,
            compression=self.compression,
        )

    def state(self, hook: HiveMetastoreHook, context: Context) -> CompactionStatePublished:
        """Return the publisher of the queue and of what the task compacts."""
        return CompactionStatePublished(
            metastore=hook.metastore_conn_id, client=hook.client, by=publisher_of(context), log=self.log
        )

    def log_report(self, report: CompactionReport) -> None:
        """Log the outcome of a compaction request."""
        name = f"{report.table} {report.partition}".strip()
        self.log.info(
            "%s compaction of %s: %s. %s %s, %d deleted, %s in %s",
            report.kind,
            name,
            report.state,
            report.message or ", ".join(report.directories),
            several(report.rows, "row"),
            report.deleted,
            size(report.size_bytes),
            duration(report.seconds),
        )

    def note_lineage(self, hook: HiveMetastoreHook, reports: Sequence[CompactionReport]) -> None:
        """Record the compacted tables as lineage: each was read and written, with the same rows."""
        done = sorted(
            (report for report in reports if report.state == "compacted"), key=lambda report: report.table
        )
        inputs, outputs = [], []
        for name, of_table in groupby(done, key=lambda report: report.table):
            merged = list(of_table)
            database, _, table = name.partition(".")
            read = TableDataset(namespace=namespace(hook.settings), database=database, table=table)
            rows, size_bytes = sum(one.rows for one in merged), sum(one.size_bytes for one in merged)
            inputs.append(read)
            outputs.append(replace(read, rows=rows, size_bytes=size_bytes))
        self.lineage = Lineage(inputs=inputs, outputs=outputs)

    def on_kill(self) -> None:
        """Stop the Spark job; the transaction of the compaction is aborted."""
        self._killed = True
        if self._spark:
            self._spark.on_kill()


class CompactTableOperator(_CompactionOperator):
    """Compacts a table, or partitions of it, without a Hive engine.

    The task fails if a partition fails; a partition with nothing to compact is no failure. Airflow tries it
    again unless the failures of all partitions are permanent. Returns ``{"compactions", "requests"}``: per
    partition a mapping with ``id``, ``table``, ``partition``, ``kind``, ``state``, ``message``,
    ``directories``, ``rows`` and more; or, without ``wait``, one with ``id``, ``table``, ``partition``,
    ``pool_name`` and ``accepted``.

    :param table: the table, as ``database.table``. (templated)
    :param kind: ``major`` or ``minor``. (templated)
    :param partitions: names of partitions (``day=2026-01-01/hour=7``); by default all partitions. (templated)
    :param wait: compact now. Otherwise put the requests in the metastore's queue for a compaction worker.
    :param pool_name: without ``wait``, the pool of workers that shall serve the requests. (templated)
    :param metastore_conn_id: the connection of the metastore. (templated)
    :param spark_conn_id: the connection of the apache-spark provider; ``None`` merges in the task's own
        process.
    :param compression: the compression of ORC files: ``zlib``, ``zstd`` (not for Hive 3), ``snappy`` or
        ``lz4``; by default the table's property ``orc.compress``.
    """

    template_fields: Sequence[str] = (
        *_CompactionOperator.template_fields,
        "table",
        "kind",
        "partitions",
        "pool_name",
    )

    def __init__(
        self,
        *,
        table: str,
        kind: str = "major",
        partitions: Sequence[str] | None = None,
        wait: bool = True,
        pool_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.kind = kind
        self.partitions = partitions
        self.wait = flag("wait", wait)
        self.pool_name = pool_name

    def perform(self, context: Context) -> CompactionResult:
        from airflow_hive_federation.compaction.plan import CompactionKind
        from airflow_hive_federation.compaction.requests import (
            CompactionResult,
            compact_table,
            request_compaction,
        )

        hook = HiveMetastoreHook(self.metastore_conn_id)
        state = self.state(hook, context)

        def compacted(report: CompactionReport) -> None:
            self.log_report(report)
            state.served(report)

        with as_airflow_error():
            kind = CompactionKind.of(self.kind)
            partitions = None if self.partitions is None else texts("partitions", self.partitions)
            if not self.wait:
                with hook.client() as client:
                    requested = request_compaction(
                        client, self.table, kind, partitions=partitions, pool_name=self.pool_name
                    )
                return CompactionResult(requests=requested)
            reports = compact_table(
                hook.settings,
                self.table,
                kind,
                self.merge_runner(hook),
                partitions=partitions,
                storage_options=hook.storage_options,
                on_report=compacted,
            )
        state.publish()
        self.note_lineage(hook, reports)
        failed = [report for report in reports if report.state == "failed"]
        if failed:
            raise airflow_error(
                f"{len(failed)} of {len(reports)} compactions of {self.table} failed: {failed[0].message}",
                retryable=any(report.retryable for report in failed),
            )
        return CompactionResult(compactions=reports)


class CompactionWorkerOperator(_CompactionOperator):
    """Serves the metastore's compaction queue for a while, so that a cluster without a Hive engine compacts.

    A failed request is marked as failed in the queue (SHOW COMPACTIONS) and does not fail the task. Returns
    ``{"compacted", "cleaning", "refused", "failed"}``, the number of requests per final state.

    :param timeout_s: seconds after which no further request is begun.
    :param max_compactions: the most requests that are served.
    :param until_empty: end as soon as the queue is empty.
    :param pool_name: the pool to serve; by default requests that name no pool. (templated)
    :param batch_size: the number of requests whose bucket files one Spark job merges.
    :param poll_s: seconds between two looks at an empty queue.
    :param metastore_conn_id: the connection of the metastore. (templated)
    :param spark_conn_id: the connection of the apache-spark provider; ``None`` merges in the task's own
        process.
    :param compression: the compression of ORC files: ``zlib``, ``zstd`` (not for Hive 3), ``snappy`` or
        ``lz4``; by default the table's property ``orc.compress``.
    """

    template_fields: Sequence[str] = (*_CompactionOperator.template_fields, "pool_name")

    def __init__(
        self,
        *,
        timeout_s: float | None = 3600.0,
        max_compactions: int | None = None,
        until_empty: bool = False,
        pool_name: str | None = None,
        batch_size: int = 64,
        poll_s: float = 5.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.timeout_s = timeout_s
        self.max_compactions = max_compactions
        self.until_empty = flag("until_empty", until_empty)
        self.pool_name = pool_name
        self.batch_size = batch_size
        self.poll_s = poll_s
        self._worker: CompactionWorker | None = None

    def perform(self, context: Context) -> CompactionCounts:
        from airflow_hive_federation.compaction.requests import CompactionCounts, revoke_dead_workers
        from airflow_hive_federation.compaction.worker import CompactionWorker

        hook = HiveMetastoreHook(self.metastore_conn_id)
        state = self.state(hook, context)

        def served(report: CompactionReport) -> None:
            self.log_report(report)
            state.served(report)

        with as_airflow_error():
            with hook.client() as client:
                revoke_dead_workers(client)
            worker = self._worker = CompactionWorker(
                hook.settings,
                self.merge_runner(hook),
                pool_name=self.pool_name,
                batch_size=self.batch_size,
                storage_options=hook.storage_options,
            )
            reports = worker.serve(
                timeout_s=self.timeout_s,
                max_compactions=self.max_compactions,
                until_empty=self.until_empty,
                poll_s=self.poll_s,
                on_report=served,
            )
        state.publish()
        self.note_lineage(hook, reports)
        return CompactionCounts.of(reports)

    def on_kill(self) -> None:
        """Take no further request from the queue, and stop the Spark job, which fails those in progress."""
        if self._worker:
            self._worker.stop()
        super().on_kill()
