"""Finds the tables of a replica that have changed since a verification last found it equal to its source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.verify.report import found_equal


def tables_to_compare(
    dump: str, options: Mapping[str, Any] | None = None, *, idle: bool = False
) -> set[str] | None:
    """Return the tables to compare after a cycle; ``None`` stands for all.

    These are the tables that the cycle changed, and those of earlier cycles whose verification was killed,
    failed or left out: such cycles reach back to the latest dump that a verification has found equal.

    :param dump: URI of the dump from which the target was last loaded.
    :param options: options of the dump's storage.
    :param idle: the cycle changed nothing, so an earlier one has loaded the dump.
    """
    directory = DumpDirectory(dump, options)
    names: set[str] = set()
    if idle and found_equal(directory):
        return names
    while True:
        manifest = directory.manifest()
        names.update(entry.name for entry in manifest.changed_tables)
        if not manifest.is_increment:
            return None
        directory = DumpDirectory(manifest.previous, options)
        if found_equal(directory):
            return names
        if not directory.dump_finished:
            return None  # Old dumps are removed.
