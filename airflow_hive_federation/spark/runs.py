"""Keeps one application per run of a job, by two small files beside the file of its report.

The submitter writes ``<report>.run`` before it starts spark-submit, and adds the application's id when
spark-submit prints it. The job writes ``<report>.<submission>.claim`` when it begins, and again with a
growing number every few seconds. In deploy mode cluster of a standalone cluster, the submitter also writes
``<report>.<submission>.jar``, the archive with this package, which the worker of the driver fetches.

Each side writes its own file first and reads the other's afterwards. So of a job that begins late and a
submitter that gives it up, at least one sees the other: a job ends without a report if ``.run`` names
another submission, and a submitter waits for a running job whose claim it finds.

No clocks are compared: a job counts as dead if its number has not grown for 60 s by the watcher's own clock,
or if its process is gone from the watcher's machine.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TypeVar

from airflow_hive_federation.errors import FileVanishedError, SparkJobError, SparkRunTakenError, StorageError
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.json_values import Reader, reader_of
from airflow_hive_federation.storage.filesystem import reading
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.publishing import remove_file, write_atomically

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds between two numbers of a claim.
BEAT_S = 5.0
#: Seconds without a new number after which a job counts as dead.
SILENT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class JobRun:
    """A submission of a job, as its submitter records it.

    :param attempt: id of the submission.
    :param key: digest of the job and its arguments.
    :param application: the cluster's id of the driver or application; empty until it is known.
    :param stopped: the job is to end.
    """

    attempt: str
    key: str
    application: str = ""
    stopped: bool = False


@dataclass(frozen=True, kw_only=True)
class JobClaim:
    """The claim of a job to its run.

    :param attempt: id of the submission that started it.
    :param beats: a number that grows while the job works.
    :param ended: the job does nothing more.
    :param machine: host of the driver, with its process namespace.
    :param process: process id and start time of the driver's Python there.
    """

    attempt: str
    beats: int = 0
    ended: bool = False
    machine: str = ""
    process: str = ""


#: Another version of the package may have written other fields.
_RUN = reader_of(JobRun, strictly=True)
_CLAIM = reader_of(JobClaim, strictly=True)


class JobState(Enum):
    """The state of a submission's job, as far as its files show it."""

    UNCLAIMED = "has not begun"
    WORKING = "is running"
    ENDED = "has ended"


def run_key(job: str, arguments: Sequence[str]) -> str:
    """Return the digest of a job and its arguments, by which a retry recognises its own run."""
    return hashlib.sha256(json.dumps([job, *arguments]).encode()).hexdigest()[:32]


def new_run(key: str) -> JobRun:
    """Return a submission with a new id."""
    return JobRun(attempt=uuid.uuid4().hex, key=key)


