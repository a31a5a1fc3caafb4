"""Jobs whose drivers a standalone cluster starts: submission, environment, archive, and kill."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from airflow_hive_federation.errors import ConfigurationError, SparkJobError
from airflow_hive_federation.hooks.departures import JobDeparture
from airflow_hive_federation.hooks.spark import SparkPipelineHook
from airflow_hive_federation.hooks.standalone import archive_uri
from airflow_hive_federation.spark import driver_main
from airflow_hive_federation.spark.failures import of_attempt, result_report
from airflow_hive_federation.storage.options import StorageOptions

VARIABLE = "AIRFLOW_CONN_SPARK_FAR"

#: A spark-submit that hands a driver to the master; the driver runs as on a worker, and ends at once.
_SUBMIT = """#!{python}
import json, os, shutil, sys
from pathlib import Path
folder = Path({folder!r})
if "--report" in sys.argv:
    (folder / "arguments").write_text(json.dumps(sys.argv[1:]))
    (folder / "environment").write_text(json.dumps(dict(os.environ)))
    archive = Path(sys.argv[sys.argv.index("--report") - 3].removeprefix("file:"))
    shutil.copy(archive, folder / "fetched.jar")
    report, attempt = (sys.argv[sys.argv.index(name) + 1] for name in ("--report", "--attempt"))
    print("26/01/01 INFO ClientEndpoint: Driver successfully submitted as driver-20260101-0000", flush=True)
    {then}
"""
_REPORT = 'Path(report.removeprefix("file://")).write_text({text!r}.replace("ATTEMPT", attempt))'


class Site:
    """A standalone cluster, as far as an Airflow worker sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.report = (folder / "jobs" / "_report.json").as_uri()
        (folder / "jobs").mkdir()

    def spark_submit(self, then: str) -> None:
        program = self.folder / "spark-submit"
        program.write_text(_SUBMIT.format(python=sys.executable, folder=str(self.folder), then=then))
        program.chmod(0o755)

    def hook(self, options: StorageOptions | None = None, **conf: str) -> SparkPipelineHook:
        return SparkPipelineHook("spark_far", conf=conf, storage_options=options)

    def submit(self, hook: SparkPipelineHook) -> dict[str, object]:
        return hook.submit("copy-files", ["--plan", "p"], report_uri=self.report)

    @property
    def arguments(self) -> list[str]:
        return [str(part) for part in json.loads((self.folder / "arguments").read_text())]

    @property
    def environment(self) -> dict[str, str]:
        return dict(json.loads((self.folder / "environment").read_text()))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    connect(monkeypatch)
    return Site(tmp_path)


def connect(monkeypatch: pytest.MonkeyPatch, **extra: object) -> None:
    fields = {"deploy-mode": "cluster", **extra}
    connection = {"conn_type": "spark", "host": "spark://far", "port": 7077, "extra": fields}
    monkeypatch.setenv(VARIABLE, json.dumps(connection))


