"""Loads a dump without Spark, and looks whether its replica is published."""

from __future__ import annotations

from airflow_hive_federation.errors import NoSuchObjectError
from airflow_hive_federation.progress.observers import Observer, unobserved
from airflow_hive_federation.replication.load.load import load_into_target
from tests.support.kills import Case, pool, run_copy
from tests.support.small_source import DATABASE, connected


def load(case: Case, dump: str, observer: Observer = unobserved) -> None:
    """Load a dump as it is; ``Case.load`` would first write it anew if it is not finished."""
    with pool(case.source.uri) as source, pool(case.target.uri) as target:
        load_into_target(source, target, case.policy, dump, run_copy=run_copy, threads=1, observer=observer)


def published(case: Case) -> bool:
    with connected(case.target) as client:
        try:
            parameters = client.get_database(DATABASE).parameters or {}
        except NoSuchObjectError:
            return False
    return "repl.last.id" in parameters
