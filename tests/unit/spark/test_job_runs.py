"""A run has one working job: late jobs and submitters see each other by the files beside the report."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.errors import (
    SparkJobError,
    SparkRunTakenError,
    StorageError,
    StorageFullError,
)
from airflow_hive_federation.spark import job, runs
from airflow_hive_federation.spark.failures import read_report
from airflow_hive_federation.spark.runs import JobClaim, JobRun, JobState, RunClaim, RunFiles, RunWatch

RUN = JobRun(attempt="one", key="k")


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    return RunFiles(f"file:{tmp_path}/_report.json")


def test_job_of_another_submission_does_nothing(files: RunFiles) -> None:
    files.write_run(replace(RUN, attempt="two"))
    with pytest.raises(SparkRunTakenError, match="belongs to another submission") as caught:
        RunClaim(files, "one").take()
    assert caught.value.retryable
    assert files.claim("one") is None
    # A run without a submission was given up.
    files.forget("two")
    with pytest.raises(SparkRunTakenError):
        RunClaim(files, "one").take()


def test_job_does_nothing_if_another_submission_comes_between_its_two_looks(files: RunFiles) -> None:
    class Slow(RunFiles):
        def write_claim(self, claim: JobClaim) -> None:
            super().write_claim(claim)
            self.write_run(replace(RUN, attempt="two"))

    files.write_run(RUN)
    with pytest.raises(SparkRunTakenError):
        RunClaim(Slow(files.report), "one").take()
    claim = files.claim("one")
    assert claim is not None
    assert claim.ended


@pytest.mark.parametrize("change", ["taken", "stopped", "given up"])
def test_running_job_ends_when_its_run_is_gone(files: RunFiles, change: str) -> None:
    files.write_run(RUN)
    claim = RunClaim(files, "one", beat_s=0.01)
    cancelled = runs.threading.Event()
    claim.cancel_by(cancelled.set)
    claim.take()
    try:
        if change == "taken":
            files.write_run(replace(RUN, attempt="two"))
        elif change == "stopped":
            files.stop("one")
        else:
            files.forget("one")
        assert cancelled.wait(60)
    finally:
        claim.end()
    with pytest.raises(SparkJobError if change == "stopped" else SparkRunTakenError):
        claim.prove()


def test_only_the_present_submission_changes_its_run(files: RunFiles) -> None:
    files.write_run(replace(RUN, attempt="two"))
    files.stop("one")
    archives = [files.write_package(attempt, b"zip") for attempt in ("one", "two")]
    files.forget("one")
    # Nobody else fetches the archive of a submission.
    assert [Path(uri.removeprefix("file:")).is_file() for uri in archives] == [False, True]
    files.write_application(RUN, "application_1_1")
    assert files.run() == replace(RUN, attempt="two")
    files.write_application(replace(RUN, attempt="two"), "application_1_2")
    assert files.run() == replace(RUN, attempt="two", application="application_1_2")
    # The id may be shown while the task is killed.
    files.stop("two")
    files.write_application(replace(RUN, attempt="two"), "application_1_3")
    assert files.run() == JobRun(attempt="two", key="k", application="application_1_3", stopped=True)


def test_states_of_a_job(files: RunFiles) -> None:
    now = [0.0]
    watch = RunWatch(files, "one", clock=lambda: now[0])
    assert watch.state() is JobState.UNCLAIMED
    claim = JobClaim(attempt="one", machine="far", process="1@1")
    files.write_claim(claim)
    assert watch.state() is JobState.WORKING
    now[0] += runs.SILENT_S
    assert watch.state() is JobState.WORKING
    files.write_claim(replace(claim, beats=1))
    now[0] += runs.SILENT_S
    assert watch.state() is JobState.WORKING
    now[0] += runs.SILENT_S + 1
    assert watch.state() is JobState.ENDED
    files.write_claim(replace(claim, beats=2))
    assert watch.state() is JobState.WORKING
    files.write_claim(replace(claim, beats=3, ended=True))
    assert watch.state() is JobState.ENDED
    assert RunWatch(files, "two").state() is JobState.UNCLAIMED


def test_watcher_that_was_suspended_while_it_read_the_claim(files: RunFiles) -> None:
    """The job may have gone on since; only the time until the read counts as its silence."""
    now = [0.0]

    class Suspended(RunFiles):
        def claim(self, attempt: str) -> JobClaim | None:
            claim = super().claim(attempt)
            now[0] += 600
            return claim

    files.write_claim(JobClaim(attempt="one", machine="far", process="1@1"))
    watch = RunWatch(Suspended(files.report), "one", clock=lambda: now[0])
    assert watch.state() is JobState.WORKING
    assert watch.state() is JobState.WORKING


def test_job_has_ended_if_its_process_is_gone_from_this_machine(files: RunFiles) -> None:
    own = JobClaim(attempt="one", machine=runs._machine(), process=runs._process(os.getpid()))
    files.write_claim(own)
    assert RunWatch(files, "one").state() is JobState.WORKING
    # Another process has the number now.
    gone = replace(own, process=f"{os.getpid()}@1")
    files.write_claim(gone)
    assert RunWatch(files, "one").state() is JobState.ENDED
    # A machine that shares the name with this one was booted at another time.
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    files.write_claim(replace(gone, machine=own.machine.replace(boot, "another")))
    assert RunWatch(files, "one").state() is JobState.WORKING


def test_job_that_lost_its_run_reports_nothing(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(*_: object) -> dict[str, int]:
        files.write_run(now)
        return {"copied": 1}

    monkeypatch.setattr(job, "_run_in_new_context", work)
    command = ["--report", files.report, "--attempt", "one", "copy-files"]
    files.write_run(RUN)
    now = replace(RUN, attempt="two")
    assert job.main(command) == 1
    assert files.report_of("one") is None
    claim = files.claim("one")
    assert claim is not None
    assert claim.ended

    files.write_run(RUN)
    now = replace(RUN, stopped=True)
    assert job.main(command) == 1
    with pytest.raises(SparkJobError, match="was killed"):
        read_report(files.report_of("one") or b"")

    now = RUN
    files.write_run(RUN)
    assert job.main(command) == 0
    assert read_report(files.report_of("one") or b"") == {"copied": 1}
    assert RunWatch(files, "one").state() is JobState.ENDED


def test_late_job_does_not_touch_the_claim_of_its_successor(files: RunFiles) -> None:
    for attempt in ("one", "two"):
        files.write_claim(JobClaim(attempt=attempt, machine="far"))
    files.write_claim(JobClaim(attempt="one", machine="far", ended=True))
    assert RunWatch(files, "two").state() is JobState.WORKING
    # The id is a part of a file's name.
    Path(f"{files.report.removeprefix('file:')}.run").write_text(json.dumps({"attempt": "../x", "key": "k"}))
    assert files.run() is None


def test_report_outlasts_a_store_that_is_away(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job's work is done: its last look at the run, and its report, are tried again."""
    away = [StorageError("away", path="x")] * 2
    prove, write = RunClaim.prove, job.write_atomically

    def silent(call: Any) -> Any:
        def answer(*arguments: Any) -> Any:
            if away:
                raise away.pop()
            away.append(StorageError("away", path="x")) if call is prove else None
            return call(*arguments)

        return answer

    monkeypatch.setattr(job, "_run_in_new_context", lambda *_: {"copied": 1})
    monkeypatch.setattr(job, "_PAUSES", replace(job._PAUSES, first_s=0.01))
    monkeypatch.setattr(RunClaim, "prove", silent(prove))
    monkeypatch.setattr(job, "write_atomically", silent(write))
    files.write_run(RUN)
    assert job.main(["--report", files.report, "--attempt", "one", "copy-files"]) == 0
    assert read_report(files.report_of("one") or b"") == {"copied": 1}

    # Without its claim, the job has ended all the same.
    def full(*_: object) -> None:
        raise StorageFullError("full", path="x")

    monkeypatch.setattr(RunClaim, "release", full)
    assert job.main(["--report", files.report, "--attempt", "one", "copy-files"]) == 0


def test_damaged_files_name_no_run(files: RunFiles) -> None:
    path = Path(files.report.removeprefix("file:"))
    for text in (
        "{",
        "[]",
        json.dumps({"attempt": "one", "of": "a later version"}),
        json.dumps({"attempt": "one", "key": "k", "application": 1}),
        json.dumps({"attempt": "one", "key": "k", "stopped": "no"}),
    ):
        Path(f"{path}.run").write_text(text)
        assert files.run() is None
    for fields in ({"process": 1}, {"beats": "1"}):
        Path(f"{path}.one.claim").write_text(json.dumps({"attempt": "one", **fields}))
        assert files.claim("one") is None
    files.write_claim(JobClaim(attempt="one", machine=runs._machine(), process="damaged"))
    assert RunWatch(files, "one").state() is JobState.WORKING
