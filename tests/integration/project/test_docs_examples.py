"""The examples of the documentation run as they are, on the servers of the tests."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_hive_federation.embedded import metastore as embedded
from airflow_hive_federation.embedded import sql
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The last words that each prints.
PRINTED = {
    "bootstrap.py": "quince",
    "remote_table.py": "north quince",
    "streaming_ingest.py": "14 val14 Asia India",
}
#: The metastore of the tests that an example gets in place of one that it would start, by its name.
STAND_INS = {"source": "source", "far": "source", "target": "target", "near": "target", "ingest": "source"}
#: Programs for a cluster, which tests/integration/storage/test_yarn.py runs there.
SUBMITTED = frozenset({"acid_on_yarn.py"})
EXAMPLES = sorted(
    path
    for path in (Path(__file__).parents[3] / "docs" / "examples").glob("*.py")
    if path.name not in SUBMITTED
)


@pytest.fixture
def servers(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[None]:
    """Let examples use the running servers: starts and ends of their own are tested elsewhere."""
    metastores = {"source": source, "target": target}
    engines = {source.uri: hive_sql_source, target.uri: hive_sql_target}

    def start(name: str) -> AbstractContextManager[EmbeddedMetastore]:
        return nullcontext(metastores[STAND_INS[name]])

    def engine(metastore: EmbeddedMetastore) -> AbstractContextManager[HiveSql]:
        return nullcontext(engines[metastore.uri])

    monkeypatch.setattr(embedded.EmbeddedMetastore, "start", start)
    monkeypatch.setattr(sql, "HiveSql", engine)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "")
    yield
    hive_sql_target.execute("DROP TABLE IF EXISTS default.trees")


@pytest.mark.slow
@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize("path", EXAMPLES, ids=[path.name for path in EXAMPLES])
def test_example_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(path), run_name="__main__")
    assert PRINTED[path.name] in capsys.readouterr().out
