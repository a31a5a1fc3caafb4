from __future__ import annotations

import pytest

from airflow_hive_federation.errors import (
    FileVanishedError,
    HiveFederationError,
    SparkEnvironmentError,
    SparkJobError,
    SparkRefusedError,
    StorageFullError,
    StoragePermissionError,
)
from airflow_hive_federation.spark.failures import (
    combined,
    error_from_json,
    error_report,
    error_to_json,
    from_spark,
    read_report,
    result_report,
)

VANISHED = FileVanishedError("gone é", remedy="list again", path="file:/x", count=3)


def test_errors_come_back_with_class_and_facts() -> None:
    with pytest.raises(FileVanishedError, match=r"gone é\. Remedy: list again") as caught:
        read_report(error_report(VANISHED))
    assert (caught.value.path, caught.value.count) == ("file:/x", 3)


def test_result_comes_back() -> None:
    assert read_report(result_report({"files": 2})) == {"files": 2}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        '{"error": "x"}',
        '{"result": 1}',
        result_report({"files": 2})[:-3],
        b'{"a\xff"}',
    ],
)
def test_a_damaged_report_is_an_error(text: str | bytes) -> None:
    with pytest.raises(SparkJobError, match="damaged"):
        read_report(text)


@pytest.mark.parametrize("name", ["NoSuchErrorHere", "annotations", "Any", None])
def test_unknown_classes_become_job_errors(name: str | None) -> None:
    error = error_from_json({"type": name, "message": "m", "facts": {"message": "x", "path": "p"}})
    assert type(error) is SparkJobError
    assert error.path == "p"


def test_facts_that_are_not_json_become_text() -> None:
    values = error_to_json(HiveFederationError("m", where=pytest))
    assert "module" in values["facts"]["where"]


def test_the_gravest_of_many_failures_is_raised() -> None:
    full = StorageFullError("full", path="file:/y")
    error = combined([VANISHED, VANISHED, full])
    assert type(error) is StorageFullError
    assert error.message == "full (2 more files failed: FileVanishedError, StorageFullError.)"
    assert error.failures == 3
    assert error.failed_paths == ["file:/x", "file:/x", "file:/y"]
    assert combined([VANISHED]) is VANISHED


SPARK_SAYS = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times
Traceback (most recent call last):
  File "x.py", line 1, in f
ZeroDivisionError: division by zero
\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:1)
Driver stacktrace:
Caused by: org.apache.spark.api.python.PythonException: x
"""


def test_sparks_own_failures_have_their_cause() -> None:
    error = from_spark(RuntimeError(SPARK_SAYS))
    assert type(error) is SparkJobError
    assert error.message == "Spark: ZeroDivisionError: division by zero"
    assert from_spark(RuntimeError("")).message == "Spark: no message"


@pytest.mark.parametrize(
    "text",
    [
        # Spark 3.5, and Spark 4.
        'in worker has different version ("3.9") than that in driver 3.11, PySpark cannot run',
        "in worker has different version (3, 9) than that in driver 3.11, PySpark cannot run",
        "in worker has different version: 3.9 than that in driver: 3.11, PySpark cannot run",
    ],
)
def test_an_executor_with_another_python(text: str) -> None:
    error = from_spark(RuntimeError(f"pyspark.errors.…: [PYTHON_VERSION_MISMATCH] Python {text}"))
    assert isinstance(error, SparkEnvironmentError)
    assert (error.driver, error.worker) == ("3.11", "3.9")
    assert "Set PYSPARK_PYTHON" in error.remedy


def test_an_executor_without_a_package() -> None:
    error = from_spark(RuntimeError("  import x\nModuleNotFoundError: No module named 'pyarrow.compute'"))
    assert isinstance(error, SparkEnvironmentError)
    assert error.package == "pyarrow"
    other = from_spark(RuntimeError("ModuleNotFoundError: No module named 'pyarrows'"))
    assert isinstance(other, SparkJobError)


def test_a_client_that_is_too_old_for_the_metastore() -> None:
    """The words of Spark 4.2 with its built-in client at Hive 4.2."""
    words = (
        "org.apache.hadoop.hive.ql.metadata.HiveException: Unable to fetch table orders. "
        "Invalid method name: "
    )
    error = from_spark(RuntimeError(f"{words}'get_table'"))
    assert isinstance(error, SparkEnvironmentError)
    assert error.method == "get_table"
    assert "gateway" in error.remedy
    assert type(from_spark(RuntimeError(f"{words}'get_tables_of_mine'"))) is SparkJobError


@pytest.mark.parametrize(
    "words",
    [
        "org.apache.hadoop.security.AccessControlException: Client cannot authenticate via:[TOKEN, KERBEROS]",
        "javax.security.sasl.SaslException: GSS initiate failed [Caused by GSSException: x]",
        "java.lang.IllegalArgumentException: Failed to specify server's Kerberos principal name",
    ],
)
def test_a_jvm_without_a_login_is_named(words: str) -> None:
    """Rows that cannot be read for that reason are no damage of a table."""
    text = (
        f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file hdfs://n/f.\nCaused by: {words}\n"
    )
    error = from_spark(RuntimeError(text))
    assert isinstance(error, StoragePermissionError)
    assert words in error.message
    assert "kerberos_keytab" in error.remedy
    assert "\n" not in error.message


def test_an_executor_that_yarn_has_killed() -> None:
    text = (
        "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: "
        "Container killed by YARN for exceeding physical memory limits. 1.5 GB of 1.4 GB used."
    )
    error = from_spark(RuntimeError(text))
    assert isinstance(error, SparkRefusedError)
    assert error.reason == "memory"
    assert "(1.5 GB of 1.4 GB)" in error.message
    assert error.remedy == "Raise spark.executor.memoryOverhead."
