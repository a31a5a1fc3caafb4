"""The copy and digest jobs on a local Spark, in this process and through spark-submit."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import random
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from airflow_hive_federation.errors import (
    ConfigurationError,
    FileVanishedError,
    SparkJobError,
    StorageFullError,
)
from airflow_hive_federation.hooks.spark import SparkPipelineHook, spark_environment
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.spark.copy_files import CopySummary, copy_plan
from airflow_hive_federation.spark.digest_files import digest_plan
from airflow_hive_federation.spark.job import run_job
from airflow_hive_federation.spark.package_zip import main_file, package_zip
from airflow_hive_federation.spark.workers import SparkWorkers
from airflow_hive_federation.storage.digests import FileDigest, FileToDigest
from airflow_hive_federation.storage.listing import list_files
from airflow_hive_federation.storage.plan_files import (
    read_outcomes,
    read_record_parts,
    write_plan,
    write_records,
)

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Tree:
    """A source of files, the place for their copies, and the plan."""

    root: Path

    @property
    def source(self) -> Path:
        return self.root / "s"

    @property
    def target(self) -> Path:
        return self.root / "t"

    @property
    def plan(self) -> str:
        return f"file:{self.root}/dump/copy_plan.jsonl"

    @property
    def outcomes(self) -> str:
        return f"file:{self.root}/dump/outcomes"

    def write(self, sizes: dict[str, int]) -> None:
        chance = random.Random(7)
        for name, size in sizes.items():
            path = self.source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(chance.randbytes(size))
        items = (
            CopyItem(
                source=f"file:{self.source}/{file.path}",
                target=f"file:{self.target}/{file.path}",
                size_bytes=file.size_bytes,
            )
            for file in list_files(str(self.source))
        )
        write_plan(self.plan, items)

    def digests(self, folder: Path) -> dict[str, str]:
        return {
            file.path: hashlib.sha256((folder / file.path).read_bytes()).hexdigest()
            for file in list_files(str(folder), missing_ok=True)
        }

    def temporary_files(self) -> list[Path]:
        return list(self.target.rglob("._copy_*"))

    def assert_copied(self) -> None:
        expected = self.digests(self.source)
        assert self.digests(self.target) == expected
        outcomes = read_outcomes(self.outcomes)
        assert {outcome.target: outcome.digest for outcome in outcomes.values()} == {
            f"file:{self.target}/{name}": digest for name, digest in expected.items()
        }
        assert not self.temporary_files()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.fixture
def context(spark: SparkSession) -> SparkContext:
    return spark.sparkContext


def names(count: int) -> list[str]:
    return [f"p={number % 7}/delta_0000001_0000001/bucket_{number:05}" for number in range(count)]


def copy(context: SparkContext, tree: Tree, **settings: Any) -> CopySummary:
    return copy_plan(SparkWorkers(context), tree.plan, tree.outcomes, **settings)


def test_copies_and_then_has_nothing_to_do(
    context: SparkContext, tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "airflow_hive_federation")
    tree.write({name: number * 1000 for number, name in enumerate(names(60))})
    first = copy(context, tree)
    assert (first.files, first.copied, first.failed) == (60, 60, 0)
    assert first.copied_bytes == first.size_bytes == sum(range(60)) * 1000
    tree.assert_copied()
    again = copy(context, tree)
    assert (again.recorded, again.copied, again.tasks) == (60, 0, 0)
    assert json.loads((tree.root / "dump/outcomes/_summary.json").read_text())["recorded"] == 60
    # Each run counts all files in place, and their bytes, whichever run has copied them.
    progress = [line for record in caplog.records if " of 60 files" in (line := record.getMessage())]
    assert [line.rpartition(",")[0] for line in progress[-2:]] == ["copied 60 of 60 files, 1.8 of 1.8 MB"] * 2


def test_the_job_keeps_modes_and_records_are_private(context: SparkContext, tree: Tree) -> None:
    tree.write(dict.fromkeys(names(2), 10))
    closed, shared = (tree.source / name for name in names(2))
    closed.chmod(0o600)
    shared.chmod(0o664)
    arguments = ["--plan", tree.plan, "--outcomes", tree.outcomes]
    run_job(context, "copy-files", [*arguments, "--preserve", "p"])
    assert [stat.S_IMODE((tree.target / name).stat().st_mode) for name in names(2)] == [0o600, 0o664]
    records = Path(tree.outcomes.removeprefix("file:"))
    assert stat.S_IMODE(records.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in records.iterdir()} == {0o600}
    with pytest.raises(ConfigurationError, match="cannot be preserved"):
        run_job(context, "copy-files", [*arguments, "--preserve", "pa"])


def test_without_records_identical_files_are_found(context: SparkContext, tree: Tree) -> None:
    tree.write(dict.fromkeys(names(10), 5000))
    copy(context, tree)
    shutil.rmtree(tree.root / "dump/outcomes")
    (tree.target / names(10)[3]).write_bytes(b"other")
    summary = copy(context, tree, threads=3)
    assert (summary.identical, summary.copied) == (9, 1)
    tree.assert_copied()


def test_recorded_files_that_were_lost_are_copied_anew(context: SparkContext, tree: Tree) -> None:
    tree.write(dict.fromkeys(names(10), 5000))
    copy(context, tree)
    (tree.target / names(10)[3]).unlink()
    (tree.target / names(10)[4]).write_bytes(b"cut short")
    summary = copy(context, tree)
    assert (summary.recorded, summary.copied) == (8, 2)
    tree.assert_copied()


def test_vanished_files_are_reported_and_the_others_copied(context: SparkContext, tree: Tree) -> None:
    tree.write(dict.fromkeys(names(20), 3000))
    gone, changed = (tree.source / name for name in names(20)[5:7])
    content = gone.read_bytes()
    gone.unlink()
    with changed.open("ab") as file:
        file.write(b"more")
    with pytest.raises(FileVanishedError, match="1 more file failed") as caught:
        copy(context, tree)
    assert set(caught.value.failed_paths) == {f"file:{gone}", f"file:{changed}"}
    assert len(tree.digests(tree.target)) == 18
    assert not tree.temporary_files()
    failures = json.loads((tree.root / "dump/outcomes/_summary.json").read_text())["failures"]
    assert {failure["type"] for failure in failures} == {"FileVanishedError"}

    gone.write_bytes(content)
    os.truncate(changed, 3000)
    assert copy(context, tree).recorded == 18
    tree.assert_copied()


def test_full_disk_is_an_error_and_the_next_run_goes_on(context: SparkContext, tree: Tree) -> None:
    tree.target.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(tree.target)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("mounting needs root")
    try:
        tree.write(dict.fromkeys(names(20), 40_000))
        with pytest.raises(StorageFullError):
            copy(context, tree)
        there = len(tree.digests(tree.target))
        assert 0 < there < 20
        assert tree.digests(tree.target).items() <= tree.digests(tree.source).items()
        subprocess.run(["mount", "-o", "remount,size=4m", str(tree.target)], check=True)
        assert copy(context, tree).recorded == there
        tree.assert_copied()
    finally:
        subprocess.run(["umount", str(tree.target)], check=True)


def test_capped_copy_has_a_task_a_core(context: SparkContext, tree: Tree) -> None:
    tree.write(dict.fromkeys(names(50), 2000))
    assert copy(context, tree, bandwidth_bytes_per_s=10_000_000).tasks == context.defaultParallelism
    tree.assert_copied()


@pytest.mark.parametrize(
    ("bounds", "tasks"),
    [({"parallel": 1}, 1), ({"max_tasks": 3}, 3), ({"parallel": 2, "max_tasks": 5}, 2)],
)
def test_copies_at_once_and_tasks_are_bounded(
    context: SparkContext, tree: Tree, bounds: dict[str, int], tasks: int
) -> None:
    """(Two slots: six tasks at least without a bound.)"""
    tree.write(dict.fromkeys(names(50), 2000))
    assert copy(context, tree, threads=4, **bounds).tasks == tasks
    tree.assert_copied()


def test_plan_that_is_missing(context: SparkContext, tree: Tree) -> None:
    with pytest.raises(FileVanishedError) as caught:
        copy(context, tree)
    assert caught.value.path == tree.plan


def test_digest_job(context: SparkContext, tree: Tree) -> None:
    tree.write({name: number * 100 for number, name in enumerate(names(30))})
    files = [
        FileToDigest(uri=f"file:{tree.source}/{file.path}", size_bytes=file.size_bytes)
        for file in list_files(str(tree.source))
    ]
    plan, digests = f"{tree.root}/digests.jsonl", f"{tree.root}/digests"
    write_records(plan, files)
    summary = digest_plan(SparkWorkers(context), plan, digests)
    assert (summary.files, summary.size_bytes) == (30, sum(range(30)) * 100)
    assert {digest.uri: digest.digest for digest in read_record_parts(digests, FileDigest)} == {
        f"file:{tree.source}/{name}": digest for name, digest in tree.digests(tree.source).items()
    }
    (tree.source / names(30)[1]).unlink()
    with pytest.raises(FileVanishedError):
        digest_plan(SparkWorkers(context), plan, digests)


# -- through spark-submit --------------------------------------------------------------------------------


@pytest.mark.slow
def test_hook_on_the_default_master(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of a task comes back typed, the next run copies the rest, and secrets are not shown."""
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT", raising=False)
    tree.write(dict.fromkeys(names(12), 3000))
    gone = tree.source / names(12)[0]
    content = gone.read_bytes()
    gone.unlink()
    hook = SparkPipelineHook(storage_options={"s3://nowhere": {"secret": "very-secret-value"}})
    with pytest.raises(FileVanishedError) as caught:
        hook.copy_runner()(tree.plan, tree.outcomes)
    assert caught.value.path == f"file:{gone}"

    gone.write_bytes(content)
    with command_lines() as seen:
        arguments = ["--plan", tree.plan, "--outcomes", tree.outcomes]
        result = hook.submit("copy-files", arguments, report_uri=f"{tree.outcomes}/_report.json")
    assert (result["recorded"], result["copied"]) == (11, 1)
    tree.assert_copied()
    assert any("copy-files" in line for line in seen)
    assert not any("very-secret-value" in line for line in seen)


