"""Merges bucket files in Spark tasks, for compaction.

The job reads one merge per line, and writes one outcome per line in the same order. The outcome of a failed
merge is its error, so that one bad partition does not stop the others. Tasks write each file under a hidden
name and rename it, so that retries and speculation do no harm. The process that submits the job makes all
calls to the metastore; the job itself calls no metastore.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_hive_federation.compaction.merge import MergeOutcome
from airflow_hive_federation.compaction.plan import BucketMerge
from airflow_hive_federation.compaction.runners import merge_or_error
from airflow_hive_federation.compaction.worker import MergeRunner
from airflow_hive_federation.errors import HiveFederationError, SparkJobError
from airflow_hive_federation.model.json_values import Fields, reader_of
from airflow_hive_federation.spark.balancing import deal
from airflow_hive_federation.spark.failures import error_from_json, error_to_json, from_spark
from airflow_hive_federation.storage.filesystem import join, open_filesystem, storage_errors
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.publishing import write_atomically
from airflow_hive_federation.storage.trees import remove_tree

JOB = "merge-buckets"

_BYTES_PER_TASK = 256 * 1024 * 1024
_FILES_PER_TASK = 100
_MERGES, _OUTCOMES = "merges.jsonl", "outcomes.jsonl"
_OUTCOME = reader_of(MergeOutcome)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job's arguments."""
    parser.add_argument("--plan", required=True, help=f"URI of the directory with {_MERGES}")
    parser.add_argument(
        "--compression", help="compression of ORC files: zlib, zstd, snappy, lz4; each table's own by default"
    )


def run(spark: Any, args: argparse.Namespace, options: StorageOptions | None = None) -> dict[str, Any]:
    """Run the job with parsed arguments; return the numbers of merges, failures and tasks as JSON values."""
    from py4j.protocol import Py4JError

    context = getattr(spark, "sparkContext", spark)
    merges = [BucketMerge.from_json(json.loads(line)) for line in _lines(join(args.plan, _MERGES), options)]
    numbered = list(enumerate(merges))
    groups = deal(
        numbered,
        context.defaultParallelism,
        size_of=lambda numbered_merge: numbered_merge[1].size_bytes,
        name_of=lambda numbered_merge: f"{numbered_merge[1].table.location}/{numbered_merge[1].output}",
        bytes_per_task=_BYTES_PER_TASK,
        files_per_task=_FILES_PER_TASK,
    )
    threads = max(1, context.defaultParallelism // max(1, len(groups)))
    task = MergeTask(options=options, compression=args.compression, threads=threads)
    context.setJobDescription(JOB)
    try:
        numbered_outcomes = (
            context.parallelize(groups, len(groups)).mapPartitions(task).collect() if groups else []
        )
    except Py4JError as error:
        raise from_spark(error) from error
    outcomes = [
        outcome for _, outcome in sorted(numbered_outcomes, key=lambda numbered_outcome: numbered_outcome[0])
    ]
    text = "".join(json.dumps(outcome, sort_keys=True) + "\n" for outcome in outcomes)
    write_atomically(join(args.plan, _OUTCOMES), [text.encode()], options)
    failed = sum("error" in outcome for outcome in outcomes)
    return {"merges": len(outcomes), "failed": failed, "tasks": len(groups)}


@dataclass(frozen=True, kw_only=True)
class MergeTask:
    """The function of a Spark task: takes groups of numbered merges, and yields each number with its outcome.

    :param compression: compression of ORC files; each table's own by default.
    :param threads: number of threads per merge.
    """

    options: StorageOptions | None = field(repr=False)
    compression: str | None
    threads: int

    def __call__(
        self, groups: Iterable[Sequence[tuple[int, BucketMerge]]]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        for group in groups:
            for number, merge in group:
                outcome = merge_or_error(
                    merge, options=self.options, compression=self.compression, threads=self.threads
                )
                yield number, _to_json(outcome)


def by_spark(
    submit: Callable[[str, Sequence[str], str], object],
    *,
    options: StorageOptions | None = None,
    compression: str | None = None,
) -> MergeRunner:
    """Return a runner that carries out all its merges in one Spark job.

    :param submit: runs a job; receives its name, its arguments and the URI of a file for its report.
    :param compression: compression of ORC files; each table's own by default.
    """

    def run_merges(merges: Sequence[BucketMerge]) -> list[MergeOutcome | HiveFederationError]:
        directory = _plan_directory(merges[0])
        text = "".join(json.dumps(merge.to_json(), sort_keys=True) + "\n" for merge in merges)
        write_atomically(join(directory, _MERGES), [text.encode()], options)
        arguments = ["--plan", directory, *(["--compression", compression] if compression else [])]
        try:
            submit(JOB, arguments, join(directory, "_report.json"))
            outcomes = [_from_json(json.loads(line)) for line in _lines(join(directory, _OUTCOMES), options)]
        finally:
            filesystem, path = open_filesystem(directory, options)
            with storage_errors(directory):
                remove_tree(filesystem, path)
        if len(outcomes) != len(merges):
            raise SparkJobError(
                f"The compaction job answered {len(outcomes)} of {len(merges)} merges.",
                remedy="Read Spark's log, and run it again: nothing was published.",
            )
        return outcomes

    return run_merges


def _plan_directory(first: BucketMerge) -> str:
    # In the hidden directory of the first compaction, which a later sweep removes if this process is killed.
    staging = first.output.partition("/")[0]
    return join(first.table.location, staging if staging.startswith("_") else f"_{staging}", "_plan")


def _lines(uri: str, options: StorageOptions | None) -> list[str]:
    filesystem, path = open_filesystem(uri, options)
    with storage_errors(uri):
        content: bytes = filesystem.cat_file(path)
    return content.decode().splitlines()


def _to_json(outcome: MergeOutcome | HiveFederationError) -> dict[str, object]:
    return {"error": error_to_json(outcome)} if isinstance(outcome, HiveFederationError) else asdict(outcome)


def _from_json(value: object) -> MergeOutcome | HiveFederationError:
    fields = Fields(value)
    return fields.needed("error", error_from_json) if "error" in fields else _OUTCOME(value)
