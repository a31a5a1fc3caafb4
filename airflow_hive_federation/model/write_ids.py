"""Decides which write ids and transactions a reader may see, by Hive's lists of valid ids.

A metastore returns these lists as structs, and Hive passes them on as text; this module reads and writes both
forms. Its results equal those of Hive's ``ValidReaderWriteIdList``, ``ValidCompactorWriteIdList`` and
``ValidReadTxnList``, even in their odd cases, because Hive and this package must choose the same directories.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Self

from airflow_hive_federation.errors import AcidFormatError, ConfigurationError

UNBOUNDED = 2**63 - 1
"""Java's ``Long.MAX_VALUE``: no high watermark, or no open id."""

#: Maximum characters of a list: some two million ids.
_LONGEST = 1 << 24
_SHOWN = 1000


class RangeState(StrEnum):
    """The part of a range of ids that has a property."""

    NONE = "none"
    SOME = "some"
    ALL = "all"


@dataclass(frozen=True, kw_only=True)
class _ValidIds:
    """The common base of write-id lists and transaction lists.

    :param high_watermark: highest id at the time of the list; all ids above it are invisible.
    :param open_ids: ids at or below it whose transactions were still open, ascending.
    :param aborted_ids: ids at or below it whose transactions were aborted, ascending.
    :param min_open_id: lowest open id; ``None`` if no id is open.
    """

    high_watermark: int
    open_ids: tuple[int, ...] = ()
    aborted_ids: tuple[int, ...] = ()
    min_open_id: int | None = None

    @cached_property
    def invalid_ids(self) -> tuple[int, ...]:
        """Return open and aborted ids together, ascending."""
        return tuple(sorted((*self.open_ids, *self.aborted_ids)))

    def is_valid(self, an_id: int) -> bool:
        """Return whether rows of this id are visible."""
        return an_id <= self.high_watermark and not _contains(self.invalid_ids, an_id)

    def is_aborted(self, an_id: int) -> bool:
        """Return whether the list has the id as aborted."""
        return _contains(self.aborted_ids, an_id)

    def has_open(self, low: int, high: int) -> bool:
        """Return whether an id of ``low..high``, both included, was open at the time of the list."""
        return _count(self.open_ids, low, high) > 0

    def range_state(self, low: int, high: int) -> RangeState:
        """Return whether none, some or all ids of ``low..high`` are visible (``isWriteIdRangeValid``)."""
        if low > self.high_watermark:
            return RangeState.NONE
        invalid = self.invalid_ids
        if invalid and invalid[0] > high:
            return RangeState.ALL
        count = max(0, high - self.high_watermark) + _count(invalid, low, high)
        return _share(high - low + 1 - count, high - low + 1)

    def range_aborted(self, low: int, high: int) -> RangeState:
        """Return whether none, some or all ids of ``low..high`` are aborted (``isWriteIdRangeAborted``)."""
        if self.high_watermark < low:
            return RangeState.NONE
        return _share(_count(self.aborted_ids, low, high), high - low + 1)

    def _cut(self, high_watermark: int) -> dict[str, object]:
        if high_watermark > self.high_watermark:
            raise ConfigurationError(
                f"A list of valid ids up to {self.high_watermark} does not cover {high_watermark}.",
                remedy="Ask the metastore for a newer list.",
            )
        open_ids = self.open_ids[: bisect_right(self.open_ids, high_watermark)]
        return {
            "high_watermark": high_watermark,
            "open_ids": open_ids,
            "aborted_ids": self.aborted_ids[: bisect_right(self.aborted_ids, high_watermark)],
            "min_open_id": open_ids[0] if open_ids else None,
        }

    def _text(self) -> str:
        lowest = UNBOUNDED if self.min_open_id is None else self.min_open_id
        return f"{self.high_watermark}:{lowest}:{_join(self.open_ids)}:{_join(self.aborted_ids)}"


@dataclass(frozen=True, kw_only=True)
class ValidWriteIds(_ValidIds):
    """The write ids of one table that a reader may see: those of committed transactions.

    :param table: ``database.table``; ``None`` where Hive writes ``null``.
    """

    table: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse Hive's text form, ``db.table:high watermark:lowest open:open,…:aborted,…``.

        :raises AcidFormatError: if the text is empty or malformed. (For Hive an empty text means that all ids
            are valid, which no reader of an ACID table ever wants; see :meth:`everything`.)
        """
        table, _, rest = text.partition(":")
        return cls(table=None if table.lower() == "null" else table, **_parse(rest, text))  # type: ignore[arg-type]

    @classmethod
    def of(
        cls,
        table: str,
        *,
        high_watermark: int,
        invalid_ids: Sequence[int] = (),
        aborted_bits: bytes = b"",
        min_open_id: int | None = None,
    ) -> Self:
        """Build the list from the fields of the metastore's ``TableValidWriteIds``.

        :param invalid_ids: open and aborted ids.
        :param aborted_bits: Java ``BitSet`` bytes; bit *i* is set if ``invalid_ids[i]`` is aborted.
        """
        return cls(table=table, **_from_bits(high_watermark, invalid_ids, aborted_bits, min_open_id))  # type: ignore[arg-type]

    @classmethod
    def everything(cls, table: str | None = None) -> Self:
        """Build a list in which every write id is valid."""
        return cls(table=table, high_watermark=UNBOUNDED)

    def text(self) -> str:
        """Return Hive's text form (``ValidReaderWriteIdList.writeToString``)."""
        return f"{self.table or 'null'}:{self._text()}"

    def cut(self, high_watermark: int) -> Self:
        """Return the list, cut to a lower high watermark.

        :raises ConfigurationError: if ``high_watermark`` is above the list's own.
        """
        return type(self)(table=self.table, **self._cut(high_watermark))  # type: ignore[arg-type]

    def is_valid_base(self, write_id: int) -> bool:
        """Return whether this reader may see all rows of a compacted base up to ``write_id``."""
        lowest = UNBOUNDED if self.min_open_id is None else self.min_open_id
        return write_id < lowest and write_id <= self.high_watermark

    def for_compactor(self) -> CompactorWriteIds:
        """Return the write ids that a compactor may read: all below the lowest open write id.

        Hive does the same in ``TxnCommonUtils.createValidCompactWriteIdList``.
        """
        top = self.high_watermark if self.min_open_id is None else self.min_open_id - 1
        top = min(top, self.high_watermark)
        aborted = self.aborted_ids[: bisect_right(self.aborted_ids, top)]
        return CompactorWriteIds(table=self.table, high_watermark=top, aborted_ids=aborted)


