"""Merges bucket files in this process; the Spark job merges them on a cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from airflow_hive_federation.compaction.merge import MergeOutcome, merge_bucket
from airflow_hive_federation.compaction.plan import BucketMerge
from airflow_hive_federation.compaction.worker import MergeRunner
from airflow_hive_federation.errors import AcidFormatError, HiveFederationError
from airflow_hive_federation.storage.options import StorageOptions


def in_threads(
    threads: int | None = None,
    *,
    options: StorageOptions | None = None,
    compression: str | None = None,
) -> MergeRunner:
    """Return a runner that merges in threads of this process: several files, or several stripes of one file.

    :param threads: number of threads; by default one per core.
    :param compression: ``zlib``, ``zstd``, ``snappy``, ``lz4`` or ``uncompressed``; by default each
        table's own, from its property ``orc.compress``.
    """
    count = threads or os.cpu_count() or 1

    def run(merges: Sequence[BucketMerge]) -> list[MergeOutcome | HiveFederationError]:
        threads_per_merge = max(1, count // max(1, len(merges)))
        with ThreadPoolExecutor(max_workers=count, thread_name_prefix="merge") as workers:
            return list(
                workers.map(
                    lambda merge: merge_or_error(
                        merge, options=options, compression=compression, threads=threads_per_merge
                    ),
                    merges,
                )
            )

    return run


def merge_or_error(
    merge: BucketMerge, *, options: StorageOptions | None, compression: str | None, threads: int
) -> MergeOutcome | HiveFederationError:
    """Merge one bucket; return an error instead of raising it, so that a bad table does not stop others."""
    try:
        return merge_bucket(merge, options=options, compression=compression, threads=threads)
    except HiveFederationError as error:
        return error
    except (pa.ArrowException, MemoryError) as error:
        return AcidFormatError(
            f"{merge.table.full_name}: {merge.output} cannot be made: {type(error).__name__}: {error}",
            remedy="Nothing of it is visible. Hive's own worker may be able to compact it.",
        )