@pytest.mark.slow
def test_killed_job_is_taken_up_where_it_was(tree: Tree, context: SparkContext) -> None:
    """kill -9 of driver, JVM and Python workers: no half file has its name, and nothing is done twice."""
    tree.write(dict.fromkeys(names(40), 1_000_000))
    arguments = ["--plan", tree.plan, "--outcomes", tree.outcomes, "--bandwidth", "5000000"]
    command = ["--master", "local[2]", "--conf", "spark.ui.enabled=false", "--py-files", str(package_zip())]
    environment = spark_environment(os.environ, {}, {}, local=True)
    with (tree.root / "log").open("wb") as log:
        job = psutil.Popen(
            [
                f"{environment['SPARK_HOME']}/bin/spark-submit",
                *command,
                str(main_file()),
                "copy-files",
                *arguments,
            ],
            env=environment,
            stdout=log,
            stderr=log,
        )
        try:
            wait_for(lambda: len(read_outcomes(tree.outcomes)) >= 5 and bool(tree.temporary_files()), job)
        finally:
            kill_tree(job)

    left = tree.digests(tree.target)
    assert 5 <= len(left) < 40
    assert left.items() <= tree.digests(tree.source).items()
    recorded = len(read_outcomes(tree.outcomes))

    summary = copy(context, tree)
    assert summary.recorded == recorded
    assert summary.identical == len(left) - recorded
    assert summary.copied == 40 - len(left)
    tree.assert_copied()


