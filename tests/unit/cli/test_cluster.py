"""Messages of ``hive-federation cluster``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from airflow_hive_federation.cli.cluster import _copy_runner, _print_waiting
from airflow_hive_federation.cli.connecting import End
from airflow_hive_federation.cli.main import build_parser, main
from airflow_hive_federation.errors import SparkJobError
from airflow_hive_federation.metastore import MetastoreSettings
from tests.support.two_clusters import two_clusters


def test_directories_that_stay_are_counted_per_cluster_with_its_sweep(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A move replaces a copy in one cluster, and drops copies in the other."""
    registry = two_clusters(tmp_path / "C1", tmp_path / "C2")
    left = [
        f"{registry.cluster(name).root}/d.db/t.copies/{number}" for name, number in (("C1", 1), ("C2", 2))
    ]
    _print_waiting([*left, f"{left[1]}2"], registry)
    assert capsys.readouterr().err == (
        "1 directory in cluster C1 stays for statements that were planned before; a day from now, "
        "`hive-federation cluster sweep C1` removes it.\n"
        "2 directories in cluster C2 stay for statements that were planned before; a day from now, "
        "`hive-federation cluster sweep C2` removes them.\n"
    )
    _print_waiting([], registry)
    assert capsys.readouterr().err == ""


def test_a_variable_of_an_airflow_without_a_database_is_named_without_a_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["cluster", "assign", "--metastore", "thrift://localhost:1", "--clusters", "all_clusters"]
    assert main(command) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        "hive-federation cluster: ConfigurationError: The Airflow variable 'all_clusters' cannot be read "
        "from Airflow's database: no such table: variable. Remedy: Give the path of a file with a '/', such "
        "as ./clusters.json, or set AIRFLOW_HOME to the home of your Airflow.\n"
    )


#: A spark-submit that logs as Spark does, and reports its progress.
_SUBMIT = """#!{python}
import logging, sys
from pathlib import Path
from airflow_hive_federation.progress.events import FilesProcessed
from airflow_hive_federation.progress.kinds import FileJob
from airflow_hive_federation.progress.lines import EventFormatter
from airflow_hive_federation.progress.observers import LOGGED
from airflow_hive_federation.spark.failures import of_attempt, result_report
report, attempt = (sys.argv[sys.argv.index(name) + 1] for name in ("--report", "--attempt"))
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
logging.getLogger().handlers[0].setFormatter(EventFormatter("%(message)s"))
logging.info("26/01/01 INFO SparkContext: Running Spark")
copied = FilesProcessed(job=FileJob.COPY, files=1, all_files=1, size_bytes=2, all_bytes=2, bytes_per_s=2)
LOGGED(copied)
Path(report.removeprefix("file://")).write_text(of_attempt(result_report({{}}), attempt))
"""


#: A spark-submit whose JVM has ended, so that Python knows no cause.
_FAILED_SUBMIT = """#!{python}
import sys
from pathlib import Path
from airflow_hive_federation.errors import SparkJobError
from airflow_hive_federation.spark.failures import error_report, of_attempt
report, attempt = (sys.argv[sys.argv.index(name) + 1] for name in ("--report", "--attempt"))
print("26/01/01 ERROR StandaloneSchedulerBackend: All masters are unresponsive! Giving up.")
print("26/01/01 WARN StandaloneAppClient: Drop UnregisterApplication(null)")
error = SparkJobError("Spark: An error occurred while calling z:PythonRDD.collectAndServe.", remedy="Look.")
Path(report.removeprefix("file://")).write_text(of_attempt(error_report(error), attempt))
sys.exit(1)
"""


@pytest.mark.parametrize("options", [[], ["--verbose"]])
def test_a_copy_prints_its_progress_and_the_log_of_spark_only_if_asked(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    copied(_SUBMIT, options, tmp_path, monkeypatch)
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "Copying d.t to C2, by the Spark of spark_c2\n" in printed.err
    assert "copied 1 of 1 file, 2 of 2 bytes, 2 bytes/s\n" in printed.err
    assert ("SparkContext" in printed.err) == bool(options)
    assert len(printed.err.splitlines()) == 2 or options


@pytest.mark.parametrize(
    ("options", "remedy"),
    [([], "Run it again with --verbose, which prints the log of spark-submit."), (["--verbose"], "Look.")],
)
def test_a_failed_copy_names_the_last_error_of_the_log_and_the_option_that_prints_it(
    options: list[str], remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cause = r"collectAndServe\. Its log ends with: StandaloneSchedulerBackend: All masters are unresponsive!"
    with pytest.raises(SparkJobError, match=cause) as caught:
        copied(_FAILED_SUBMIT, options, tmp_path, monkeypatch)
    assert caught.value.remedy == remedy


def copied(submit: str, options: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the copy job of the command with a spark-submit."""
    path = folder / "spark-submit"
    path.write_text(submit.format(python=sys.executable))
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_C2", json.dumps({"conn_type": "spark", "host": "spark://far"}))
    args = build_parser().parse_args(["cluster", "copy", "d.t", "C2", *options])
    end = End("here", MetastoreSettings(uris=("thrift://here:9083",)))
    with _copy_runner(args, two_clusters(folder / "C1", folder / "C2"), end) as run_copy:
        run_copy("plan", folder.as_uri())
