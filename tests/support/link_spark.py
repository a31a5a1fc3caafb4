"""A Spark of its own runs statements on links: a JSON list per line, and an answer per line.

``SET name=value`` and ``GUARDED`` at the beginning of a list are for the rest of it.
"""

from __future__ import annotations

import json
import sys

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from airflow_hive_federation.tables.read.guard import guarded
from tests.support.gateway_spark import spark_on


def main(uri: str, home: str) -> None:
    """Answer with the message of the first error, or with an empty text."""
    spark = spark_on(uri, home)
    part = ", 'a' p"
    # So that it has no check of the guard, which is for sessions that are made later.
    spark.sql("SELECT 1").collect()
    for line in sys.stdin:
        statements, parted = json.loads(line)
        session = spark
        failure = ""
        for statement in statements:
            try:
                if statement == "GUARDED":
                    session = guarded(spark)
                elif statement.startswith("SET "):
                    session = spark.newSession() if session is spark else session
                    session.sql(statement)
                elif statement.startswith("df."):
                    rows = session.sql(f"SELECT CAST(9 AS INT) id, 'new' name{part if parted else ''}")
                    exec(f"writer.{statement.removeprefix('df.')}", {"writer": rows.write})
                else:
                    session.sql(statement).collect()
            except (PySparkException, Py4JError) as error:
                failure = f"{statement}: {error}"
                break
        print(json.dumps(failure), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