@pytest.mark.slow
def test_hook_kills_its_job(tree: Tree) -> None:
    tree.write(dict.fromkeys(names(4), 1_000_000))
    hook = SparkPipelineHook()
    slow = ReplicationPolicy(
        name="slow", source_database="slow", dump_root="file:/d", bandwidth_bytes_per_s=1000
    )
    caught: list[BaseException] = []

    def run() -> None:
        try:
            hook.copy_runner(slow)(tree.plan, tree.outcomes)
        except SparkJobError as error:
            caught.append(error)

    running = threading.Thread(target=run, daemon=True)
    running.start()
    try:
        wait_for(lambda: bool(tree.temporary_files()))
        (job,) = (child for child in psutil.Process().children() if "copy-files" in command_line(child))
        started = [job, *job.children(recursive=True)]
        assert any("pyspark.daemon" in command_line(process) for process in started)
    finally:
        hook.on_kill()
    running.join(timeout=60)
    assert not running.is_alive()
    assert [str(error) for error in caught] == [
        "The Spark job was killed. Remedy: Run it again; it goes on from there."
    ]
    assert not psutil.wait_procs(started, timeout=60)[1]


def test_connection_that_is_not_defined() -> None:
    with pytest.raises(ConfigurationError, match="Connection nowhere is not defined"):
        SparkPipelineHook("nowhere").submit("copy-files", [], report_uri="file:/nowhere")


def test_cluster_mode_is_refused_where_it_cannot_work(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_FAR", json.dumps(connection))
    hook = SparkPipelineHook("spark_far", storage_options={"key": "k"})
    with pytest.raises(ConfigurationError, match="storage options cannot be handed"):
        hook.submit("copy-files", [], report_uri="file:/nowhere")


def wait_for(condition: Callable[[], bool], job: Any = None) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert job is None or job.poll() is None, "the job ended too early"
        assert time.monotonic() < deadline, "nothing happened within two minutes"
        time.sleep(0.05)


def kill_tree(process: Any) -> None:
    every = [*process.children(recursive=True), process]
    for worker in every:
        # The end of one of them may end another one.
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.kill()
    assert not psutil.wait_procs(every, timeout=60)[1]


def command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""  # it ended meanwhile


class command_lines:  # noqa: N801 - used as a context manager
    """Collects the command lines of this process's descendants while the block runs."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> set[str]:
        self._thread.start()
        return self._seen

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.1):
            self._seen.update(map(command_line, psutil.Process().children(recursive=True)))
