"""Compaction of Hive ACID tables, as Airflow tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_hive_federation.hooks.compat import AirflowFailException
from airflow_hive_federation.hooks.failing import as_airflow_error
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.hooks.spark import SparkPipelineHook
from airflow_hive_federation.operators.lineage import Lineage, LineageOperator, TableDataset, namespace

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_hive_federation.compaction.worker import CompactionReport, MergeRunner


class _CompactionOperator(LineageOperator, BaseOperator):
    """What both operators have in common: a metastore, and Spark.

    :param metastore_conn_id: connection of the metastore. (templated)
    :param spark_conn_id: connection of the apache-spark provider; ``None`` merges in the task's own process.
    :param compression: of ORC files: ``zlib``, ``zstd`` (not for Hive 3), ``snappy``, ``lz4``; by default
        each table's own, by its property ``orc.compress``.
    """

    template_fields: Sequence[str] = ("metastore_conn_id",)
    ui_color = "#e4e0f0"

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

    def merge_runner(self, hook: HiveMetastoreHook) -> MergeRunner:
        """What merges the bucket files."""
        options = hook.storage_options
        if self.spark_conn_id is None:
            from airflow_hive_federation.compaction.runners import in_threads

            return in_threads(options=options, compression=self.compression)
        from airflow_hive_federation.spark.compact import by_spark

        spark = SparkPipelineHook(self.spark_conn_id, storage_options=options)
        self._spark = spark
        return by_spark(
            lambda job, arguments, report_uri: spark.submit(job, arguments, report_uri=report_uri),
            options=options,
            compression=self.compression,
        )

    def tell(self, report: CompactionReport) -> None:
        """Log what became of a request."""
        name = f"{report.table} {report.partition}".strip()
        self.log.info(
            "%s compaction of %s: %s. %s %d rows, %d deleted, %d bytes in %.1f s",
            report.kind,
            name,
            report.state,
            report.message or ", ".join(report.directories),
            report.rows,
            report.deleted,
            report.size_bytes,
            report.seconds,
        )

    def note_lineage(self, hook: HiveMetastoreHook, reports: Sequence[CompactionReport]) -> None:
        """Note the tables that were compacted: read and written, the same rows."""
        names = sorted({one.table for one in reports if one.state == "compacted"})
        tables = [
            TableDataset(namespace=namespace(hook.settings), database=database, table=table)
            for database, _, table in (name.partition(".") for name in names)
        ]
        self.lineage = Lineage(inputs=tables, outputs=tables)

    def on_kill(self) -> None:
        """Stop the Spark job; the compaction's transaction is aborted."""
        if self._spark:
            self._spark.on_kill()


class CompactTableOperator(_CompactionOperator):
    """Compacts a table, or partitions of it, with no Hive engine.

    Fails if one of the partitions fails; one that has nothing to compact is no failure. Returns a mapping
    ``{"id", "table", "partition", "kind", "state", "message", "directories", "rows", …}`` for each partition.

    :param table: ``database.table``. (templated)
    :param kind: ``major`` or ``minor``. (templated)
    :param partitions: names of partitions (``day=2026-01-01/hour=7``); all by default. (templated)
    :param wait: compact now. Otherwise the requests are put in the queue for whoever serves it, and their
        numbers returned.
    :param pool_name: without ``wait``, pool of the workers that shall serve them. (templated)
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
        self.wait = wait
        self.pool_name = pool_name

    def execute(self, context: Context) -> list[dict[str, Any]]:
        from airflow_hive_federation.compaction.plan import CompactionKind
        from airflow_hive_federation.compaction.requests import compact_table, request_compaction

        hook = HiveMetastoreHook(self.metastore_conn_id)
        with as_airflow_error():
            kind = CompactionKind.of(self.kind)
            if not self.wait:
                with hook.client() as client:
                    requested = request_compaction(
                        client, self.table, kind, partitions=self.partitions, pool_name=self.pool_name
                    )
                return [asdict(one) for one in requested]
            reports = compact_table(
                hook.settings,
                self.table,
                kind,
                self.merge_runner(hook),
                partitions=self.partitions,
                storage_options=hook.storage_options,
                on_report=self.tell,
            )
        self.note_lineage(hook, reports)
        failed = [report for report in reports if report.state == "failed"]
        if failed:
            raise AirflowFailException(
                f"{len(failed)} of {len(reports)} compactions of {self.table} failed: {failed[0].message}"
            )
        return [asdict(report) for report in reports]


class CompactionWorkerOperator(_CompactionOperator):
    """Serves the metastore's compaction queue for a time, so that a cluster with no Hive engine compacts.

    A request that fails is marked so in the queue (SHOW COMPACTIONS) and does not fail the task. Returns how
    many requests ended in each state.

    :param timeout_s: no request is begun after so many seconds.
    :param max_compactions: so many requests at most.
    :param until_empty: end as soon as the queue is empty.
    :param pool_name: pool to serve; by default the requests that name none. (templated)
    :param batch: requests whose bucket files are merged by one Spark job.
    :param poll_s: seconds between two looks at an empty queue.
    """

    template_fields: Sequence[str] = (*_CompactionOperator.template_fields, "pool_name")

    def __init__(
        self,
        *,
        timeout_s: float | None = 3600.0,
        max_compactions: int | None = None,
        until_empty: bool = False,
        pool_name: str | None = None,
        batch: int = 64,
        poll_s: float = 5.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.timeout_s = timeout_s
        self.max_compactions = max_compactions
        self.until_empty = until_empty
        self.pool_name = pool_name
        self.batch = batch
        self.poll_s = poll_s

    def execute(self, context: Context) -> dict[str, int]:
        from collections import Counter

        from airflow_hive_federation.compaction.requests import revoke_dead_workers
        from airflow_hive_federation.compaction.worker import CompactionWorker

        hook = HiveMetastoreHook(self.metastore_conn_id)
        with as_airflow_error():
            with hook.client() as client:
                revoke_dead_workers(client)
            worker = CompactionWorker(
                hook.settings,
                self.merge_runner(hook),
                pool_name=self.pool_name,
                batch=self.batch,
                storage_options=hook.storage_options,
            )
            reports = worker.serve(
                timeout_s=self.timeout_s,
                max_compactions=self.max_compactions,
                until_empty=self.until_empty,
                poll_s=self.poll_s,
                on_report=self.tell,
            )
        self.note_lineage(hook, reports)
        return dict(Counter(report.state for report in reports))
