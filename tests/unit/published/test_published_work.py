"""Tasks publish documents about ingest and compaction; nothing here needs a metastore."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.compaction.queue import QueueLook, WaitingRequest
from airflow_hive_federation.compaction.worker import CompactionReport
from airflow_hive_federation.ingest.runs import IngestReport
from airflow_hive_federation.published.directory import StateDirectory, key_of
from airflow_hive_federation.published.documents import Publisher
from airflow_hive_federation.published.work import (
    COMPACTED,
    COMPACTION,
    INGEST,
    INGESTED,
    CompactionState,
    IngestPublisher,
    IngestState,
    publish_compactions,
)

TASK = Publisher(dag_id="d", run_id="r", task_id="t")


@pytest.fixture
def place(tmp_path: Path) -> StateDirectory:
    return StateDirectory(f"file:{tmp_path / 'state'}")


def test_a_run_that_succeeds_ends_the_failures(place: StateDirectory) -> None:
    publisher = IngestPublisher(place, metastore="hive", table="d.t", source="files", by=TASK)

    def state() -> IngestState:
        found = place.read(INGEST, key_of("d.t", "hive", "files"), INGESTED)
        assert found is not None
        return found

    publisher.run(IngestReport(table="d.t", files=2, records=90, dead_letters=1, position="p", seconds=3.0))
    assert (state().records, state().dead_letters, state().position, state().by) == (90, 1, "p", TASK)
    publisher.failure("StreamingError: no", "Do.")
    publisher.failure("StreamingError: no", "Do.")
    assert (state().failures, state().error, state().remedy, state().records) == (
        2,
        "StreamingError: no",
        "Do.",
        90,
    )
    publisher.run(IngestReport(table="d.t"))
    assert (state().failures, state().error, state().records) == (0, "", 0)


def report(number: int) -> CompactionReport:
    return CompactionReport(
        id=number, table=f"d.t{number}", partition="", kind="major", state="compacted", message="x" * 9_000
    )


def test_a_queue_has_bounds_and_stays_when_it_cannot_be_read(place: StateDirectory) -> None:
    waiting = [
        WaitingRequest(table=f"d.t{number}", partition="", kind="major", state="initiated", since_s=1.0)
        for number in range(3_000)
    ]
    look = QueueLook(states={"initiated": 3_000}, waiting=waiting, open_txns=2, oldest_open_s=5.0)
    publish_compactions(place, "hive", look, [report(number) for number in range(150)], TASK)
    publish_compactions(place, "hive", None, [report(number) for number in range(150, 300)], TASK)
    state: CompactionState | None = place.read(COMPACTION, key_of("hive"), COMPACTED)
    assert state is not None
    assert (state.states, state.waiting_total, len(state.waiting)) == ({"initiated": 3_000}, 3_000, 500)
    assert (state.open_txns, state.oldest_open_s) == (2, 5.0)
    assert [request.table for request in state.finished] == [f"d.t{number}" for number in range(100, 300)]
    assert len(state.finished[0].message) == 500
