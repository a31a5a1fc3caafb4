"""The table of Hive's replication suite names an existing scenario for each re-enacted test."""

from __future__ import annotations

import re
from pathlib import Path

from tests.integration.hives_suite import (
    acid,
    across,
    external,
    kept,
    managed,
    policies,
    statistics,
    transactions,
)

MODULES = (acid, across, external, kept, managed, policies, statistics, transactions)
ROOT = Path(__file__).parents[1] / "integration"
README = (ROOT / "hives_suite" / "README.md").read_text(encoding="utf-8")
NAMES = {
    f"{module.__name__.rpartition('.')[2]}.{scenario.name}": scenario
    for module in MODULES
    for scenario in module.SCENARIOS
}


def test_every_scenario_has_its_row_and_every_row_its_scenario() -> None:
    named = set(re.findall(r"`(\w+\.\w+)`", README.partition("\n## ")[2]))
    assert named == NAMES.keys()


def test_the_row_of_a_test_names_its_scenario() -> None:
    rows: dict[str, str] = {}
    for part in README.split("\n## ")[1:]:
        title, _, table = part.partition("\n")
        entries = re.findall(r"^\| (\w+) \| (.*) \|$", table, re.MULTILINE)
        rows |= {f"{title}.{method}": here for method, here in entries}
    for name, scenario in NAMES.items():
        methods = [method.partition(":")[0] for method in scenario.hive]
        assert all(f"`{name}`" in rows[method] for method in methods if method in rows), name


def test_every_row_has_a_text() -> None:
    assert not re.findall(r"^\| \S+ \|\s*\|$", README, re.MULTILINE)
    for name in re.findall(r"\b(test_\w+)", README):
        assert [*ROOT.rglob(f"{name}.py")] or name == "test_hives_suite_managed", name
