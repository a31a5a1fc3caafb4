"""Spark 4.1 with Iceberg, in a JVM of its own: there is no Iceberg for the Spark that this package runs on.

Only Spark's own jars are fetched; what it needs besides them is among those that pyspark carries.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from airflow_hive_federation.embedded.jars import metastore_jars
from airflow_hive_federation.embedded.jvm import java_command
from airflow_hive_federation.runtime.java import find_java
from tests.support.line_servers import LineServer, line_server
from tests.support.plain_metastore import fetched, sparks_jars

SCRIPT = Path(__file__).with_name("iceberg_spark.groovy")
JARS = """
test jakarta.servlet:jakarta.servlet-api:5.0.0@jar \
33d3a5bda82c7d2f1b898685faa954f1fc34f7b0ae5c2f6ccc6d051e8a10973b 307850
test org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0@jar \
3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82 48309426
test org.apache.spark:spark-catalyst_2.13:4.1.3@jar \
d145b23a9e2807d34bb4318f883e14e950466448d2d3ba2d1f31a8c7a5ecea92 16939948
test org.apache.spark:spark-common-utils-java_2.13:4.1.3@jar \
7f577a7dbcdd2c607e25f73e73484e4cb155ccbd0de317acb6e5da3c2aa538a3 81966
test org.apache.spark:spark-common-utils_2.13:4.1.3@jar \
968b42a8162f3b1f5ff4f70f8728063f343e350b2871f4fd8d416d61f1298cff 519936
test org.apache.spark:spark-core_2.13:4.1.3@jar \
58fbfa658531cbfb018f6bba6b5ba64e30fa3be5100d811c6eb372ff1c146c4d 14983674
test org.apache.spark:spark-kvstore_2.13:4.1.3@jar \
f763be795080a66630ac88c37a1e1d37e80f2f01098e66bf5dacccb5a8389852 87049
test org.apache.spark:spark-launcher_2.13:4.1.3@jar \
49bb625c178b3d0b20760b9cbcce3242ffab7b8a9657a8dab1eae5a1afbef442 82276
test org.apache.spark:spark-network-common_2.13:4.1.3@jar \
3023db861885b8eea279d783a551945707db074d0aa1321788610f18e8c6902e 3288583
test org.apache.spark:spark-network-shuffle_2.13:4.1.3@jar \
0f0957790ac90605ac8f30ddaf208f6c9dbaf539f1247137e32f747a629379a2 189412
test org.apache.spark:spark-sketch_2.13:4.1.3@jar \
b36112bcb70c75224995bd72d0f4e1f27c95619a6dbc373684e769d40a2947ee 38169
test org.apache.spark:spark-sql-api_2.13:4.1.3@jar \
54dfe170281962d3ad144aff8305ba43b26db0f88bf15fe2a3d285042caa92e0 3046051
test org.apache.spark:spark-sql_2.13:4.1.3@jar \
6002f0e4430c36909db950a0b0863502260050ca2cc65ff8ca89baf404edb345 13604536
test org.apache.spark:spark-tags_2.13:4.1.3@jar \
7a46b6f45f124a9e6f62010895d8b01745763ccd85adf9d2718ca27a50031cbf 15595
test org.apache.spark:spark-unsafe_2.13:4.1.3@jar \
71e8a07f57a1e79b428cf3dee5559f42233a1ee558ef72a56671f8ae2a9d24d8 141625
test org.apache.spark:spark-variant_2.13:4.1.3@jar \
69a688f8c08202217fae6c1385da390cb7df594c0d4790d4b5a8ba018ebdea9c 59120
"""


class IcebergSpark:
    """A Spark that executes statements of Spark SQL, one after the other."""

    def __init__(self, server: LineServer) -> None:
        self._server = server

    def sql(self, statement: str) -> list[dict[str, object]]:
        """Run one statement; return its rows."""
        answer = self._server.ask({"statement": statement})
        assert isinstance(answer, list), answer
        return [json.loads(row) for row in answer]

    def error(self, statement: str) -> str:
        """Run one statement that fails; return the error."""
        answer = self._server.ask({"statement": statement})
        assert isinstance(answer, dict), answer
        return str(answer["error"])


@contextmanager
def iceberg_spark(home: Path, properties: Mapping[str, str]) -> Iterator[IcebergSpark]:
    """Start it, and end it with the block.

    :param home: a directory for its log and its warehouse.
    :param properties: of the session.
    """
    java = find_java()
    others = sorted(path for path in sparks_jars().parent.glob("*.jar") if not path.name.startswith("spark-"))
    groovy = [jar for jar in metastore_jars(java) if jar.name.startswith("groovy-all-")]
    session = {
        "spark.master": "local[1]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": (home / "warehouse").as_uri(),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        **properties,
    }
    command = java_command(
        java,
        "groovy.ui.GroovyMain",
        [str(SCRIPT), *(f"{name}={value}" for name, value in session.items())],
        class_path=[*fetched(JARS), *groovy, *others],
        argument_file=home / "java.args",
        heap="1g",
    )
    with line_server(command, home) as server:
        yield IcebergSpark(server)
