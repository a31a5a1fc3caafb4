"""Loads a dump without Spark, and looks whether its replica is published."""

from __future__ import annotations

from collections.abc import Callable

from airflow_hive_federation.errors import NoSuchObjectError
from airflow_hive_federation.replication.load.bootstrap import load_bootstrap
from tests.support.kills import Case, pool, run_copy
from tests.support.small_source import DATABASE, connected


def load(case: Case, dump: str, on_step: Callable[[str], None] = lambda _: None) -> None:
    """Load a dump as it is; ``Case.load`` would first write it anew if it is not finished."""
    with pool(case.source.uri) as source, pool(case.target.uri) as target:
        load_bootstrap(source, target, case.policy, dump, run_copy=run_copy, threads=1, on_step=on_step)


def published(case: Case) -> bool:
    with connected(case.target) as client:
        try:
            parameters = client.get_database(DATABASE).parameters or {}
        except NoSuchObjectError:
            return False
    return "repl.last.id" in parameters
