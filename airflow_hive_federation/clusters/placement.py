"""Defines the facts that routing decides by: clusters, and the copies of tables and partitions in them. Pure.

Names of databases, tables, columns and partition keys are in lower case, as the metastore keeps them. Names
of clusters keep their case from the configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model.partitions import DEFAULT_PARTITION

#: The clusters with a fresh copy, the primary first, and those with a stale copy; ``None`` without metadata.
Home = tuple[tuple[str, ...], tuple[str, ...]] | None


@dataclass(frozen=True, slots=True)
class Copy:
    """The data of one object in one cluster.

    :param location: the URI of its directory.
    :param fresh: true if the copy equals the primary. A stale copy is never read.
    """

    cluster: str
    location: str
    fresh: bool = True


@dataclass(frozen=True, slots=True)
class Placement:
    """The copies of an unpartitioned table or of one partition.

    The primary's copy is always current, whatever its attribute ``fresh``.
    """

    primary: Copy
    secondaries: tuple[Copy, ...] = ()

    def on(self, cluster: str) -> Copy | None:
        """Return the copy in a cluster, fresh or stale; ``None`` if there is none."""
        return next((copy for copy in (self.primary, *self.secondaries) if copy.cluster == cluster), None)

    @property
    def readable(self) -> tuple[str, ...]:
        """The clusters that may read the object, the primary first."""
        fresh = (copy.cluster for copy in self.secondaries if copy.fresh)
        return tuple(dict.fromkeys((self.primary.cluster, *fresh)))

    @property
    def stale(self) -> tuple[str, ...]:
        """The clusters whose copies are not fresh."""
        readable = self.readable
        return tuple(copy.cluster for copy in self.secondaries if copy.cluster not in readable)


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """A partition of a table.

    :param values: the values in the order of the table's keys, as the metastore keeps them (not escaped).
    :param placement: the copies; ``None`` without cluster metadata, when the partition is in its table's
        primary cluster only.
    :param bytes: the size of its files; ``None`` if that is unknown.
    """

    values: tuple[str, ...]
    placement: Placement | None = None
    bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class TableFacts:
    """A table or view of the metastore.

    :param placement: the copies of the table. For a partitioned table, it contains the cluster that updates
        the table; each partition has its own copies. ``None`` without cluster metadata, when the table is in
        the default cluster.
    :param columns: the names of a view's columns, in their order. If they are unknown, predicates on the view
        prune no partitions of its tables.
    :param partition_keys: the names and Hive types of the partition keys.
    :param view_text: the expanded text of a view.
    :param view_database: the database of unqualified names in the view's text; by default that of the view.
    :param bytes: the size of its files without those of partitions; ``None`` if that is unknown.
    :param version: a text that changes with every change of the table, its partitions or their placement. If
        it is empty, changes cannot be detected, and no decision about the table is kept.
    """

    database: str
    name: str
    placement: Placement | None = None
    partition_keys: tuple[tuple[str, str], ...] = ()
    columns: tuple[str, ...] = ()
    view_text: str | None = None
    view_database: str | None = None
    bytes: int | None = None
    version: str = ""

    @property
    def is_partitioned(self) -> bool:
        return bool(self.partition_keys)

    @property
    def is_view(self) -> bool:
        return self.view_text is not None

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"


@dataclass(frozen=True, kw_only=True)
class Column:
    """The values of one partition key over all partitions.

    :param codes: the index of each partition's value in ``distinct``.
    """

    distinct: tuple[str, ...]
    codes: NDArray[np.int32]

    @cached_property
    def texts(self) -> NDArray[np.str_]:
        """The distinct values as an array, which compares them by code points, as Hive and Spark do."""
        return np.array(self.distinct, dtype=np.str_)

    @cached_property
    def code_of(self) -> dict[str, int]:
        """The index of each distinct value."""
        return {value: code for code, value in enumerate(self.distinct)}

    @property
    def default(self) -> int | None:
        """The index of Hive's default partition in ``distinct``; ``None`` if the table has none."""
        return self.code_of.get(DEFAULT_PARTITION)

    @cached_property
    def in_order(self) -> tuple[tuple[str, ...], NDArray[np.int32]]:
        """The distinct values in the order of their texts, and the rank of each partition's value."""
        numbers = sorted(range(len(self.distinct)), key=self.distinct.__getitem__)
        ranks = np.empty(len(numbers), dtype=np.int32)
        ranks[numbers] = np.arange(len(numbers), dtype=np.int32)
        return tuple(self.distinct[number] for number in numbers), ranks[self.codes]

    @cached_property
    def by_type(self) -> dict[str, list[Any]]:
        """A cache of the distinct values as values of a Hive type, for callers that have converted them."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Partitions(Sequence[PartitionFacts]):
    """The partitions of one table, stored by column: predicates over 100,000 of them take milliseconds."""

    rows: Sequence[PartitionFacts]

    @classmethod
    def of(cls, rows: Iterable[PartitionFacts]) -> Partitions:
        return rows if isinstance(rows, cls) else cls(rows=tuple(rows))

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> PartitionFacts: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PartitionFacts]: ...
    def __getitem__(self, index: int | slice) -> PartitionFacts | Sequence[PartitionFacts]:
        return self.rows[index]

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The values of the keys, as one column per key; none if there are no partitions."""
        return tuple(_column(values) for values in zip(*(row.values for row in self.rows), strict=True))

    @cached_property
    def homes(self) -> tuple[Home, ...]:
        """The distinct sets of clusters of the partitions."""
        return self._homes[0]

    @cached_property
    def home_codes(self) -> NDArray[np.int32]:
        """The index of each partition's set in :attr:`homes`."""
        return self._homes[1]

    @cached_property
    def bytes(self) -> NDArray[np.int64]:
        """The size of each partition; -1 if it is unknown."""
        sizes = (-1 if row.bytes is None else row.bytes for row in self.rows)
        return np.fromiter(sizes, dtype=np.int64, count=len(self.rows))

    @cached_property
    def _homes(self) -> tuple[tuple[Home, ...], NDArray[np.int32]]:
        codes_by_key: dict[Any, int] = {}
        homes: dict[Home, int] = {}
        codes = np.empty(len(self.rows), dtype=np.int32)
        for at, row in enumerate(self.rows):
            placement = row.placement
            # The key excludes the locations, which differ from partition to partition.
            key = placement and (
                placement.primary.cluster,
                tuple([(copy.cluster, copy.fresh) for copy in placement.secondaries]),
            )
            code = codes_by_key.get(key)
            if code is None:
                home = (placement.readable, placement.stale) if placement else None
                code = codes_by_key[key] = homes.setdefault(home, len(homes))
            codes[at] = code
        return tuple(homes), codes


