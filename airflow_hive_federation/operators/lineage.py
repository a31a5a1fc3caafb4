"""What tasks tell about the tables they read and write: Airflow's assets, and OpenLineage's datasets.

A table is ``hive://host:port/database/table`` as an asset, and ``database.table`` in the namespace
``hive://host:port`` as a dataset, as OpenLineage names Hive's. Host and port are the first of the connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.sdk import Asset, AssetAlias

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from airflow_hive_federation.metastore import MetastoreSettings

#: Asset aliases through which tasks update the assets of tables, which are known only when they run.
REPLICATED = AssetAlias("hive_replication")
SYNCED = AssetAlias("hive_remotes")

#: Name of the run facet that lists tables which a task left out.
SKIPPED_TABLES = "hiveFederation_skippedTables"

_PORT = 9083


@dataclass(frozen=True, kw_only=True)
class TableDataset:
    """A table as lineage names it.

    :param namespace: ``hive://host:port``.
    :param database: its database.
    :param table: its name.
    :param rows: rows that were written to it, where that is known.
    :param size_bytes: bytes that were written to it, where that is known.
    """

    namespace: str
    database: str
    table: str
    rows: int | None = None
    size_bytes: int | None = None

    @property
    def asset(self) -> Asset:
        """The table as an asset."""
        return Asset(f"{self.namespace}/{quote(self.database)}/{quote(self.table)}")


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """The data sets that a task has read and written.

    :param skipped: tables of the source that the task left out, with the reason.
    """

    inputs: list[TableDataset] = field(default_factory=list)
    outputs: list[TableDataset] = field(default_factory=list)
    skipped: Mapping[str, str] = field(default_factory=dict)


class LineageOperator:
    """An operator that tells OpenLineage what it has read and written: ``self.lineage``, when it is known."""

    lineage: Lineage | None = None

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:
        """Called by the OpenLineage provider, where there is one."""
        from airflow.providers.common.compat.openlineage.facet import InputDataset
        from airflow.providers.openlineage.extractors import OperatorLineage

        lineage = self.lineage or Lineage()
        return OperatorLineage(
            inputs=[
                InputDataset(namespace=one.namespace, name=f"{one.database}.{one.table}")
                for one in lineage.inputs
            ],
            outputs=[_output(one) for one in lineage.outputs],
            run_facets={SKIPPED_TABLES: _skipped(lineage.skipped)} if lineage.skipped else {},
        )


def namespace(settings: MetastoreSettings) -> str:
    """The namespace of a metastore's tables."""
    first = urlsplit(settings.uris[0])
    return f"hive://{first.hostname}:{first.port or _PORT}"


def announce(
    context: Context, alias: AssetAlias, tables: Iterable[TableDataset], extra: Mapping[str, Any]
) -> None:
    """Update the assets of tables: DAGs that are scheduled on them start when the task has succeeded.

    :param context: the task's context; it has no outlets outside Airflow.
    :param alias: among the task's outlets.
    :param extra: what consumers are told.
    """
    if "outlet_events" in context:
        for table in tables:
            context["outlet_events"][alias].add(table.asset, extra=dict(extra))


def _skipped(tables: Mapping[str, str]) -> Any:
    # OpenLineage's client serialises facets that are attrs classes, and brings attrs with it.
    import attr
    from airflow.providers.common.compat.openlineage.facet import RunFacet

    facet = attr.make_class("SkippedTablesRunFacet", {"tables": attr.field(type=dict)}, bases=(RunFacet,))
    return facet(tables=dict(tables))


def _output(one: TableDataset) -> Any:
    from airflow.providers.common.compat.openlineage.facet import (
        OutputDataset,
        OutputStatisticsOutputDatasetFacet,
    )

    facets: dict[str, Any] = {}
    if one.rows is not None or one.size_bytes is not None:
        facets["outputStatistics"] = OutputStatisticsOutputDatasetFacet(
            rowCount=one.rows, size=one.size_bytes
        )
    return OutputDataset(namespace=one.namespace, name=f"{one.database}.{one.table}", outputFacets=facets)
