"""Runs a job in a driver of a standalone cluster: ``python ARCHIVE --report URI … JOB ARGUMENTS…``.

It is ``__main__`` in the archive of this package, which Spark's PythonRunner runs in the working directory of
the driver.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> int:
    """Run the job of the command line, with the archive for the executors; return the exit code."""
    archive = str(Path(sys.argv[0]).resolve())
    use_spark_of_worker()
    from pyspark import SparkConf, SparkContext

    # spark-submit sets both for a Python program, and for a main class neither.
    SparkContext.setSystemProperty("spark.submit.pyFiles", archive)
    files = SparkConf().get("spark.files", "")
    SparkContext.setSystemProperty("spark.files", ",".join(filter(None, [files, archive])))
    from airflow_hive_federation.spark.job import main as run

    return run(sys.argv[1:])


def use_spark_of_worker() -> None:
    """Let Python import the pyspark of the worker's Spark.

    PythonRunner looks for it in ``SPARK_HOME``, which is a directory of the machine of spark-submit here. It
    also puts the jar of its own class on the path, and this jar is in the worker's Spark.
    """
    for jar in map(Path, sys.path):
        python = jar.parent.parent / "python" / "lib"
        if jar.match("spark-core_*.jar") and (python / "pyspark.zip").is_file():
            # The archive stays first.
            sys.path[1:1] = [str(python / "pyspark.zip"), *map(str, sorted(python.glob("py4j-*-src.zip")))]
            os.environ["SPARK_HOME"] = str(jar.parent.parent)
            return


if __name__ == "__main__":
    sys.exit(main())
