"""Metrics of progress in Prometheus' text format."""

from __future__ import annotations

from airflow_hive_federation.progress import cycle_events as cev
from airflow_hive_federation.progress import events as ev
from airflow_hive_federation.progress.exposition import Exposition
from airflow_hive_federation.progress.kinds import FileJob, Step
from airflow_hive_federation.progress.metrics import measured


def test_metrics_have_types_and_the_database_as_label() -> None:
    times = iter([1.0, 1.5, 4.0])
    exposition = Exposition()
    observe = measured(exposition, clock=lambda: next(times))
    observe(cev.LagSeen(database="shop", events=3, seconds=1.5))
    observe(cev.CycleFailed(database="stock", error="No answer.", failures=1, pause_s=1.0))
    observe(cev.CycleFailed(database="stock", error="No answer.", failures=2, pause_s=2.0))
    observe(ev.StepStarting(database="shop", step=Step.COPY_PLAN))
    observe(ev.StepStarting(database="shop", step=Step.FOREIGN_KEYS, subject="orders"))
    observe(ev.Published(database="shop", event_id=7))
    observe(
        ev.FilesProcessed(job=FileJob.COPY, files=1, all_files=1, size_bytes=5, all_bytes=5, bytes_per_s=2.5)
    )
    assert exposition.text() == (
        "# TYPE hive_federation_bytes_per_s gauge\n"
        'hive_federation_bytes_per_s{database="copy-files"} 2.5\n'
        "# TYPE hive_federation_cycles_total counter\n"
        'hive_federation_cycles_total{database="shop"} 1\n'
        "# TYPE hive_federation_event_id gauge\n"
        'hive_federation_event_id{database="shop"} 7\n'
        "# TYPE hive_federation_failures_total counter\n"
        'hive_federation_failures_total{database="stock"} 2\n'
        "# TYPE hive_federation_lag_bytes gauge\n"
        'hive_federation_lag_bytes{database="shop"} 0\n'
        "# TYPE hive_federation_lag_events gauge\n"
        'hive_federation_lag_events{database="shop"} 3\n'
        "# TYPE hive_federation_lag_s gauge\n"
        'hive_federation_lag_s{database="shop"} 1.5\n'
        "# TYPE hive_federation_step_copy_plan_seconds summary\n"
        'hive_federation_step_copy_plan_seconds_count{database="shop"} 1\n'
        'hive_federation_step_copy_plan_seconds_sum{database="shop"} 0.5\n'
        "# TYPE hive_federation_step_foreign_keys_seconds summary\n"
        'hive_federation_step_foreign_keys_seconds_count{database="shop"} 1\n'
        'hive_federation_step_foreign_keys_seconds_sum{database="shop"} 2.5\n'
    )


def test_nothing_measured_is_an_empty_text() -> None:
    assert Exposition().text() == ""
