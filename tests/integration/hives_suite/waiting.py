"""Scenarios that fail for a known want of the product; their tests come back when it is mended."""

from __future__ import annotations

from collections.abc import Iterable

from tests.integration.hives_suite.scenario import Scenario

#: Scenario → what it waits for. Nothing else leaves a scenario out.
WAITING = {
    "boot_kept": "a bootstrap does not fetch removed files from the change manager",
    "no_table_dir": "a bootstrap over a table directory that is missing is empty, where Hive fails",
    "no_partition_dir": "a bootstrap over a partition directory that is missing is empty, where Hive fails",
    "moved_away": "an increment over a partition directory that is missing is empty, where Hive fails",
    "staging": "files of .hive-staging and _tmp directories of external tables are copied",
}


def ready(scenarios: Iterable[Scenario]) -> tuple[Scenario, ...]:
    """Those that wait for nothing."""
    return tuple(one for one in scenarios if one.name not in WAITING)
