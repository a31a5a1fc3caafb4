"""Reports the tables that tasks read and write, as Airflow's assets and OpenLineage's datasets.

A table is ``hive://host:port/database/table`` as an asset, and ``database.table`` in the namespace
``hive://host:port`` as a dataset, as OpenLineage names Hive's tables. Host and port are those of the
connection's first URI.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.sdk import Asset, AssetAlias, BaseHook

from airflow_hive_federation.hooks.metastore import HiveMetastoreHook

if TYPE_CHECKING:
    from airflow.providers.common.compat.openlineage.facet import ColumnLineageDatasetFacet
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from airflow_hive_federation.clusters.routing.decision import Decision
    from airflow_hive_federation.clusters.statements.statement import TableName
    from airflow_hive_federation.metastore import MetastoreSettings
    from airflow_hive_federation.progress.events import Event
    from airflow_hive_federation.progress.observers import Observer
    from airflow_hive_federation.remotes.session import OpenRemote
    from airflow_hive_federation.replication.load.summary import LoadSummary
    from airflow_hive_federation.replication.policy import ReplicationPolicy
    from airflow_hive_federation.replication.repair import RepairReport
    from airflow_hive_federation.replication.replica.described_tables import DescribedTable
    from airflow_hive_federation.replication.verify.report import VerificationReport

    TaskLineage = OperatorLineage[Any, Any]

#: Asset aliases through which tasks update the assets of tables, which are known only at run time.
REPLICATED = AssetAlias("hive_replication")
REFRESHED = AssetAlias("hive_remotes")

#: Name of the run facet that lists the tables that a task left out.
SKIPPED_TABLES = "hiveFederation_skippedTables"

_PORT = 9083


@dataclass(frozen=True, kw_only=True)
class TableDataset:
    """A table under the names that lineage uses.

    :param namespace: ``hive://host:port``.
    :param database: the database of the table.
    :param table: the name of the table.
    :param rows: the number of rows written to it, or read from it, if known.
    :param size_bytes: the number of bytes written to it, or read from it, if known.
    :param files: the number of files written to it, or read from it, if known.
    :param copy_of: the table of which it is a copy, column by column.
    :param describe: reads the table's columns, for a copy; and its rows if the copy is a whole one.
    """

    namespace: str
    database: str
    table: str
    rows: int | None = None
    size_bytes: int | None = None
    files: int | None = None
    copy_of: TableDataset | None = None
    describe: Callable[[], DescribedTable | None] | None = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The name of the dataset."""
        return f"{self.database}.{self.table}"

    @property
    def asset(self) -> Asset:
        """The table as an Airflow asset."""
        return Asset(f"{self.namespace}/{quote(self.database)}/{quote(self.table)}")


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """The datasets that a task has read and written.

    :param skipped: the tables of the source that the task left out, with the reasons.
    """

    inputs: list[TableDataset] = field(default_factory=list)
    outputs: list[TableDataset] = field(default_factory=list)
    skipped: Mapping[str, str] = field(default_factory=dict)


class LineageOperator:
    """A mixin that reports ``self.lineage``, the tables read and written, to OpenLineage."""

    lineage: Lineage | None = None

    def get_openlineage_facets_on_complete(self, task_instance: object) -> TaskLineage:
        """Return the task's lineage; the OpenLineage provider, if installed, calls this method."""
        from airflow.providers.openlineage.extractors import OperatorLineage

        lineage = self.lineage or Lineage()
        return OperatorLineage(
            inputs=[_input(dataset) for dataset in lineage.inputs],
            outputs=[_output(dataset) for dataset in lineage.outputs],
            run_facets={SKIPPED_TABLES: _skipped(lineage.skipped)} if lineage.skipped else {},
        )


def namespace(settings: MetastoreSettings) -> str:
    """Return the namespace of a metastore's tables."""
    return _namespace(settings.uris[0])


def datasets(settings: MetastoreSettings, database: str, tables: Iterable[str]) -> list[TableDataset]:
    """Return tables of one database as datasets.

    :param settings: the settings of the metastore of the database.
    """
    return [TableDataset(namespace=namespace(settings), database=database, table=table) for table in tables]


def routed(settings: MetastoreSettings, decisions: Iterable[Decision]) -> Lineage:
    """Return the lineage of routed statements: the tables that they read and write, each once.

    :param settings: the settings of the metastore whose tables they are.
    """
    place = namespace(settings)

    def dataset(table: TableName) -> TableDataset:
        return TableDataset(namespace=place, database=table.database or "", table=table.name)

    inputs: dict[TableDataset, None] = {}
    outputs: dict[TableDataset, None] = {}
    for decision in decisions:
        inputs.update(dict.fromkeys(dataset(use.table) for use in decision.inputs))
        outputs.update(dict.fromkeys(dataset(use.table) for use in decision.outputs))
    return Lineage(inputs=list(inputs), outputs=list(outputs))


