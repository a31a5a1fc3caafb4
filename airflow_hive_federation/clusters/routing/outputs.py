"""Finds the clusters in which the outputs of a statement may be written. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import numpy as np

from airflow_hive_federation.clusters.placement import CatalogFacts, Clusters, Partitions, Session, TableFacts
from airflow_hive_federation.clusters.predicates.conditions import And, Compare, Constant, Key, may_be_read
from airflow_hive_federation.clusters.routing.decision import OutputUse
from airflow_hive_federation.clusters.routing.inputs import NO_METADATA, partition_names, primary_of
from airflow_hive_federation.clusters.statements.statement import Output, TableName


def output_uses(
    outputs: Sequence[Output], catalog: CatalogFacts, clusters: Clusters, session: Session
) -> tuple[OutputUse, ...]:
    """Return the tables that are written, in the order of the statement."""
    return tuple(dict.fromkeys(_use(output, catalog, clusters, session) for output in outputs))


def _use(output: Output, catalog: CatalogFacts, clusters: Clusters, session: Session) -> OutputUse:
    name = output.table
    if output.temporary:
        return OutputUse(table=name, new=True)
    if name.database is None and name.name in session.temporary:
        return OutputUse(table=name, primaries=(session.temporary[name.name],))
    full = TableName(name.database or session.database, name.name)
    facts = catalog.table(full.database or "", full.name)
    if facts is None or facts.is_view:
        return OutputUse(table=full, new=facts is None)
    primary = primary_of(facts, clusters)
    if primary is None:
        return OutputUse(table=full, unplaced=NO_METADATA)
    return _with_partitions(full, facts, output, primary, catalog)


def _with_partitions(
    name: TableName, facts: TableFacts, output: Output, primary: str, catalog: CatalogFacts
) -> OutputUse:
    """Return the output with the primaries of its partitions that may be written."""
    if not facts.is_partitioned:
        return OutputUse(table=name, primaries=(primary,))
    partitions = Partitions.of(catalog.partitions(facts))
    other_homes = [home for home in partitions.homes if home is not None and home[0][0] != primary]
    if not other_homes:
        return OutputUse(table=name, primaries=(primary,))
    fixed = [Compare("=", Key(key), Constant(value)) for key, value in output.partition if value is not None]
    written = may_be_read(And(tuple(fixed)), partitions, facts.partition_keys, (date.min,))
    foreign = np.isin(
        partitions.home_codes, [code for code, home in enumerate(partitions.homes) if home in other_homes]
    )
    chosen = written & foreign
    codes = np.unique(partitions.home_codes[chosen]).tolist()
    elsewhere = [home[0][0] for home in (partitions.homes[code] for code in codes) if home is not None]
    return OutputUse(
        table=name,
        primaries=tuple(dict.fromkeys((primary, *elsewhere))),
        examples=partition_names(facts, partitions, chosen),
    )
