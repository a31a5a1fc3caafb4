"""Defines the decisions of the router, with all their reasons. Pure, and safe to pickle."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from airflow_hive_federation.clusters.statements.statement import TableName, Unanalysable


class Rule(StrEnum):
    """The routing rule behind a decision."""

    SESSION = "session"
    OUTPUT = "output"
    INPUT = "input"
    NO_TABLES = "no tables"
    UNANALYSABLE = "unanalysable"
    UNKNOWN_CLUSTER = "unknown cluster"
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class Group:
    """Partitions that a statement reads and that are in the same clusters, or an unpartitioned table.

    :param readable: the clusters with a fresh copy, the primary first.
    :param stale: the clusters whose copies are not fresh.
    :param partitions: the number of partitions; ``None`` for an unpartitioned table.
    :param examples: the names of the first partitions.
    :param bytes: the size of the partitions; ``None`` if any size is unknown.
    :param values: the values of all partitions, unless there are too many.
    :param spans: each partition key, with its least and greatest value as texts.
    """

    readable: tuple[str, ...]
    stale: tuple[str, ...] = ()
    partitions: int | None = None
    examples: tuple[str, ...] = ()
    bytes: int | None = None
    values: tuple[tuple[str, ...], ...] = ()
    spans: tuple[tuple[str, str, str], ...] = ()

    def __str__(self) -> str:
        """Name the partitions, as the end of a sentence about the table."""
        if self.partitions is None:
            return ""
        shown = ", ".join(self.examples)
        rest = self.partitions - len(self.examples)
        noun = "partition" if self.partitions == 1 else "partitions"
        return f" {noun} {shown}" + (f" and {rest:,} more" if rest > 0 else "")


@dataclass(frozen=True, kw_only=True)
class InputUse:
    """A table that a statement reads.

    :param views: the views through which the statement reads it.
    :param primary: the primary cluster; ``None`` for a table in no cluster.
    :param groups: the partitions that are read, grouped by their clusters.
    :param total: the number of all partitions; ``None`` for an unpartitioned table.
    :param unplaced: the reason why its cluster is unknown, as a clause; empty if it is known.
    """

    table: TableName
    views: tuple[TableName, ...] = ()
    primary: str | None = None
    groups: tuple[Group, ...] = ()
    total: int | None = None
    unplaced: str = ""

    def problems(self, cluster: str) -> list[str]:
        """Return the reasons why a cluster cannot read the table, as clauses."""
        clauses = []
        for group in self.groups:
            if cluster not in group.readable:
                state = "stale there" if cluster in group.stale else "not there"
                are, they_are = ("is", "it is") if group.partitions in {None, 1} else ("are", "they are")
                where = ", ".join(group.readable)
                clauses.append(f"{self.table}{group} {are} {state} ({they_are} in {where})")
        return clauses


@dataclass(frozen=True, kw_only=True)
class OutputUse:
    """A table that a statement writes.

    :param primaries: the primary clusters of the table, and of the partitions that may be written. Empty for
        a view and for a new table, which is created in the cluster that runs the statement.
    :param examples: the names of partitions whose primary differs from the table's.
    """

    table: TableName
    new: bool = False
    primaries: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    unplaced: str = ""

    def __str__(self) -> str:
        also = f" (partition {', '.join(self.examples)})" if self.examples else ""
        return f"{self.table} is of {' and '.join(self.primaries)}{also}"


@dataclass(frozen=True)
class Attempt:
    """A cluster that was tried, and the problems that kept it from running the statement."""

    cluster: str
    problems: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The cluster that runs a statement, and the reasons for it.

    :param cluster: the cluster; ``None`` if no cluster can run the statement.
    :param rule: the rule that decided.
    :param attempts: the clusters that were tried, in order.
    :param wanted: the session's cluster, if it is set.
    """

    rule: Rule
    reason: str
    cluster: str | None = None
    inputs: tuple[InputUse, ...] = ()
    outputs: tuple[OutputUse, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    wanted: str | None = None
    unanalysable: Unanalysable | None = None
    remedy: str = (
        "Copy what is missing to the cluster; `hive-federation route --explain` prints the cheapest copies."
    )
