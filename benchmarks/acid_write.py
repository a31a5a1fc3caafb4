"""Writing ACID tables from Spark: beside Spark's own ORC writer, and bucketed beside not bucketed.

All write the same rows of twenty columns, read from Parquet, in one Spark session. Transactions, locks and
publication are part of our time; Spark commits its files as it always does.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from typing import TYPE_CHECKING

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from benchmarks.contenders import metastores, spark_session
from benchmarks.results import Result, faster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = {"full": 2_000_000, "small": 20_000}
BUCKETS = 8
_DATABASE = "writing"
_ORC = "org.apache.hadoop.hive.ql.io.orc"
_WRITE_AIM, _INT_AIM, _STRING_AIM = 1.2, 0.85, 0.4
_CODECS = ("zlib", "zstd")
#: Column, Hive type and how it is made from ``id``.
_COLUMNS = (
    *((f"number{n}", "int", f"cast(id * {n * 7919 + 1} % 1000003 as int)") for n in range(4)),
    *((f"big{n}", "bigint", f"id * {n + 1} + {n}") for n in range(3)),
    *((f"measure{n}", "double", f"rand({n}) * 1000") for n in range(3)),
    *((f"code{n}", "string", f"concat('code ', id * {n + 3} % {97 * (n + 1)})") for n in range(3)),
    ("name", "string", "concat('name of ', lpad(cast(id * 7919 % 1000000007 as string), 12, '0'))"),
    ("note", "string", "sha2(cast(id as string), 256)"),
    ("price", "decimal(12,2)", "cast(id % 1000000 / 100 as decimal(12,2))"),
    ("rate", "decimal(9,4)", "cast(id % 10000 / 10000 as decimal(9,4))"),
    ("day", "date", "date_add(date'2020-01-01', cast(id % 1500 as int))"),
    ("at", "timestamp", "timestamp_micros(1577836800000000 + id * 1000003)"),
    ("flag", "boolean", "id % 3 = 0"),
)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The scale and the repetitions of a measurement, and its directory.

    :param runs: interleaved runs of each; the median counts.
    """

    scale: str
    runs: int
    directory: Path
    say: Callable[[str], None]


def run(setting: Setting) -> Iterator[Result]:
    """Measure ``acid-write``."""
    # The workers need the packages of this interpreter.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with (
        metastores(setting.directory, "writing") as (metastore,),
        spark_session() as (spark, _),
        MetastoreClient(MetastoreSettings(uris=(metastore.uri,))) as client,
    ):
        client.create_database(types.Database(name=_DATABASE, ownerName="root"))
        times = _Arena(setting, spark, client, metastore).measured()
    work = f"{ROWS[setting.scale]:,} rows x {len(_COLUMNS)} columns"
    for codec in _CODECS:
        yield faster(
            "acid-write",
            f"append of {work}, {codec}",
            ours_s=times[f"append, {codec}"],
            peer=f"df.write.orc, {codec}",
            peer_s=times[f"df.write.orc, {codec}"],
            at_least=_WRITE_AIM,
        )
    for kind, aim in (("int", _INT_AIM), ("string", _STRING_AIM)):
        yield faster(
            "acid-write",
            f"append of {work} into {BUCKETS} buckets by {kind}",
            ours_s=times[f"append, {kind} buckets"],
            peer="append, no buckets",
            peer_s=times["append, zlib"],
            at_least=aim,
        )


class _Arena:
    """The rows, and who writes them in turn."""

    def __init__(
        self, setting: Setting, spark: SparkSession, client: MetastoreClient, metastore: EmbeddedMetastore
    ) -> None:
        self._setting, self._spark, self._client = setting, spark, client
        self._output = setting.directory / "written"
        self._warehouse = metastore.warehouse
        self._tables = 0

    def measured(self) -> Mapping[str, float]:
        """Median seconds of each, by name."""
        contenders: dict[str, Callable[[DataFrame], float]] = {}
        for codec in _CODECS:
            contenders[f"df.write.orc, {codec}"] = partial(self._by_spark, codec=codec)
            contenders[f"append, {codec}"] = partial(self._by_us, codec=codec)
        contenders["append, int buckets"] = lambda rows: self._by_us(rows, "zlib", ["number1"])
        contenders["append, string buckets"] = lambda rows: self._by_us(rows, "zlib", ["name"])
        count = ROWS[self._setting.scale]
        warm = self._made(count // 10, "warm")
        for write in contenders.values():
            write(warm)
        rows = self._made(count, "rows")
        times: defaultdict[str, list[float]] = defaultdict(list)
        for number in range(self._setting.runs):
            # Each finds in the kernel's memory what the one before it left, so each follows others.
            for name in Random(number).sample(sorted(contenders), len(contenders)):
                times[name].append(contenders[name](rows))
                self._setting.say(f"run {number + 1}, {name}: {times[name][-1]:.2f} s")
        return {name: median(seconds) for name, seconds in times.items()}

    def _made(self, count: int, name: str) -> DataFrame:
        path = str(self._setting.directory / name)
        columns = [f"{how} as {column}" for column, _, how in _COLUMNS]
        self._spark.range(0, count, 1, 4).selectExpr(*columns).write.parquet(path)
        return self._spark.read.parquet(path)

    def _by_spark(self, rows: DataFrame, codec: str) -> float:
        began = time.perf_counter()
        rows.write.orc(str(self._output), compression=codec)
        took = time.perf_counter() - began
        shutil.rmtree(self._output)
        return took

    def _by_us(self, rows: DataFrame, codec: str, bucket_columns: Sequence[str] = ()) -> float:
        from airflow_hive_federation.tables.write.statements import append

        self._tables += 1
        table = f"t{self._tables}"
        self._client.create_table(_table(table, codec, bucket_columns))
        began = time.perf_counter()
        append(self._spark, self._client, f"{_DATABASE}.{table}", rows)
        took = time.perf_counter() - began
        shutil.rmtree(self._warehouse / f"{_DATABASE}.db" / table)
        return took


def _table(name: str, codec: str, bucket_columns: Sequence[str]) -> types.Table:
    return types.Table(
        dbName=_DATABASE,
        tableName=name,
        owner="root",
        sd=types.StorageDescriptor(
            cols=[types.FieldSchema(name=column, type=kind) for column, kind, _ in _COLUMNS],
            inputFormat=f"{_ORC}.OrcInputFormat",
            outputFormat=f"{_ORC}.OrcOutputFormat",
            numBuckets=BUCKETS if bucket_columns else -1,
            serdeInfo=types.SerDeInfo(serializationLib=f"{_ORC}.OrcSerde", parameters={}),
            bucketCols=list(bucket_columns),
            sortCols=[],
            parameters={},
        ),
        partitionKeys=[],
        parameters={
            "transactional": "true",
            "transactional_properties": "default",
            "bucketing_version": "2",
            "orc.compress": codec.upper(),
        },
        tableType="MANAGED_TABLE",
    )