def behind(opened: OpenRemote, tables: Iterable[str]) -> list[TableDataset]:
    """Return the tables of another Hive metastore that are behind the local tables of a remote.

    Catalogs that are no Hive metastore give their tables names of their own, and have none here.

    :param tables: the names of the local tables, without their database.
    """
    from airflow_hive_federation.catalog.factories import CONNECTION
    from airflow_hive_federation.catalog.thrift import URIS

    properties, remote = opened.owner.properties, opened.link.remote
    conn_id = properties.get(CONNECTION)
    if conn_id and BaseHook.get_connection(conn_id).conn_type == HiveMetastoreHook.conn_type:
        place = namespace(HiveMetastoreHook(conn_id).settings)
    elif URIS in properties and not conn_id:
        place = _namespace(properties[URIS].partition(",")[0].strip())
    else:
        return []
    return [
        TableDataset(namespace=place, database=remote.database or "", table=remote.table or table)
        for table in tables
    ]


def announce(
    context: Context, alias: AssetAlias, tables: Iterable[TableDataset], extra: Mapping[str, Any]
) -> None:
    """Update the assets of tables: DAGs that are scheduled on them start when the task has succeeded.

    :param context: the task's context; outside Airflow it has no outlets.
    :param alias: an alias among the task's outlets.
    :param extra: the extra of the asset events, which consumers read.
    """
    if "outlet_events" in context:
        for table in tables:
            context["outlet_events"][alias].add(table.asset, extra=dict(extra))


def run_key(context: Context) -> str:
    """Return a text that all tries of a task's run share, and no other run has; empty outside Airflow."""
    if "ti" not in context:
        return ""
    task = context["ti"]
    run = json.dumps([task.dag_id, task.run_id, task.task_id, task.map_index])
    return blake2b(run.encode(), digest_size=16).hexdigest()


