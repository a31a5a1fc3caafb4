"""Runs the tasks of a job on files: side by side in Spark, or one after the other in this process.

The task is the same function in both places, so records, digests, fences and repetitions do not depend on the
place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from airflow_hive_federation.spark.failures import from_spark
from airflow_hive_federation.spark.groups import Counter, GroupResult, Groups, GroupTask

#: Spark carries out more than this from two cores on in less time than one process, its start included.
SMALL_BYTES = 256 * 1024 * 1024
SMALL_FILES = 1000


class SparkWorkers:
    """Runs tasks in Spark.

    :param spark: a SparkSession or a SparkContext.
    """

    def __init__(self, spark: Any) -> None:
        self._context = getattr(spark, "sparkContext", spark)

    @property
    def slots(self) -> int:
        """Return Spark's default parallelism."""
        return int(self._context.defaultParallelism)

    @property
    def speculates(self) -> bool:
        """Return whether Spark starts duplicates of slow tasks."""
        return str(self._context.getConf().get("spark.speculation", "false")).lower() == "true"

    def counter(self) -> Counter:
        """Return an accumulator."""
        accumulator: Counter = self._context.accumulator(0)
        return accumulator

    def run(self, groups: Groups, task: GroupTask, *, description: str) -> list[GroupResult]:
        """Run one task of a Spark job per group.

        :raises SparkJobError: a task failed as a whole.
        """
        from py4j.protocol import Py4JError

        self._context.setJobDescription(description)
        try:
            results: list[GroupResult] = (
                self._context.parallelize(groups, len(groups)).mapPartitions(task).collect()
            )
        except Py4JError as error:
            raise from_spark(error) from error
        return results


class ThisProcess:
    """Runs tasks in this process, for work that takes less time than the start of Spark.

    :param check: raises an error if the work must end; called before each task.
    """

    slots = 1
    speculates = False

    def __init__(self, check: Callable[[], None] = lambda: None) -> None:
        self._check = check

    def counter(self) -> Counter:
        """Return a sum for the threads of this process."""
        return _Sum()

    def run(self, groups: Groups, task: GroupTask, *, description: str) -> list[GroupResult]:
        """Run one task after the other."""
        del description
        results = []
        for group in groups:
            self._check()
            results.append(task.run(group))
        return results


class _Sum:
    def __init__(self) -> None:
        self.value = 0
        self._lock = threading.Lock()

    def add(self, term: int) -> None:
        with self._lock:
            self.value += term
