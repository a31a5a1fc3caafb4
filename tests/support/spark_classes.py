"""Lets the JVMs of Spark's drivers share their classes, in an archive that is made once per checkout.

It has the archives of the embedded servers made as well.

Loading and verifying its classes is a third of the processor time of a small Spark job, and a run of the
tests starts many of those. A JVM whose class path or version is another one ignores the archive.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from airflow_hive_federation.embedded.class_archives import make_archives
from airflow_hive_federation.runtime.cache import exclusively, short_digest
from airflow_hive_federation.runtime.environment import without_secrets
from airflow_hive_federation.runtime.java import spark_java_home

#: The drivers of so many small jobs had better compile quickly than well, and keep what they have compiled:
#: in the small code cache of this level, Java 17 looks all the time for methods to drop.
QUICK = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m -XX:ReservedCodeCacheSize=240m -Xmn192m"
)
_ROOT = Path(__file__).parents[2]
#: Making an archive takes half a minute on a quiet machine.
_LONGEST_S = 300


def driver_options() -> str:
    """Return the JVM options of the tests' drivers; an archive that is missing changes nothing."""
    # Unified logging writes to standard output, which belongs to the job.
    return f"{QUICK} -XX:SharedArchiveFile={archive()} -Xlog:cds*=off"


@functools.cache
def archive() -> Path:
    """Return the path of the archive for the installed pyspark and the Java of this environment."""
    parts = [os.environ.get("JAVA_HOME", "")]
    for program in (shutil.which("java"), str(Path(os.environ.get("JAVA_HOME", "/")) / "bin" / "java")):
        if program and Path(program).is_file():
            real = Path(program).resolve()
            parts += [str(real), str(real.stat().st_mtime_ns)]
    parts += [f"{jar} {jar.stat().st_mtime_ns}" for jar in sorted((_spark_home() / "jars").glob("*.jar"))]
    return _ROOT / "build" / "spark-classes" / f"{short_digest(*(part.encode() for part in parts))}.jsa"


def make_meanwhile(path: Path) -> Callable[[], None]:
    """Make missing archives in a process of its own; return the function that waits for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".log").open("wb") as log:
        maker = subprocess.Popen(
            [sys.executable, "-m", "tests.support.spark_classes", str(path)],
            cwd=_ROOT,
            env=without_secrets(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def finish() -> None:
        # Cut short, it would begin again with each short run.
        try:
            maker.wait(_LONGEST_S)
        except subprocess.TimeoutExpired:
            os.killpg(maker.pid, signal.SIGKILL)
            maker.wait()

    return finish


def make(path: Path) -> None:
    """Make the archive from the classes that a job loads; it appears when it is complete."""
    with exclusively(path.with_suffix(".lock")), tempfile.TemporaryDirectory(dir=path.parent) as folder:
        if path.exists():
            return
        partial = Path(folder) / path.name
        _submit("--master", "local[2]", __file__, folder, options=f"-XX:ArchiveClassesAtExit={partial}")
        # A damaged archive ends each JVM that uses it.
        _submit("--version", options=f"-XX:SharedArchiveFile={partial} -Xshare:on")
        partial.rename(path)


def run_job(folder: Path) -> None:
    """Do in Spark what many of the tests' jobs do."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as fn

    spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
    assert spark.sparkContext.parallelize(range(4), 2).map(str).collect() == ["0", "1", "2", "3"]
    rows = spark.createDataFrame([(number, str(number)) for number in range(10)], "id int, text string")
    for kind in ("orc", "parquet"):
        rows.write.partitionBy("text").format(kind).save(str(folder / kind))
        spark.read.format(kind).load(str(folder / kind)).createOrReplaceTempView(kind)
    joined = spark.sql(
        "select o.id, count(*) from orc o join parquet p on o.id = p.id group by o.id order by 1"
    )
    assert joined.count() == 10
    assert len(rows.repartition(2).where(fn.col("id") > 4).collect()) == 5
    spark.stop()


def _submit(*arguments: str, options: str) -> None:
    environment = {
        **without_secrets(),
        "JAVA_HOME": str(spark_java_home()),
        "SPARK_HOME": str(_spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_SUBMIT_OPTS": f"{QUICK} {options}",
    }
    subprocess.run([str(_spark_home() / "bin" / "spark-submit"), *arguments], env=environment, check=True)


def _spark_home() -> Path:
    # find_spec does not import pyspark.
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0])


if __name__ == "__main__":
    given = Path(sys.argv[1])
    if given.is_dir():
        run_job(given)
    else:
        make_archives()
        make(given)
