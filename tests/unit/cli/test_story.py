from __future__ import annotations

import io

import pytest

from airflow_hive_federation.cli.story import Story


class Clock:
    """Seconds that pass when a test adds them."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def story(*lines: str, stream: io.StringIO | None = None, step_s: float = 0.0) -> str:
    clock = Clock()
    stream = stream or io.StringIO()
    story = Story(stream, clock)
    for line in lines:
        story.relay(line, label="load")
        clock.now += step_s
    return stream.getvalue()


def test_stages_have_the_time() -> None:
    clock, stream = Clock(), io.StringIO()
    story = Story(stream, clock)
    clock.now += 12.34
    story.stage("Loading")
    story.detail("one thing")
    story.detail("one thing")
    assert stream.getvalue() == "[ 12.3 s] Loading\n          one thing\n"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("shop is published at event 7.", "shop is published at event 7."),
        ("a.t: 1 partitions, 1200 files, 642 bytes", "a.t: 1 partition, 1,200 files, 642 bytes"),
        ("a.t: 0 partitions, 1 files, 5567910 bytes", "a.t: 1 file, 5.6 MB"),
        ("a.v: 0 partitions, 0 files, 0 bytes", "a.v: its definition"),
        ("a.t: continue, 122 files, 5573724 bytes", "a.t: continue, 122 files, 5.6 MB"),
        ("a.v: create, 0 files, 0 bytes", "a.v: create, its definition"),
        (
            "copy-files: 1,200 of 1,200 files, 2.0 of 2.0 MB, 1.5 MB/s",
            "copied 1,200 of 1,200 files, 2.0 of 2.0 MB, 1.5 MB/s",
        ),
    ],
)
def test_lines_of_the_library(line: str, text: str) -> None:
    assert story(line) == f"          load    {text}\n"


def test_tables_are_counted() -> None:
    lines = [f"s.t{n}: 0 partitions, 1 files, 2 bytes" for n in range(2)]
    lines += [f"d.t{n}: created with 3 partitions" for n in range(2)]
    assert story(*lines).splitlines()[2:] == [
        "          load    1 of 2 tables created: d.t0",
        "          load    2 of 2 tables created: d.t1",
    ]


def test_a_long_row_of_tables_is_shortened_and_ends_with_all_of_them() -> None:
    lines = [f"s.t{n}: 0 partitions, 1 files, 2 bytes" for n in range(1000)]
    lines += [f"d.t{n}: created with 0 partitions" for n in range(1000)]
    text = story(*lines, step_s=0.01).splitlines()
    assert len(text) < 40
    assert text[-1].endswith("1,000 of 1,000 tables created")


def test_without_a_terminal_counts_are_printed_now_and_then() -> None:
    lines = [f"copy-files: {n} of 100 files, 1.0 of 9.0 MB, 1.0 MB/s" for n in range(101)]
    text = story(*lines, step_s=1.0)
    assert "\r" not in text
    assert len(text.splitlines()) == 21
    assert "copied 0 of" not in text
    assert text.endswith("copied 100 of 100 files, 1.0 of 9.0 MB, 1.0 MB/s\n")


def test_a_terminal_gets_a_bar_that_is_overwritten() -> None:
    lines = [f"copy-files: {n} of 2 files, 1.0 of 9.0 MB, 1.0 MB/s" for n in range(3)]
    text = story(*lines, stream=Terminal())
    assert text.count("\n") == 1
    assert "████████████░░░░░░░░░░░░ load    copied 1 of 2 files" in text
    assert text.endswith("\r\x1b[2K          load    copied 2 of 2 files, 1.0 of 9.0 MB, 1.0 MB/s\n")
