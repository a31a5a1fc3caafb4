"""The operator of a compaction worker, without a metastore."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from airflow_hive_federation.compaction import requests
from airflow_hive_federation.compaction.worker import CompactionReport, CompactionWorker
from airflow_hive_federation.hooks.compat import AirflowException, AirflowFailException
from airflow_hive_federation.operators.compaction import CompactionWorkerOperator, CompactTableOperator

REPORT = CompactionReport(id=1, table="d.t", partition="", kind="major", state="failed")


def test_a_killed_task_takes_no_further_request(
    connection: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed Spark hook starts no job, so that every further request would fail."""
    task = CompactionWorkerOperator(
        task_id="t",
        metastore_conn_id=connection(host="127.0.0.1", port=1),
        spark_conn_id=None,
        timeout_s=None,
    )
    served: list[int] = []

    def serve_next(_: Any, count: int = 1) -> list[CompactionReport]:
        assert not served
        served.append(count)
        task.on_kill()
        return [REPORT]

    monkeypatch.setattr(requests, "revoke_dead_workers", lambda _client: None)
    monkeypatch.setattr(CompactionWorker, "_warn_of_the_cleaner", lambda _self: None)
    monkeypatch.setattr(CompactionWorker, "serve_next", serve_next)
    assert task.execute({})["failed"] == 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("retryable", "error"),
    [
        ([False, False], AirflowFailException),
        ([False, True], AirflowException),
        ([True], AirflowException),
    ],
)
def test_a_task_fails_for_good_only_if_all_failures_are_permanent(
    connection: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    retryable: Sequence[bool],
    error: type[AirflowException],
) -> None:
    reports = [replace(REPORT, retryable=each, message=f"{each}") for each in retryable]
    compacted = replace(REPORT, state="compacted")
    monkeypatch.setattr(requests, "compact_table", lambda *_, **__: [compacted, *reports])
    task = CompactTableOperator(
        task_id="t",
        table="d.t",
        metastore_conn_id=connection(host="127.0.0.1", port=1),
        spark_conn_id=None,
    )
    text = f"{len(reports)} of {len(reports) + 1} compactions of d.t failed"
    with pytest.raises(AirflowException, match=text) as caught:
        task.execute({})  # type: ignore[arg-type]
    assert type(caught.value) is error