class CopiedSizes:
    """Adds up the files and bytes that increments copy, per table, and passes all events on.

    :param observer: receives the events.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        #: Bytes by the table of the target, with its database.
        self.sizes: dict[str, int] = {}
        #: Numbers of files, likewise.
        self.files: dict[str, int] = {}

    def __call__(self, event: Event, /) -> None:
        """Take an event of a load."""
        from airflow_hive_federation.progress.cycle_events import TableCopied

        if isinstance(event, TableCopied):
            self.sizes[event.table] = self.sizes.get(event.table, 0) + event.size_bytes
            self.files[event.table] = self.files.get(event.table, 0) + event.files
        self._observer(event)


def note_load(
    context: Context,
    source: MetastoreSettings,
    target: MetastoreSettings,
    policy: ReplicationPolicy,
    summary: LoadSummary,
    *,
    copied: CopiedSizes | None = None,
) -> Lineage:
    """Update the assets of the tables that a load of a policy has changed, and return its lineage.

    :param context: the task's context, whose task has the outlet :data:`REPLICATED`.
    :param source: the settings of the source's metastore.
    :param target: the settings of the target's metastore.
    :param copied: the counts of an increment's copies; tables of a bootstrap have those of its dump.
    """
    lineage = _loaded(source, target, policy, summary.dump, copied)
    _announce_copies(context, policy, lineage.outputs, summary.event_id)
    return replace(lineage, skipped=summary.skipped)


def note_repair(
    context: Context,
    source: MetastoreSettings,
    target: MetastoreSettings,
    policy: ReplicationPolicy,
    repaired: RepairReport,
    *,
    copied: CopiedSizes,
) -> Lineage:
    """Update the assets of the tables that the cycles of a repair have changed, and return its lineage.

    The lineage also has the tables that its last verification has compared.

    :param context: the task's context, whose task has the outlet :data:`REPLICATED`.
    :param source: the settings of the source's metastore.
    :param target: the settings of the target's metastore.
    :param copied: the counts of the cycles' copies.
    """
    loads = [_loaded(source, target, policy, dump, copied) for dump in repaired.dumps]
    # Rounds repair the same table: the last one describes it.
    outputs = {table.name: table for load in loads for table in load.outputs}
    _announce_copies(context, policy, outputs.values(), repaired.report.event_id)
    reads = {table.name: table for load in loads for table in load.inputs}
    compared = verified(source, target, policy, repaired.report).inputs
    named = {(table.namespace, table.name) for table in compared}
    others = [table for table in reads.values() if (table.namespace, table.name) not in named]
    return Lineage(inputs=[*compared, *others], outputs=list(outputs.values()))


def _loaded(
    source: MetastoreSettings,
    target: MetastoreSettings,
    policy: ReplicationPolicy,
    dump: str,
    copied: CopiedSizes | None,
) -> Lineage:
    """Return the tables that the load of a dump has read and written."""
    from airflow_hive_federation.replication.replica.described_tables import described_table
    from airflow_hive_federation.replication.replica.table_index import changed_tables, whole_sizes

    options = policy.storage_options
    tables = sorted(changed_tables(dump, options))
    inputs = datasets(source, policy.source_database, [policy.source_table(table) for table in tables])
    sizes = whole_sizes(dump, options)
    counted = (copied.sizes, copied.files) if copied else ({}, {})
    outputs = []
    for read, written in zip(inputs, datasets(target, policy.target_database, tables), strict=True):
        table = written.table
        size_bytes, files = sizes.get(table) or (counts.get(written.name) for counts in counted)
        outputs.append(
            replace(
                written,
                size_bytes=size_bytes,
                files=files,
                copy_of=read,
                describe=partial(described_table, dump, table, options),
            )
        )
    return Lineage(inputs=inputs, outputs=outputs)


def _announce_copies(
    context: Context, policy: ReplicationPolicy, tables: Iterable[TableDataset], event_id: int
) -> None:
    extra = {"event_id": event_id, "policy": policy.name, "source": policy.source_database}
    announce(context, REPLICATED, tables, extra)


def verified(
    source: MetastoreSettings,
    target: MetastoreSettings,
    policy: ReplicationPolicy,
    report: VerificationReport,
) -> Lineage:
    """Return the lineage of a verification: it reads the tables of both sides, whose rows it counts."""
    inputs = []
    for table in report.tables:
        read = TableDataset(
            namespace=namespace(source),
            database=policy.source_database,
            table=policy.source_table(table.name),
            rows=table.source_rows,
        )
        copy = TableDataset(
            namespace=namespace(target),
            database=policy.target_database,
            table=table.name,
            rows=table.target_rows,
            size_bytes=table.size_bytes,
            files=table.files,
        )
        inputs += [read, copy]
    return Lineage(inputs=inputs)


def copied_columns(columns: Mapping[str, tuple[str, str, str]]) -> ColumnLineageDatasetFacet:
    """Return the facet of columns whose values are those of other columns.

    :param columns: by written columns, the namespace and name of the dataset that was read, and its column.
    """
    from airflow.providers.common.compat.openlineage import facet

    return facet.ColumnLineageDatasetFacet(
        fields={
            written: facet.Fields(
                inputFields=[facet.InputField(namespace=place, name=name, field=column)],
                transformationDescription="copied",
                transformationType="IDENTITY",
            )
            for written, (place, name, column) in columns.items()
        }
    )


def _same_columns(read: TableDataset, columns: Iterable[str]) -> dict[str, tuple[str, str, str]]:
    return {column: (read.namespace, read.name, column) for column in columns}


def _namespace(uri: str) -> str:
    parts = urlsplit(uri)
    host = parts.hostname or ""
    # An IPv6 address keeps its brackets, without which its last part would be a port.
    return f"hive://{f'[{host}]' if ':' in host else host}:{parts.port or _PORT}"


def _skipped(tables: Mapping[str, str]) -> object:
    # OpenLineage's client serialises attrs classes as facets, and depends on attrs.
    import attr
    from airflow.providers.common.compat.openlineage.facet import RunFacet

    facet = attr.make_class("SkippedTablesRunFacet", {"tables": attr.field(type=dict)}, bases=(RunFacet,))
    return facet(tables=dict(tables))


def _input(dataset: TableDataset) -> object:
    from airflow.providers.common.compat.openlineage.facet import InputDataset
    from openlineage.client.facet_v2 import data_quality_metrics_input_dataset as metrics

    counted = metrics.DataQualityMetricsInputDatasetFacet(
        columnMetrics={}, rowCount=dataset.rows, bytes=dataset.size_bytes, fileCount=dataset.files
    )
    return InputDataset(
        namespace=dataset.namespace,
        name=dataset.name,
        inputFacets={"dataQualityMetrics": counted} if dataset.rows is not None else {},
    )


def _output(dataset: TableDataset) -> object:
    from airflow.providers.common.compat.openlineage.facet import (
        OutputDataset,
        OutputStatisticsOutputDatasetFacet,
    )

    described = dataset.describe() if dataset.describe else None
    rows = described.rows if described and dataset.rows is None else dataset.rows
    written = OutputStatisticsOutputDatasetFacet(
        rowCount=rows, size=dataset.size_bytes, fileCount=dataset.files
    )
    return OutputDataset(
        namespace=dataset.namespace,
        name=dataset.name,
        facets={"columnLineage": copied_columns(_same_columns(dataset.copy_of, described.columns))}
        if described and dataset.copy_of
        else {},
        outputFacets={"outputStatistics": written}
        if rows is not None or dataset.size_bytes is not None
        else {},
    )
