"""Groups the inputs of a statement by the clusters that hold their rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date

import numpy as np
from numpy.typing import NDArray

from airflow_hive_federation.clusters.placement import CatalogFacts, Clusters, Partitions, TableFacts
from airflow_hive_federation.clusters.predicates.conditions import And, may_be_read
from airflow_hive_federation.clusters.routing.decision import Group, InputUse
from airflow_hive_federation.clusters.statements.sources import Read
from airflow_hive_federation.clusters.statements.statement import TableName

MAX_EXAMPLES = 3
#: The largest number of partitions whose values a decision contains.
MAX_VALUES = 100
NO_METADATA = "it has no cluster metadata, and hive.use.default.cluster is off"


def input_uses(
    reads: Sequence[Read], catalog: CatalogFacts, clusters: Clusters, today: Sequence[date]
) -> tuple[InputUse, ...]:
    """Return each table that is read, once, in the order of the statement."""
    by_table: dict[tuple[TableName, bool], list[Read]] = {}
    for read in reads:
        by_table.setdefault((read.table, read.temporary is None), []).append(read)
    return tuple(_use(places, catalog, clusters, today) for places in by_table.values())


def primary_of(facts: TableFacts, clusters: Clusters) -> str | None:
    """Return the primary cluster of a table; ``None`` without cluster metadata and without a default."""
    if facts.placement is not None:
        return facts.placement.primary.cluster
    return clusters.default if clusters.use_default else None


def partition_names(facts: TableFacts, partitions: Partitions, chosen: NDArray[np.bool_]) -> tuple[str, ...]:
    """Return the names of the first partitions that are chosen."""
    numbers = np.flatnonzero(chosen)[:MAX_EXAMPLES].tolist()
    return tuple(_name(facts, partitions[number].values) for number in numbers)


def _name(facts: TableFacts, values: Sequence[str]) -> str:
    return "/".join(f"{key}={value}" for (key, _), value in zip(facts.partition_keys, values, strict=True))


def _use(
    places: Sequence[Read], catalog: CatalogFacts, clusters: Clusters, today: Sequence[date]
) -> InputUse:
    first_read = places[0]
    if first_read.temporary is not None:
        group = Group(readable=(first_read.temporary,))
        return InputUse(table=first_read.table, primary=first_read.temporary, groups=(group,))
    facts, views = first_read.facts, first_read.views
    if facts is None:
        return InputUse(table=first_read.table, views=views, unplaced="the metastore has no such table")
    primary = primary_of(facts, clusters)
    if primary is None:
        return InputUse(table=first_read.table, views=views, unplaced=NO_METADATA)
    with_rows = [place for place in places if place.rows]
    if not facts.is_partitioned:
        whole = (_whole(facts, primary),) if with_rows else ()
        return InputUse(table=first_read.table, views=views, primary=primary, groups=whole)
    if not with_rows:
        return InputUse(table=first_read.table, views=views, primary=primary)
    partitions = Partitions.of(catalog.partitions(facts))
    groups = _groups(facts, partitions, _read(with_rows, facts, partitions, today), primary)
    return InputUse(
        table=first_read.table, views=views, primary=primary, groups=groups, total=len(partitions)
    )


def _whole(facts: TableFacts, primary: str) -> Group:
    if facts.placement is None:
        return Group(readable=(primary,), bytes=facts.bytes)
    return Group(readable=facts.placement.readable, stale=facts.placement.stale, bytes=facts.bytes)


def _read(
    places: Iterable[Read], facts: TableFacts, partitions: Partitions, today: Sequence[date]
) -> NDArray[np.bool_]:
    flags = np.zeros(len(partitions), dtype=np.bool_)
    for place in places:
        flags |= may_be_read(And(place.conditions), partitions, facts.partition_keys, today)
    return flags


def _groups(
    facts: TableFacts, partitions: Partitions, read: NDArray[np.bool_], primary: str
) -> tuple[Group, ...]:
    numbers = np.flatnonzero(read)
    codes = partitions.home_codes[numbers]
    codes_by_home: dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]] = {}
    for code in sorted(set(codes.tolist())):
        # A partition without its own metadata is only in the cluster that updates its table.
        codes_by_home.setdefault(partitions.homes[code] or ((primary,), ()), []).append(code)
    return tuple(
        _group(
            facts, partitions, *home, numbers if len(codes_by_home) == 1 else numbers[np.isin(codes, of_home)]
        )
        for home, of_home in codes_by_home.items()
    )


def _group(
    facts: TableFacts,
    partitions: Partitions,
    readable: tuple[str, ...],
    stale: tuple[str, ...],
    numbers: NDArray[np.intp],
) -> Group:
    sizes = partitions.bytes[numbers]
    values = tuple(partitions[number].values for number in numbers[:MAX_VALUES].tolist())
    return Group(
        readable=readable,
        stale=stale,
        partitions=len(numbers),
        examples=tuple(_name(facts, of_one) for of_one in values[:MAX_EXAMPLES]),
        bytes=None if sizes.min() < 0 else int(sizes.sum()),
        values=values if len(numbers) <= MAX_VALUES else (),
        spans=_spans(facts, partitions, numbers),
    )


def _spans(
    facts: TableFacts, partitions: Partitions, numbers: NDArray[np.intp]
) -> tuple[tuple[str, str, str], ...]:
    spans = []
    for (key, _), column in zip(facts.partition_keys, partitions.columns, strict=True):
        texts, ranks = column.in_order
        ranks_chosen = ranks[numbers]
        spans.append((key, texts[ranks_chosen.min()], texts[ranks_chosen.max()]))
    return tuple(spans)
