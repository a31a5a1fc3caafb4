from __future__ import annotations

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.hooks.job_runners import _copy_bounds
from airflow_hive_federation.replication.policy import ReplicationPolicy

pytestmark = pytest.mark.usefixtures("unbound_sources")
LEAST = {"name": "p", "source_database": "d", "dump_root": "file:/d"}


def test_hives_options_bound_the_copy_job() -> None:
    options = {"hive.exec.parallel.thread.number": "8", "hive.repl.approx.max.load.tasks": "10000"}
    policy = ReplicationPolicy.from_options(options=options, **LEAST)
    assert (policy.parallel_copies, policy.max_load_tasks) == (8, 10000)
    assert _copy_bounds(policy) == ["--parallel", "8", "--max-tasks", "10000"]
    assert _copy_bounds(ReplicationPolicy(**LEAST)) == []


def test_what_copies_keep_of_their_sources() -> None:
    assert _copy_bounds(ReplicationPolicy(**LEAST, preserve="ugp", preserve_strictly=False)) == [
        "--preserve",
        "ugp",
        "--preserve-leniently",
    ]


def test_the_copy_job_is_handed_where_it_may_copy_from() -> None:
    policy = ReplicationPolicy(**LEAST, allowed_source_roots=["file:/a", "s3://b/c"])
    assert _copy_bounds(policy) == ["--source-root", "file:/a", "--source-root", "s3://b/c"]


@pytest.mark.parametrize("value", ["eight", "0", "-1"])
def test_a_bound_that_is_none_is_named(value: str) -> None:
    with pytest.raises(ConfigurationError, match="parallel_copies"):
        ReplicationPolicy.from_options(options={"hive.exec.parallel.thread.number": value}, **LEAST)
