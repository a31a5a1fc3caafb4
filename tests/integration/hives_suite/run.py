"""Runs scenarios of Hive's suite, many in one database: one cycle serves a step of all of them.

Each scenario has tables of its own, and fails alone: by Hive's answer on one side or the other. Where a
cycle itself fails, all that share its database fail.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.replication.cycle import (
    dump_next_increment,
    is_published,
    load_dump,
    load_idle,
)
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain, drain
from tests.integration.hives_suite.equal import unequal
from tests.integration.hives_suite.scenario import Scenario, Scene, Step, expected
from tests.support.incrementing import Cycles, cycles, run_copy
from tests.support.observing import at_steps

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
    engines = (pair.source_sql, pair.target_sql)
    for sql in engines:
        # A number of rows is counted, and statistics of columns are written by those who are about them.
        sql.set("hive.compute.query.using.stats", "false")
        sql.set("hive.stats.column.autogather", "false")
    failures: Failures = {}
    every = list(scenarios)
    assert len({scenario.name for scenario in every}) == len(every)
    shared = [scenario for scenario in every if scenario.properties is None]
    batches = [(database, properties, shared)] if shared else []
    batches += [
        (f"{database}_{scenario.name}", scenario.properties or "", [scenario])
        for scenario in every
        if scenario not in shared
    ]
    for name, properties, batch in batches:
        pair.source_sql.execute(f"CREATE DATABASE {name} {properties.replace('{root}', str(root))}")
        base = f"file:{pair.target.external_warehouse}/{name}_base"
        with cycles(
            pair.source, pair.target, engines, root, source_database=name, external_base=base
        ) as site:
            scenes = {each.name: Scene(each.name, site, root / name / each.name) for each in batch}
            for scene in scenes.values():
                scene.files.mkdir(parents=True)
            failures |= _Batch(site, batch, scenes).run()
    return failures


def chosen(request: pytest.FixtureRequest, scenarios: Iterable[Scenario]) -> list[Scenario]:
    """Those of a module's scenarios whose tests are to run: ``-k`` chooses some."""
    items = [item for item in request.session.items if item.path == request.path]
    names = {_scenario(item) for item in items if isinstance(item, pytest.Function)}
    return [scenario for scenario in scenarios if scenario.name in names]


def _scenario(test: pytest.Function) -> str:
    scenario = test.callspec.params["scenario"]
    assert isinstance(scenario, Scenario)
    return scenario.name


def judge(scenario: Scenario, failures: Failures) -> None:
    """Fail if a scenario has."""
    if error := failures.get(scenario.name):
        pytest.fail(f"{type(error).__name__}: {error}", pytrace=False)


