"""Describes the result of a verification: differences, failures to read, and a report per table.

The last result lies beside the dump with which a target was compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from airflow_hive_federation.errors import (
    DumpCorruptError,
    VerificationError,
    VerificationIncompleteError,
)
from airflow_hive_federation.model import json_values
from airflow_hive_federation.model.json_values import Fields, Reader
from airflow_hive_federation.model.results import result_json
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.replica.differences import (
    RETAINED,
    Difference,
)

T = TypeVar("T")

#: The last verification's report, beside the dump.
_FILE = "_verified.json"


@dataclass(frozen=True, kw_only=True)
class TableReport:
    """The result of a verification for one table.

    :param source_rows: number of rows that a reader of the source saw at the dump's write ids; ``None`` if
        rows of the format are not counted, and for views.
    :param target_rows: number of rows that a reader of the target sees now.
    :param digest_equal: all files have the digests of the source's.
    :param note: the reason for which rows were not compared: files of the source are gone, or rows of the
        format are not counted.
    """

    name: str
    kind: str
    source_rows: int | None
    target_rows: int | None
    files: int
    size_bytes: int
    digest_equal: bool
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class ReadFailure:
    """A table whose rows could not be read on one side, and so were not compared.

    :param side: ``source`` or ``target``.
    :param reason: the error; it names the file, if one is known.
    """

    table: str
    side: str
    reason: str

    def __str__(self) -> str:
        return f"{self.table}: its rows on the {self.side} cannot be read: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class VerificationResult:
    """A verification as tasks and commands return it.

    :param differences: the descriptions of the differences.
    :param failures: the descriptions of the tables whose rows could not be read.
    :param unread: the names of these tables.
    :param differing: the names of the tables that differ; empty for the database itself.
    """

    database: str
    event_id: int
    tables: Sequence[TableReport | Mapping[str, Any]]
    not_compared: Mapping[str, str]
    differences: Sequence[str]
    failures: Sequence[str]
    unread: Sequence[str]
    differing: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class VerificationReport:
    """The result of a verification.

    :param not_compared: the tables of the source that the policy selects but that are not replicated, each
        with the reason.
    :param differences: the differences, which a repair corrects.
    :param failures: the tables that could not be compared, on which no repair acts.
    """

    database: str
    event_id: int
    tables: Sequence[TableReport]
    differences: Sequence[Difference] = field(default_factory=tuple)
    not_compared: Mapping[str, str] = field(default_factory=dict)
    failures: Sequence[ReadFailure] = field(default_factory=tuple)

    def result(self) -> VerificationResult:
        """Return the report with descriptions in place of differences and failures."""
        return VerificationResult(
            database=self.database,
            event_id=self.event_id,
            tables=self.tables,
            not_compared=self.not_compared,
            differences=[str(difference) for difference in self.differences],
            failures=[str(failure) for failure in self.failures],
            unread=sorted({failure.table for failure in self.failures}),
            differing=sorted({difference.table for difference in self.differences}),
        )

    def raise_if_different(self) -> None:
        """Raise an error that names every difference, and every failure to read.

        :raises VerificationError: the sides differ.
        :raises VerificationIncompleteError: no difference was found, but some rows could not be read.
        """
        failures = [str(failure) for failure in self.failures]
        if self.differences:
            lines = "\n  ".join(map(str, self.differences))
            raise VerificationError(
                f"Replica {self.database} differs from its source in {len(self.differences)} "
                f"place(s):\n  {lines}" + "".join(f"\n  {failure}" for failure in failures),
                remedy=self._remedy(),
                differences=[str(difference) for difference in self.differences],
            )
        if failures:
            raise VerificationIncompleteError(
                f"Rows of replica {self.database} cannot be compared with its source:\n  "
                + "\n  ".join(failures),
                remedy="Read the tables with Hive. If Hive cannot read them either, write them anew on the "
                "source; if it can, leave them out of the verification, and report what cannot be read.",
                failures=failures,
            )

    def _remedy(self) -> str:
        kept = sorted({difference.table for difference in self.differences if difference.what == RETAINED})
        advice = (
            f"Decide what becomes of {', '.join(kept)}: leave it out of the policy (exclude_tables), which "
            "drops its replica, or drop the replica by hand."
            if kept
            else ""
        )
        if len(kept) == len(self.differences):
            return advice
        return (
            "Find and stop the writer of the target; then repair the replica (RepairReplicaOperator, "
            f"hive-federation replicate repair), which undoes the differences. {advice}".strip()
        )


def write_report(directory: DumpDirectory, report: VerificationReport) -> None:
    """Write a report beside the dump with which a target was compared, in place of the one before."""
    directory.add_lines(_FILE, [result_json(report.result())])


def found_equal(directory: DumpDirectory) -> bool:
    """Return whether the last verification that compared tables with a dump found neither differences nor
    failures.
    """
    return _last_report(directory, _is_equal) is True


def found_unequal(directory: DumpDirectory) -> frozenset[str]:
    """Return the tables that the last verification against a dump found different, or could not read."""
    return _last_report(directory, _unequal_tables) or frozenset()


def _last_report(directory: DumpDirectory, read: Reader[T]) -> T | None:
    if not directory.exists(_FILE):
        return None
    try:
        reports = list(directory.read_report(_FILE, read))
    except DumpCorruptError:
        return None  # It was changed by hand, or written by another version.
    return reports[0] if len(reports) == 1 else None


def _is_equal(value: object) -> bool:
    fields = Fields(value)
    texts = json_values.list_of(json_values.text)
    return not (fields.needed("differences", texts) or fields.needed("failures", texts))


def _unequal_tables(value: object) -> frozenset[str]:
    fields = Fields(value)
    texts = json_values.list_of(json_values.text)
    return frozenset((*fields.needed("differing", texts), *fields.needed("unread", texts)))
