"""Finds the tables of a replica that have changed since a verification last found it equal to its source."""

from __future__ import annotations

from collections.abc import Collection

from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.verify.report import (
    VerificationReport,
    found_equal,
    found_unequal,
    write_report,
)
from airflow_hive_federation.storage.options import StorageOptions


def tables_to_compare(
    dump: str, options: StorageOptions | None = None, *, idle: bool = False
) -> set[str] | None:
    """Return the tables to compare after a cycle; ``None`` stands for all.

    These are the tables that the cycle changed, and those of earlier cycles whose verification was killed,
    failed or left out: such cycles reach back to the latest dump that a verification has found equal. So are
    the tables that the verifications of these cycles found unequal, whichever cycle changed them.

    :param dump: URI of the dump from which the target was last loaded.
    :param options: options of the dump's storage.
    :param idle: the cycle changed nothing, so an earlier one has loaded the dump.
    """
    directory = DumpDirectory(dump, options)
    names: set[str] = set()
    if idle and found_equal(directory):
        return names
    seen: set[str] = set()
    while True:
        manifest = directory.manifest()
        names.update(entry.name for entry in manifest.changed_tables)
        names.update(found_unequal(directory))
        seen.add(directory.uri)
        if not manifest.is_increment or manifest.previous in seen:
            return None
        directory = DumpDirectory(manifest.previous, options)
        if found_equal(directory):
            return names
        if not directory.dump_finished:
            return None  # Old dumps are removed.


def is_due(dump: str, options: StorageOptions | None = None, *, every: int) -> bool:
    """Return whether a verification is due after a cycle that has changed something.

    It is due after a bootstrap, after so many cycles that no verification has found equal, and as long as the
    last verification found differences or rows that cannot be read.

    :param dump: URI of the dump from which the target was last loaded.
    :param options: options of the dump's storage.
    :param every: number of cycles per verification.
    """
    directory = DumpDirectory(dump, options)
    for _ in range(every):
        if found_equal(directory):
            return False
        manifest = directory.manifest()
        if found_unequal(directory) or not manifest.is_increment:
            return True
        directory = DumpDirectory(manifest.previous, options)
        if not directory.dump_finished:
            return True  # Old dumps are removed.
    return True


def keep_report(directory: DumpDirectory, report: VerificationReport, tables: Collection[str] | None) -> None:
    """Write a report beside its dump, unless it would pass tables that no verification has compared.

    :param tables: the tables that were compared; ``None`` stands for all. A repair compares those that its
        report names, and its cycles bring changes of others.
    """
    if tables is not None and not (report.differences or report.failures):
        needed = tables_to_compare(directory.uri, directory.options)
        if needed is None or not needed <= set(tables):
            return
    write_report(directory, report)
