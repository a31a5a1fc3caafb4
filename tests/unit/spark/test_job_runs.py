"""A run has one working job: late jobs and submitters see each other by the files beside the report."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_hive_federation.errors import SparkJobError, SparkRunTakenError
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
    files.forget("one")
    files.write_application(RUN, "application_1_1")
    assert files.run() == replace(RUN, attempt="two")
    files.write_application(replace(RUN, attempt="two"), "application_1_2")
    assert files.run() == replace(RUN, attempt="two", application="application_1_2")


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


def test_job_has_ended_if_its_process_is_gone_from_this_machine(files: RunFiles) -> None:
    own = JobClaim(attempt="one", machine=runs._machine(), process=runs._process(os.getpid()))
    files.write_claim(own)
    assert RunWatch(files, "one").state() is JobState.WORKING
    # Another process has the number now.
    files.write_claim(replace(own, process=f"{os.getpid()}@1"))
    assert RunWatch(files, "one").state() is JobState.ENDED


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


def test_damaged_files_name_no_run(files: RunFiles) -> None:
    path = Path(files.report.removeprefix("file:"))
    for text in ("{", "[]", json.dumps({"attempt": "one", "of": "a later version"})):
        Path(f"{path}.run").write_text(text)
        assert files.run() is None