def _column(values: Sequence[str]) -> Column:
    index = {value: code for code, value in enumerate(dict.fromkeys(values))}
    codes = np.fromiter((index[value] for value in values), dtype=np.int32, count=len(values))
    return Column(distinct=tuple(index), codes=codes)


class CatalogFacts(Protocol):
    """The interface through which routing reads the tables and partitions of a metastore.

    An implementation may query the metastore on demand. Its answers stay the same while one statement is
    routed.
    """

    def table(self, database: str, name: str) -> TableFacts | None:
        """Return the table or view; ``None`` if it does not exist."""
        ...

    def partitions(self, table: TableFacts) -> Sequence[PartitionFacts]:
        """Return all partitions of a partitioned table, preferably as a cached :class:`Partitions`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Session:
    """The state of a user's session.

    :param database: the database of unqualified names.
    :param cluster: the cluster of ``USE CLUSTER name``; ``None`` if each statement is routed.
    :param temporary: the names of the session's temporary tables, and the cluster that holds each.
    """

    database: str = "default"
    cluster: str | None = None
    temporary: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """The configured clusters.

    :param default: ``hive.default.cluster.name``: the cluster of tables without cluster metadata.
    :param use_default: ``hive.use.default.cluster``: tables without cluster metadata belong to the default
        cluster. If it is off, a statement that uses such a table is refused.
    :raises ConfigurationError: the default is none of the names.
    """

    names: tuple[str, ...]
    default: str
    use_default: bool = True

    def __post_init__(self) -> None:
        if self.default not in self.names:
            raise ConfigurationError(
                f"The default cluster {self.default!r} is not configured.",
                remedy=f"Name one of {', '.join(self.names)}, or configure it.",
            )

    def __contains__(self, name: object) -> bool:
        return name in self.names