@dataclass(frozen=True)
class RunFiles:
    """The files of a job's run.

    :param report: URI of the job's report.
    """

    report: str
    options: StorageOptions | None = field(default=None, repr=False)

    def run(self) -> JobRun | None:
        """Return the present submission; ``None`` if the file is missing or damaged.

        :raises StorageError: the store cannot be read.
        """
        run = self._read(".run", _RUN)
        # The id is a part of a file's name.
        return run if run is not None and run.attempt.isalnum() else None

    def claim(self, attempt: str) -> JobClaim | None:
        """Return the claim of a submission's job; ``None`` if it has none.

        :raises StorageError: the store cannot be read.
        """
        claim = self._read(_claim_of(attempt), _CLAIM)
        return claim if claim is not None and claim.attempt == attempt else None

    def report_of(self, attempt: str) -> bytes | None:
        """Return the report of a submission's job; ``None`` if it has reported nothing.

        :raises StorageError: the store cannot be read.
        """
        text = self._content("")
        # Every report with an id is complete, because it was published by a rename.
        return text if text is not None and f'"attempt": "{attempt}"'.encode() in text else None

    def overwritten(self, attempt: str) -> bool:
        """Return whether the report is that of another submission, which was suspended before it reported.

        :raises StorageError: the store cannot be read.
        """
        text = self._content("")
        return text is not None and b'"attempt": "' in text and self.report_of(attempt) is None

    def write_run(self, run: JobRun) -> None:
        """Write the present submission.

        :raises StorageError: the store cannot be written.
        """
        self._write(".run", run)

    def write_application(self, run: JobRun, application: str) -> None:
        """Write the cluster's id of a submission's application, if the submission still has the run.

        :raises StorageError: the store cannot be read or written.
        """
        present = self.run()
        if present is not None and present.attempt == run.attempt:
            # The present one may have been asked to stop.
            self.write_run(replace(present, application=application))

    def write_claim(self, claim: JobClaim) -> None:
        """Write the claim of a job.

        :raises StorageError: the store cannot be written.
        """
        self._write(_claim_of(claim.attempt), claim)

    def package(self, attempt: str) -> str:
        """Return the URI of the archive with this package for a submission's driver."""
        return f"{self.report}.{attempt}.jar"

    def write_package(self, attempt: str, content: bytes) -> str:
        """Write the archive with this package for a submission's driver; return its URI.

        :raises StorageError: the store cannot be written.
        """
        uri = self.package(attempt)
        write_atomically(uri, [content], self.options)
        return uri

    def stop(self, attempt: str) -> None:
        """Ask the job of a submission to end, wherever its driver is.

        :raises StorageError: the store cannot be read or written.
        """
        run = self.run()
        if run is not None and run.attempt == attempt:
            self.write_run(replace(run, stopped=True))

    def forget(self, attempt: str) -> None:
        """Remove the files of a submission that is over, if it still has the run; the report stays.

        The archive for its driver is removed in any case.

        :raises StorageError: the store cannot be read or written.
        """
        if self._has(attempt):
            remove_file(f"{self.report}.run", self.options)
            self.forget_job(attempt)
        else:
            remove_file(self.package(attempt), self.options)

    def forget_job(self, attempt: str) -> None:
        """Remove the claim of a submission's job, which does nothing more, and its archive.

        :raises StorageError: the store cannot be written.
        """
        remove_file(f"{self.report}{_claim_of(attempt)}", self.options)
        remove_file(self.package(attempt), self.options)

    def _has(self, attempt: str) -> bool:
        run = self.run()
        return run is not None and run.attempt == attempt

    def _read(self, suffix: str, read: Reader[T]) -> T | None:
        content = self._content(suffix)
        try:
            return None if content is None else read(bounded_json.loads(content))
        except ValueError:
            return None

    def _content(self, suffix: str) -> bytes | None:
        try:
            with reading(f"{self.report}{suffix}", self.options) as file:
                content: bytes = file.read()
        except FileVanishedError:
            return None
        return content

    def _write(self, suffix: str, values: JobRun | JobClaim) -> None:
        text = json.dumps(asdict(values), sort_keys=True)
        write_atomically(f"{self.report}{suffix}", [text.encode()], self.options)


