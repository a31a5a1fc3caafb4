"""A Spark that works through gateways by its built-in client of Hive 2.3, in a process of its own.

The process answers each line of JSON, and starts Spark anew in its JVM where the metastore is another one: a
new JVM would take ten times as long.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_hive_federation.runtime.java import spark_java_home
from tests.support.line_servers import LineServer, line_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROOT = Path(__file__).parents[2]


class GatewaySpark:
    """Asks the process."""

    def __init__(self, server: LineServer) -> None:
        self._server = server

    def rows(self, uri: str, home: Path, statements: Sequence[str]) -> list[str]:
        """Run statements in a new session; return their rows as text, a list per statement.

        :param uri: of the metastore, or of a gateway before it.
        :param home: directory of the warehouse, if this is the first request to the metastore.
        """
        answer = self._server.ask({"uri": uri, "home": str(home), "statements": list(statements)})
        assert isinstance(answer, list), answer
        return answer


@contextmanager
def gateway_spark(home: Path) -> Iterator[GatewaySpark]:
    """Start the process, and end it with the block.

    :param home: its directory.
    """
    environment = {
        **os.environ,
        "JAVA_HOME": str(spark_java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(_ROOT),
    }
    with line_server([sys.executable, "-m", __name__], home, environment=environment) as server:
        yield GatewaySpark(server)


def spark_on(uri: str, home: str) -> SparkSession:
    """Start a Spark in this process, whose catalog is a metastore."""
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[1]")
        .enableHiveSupport()
        .config("spark.hadoop.hive.metastore.uris", uri)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.warehouse.dir", f"{home}/warehouse")
        .config("spark.hadoop.hive.exec.dynamic.partition.mode", "nonstrict")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )


def _main() -> None:
    """Answer with the rows of all statements, or with the error of the first one that fails."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    spark, present = None, ""
    for line in sys.stdin:
        asked = json.loads(line)
        if spark is None or asked["uri"] != present:
            if spark is not None:
                spark.stop()
            spark, present = spark_on(asked["uri"], asked["home"]), asked["uri"]
        # A session keeps tables that it has read. A new one reads them again, as a new process would.
        session = spark.newSession()
        answer: object = []
        try:
            answer = [
                str([tuple(row) for row in session.sql(statement).collect()])
                for statement in asked["statements"]
            ]
        except (PySparkException, Py4JError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)
    if spark is not None:
        spark.stop()


if __name__ == "__main__":
    _main()