@dataclass(frozen=True, kw_only=True)
class CompactorWriteIds(ValidWriteIds):
    """The write ids that a compactor may read (``ValidCompactorWriteIdList``), in the reader's text form."""

    def range_state(self, low: int, high: int) -> RangeState:
        """Return ``ALL`` if no transaction of a range can still change, else ``NONE``: deltas stay whole."""
        del low
        return RangeState.ALL if self.high_watermark >= high else RangeState.NONE


@dataclass(frozen=True, kw_only=True)
class ValidTxns(_ValidIds):
    """The transactions whose rows a reader may see (``ValidReadTxnList``)."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse Hive's text form, ``high watermark:lowest open:open,…:aborted,…``.

        :raises AcidFormatError: if the text is empty or malformed.
        """
        return cls(**_parse(text, text))  # type: ignore[arg-type]

    @classmethod
    def of(
        cls,
        *,
        high_watermark: int,
        invalid_ids: Sequence[int] = (),
        aborted_bits: bytes = b"",
        min_open_id: int | None = None,
    ) -> Self:
        """Build the list from the fields of the metastore's ``GetOpenTxnsResponse``."""
        return cls(**_from_bits(high_watermark, invalid_ids, aborted_bits, min_open_id))  # type: ignore[arg-type]

    @classmethod
    def everything(cls) -> Self:
        """Build a list in which every transaction is valid."""
        return cls(high_watermark=UNBOUNDED)

    def text(self) -> str:
        """Return Hive's text form (``ValidReadTxnList.writeToString``)."""
        return self._text()


def _parse(rest: str, text: str) -> dict[str, object]:
    try:
        if len(rest) > _LONGEST:
            raise ValueError("too long")
        parts = rest.split(":")
        if not 2 <= len(parts) <= 4:
            raise ValueError("wrong number of parts")
        high, lowest = int(parts[0]), int(parts[1])
        open_ids, aborted = (_split(parts, 2), _split(parts, 3))
    except ValueError as error:
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
        raise AcidFormatError(
            f"Not a list of valid ids in Hive's form: {shown!r}.",
            remedy="Expected [db.table:]high watermark:lowest open:open ids:aborted ids.",
        ) from error
    return {
        "high_watermark": high,
        "open_ids": open_ids,
        "aborted_ids": aborted,
        "min_open_id": None if lowest == UNBOUNDED else lowest,
    }


def _from_bits(
    high_watermark: int, invalid_ids: Sequence[int], aborted_bits: bytes, min_open_id: int | None
) -> dict[str, object]:
    aborted = [an_id for i, an_id in enumerate(invalid_ids) if _bit(aborted_bits, i)]
    open_ids = sorted(set(invalid_ids) - set(aborted))
    if min_open_id is None or min_open_id == UNBOUNDED or not invalid_ids:
        lowest = open_ids[0] if open_ids else None
    else:
        lowest = min_open_id
    return {
        "high_watermark": high_watermark,
        "open_ids": tuple(open_ids),
        "aborted_ids": tuple(sorted(aborted)),
        "min_open_id": lowest,
    }


def _bit(bits: bytes, index: int) -> bool:
    byte = index >> 3
    return byte < len(bits) and bool(bits[byte] >> (index & 7) & 1)


def _split(parts: Sequence[str], index: int) -> tuple[int, ...]:
    if index >= len(parts) or not parts[index]:
        return ()
    return tuple(sorted(int(part) for part in parts[index].split(",")))


def _join(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids))


def _contains(ids: Sequence[int], an_id: int) -> bool:
    index = bisect_left(ids, an_id)
    return index < len(ids) and ids[index] == an_id


def _count(ids: Sequence[int], low: int, high: int) -> int:
    return max(0, bisect_right(ids, high) - bisect_left(ids, low))


def _share(count: int, total: int) -> RangeState:
    if count == 0:
        return RangeState.NONE
    return RangeState.ALL if count == total else RangeState.SOME
