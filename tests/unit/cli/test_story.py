from __future__ import annotations

import io

from airflow_hive_federation.cli.story import Story
from airflow_hive_federation.progress.events import (
    BootstrapDumped,
    Event,
    FilesProcessed,
    Published,
    StepStarting,
    TableCreated,
    TableDumped,
)
from airflow_hive_federation.progress.kinds import FileJob, Step


class Clock:
    """Seconds that pass when a test adds them."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def written(*events: Event, stream: io.StringIO | None = None, step_s: float = 0.0) -> str:
    clock = Clock()
    stream = stream or io.StringIO()
    story = Story(stream, clock)
    for event in events:
        story.observe(event, label="load")
        clock.now += step_s
    return stream.getvalue()


def dumped(number: int) -> TableDumped:
    return TableDumped(table=f"s.t{number}", files=1, size_bytes=2)


def created(number: int) -> TableCreated:
    return TableCreated(table=f"d.t{number}", partitions=3)


def copied(files: int, all_files: int) -> FilesProcessed:
    return FilesProcessed(
        job=FileJob.COPY,
        files=files,
        all_files=all_files,
        size_bytes=1_000_000,
        all_bytes=9_000_000,
        bytes_per_s=1e6,
    )


def test_stages_have_the_time() -> None:
    clock, stream = Clock(), io.StringIO()
    story = Story(stream, clock)
    clock.now += 12.34
    story.stage("Loading")
    story.detail("one thing")
    story.detail("one thing")
    assert stream.getvalue() == "[ 12.3 s] Loading\n          one thing\n"


def test_an_event_is_a_line_and_a_step_is_none() -> None:
    events = (
        StepStarting(database="shop", step=Step.PUBLISH),
        Published(database="shop", event_id=7),
        copied(9, 9),
    )
    assert written(*events).splitlines() == [
        "          load    shop is published at event 7.",
        "          load    copied 9 of 9 files, 1.0 of 9.0 MB, 1.0 MB/s",
    ]


def test_tables_are_counted() -> None:
    events = [*map(dumped, range(2)), *map(created, range(2))]
    assert written(*events).splitlines()[2:] == [
        "          load    1 of 2 tables created: d.t0",
        "          load    2 of 2 tables created: d.t1",
    ]


def test_the_number_of_tables_outlasts_the_stage_of_the_dump() -> None:
    stream = io.StringIO()
    story = Story(stream)
    story.observe(BootstrapDumped(dump="/d", tables=5, partitions=0, files=1, earlier=True))
    story.stage("Loading shop")
    story.observe(created(0))
    assert stream.getvalue().splitlines()[-1] == "          1 of 5 tables created: d.t0"


def test_a_long_row_of_tables_is_shortened_and_ends_with_all_of_them() -> None:
    events = [*map(dumped, range(1000)), *map(created, range(1000))]
    text = written(*events, step_s=0.01).splitlines()
    assert len(text) < 40
    assert text[-1].endswith("1,000 of 1,000 tables created")


def test_without_a_terminal_counts_are_written_now_and_then() -> None:
    text = written(*(copied(files, 100) for files in range(101)), step_s=1.0)
    assert "\r" not in text
    assert len(text.splitlines()) == 21
    assert "copied 0 of" not in text
    assert text.endswith("copied 100 of 100 files, 1.0 of 9.0 MB, 1.0 MB/s\n")


def test_a_terminal_gets_a_bar_that_is_overwritten() -> None:
    text = written(*(copied(files, 2) for files in range(3)), stream=Terminal())
    assert text.count("\n") == 1
    assert "████████████░░░░░░░░░░░░ load    copied 1 of 2 files" in text
    assert text.endswith("\r\x1b[2K          load    copied 2 of 2 files, 1.0 of 9.0 MB, 1.0 MB/s\n")


def test_lines_of_tasks_have_the_label_of_their_task() -> None:
    stream = io.StringIO()
    story = Story(stream)
    story.relay("failed", label="dump")
    story.relay(Published(database="shop", event_id=7), label="load")
    assert stream.getvalue().splitlines() == [
        "          dump    failed",
        "          load    shop is published at event 7.",
    ]