class RunWatch:
    """Watches the job of a submission by its claim.

    :param attempt: id of the submission.
    :param clock: returns the seconds of a clock that never goes back.
    """

    def __init__(self, files: RunFiles, attempt: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._files = files
        self._attempt = attempt
        self._clock = clock
        self._beats = -1
        self._since_s = clock()

    def use(self, files: RunFiles) -> None:
        """Read the claim with other options from now on, because credentials have expired."""
        self._files = files

    def state(self) -> JobState:
        """Return the state of the job.

        :raises StorageError: the store cannot be read.
        """
        # The time before the read: this process may be suspended, or the store slow, until the claim is here.
        asked_s = self._clock()
        claim = self._files.claim(self._attempt)
        if claim is None:
            return JobState.UNCLAIMED
        if claim.ended or _gone(claim):
            return JobState.ENDED
        if claim.beats != self._beats:
            self._beats, self._since_s = claim.beats, self._clock()
        return JobState.ENDED if asked_s - self._since_s > SILENT_S else JobState.WORKING


class RunClaim:
    """The claim of this process's job to its run; a thread renews it, and ends the job if it loses the run.

    :param attempt: id of the submission that started this process.
    :param beat_s: seconds between two renewals.
    """

    def __init__(self, files: RunFiles, attempt: str, *, beat_s: float = BEAT_S) -> None:
        self._files = files
        self._claim = JobClaim(attempt=attempt, machine=_machine(), process=_process(os.getpid()))
        self._beat_s = beat_s
        self._over = threading.Event()
        self._cancel: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._renew, name="claim of the run", daemon=True)
        self._loss: SparkJobError | None = None

    @property
    def attempt(self) -> str:
        """The id of the submission."""
        return self._claim.attempt

    def take(self) -> None:
        """Claim the run.

        :raises SparkRunTakenError: the run belongs to another submission.
        :raises SparkJobError: the submitter has stopped the job.
        :raises StorageError: the store cannot be read or written.
        """
        self.check()
        self._files.write_claim(self._claim)
        try:
            self.check()
        except SparkJobError:
            self._files.write_claim(replace(self._claim, ended=True))
            raise
        self._thread.start()

    def cancel_by(self, cancel: Callable[[], None]) -> None:
        """Set the function that ends the work of this process's job."""
        self._cancel = cancel

    def check(self) -> None:
        """Make sure that the run belongs to this process's job.

        :raises SparkRunTakenError: the run belongs to another submission.
        :raises SparkJobError: the submitter has stopped the job.
        :raises StorageError: the store cannot be read.
        """
        run = self._files.run()
        if run is None or run.attempt != self._claim.attempt:
            raise taken(self._files.report, self._claim.attempt)
        if run.stopped:
            raise killed()

    def end(self) -> None:
        """Stop the renewals; a second call does nothing."""
        self._over.set()
        self._thread.join()

    def prove(self) -> None:
        """Make sure that the run has belonged to this process's job all the time.

        :raises SparkRunTakenError: the run belongs to another submission.
        :raises SparkJobError: the submitter has stopped the job.
        :raises StorageError: the store cannot be read.
        """
        if self._loss is not None:
            raise self._loss
        self.check()

    def release(self) -> None:
        """Write that the job does nothing more.

        :raises StorageError: the store cannot be written.
        """
        self._files.write_claim(replace(self._claim, ended=True))

    def _renew(self) -> None:
        while not self._over.wait(self._beat_s):
            try:
                self.check()
                self._claim = replace(self._claim, beats=self._claim.beats + 1)
                self._files.write_claim(self._claim)
            except SparkJobError as error:
                self._loss = error
                # The job may be between two steps on Spark: the next turn ends the next step.
                self._cancel()
            except StorageError as error:
                logger.warning("The claim of the run cannot be renewed now: %s", error)


def killed() -> SparkJobError:
    """Return the error of a job that was ended on request."""
    return SparkJobError("The Spark job was killed.", remedy="Run it again; it goes on from there.")


def taken(report: str, attempt: str) -> SparkRunTakenError:
    """Return the error of a submission whose run belongs to another one."""
    return SparkRunTakenError(
        f"The run of the job that reports to {report} belongs to another submission.",
        remedy="Let the other submission end.",
        report=report,
        attempt=attempt,
    )


def _claim_of(attempt: str) -> str:
    # A file per submission: a late job would otherwise write over the claim of its successor.
    return f".{attempt}.claim"


def _gone(claim: JobClaim) -> bool:
    """Return whether the driver ran on this machine, and its process has ended."""
    number = claim.process.partition("@")[0]
    if not number.isdecimal() or not claim.machine or claim.machine != _machine():
        return False
    return _process(int(number)) != claim.process


def _machine() -> str:
    # Containers of one host may share its name, but see different processes; two hosts may share a name.
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{os.uname().nodename} {boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - no path
    except OSError:
        return ""


def _process(number: int) -> str:
    """Return a process's number and start time; empty if it does not run."""
    try:
        stat = Path(f"/proc/{number}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The name, in parentheses, may have spaces; state and start time are fields 3 and 22.
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else f"{number}@{fields[19]}"
