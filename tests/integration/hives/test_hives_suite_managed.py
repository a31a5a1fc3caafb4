"""Hive's own replication suite on plain managed tables, with a change manager: see hives_suite/README.md."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from tests.integration.hives_suite import across, kept, managed
from tests.integration.hives_suite.run import Failures, Pair, chosen, judge, run_scenarios
from tests.integration.hives_suite.scenario import Scenario

#: Hive's own replication takes minutes, and twice as many beside another such test on two cores.
pytestmark = pytest.mark.slow

SCENARIOS = (*managed.SCENARIOS, *kept.SCENARIOS, *across.SCENARIOS)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Metastores that leave managed tables what they are; the source has a change manager."""
    plain = {"metastore.metadata.transformer.class": " "}
    root = tmp_path_factory.mktemp("kept")
    keeping = {
        **plain,
        **dict.fromkeys(("metastore.repl.cm.enabled", "hive.repl.cm.enabled"), "true"),
        **dict.fromkeys(("metastore.repl.cmrootdir", "hive.repl.cmrootdir"), f"file://{root}"),
        "fs.file.checksums": "true",
    }
    with (
        EmbeddedMetastore.start("suite-source", settings=keeping) as source,
        EmbeddedMetastore.start("suite-target", settings=plain) as target,
        HiveSql(source, settings=keeping) as source_sql,
        HiveSql(target) as target_sql,
    ):
        yield Pair(source, target, source_sql, target_sql)


@pytest.fixture(scope="module")
def failures(
    pair: Pair, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Failures:
    root = tmp_path_factory.mktemp("suite")
    return run_scenarios(pair, chosen(request, SCENARIOS), root, database="managed", properties=managed.KEPT)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_replica_is_what_hives_suite_expects(scenario: Scenario, failures: Failures) -> None:
    judge(scenario, failures)
