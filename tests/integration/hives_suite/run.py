"""Runs scenarios of Hive's suite, many in one database: one cycle serves a step of all of them.

Each scenario has tables of its own, and fails alone: by what Hive says on one side or the other. Where a cycle
itself fails, all that share its database fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.replication.cycle import dump_next_increment, load_dump, load_idle
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain, drain
from tests.integration.hives_suite.equal import unequal
from tests.integration.hives_suite.scenario import Scenario, Scene, Step, expected
from tests.integration.incrementing import Cycles, cycles, run_copy

Failures = dict[str, BaseException]


@dataclass(frozen=True)
class Pair:
    """Two metastores, and Hive on both."""

    source: EmbeddedMetastore
    target: EmbeddedMetastore
    source_sql: HiveSql
    target_sql: HiveSql


def run_scenarios(
    pair: Pair, scenarios: Iterable[Scenario], root: Path, *, database: str, properties: str = ""
) -> Failures:
    """Run scenarios to their ends; return what failed, by scenario.

    :param root: directory for dumps and files.
    :param database: the database of those that need none of their own.
    :param properties: its properties, as in ``CREATE DATABASE name …``.
    """
    for sql in (pair.source_sql, pair.target_sql):
        # A number of rows is counted, and statistics of columns are written by those who are about them.
        sql.set("hive.compute.query.using.stats", "false")
        sql.set("hive.stats.column.autogather", "false")
    failures: Failures = {}
    every = list(scenarios)
    shared = [one for one in every if one.properties is None]
    batches = [(database, properties, shared)] if shared else []
    batches += [(f"{database}_{one.name}", one.properties or "", [one]) for one in every if one not in shared]
    for name, properties, some in batches:
        pair.source_sql.execute(f"CREATE DATABASE {name} {properties.replace('{root}', str(root))}")
        base = f"file:{pair.target.external_warehouse}/{name}_base"
        sql = (pair.source_sql, pair.target_sql)
        with cycles(pair.source, pair.target, sql, root, source_database=name, external_base=base) as one:
            scenes = {each.name: Scene(each.name, one, root / name / each.name) for each in some}
            failures |= _Batch(one, some, scenes).run()
    return failures


@dataclass
class _Batch:
    """Scenarios of one database."""

    cycles: Cycles
    scenarios: Sequence[Scenario]
    scenes: Mapping[str, Scene]
    failures: Failures = field(default_factory=dict)

    def run(self) -> Failures:
        for number in range(max(len(one.steps) for one in self.scenarios)):
            steps = [(one, one.steps[number]) for one in self.scenarios if number < len(one.steps)]
            self._prepare(steps)
            try:
                self._cycle(steps, bootstrap=number == 0)
            except HiveFederationError as error:
                self.failures.update(
                    (one.name, error) for one in self.scenarios if one.name not in self.failures
                )
                return self.failures
            for one, step in self._going_on(steps):
                self._judge(one, step, last=number == len(one.steps) - 1)
        return self.failures

    def _going_on(
        self, steps: Iterable[tuple[Scenario, Step]]
    ) -> Iterator[tuple[Scenario, Step]]:
        return ((one, step) for one, step in steps if one.name not in self.failures)

    def _prepare(self, steps: Iterable[tuple[Scenario, Step]]) -> None:
        for one, step in self._going_on(steps):
            scene = self.scenes[one.name]
            with _noting(self.failures, one.name):
                for action in step.actions:
                    scene.run(action)
                _compare(scene, step, scene.source)
            if step.policy:
                self._change(**step.policy)

    def _change(self, **fields: Any) -> None:
        changed = replace(self.cycles, policy=replace(self.cycles.policy, **fields))
        self.cycles = changed
        self.scenes = {name: replace(scene, cycles=changed) for name, scene in self.scenes.items()}

    def _cycle(self, steps: Sequence[tuple[Scenario, Step]], *, bootstrap: bool) -> None:
        one = self.cycles
        if bootstrap:
            with one.source.client() as client:
                start = begin_drain(client, one.policy.source_database)
                drain(client, start, timeout_s=1.0)
            dump = dump_bootstrap(one.source, one.policy, start).dump
        else:
            found = dump_next_increment(one.source, one.target, one.policy)
            dump = "" if found.idle else found.dump
        for scenario, step in self._going_on(steps):
            with _noting(self.failures, scenario.name):
                self.scenes[scenario.name].run(step.meanwhile)
        if not dump:
            load_idle(one.target, one.policy, found.event_id)
            return
        first = load_dump(one.source, one.target, one.policy, dump, run_copy=run_copy)
        # As Hive's suite does: loaded once more, it is the same.
        again = load_dump(one.source, one.target, one.policy, dump, run_copy=run_copy)
        assert again.event_id == first.event_id

    def _judge(self, scenario: Scenario, step: Step, *, last: bool) -> None:
        scene = self.scenes[scenario.name]
        with _noting(self.failures, scenario.name):
            _compare(scene, step, scene.target)
            for check in step.checks:
                check(scene)
            if last and not step.meanwhile:
                found = list(islice(unequal(scene, scenario.differs), 5))
                assert not found, "\n".join(found)


def _compare(scene: Scene, step: Step, side: Any) -> None:
    for query, rows in step.rows.items():
        found = scene.rows(query, side)
        assert found == expected(rows), f"{scene.text(query, side)} gives {found}, not {expected(rows)}"
    with side.pool.client() as client:
        there = set(client.list_tables(side.database)) if step.absent else set()
    for name in step.absent:
        assert f"{scene.name}_{name}" not in there, f"{side.database} has {scene.name}_{name}"


class _noting:  # noqa: N801
    """Notes what goes wrong with a scenario, and lets the others go on."""

    def __init__(self, failures: Failures, name: str) -> None:
        self._failures = failures
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, (AssertionError, HiveFederationError)):
            self._failures.setdefault(self._name, error)
            return True
        return False
