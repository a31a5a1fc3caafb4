"""Hive's own replication suite on external tables: see hives_suite/README.md."""

from __future__ import annotations

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from tests.integration.hives_suite import across, external, managed
from tests.integration.hives_suite.run import Failures, Pair, chosen, judge, run_scenarios
from tests.integration.hives_suite.scenario import Scenario

#: Hive's own replication takes minutes, and twice as many beside another such test on two cores.
pytestmark = pytest.mark.slow

#: Hive 4 makes plain tables external ones that it purges.
TRANSLATED = (
    managed.DROPS,
    managed.ALTERS,
    managed.RENAMED,
    managed.EXCHANGE,
    managed.TRUNCATE,
    managed.REPEATED,
    across.DDL,
    across.RECREATED,
    across.VIEWS,
)
SCENARIOS = (*external.SCENARIOS, *TRANSLATED)


@pytest.fixture(scope="module")
def failures(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Failures:
    pair = Pair(source, target, hive_sql_source, hive_sql_target)
    root = tmp_path_factory.mktemp("suite")
    return run_scenarios(pair, chosen(request, SCENARIOS), root, database="suite_external")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_replica_is_what_hives_suite_expects(scenario: Scenario, failures: Failures) -> None:
    judge(scenario, failures)
