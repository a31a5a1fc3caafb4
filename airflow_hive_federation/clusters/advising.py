"""Reads a history and the tables that it names, and chooses the copies that would help."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from airflow_hive_federation.clusters.advice import advise
from airflow_hive_federation.clusters.advice_history import History, history_directory, read_history
from airflow_hive_federation.clusters.advice_result import Advice
from airflow_hive_federation.clusters.catalog import MetastoreFacts, clusters_of
from airflow_hive_federation.clusters.copies.objects import copyable
from airflow_hive_federation.clusters.registry import ClusterRegistry
from airflow_hive_federation.clusters.routing.inputs import primary_of
from airflow_hive_federation.errors import ConfigurationError, CopyRefusedError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.storage.options import StorageOptions


@dataclass(frozen=True, kw_only=True)
class AdviceOfHistory:
    """Advice, with facts about the history behind it.

    :param directory: the URI of the history.
    :param damaged: the lines of the history that are no records.
    """

    advice: Advice
    directory: str
    damaged: tuple[str, ...] = ()


def advise_from_history(
    client: MetastoreClient,
    registry: ClusterRegistry,
    *,
    directory: str | None = None,
    days: int = 7,
    budget_bytes: int | None = None,
    options: StorageOptions | None = None,
) -> AdviceOfHistory:
    """Choose the copies that would have saved bytes across sites in the last days.

    :param directory: the URI of the history; with ``None``, the one below the root of the default cluster.
    :param budget_bytes: the bytes that may be copied per period; ``None`` means no limit.
    :param options: storage options of the history.
    :raises ConfigurationError: days or budget are out of range.
    :raises UnknownClusterError: no cluster is configured.
    :raises ClusterMetadataError: cluster metadata of a table in the history is damaged.
    :raises StorageError: the history cannot be read.
    :raises MetastoreError: the metastore does not answer.
    """
    if days < 1 or (budget_bytes is not None and budget_bytes < 0):
        raise ConfigurationError(
            f"Advice cannot be computed for {days} days and a budget of {budget_bytes} bytes.",
            remedy="Choose 1 day or more, and a budget of 0 bytes or more.",
        )
    history_uri = history_directory(registry, directory)
    now = datetime.now(UTC)
    history = read_history(history_uri, now - timedelta(days=days), options)
    facts = MetastoreFacts(client, registry)
    advice = advise(
        history.records,
        facts,
        clusters_of(registry),
        today=now.astimezone().date(),
        days=days,
        budget_bytes=budget_bytes,
        refused=_refused(client, registry, facts, history),
    )
    return AdviceOfHistory(advice=advice, directory=history_uri, damaged=history.damaged)


def _refused(
    client: MetastoreClient, registry: ClusterRegistry, facts: MetastoreFacts, history: History
) -> dict[str, str]:
    """Return the tables of a history that cannot be copied, with the reasons."""
    names = sorted({read.table for record in history.records for read in record.reads})
    facts.prefetch(_pair(name) for name in names)
    clusters = clusters_of(registry)
    refused = {}
    for name in names:
        table = facts.table(*_pair(name))
        if table is None:
            continue
        secondary = next(
            (cluster for cluster in registry if cluster.name != primary_of(table, clusters)), None
        )
        if secondary is None:
            continue
        try:
            copyable(client, registry, name, secondary)
        except CopyRefusedError as error:
            refused[name] = error.message.partition(": ")[2].rstrip(".") or error.message
    return refused


def _pair(name: str) -> tuple[str, str]:
    database, _, table = name.partition(".")
    return database, table
