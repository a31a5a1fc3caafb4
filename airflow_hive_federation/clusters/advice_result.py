"""Defines the result of the advice on copies. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CopyAdvice:
    """A copy that helps.

    :param table: ``database.table``.
    :param cluster: the cluster of the copy.
    :param key: the partition key of the window.
    :param days: the last days of the table; ``None`` if it is not a window.
    :param partitions: values of the partitions; empty for a window and for a whole table.
    :param copied_bytes: the bytes that are copied at once.
    :param kept_bytes: the bytes that are copied afterwards, per period, to keep it current.
    :param saved_bytes: the bytes that no longer cross sites, per period.
    :param statements: the number of templates that the copy serves.
    :param runs: the number of their runs in the period.
    """

    table: str
    cluster: str
    source: str
    keys: tuple[str, ...] = ()
    key: str | None = None
    days: int | None = None
    partitions: tuple[tuple[str, ...], ...] = ()
    copied_bytes: int
    kept_bytes: int = 0
    saved_bytes: int = 0
    statements: int = 0
    runs: int = 0

    @property
    def rate(self) -> float:
        """Bytes saved per byte copied."""
        return self.saved_bytes / max(self.copied_bytes + self.kept_bytes, 1)


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A group of statements that the advice does not serve.

    :param crossing_bytes: the bytes that its runs would read from other sites; ``None`` if unknown.
    :param why: the reason, as a clause.
    """

    template: str
    source: str
    runs: int
    crossing_bytes: int | None
    why: str


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Copies that help, and facts about the history behind them.

    :param days: the length of the period.
    :param budget_bytes: the largest number of bytes to copy; ``None`` means no limit.
    :param copies: the copies; those that save the most per byte come first.
    :param left_out: the groups that need other sites and are not served; those that read the most come first.
    :param statements: the number of templates in the history.
    :param runs: the number of their runs; retries count once.
    :param refused: the number of runs that no cluster could run.
    :param crossing_bytes: the bytes that all runs would read from other sites.
    """

    days: int
    budget_bytes: int | None
    copies: tuple[CopyAdvice, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    statements: int = 0
    runs: int = 0
    refused: int = 0
    crossing_bytes: int = 0

    @property
    def saved_bytes(self) -> int:
        return sum(copy.saved_bytes for copy in self.copies)

    @property
    def copied_bytes(self) -> int:
        """Bytes that all copies transfer in the period, at once and to keep them current."""
        return sum(copy.copied_bytes + copy.kept_bytes for copy in self.copies)