def test_a_submission_and_its_archive(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.spark_submit(_REPORT.format(text=of_attempt(result_report({"copied": 1}), "ATTEMPT")))
    # Variables of this machine that would hide those of the worker, or that are nobody's business there.
    for name in ("AWS_SECRET_ACCESS_KEY", "HADOOP_CONF_DIR", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "of Airflow's machine")
    monkeypatch.setenv("HADOOP_USER_NAME", "alice")
    hook = SparkPipelineHook(
        "spark_far",
        # The hook waits by spark-submit; a driver that starts again would never end.
        conf={
            "spark.standalone.submit.waitAppCompletion": "false",
            "spark.driver.supervise": "true",
            "spark.driver.memory": "2g",
        },
        env={"LD_PRELOAD": ""},
        storage_options={"hdfs://nn": {"dfs.client.use.datanode.hostname": "true"}},
    )
    assert site.submit(hook) == {"copied": 1}
    arguments = site.arguments
    at = arguments.index("--report")
    archive, name, python_files = arguments[at - 3 : at]
    assert archive == f"file:{site.folder}/jobs/{name}"
    assert (name[-4:], python_files) == (".jar", "")
    assert arguments[arguments.index("--class") + 1] == "org.apache.spark.deploy.PythonRunner"
    assert "--py-files" not in arguments
    assert {
        part for part in arguments if part.startswith(("spark.standalone", "spark.driver", "spark.m"))
    } == {
        "spark.master.rest.enabled=false",
        "spark.standalone.submit.waitAppCompletion=true",
        "spark.driver.supervise=false",
        "spark.driver.memory=2g",
    }
    assert arguments[at + 4] == "--options"
    with zipfile.ZipFile(site.folder / "fetched.jar") as package:
        assert package.read("__main__.py") == Path(driver_main.__file__).read_bytes()
        assert "airflow_hive_federation/spark/copy_files.py" in package.namelist()
    # The archive is on the store no longer than the job.
    assert [path.name for path in (site.folder / "jobs").iterdir()] == ["_report.json"]

    environment = site.environment
    of_machine = {name for name, value in environment.items() if value == "of Airflow's machine"}
    assert not of_machine
    assert (environment["HADOOP_USER_NAME"], environment["LD_PRELOAD"]) == ("alice", "")
    # The worker starts its own Java.
    assert "JAVA_HOME" not in environment
    assert Path(environment["PATH"].split(os.pathsep)[0], "java").is_file()
    sent = {"HADOOP_USER_NAME", "LANG", "LC_ALL", "LC_CTYPE", "LD_PRELOAD", "PATH", "PYSPARK_PYTHON"}
    assert environment.keys() <= {*sent, "SPARK_CONF_DIR", "SPARK_HOME"}


def test_a_task_leaves_its_worker(site: Site) -> None:
    site.spark_submit("pass")
    hook = site.hook()
    hook.depart(True)
    with pytest.raises(JobDeparture):
        site.submit(hook)
    assert "spark.standalone.submit.waitAppCompletion=false" in site.arguments
    # The worker of the driver may fetch the archive later.
    assert len(list((site.folder / "jobs").glob("*.jar"))) == 1
    run = json.loads((site.folder / "jobs" / "_report.json.run").read_text())
    assert run["application"] == "driver-20260101-0000"


def test_keys_are_refused(site: Site) -> None:
    site.spark_submit("pass")
    with pytest.raises(
        ConfigurationError, match=r"spark_far .*cannot be handed to the driver in secret"
    ) as caught:
        site.submit(site.hook({"s3://lake": {"key": "a", "secret": "open sesame"}}))
    assert "right to the store" in str(caught.value.remedy)
    assert not list((site.folder / "jobs").iterdir())
    assert not (site.folder / "arguments").exists()


def test_a_driver_that_reports_nothing(site: Site) -> None:
    """The spark-submit of a driver that has failed ends without an error."""
    site.spark_submit("pass")
    with pytest.raises(SparkJobError, match="reported no result") as caught:
        site.submit(site.hook())
    assert "driver on the cluster" in str(caught.value.remedy)


@pytest.fixture
def rest_api() -> Iterator[tuple[int, list[str]]]:
    """The port of a master's REST API, and the paths of the requests that it has got."""
    asked: list[str] = []

    class Api(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Api) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port, asked
        server.shutdown()
        thread.join()


def test_a_kill_reaches_the_driver(
    site: Site, rest_api: tuple[int, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, asked = rest_api
    connection = {"conn_type": "spark", "host": "spark://127.0.0.1:7077"}
    extra = {"deploy-mode": "cluster", "rest-port": port}
    monkeypatch.setenv(VARIABLE, json.dumps({**connection, "extra": extra}))
    site.spark_submit("import time; time.sleep(600)")
    hook = site.hook()
    run = site.folder / "jobs" / "_report.json.run"
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(site.submit, hook)
        try:
            while not (run.is_file() and "driver-2026" in run.read_text()) and not job.done():
                time.sleep(0.01)
        finally:
            hook.on_kill()
        with pytest.raises(SparkJobError, match=r"^The Spark job was killed\."):
            job.result()
    assert asked == ["/v1/submissions/kill/driver-20260101-0000"]


@pytest.mark.parametrize(
    ("package", "fetched"),
    [
        ("/d/r.jar", "file:/d/r.jar"),
        ("file:///d/r.jar", "file:/d/r.jar"),
        ("hdfs://nn:8020/d/r.jar", "hdfs://nn:8020/d/r.jar"),
        ("hdfs:///d/r.jar", "hdfs:/d/r.jar"),
        ("s3://lake/d/r.jar", "s3a://lake/d/r.jar"),
        ("s3a://lake/d/r.jar", "s3a://lake/d/r.jar"),
        ("gcs://lake/r.jar", "gs://lake/r.jar"),
        ("abfss://c@a.dfs.core.windows.net/r.jar", "abfss://c@a.dfs.core.windows.net/r.jar"),
        ("hdfs://nn/a b/p=1?2#3%41/r.jar", "hdfs://nn/a%20b/p%3D1%3F2%233%2541/r.jar"),
    ],
)
def test_workers_fetch_by_hadoops_schemes_and_javas_escapes(package: str, fetched: str) -> None:
    assert archive_uri(package) == fetched


def test_pyspark_is_that_of_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lib = tmp_path / "spark" / "python" / "lib"
    lib.mkdir(parents=True)
    for name in ("pyspark.zip", "py4j-0.10-src.zip"):
        (lib / name).touch()
    jar = str(tmp_path / "spark" / "jars" / "spark-core_2.13-4.2.0.jar")
    monkeypatch.setenv("SPARK_HOME", "/of/airflow")
    monkeypatch.setattr(sys, "path", ["job.jar", "/of/airflow/python/lib/pyspark.zip", jar])
    driver_main.use_spark_of_worker()
    own = [str(lib / "pyspark.zip"), str(lib / "py4j-0.10-src.zip")]
    assert sys.path == ["job.jar", *own, "/of/airflow/python/lib/pyspark.zip", jar]
    assert os.environ["SPARK_HOME"] == str(tmp_path / "spark")
