"""Makes the functions by which a replication has its files copied and read by Spark jobs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_hive_federation.progress.observers import Observer
    from airflow_hive_federation.replication.policy import ReplicationPolicy
    from airflow_hive_federation.storage.options import StorageOptions

#: Age, in seconds, at which the result of a verification of an earlier try does not hold any more.
_VERIFIED_S = 3600
_PLAN_FILES = ("tables.jsonl", "files.jsonl")
#: The verification job writes it last.
_LAST_RESULT = "rows.jsonl"


class JobRunners:
    """Base of the hook that submits jobs."""

    _storage_options: StorageOptions

    @abstractmethod
    def runs_here(self) -> bool:
        """Return whether the jobs run on this machine: the connection's master is a local one."""

    @abstractmethod
    def check_killed(self) -> None:
        """Raise an error if the task was killed."""

    @abstractmethod
    def observer(self) -> Observer:
        """Return the observer of the jobs' progress."""

    @abstractmethod
    def submit(
        self,
        job: str,
        arguments: Sequence[str],
        *,
        report_uri: str,
        key: str = "",
        holds: Callable[[dict[str, object], bool], bool] = lambda *_: True,
    ) -> dict[str, Any]:
        """Run a job and return its result; see :meth:`.spark.SparkPipelineHook.submit`."""

    def copy_runner(self, policy: ReplicationPolicy | None = None) -> Callable[[str, str], None]:
        """Return a function of (URI of a copy plan, URI for the outcomes) that runs the copy job.

        On a local master, where the job would read and write by this machine as well, this process carries
        out the small plans of a policy; see :mod:`.small_copies`.

        :param policy: the policy that bounds the job's bandwidth, tasks and concurrent files; without it,
            they are unbounded.
        """
        bounds = _copy_bounds(policy) if policy else []

        def run_copy(plan_uri: str, outcomes_uri: str) -> None:
            from airflow_hive_federation.spark.copy_files import is_carried_out

            self.submit(
                "copy-files",
                ["--plan", plan_uri, "--outcomes", outcomes_uri, *bounds],
                report_uri=f"{outcomes_uri}/_report.json",
                holds=lambda *_: is_carried_out(plan_uri, outcomes_uri, self._storage_options),
            )

        if policy is None:
            return run_copy

        def run_small_copy_here(plan_uri: str, outcomes_uri: str) -> None:
            from airflow_hive_federation.hooks.small_copies import small_here

            if not self.runs_here():
                run_copy(plan_uri, outcomes_uri)
                return
            here = small_here(policy, run_copy, observer=self.observer(), check=self.check_killed)
            here(plan_uri, outcomes_uri)

        return run_small_copy_here

    def verify_runner(self, run: str = "") -> Callable[[str, str], str | None]:
        """Return a function of (URI of the plans, URI for the results) that reads both sides of a replica.

        It returns the URI of the results, which an earlier try may have asked for. On a local master, where
        the job would read by this machine as well, this process carries out small plans.

        :param run: the name of the task instance, by which its next try finds the job; empty for a run of its
            own.
        """

        def run_verify(plan_uri: str, results_uri: str) -> str | None:
            from airflow_hive_federation.spark.verify_replica import verify_small_plan

            if self.runs_here() and verify_small_plan(
                plan_uri,
                results_uri,
                self._storage_options,
                observer=self.observer(),
                check=self.check_killed,
            ):
                return results_uri
            reports, key = results_uri, ""
            if run:
                # Each try has a directory for its plan; the tries share the report.
                reports = f"{plan_uri.rpartition('/')[0]}/{run}"
                key = _digest_of_plan(plan_uri, self._storage_options)
            result = self.submit(
                "verify-replica",
                ["--plan", plan_uri, "--results", results_uri],
                report_uri=f"{reports}/_report.json",
                key=key,
                holds=lambda earlier, own: own or _still_verifies(earlier, plan_uri, self._storage_options),
            )
            return str(result.get("results") or results_uri)

        return run_verify


def _digest_of_plan(plan_uri: str, options: StorageOptions) -> str:
    """Return the digest of a verification's plan, whatever the order of its lines."""
    import hashlib

    from airflow_hive_federation.storage.filesystem import reading

    lines: list[bytes] = []
    for name in _PLAN_FILES:
        with reading(f"{plan_uri}/{name}", options) as file:
            lines += (hashlib.sha256(line).digest() for line in file)
    return hashlib.sha256(b"".join(sorted(lines))).hexdigest()[:32]


def _still_verifies(result: dict[str, object], plan_uri: str, options: StorageOptions) -> bool:
    """Return whether the results of an earlier job are there, and not too old.

    Both times are the store's: the plan of this try was written a moment ago.
    """
    from airflow_hive_federation.storage.listing import list_files

    written = {entry.path: entry.modified_ns for entry in list_files(plan_uri, options=options)}
    results = list_files(str(result.get("results", "")), options=options, missing_ok=True)
    ended_ns = max((entry.modified_ns for entry in results if entry.path == _LAST_RESULT), default=None)
    return ended_ns is not None and max(written.values()) - ended_ns < _VERIFIED_S * 1_000_000_000


def _copy_bounds(policy: ReplicationPolicy) -> list[str]:
    bounds = {
        "--bandwidth": policy.bandwidth_bytes_per_s,
        "--parallel": policy.parallel_copies,
        "--max-tasks": policy.max_load_tasks,
        "--preserve": policy.preserve,
    }
    roots = [part for root in policy.sources.roots for part in ("--source-root", root)]
    leniently = [] if policy.preserve_strictly else ["--preserve-leniently"]
    arguments = [part for name, bound in bounds.items() if bound for part in (name, str(bound))]
    return [*arguments, *leniently, *roots]