@dataclass
class _Batch:
    """Scenarios of one database."""

    cycles: Cycles
    scenarios: Sequence[Scenario]
    scenes: Mapping[str, Scene]
    failures: Failures = field(default_factory=dict)

    def run(self) -> Failures:
        for number in range(max(len(scenario.steps) for scenario in self.scenarios)):
            steps = [
                (scenario, scenario.steps[number])
                for scenario in self.scenarios
                if number < len(scenario.steps)
            ]
            self._prepare(steps)
            try:
                self._cycle(steps, cut_at=3 + 7 * number)
            except (HiveFederationError, AssertionError) as error:
                if not self._expected(steps, error):
                    self.failures.update(
                        (scenario.name, error)
                        for scenario in self.scenarios
                        if scenario.name not in self.failures
                    )
                    return self.failures
            for scenario, step in self._going_on(steps):
                self._judge(scenario, step, last=number == len(scenario.steps) - 1)
        return self.failures

    def _expected(self, steps: Sequence[tuple[Scenario, Step]], error: Exception) -> bool:
        patterns = [step.fails for _, step in self._going_on(steps) if step.fails]
        named = len(patterns) == len(steps) == 1 and not isinstance(error, AssertionError)
        return named and re.search(patterns[0], str(error)) is not None

    def _going_on(self, steps: Iterable[tuple[Scenario, Step]]) -> Iterator[tuple[Scenario, Step]]:
        return ((scenario, step) for scenario, step in steps if scenario.name not in self.failures)

    def _prepare(self, steps: Iterable[tuple[Scenario, Step]]) -> None:
        for scenario, step in self._going_on(steps):
            scene = self.scenes[scenario.name]
            with _noting(self.failures, scenario.name):
                for action in step.actions:
                    scene.run(action)
                if not step.fails:
                    _compare(scene, step, scene.source)
            if step.policy:
                self._change(**step.policy)

    def _change(self, **fields: Any) -> None:
        changed = replace(self.cycles, policy=replace(self.cycles.policy, **fields))
        self.cycles = changed
        self.scenes = {name: replace(scene, cycles=changed) for name, scene in self.scenes.items()}

    def _cycle(self, steps: Sequence[tuple[Scenario, Step]], *, cut_at: int) -> None:
        """A cycle whose load is cut off at some step, then run to its end, and once more.

        :param cut_at: the step of the load that is not taken.
        """
        site = self.cycles
        dump, event_id = self._dump()
        for scenario, step in self._going_on(steps):
            with _noting(self.failures, scenario.name):
                self.scenes[scenario.name].run(step.meanwhile)
        if dump:
            with suppress(_CutOffError):
                load_dump(
                    site.source,
                    site.target,
                    site.policy,
                    dump,
                    run_copy=run_copy,
                    observer=at_steps(_cut_off(cut_at)),
                )
            for _ in range(2):
                load_dump(site.source, site.target, site.policy, dump, run_copy=run_copy)
        else:
            load_idle(site.target, site.policy, event_id)
        with site.target.client() as client:
            parameters = client.get_database(site.policy.target_database).parameters or {}
        assert parameters["repl.last.id"] == str(event_id)
        for _, step in self._going_on(steps):
            assert not step.fails, f"the cycle did not fail with {step.fails}"

    def _dump(self) -> tuple[str, int]:
        """URI of the next dump, empty if there is nothing to do; its last event."""
        site = self.cycles
        with site.target.client() as client:
            published = is_published(client, site.policy)
        if published:
            dumped = dump_next_increment(site.source, site.target, site.policy)
            return "" if dumped.idle else dumped.dump, dumped.event_id
        with site.source.client() as client:
            start = begin_drain(client, site.policy.source_database)
            drain(client, start, timeout_s=1.0)
        made = dump_bootstrap(site.source, site.policy, start)
        return made.dump, made.event_id

    def _judge(self, scenario: Scenario, step: Step, *, last: bool) -> None:
        scene = self.scenes[scenario.name]
        with _noting(self.failures, scenario.name):
            _compare(scene, step, scene.target)
            for check in step.checks:
                check(scene)
            if last and not step.meanwhile:
                differences = list(islice(unequal(scene, scenario.differs), 5))
                assert not differences, "\n".join(differences)


def _compare(scene: Scene, step: Step, side: Any) -> None:
    for query, rows in step.rows.items():
        rows_read = scene.rows(query, side)
        assert rows_read == expected(rows), (
            f"{scene.text(query, side)} gives {rows_read}, not {expected(rows)}"
        )
    with side.pool.client() as client:
        there = set(client.list_tables(side.database)) if step.absent else set()
    for name in step.absent:
        assert f"{scene.name}_{name}" not in there, f"{side.database} has {scene.name}_{name}"


class _CutOffError(Exception):
    """A load ends here, as if it were killed."""


def _cut_off(last: int) -> Callable[[str], None]:
    steps = count(1)

    def step(name: str) -> None:
        if next(steps) == last:
            raise _CutOffError(name)

    return step


class _noting:  # noqa: N801
    """Notes what goes wrong with a scenario, and lets the others go on."""

    def __init__(self, failures: Failures, name: str) -> None:
        self._failures = failures
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self._failures.setdefault(self._name, error)
        return True
