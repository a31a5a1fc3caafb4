"""Hive's own replication suite on plain managed tables, with a change manager: see hives_suite/README.md."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from tests.integration.hives_suite import managed
from tests.integration.hives_suite.run import Failures, Pair, run_scenarios
from tests.integration.hives_suite.scenario import Scenario

pytestmark = pytest.mark.slow

SCENARIOS = managed.SCENARIOS


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Metastores that leave managed tables what they are, the source with a change manager, as in Hive's suite."""
    plain = {"metastore.metadata.transformer.class": " "}
    kept = tmp_path_factory.mktemp("kept")
    keeping = {
        **plain,
        **dict.fromkeys(("metastore.repl.cm.enabled", "hive.repl.cm.enabled"), "true"),
        **dict.fromkeys(("metastore.repl.cmrootdir", "hive.repl.cmrootdir"), f"file://{kept}"),
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
    return run_scenarios(pair, chosen(request), root, database="managed", properties=managed.KEPT)


def chosen(request: pytest.FixtureRequest) -> list[Scenario]:
    """The scenarios whose tests are to run."""
    items = [one for one in request.session.items if one.path == request.path]
    names = {one.callspec.params["scenario"].name for one in items if hasattr(one, "callspec")}
    return [one for one in SCENARIOS if one.name in names]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_the_replica_is_what_hives_suite_expects(scenario: Scenario, failures: Failures) -> None:
    if scenario.name in failures:
        error = failures[scenario.name]
        pytest.fail(f"{type(error).__name__}: {error}", pytrace=False)
