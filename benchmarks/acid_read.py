"""Reading an ACID table by our reader, beside Spark's own reading of the same rows as plain ORC.

``python -m benchmarks.acid_read`` runs it alone. The table has 20 deltas of 200,000 rows; in the second part
a delete delta deletes every tenth of them. The plain files are as many and hold the same visible rows. Both
receive the columns of the table. Ours begins with the metastore: table, snapshot, listing, footers. Both end
when every column of every row has been made (Spark's ``noop`` sink), and take turns. Both have read a hundred
times before that: until then the JVM's compiler takes as much of the two cores as the reading does.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyarrow import orc

from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from benchmarks import compaction, results
from benchmarks.contenders import metastores, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTS = ("acid-read", "acid-read-deletes")
ROWS = {"full": 200_000, "small": 2_000}
_AIMS = {"acid-read": 0.8, "acid-read-deletes": 0.55}
_WARM_UPS = 100


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The scale and the repetitions of a measurement, and its directory.

    :param runs: interleaved runs of each; the median counts.
    """

    scale: str
    runs: int
    directory: Path
    say: Callable[[str], None]


def run(setting: Setting, parts: Sequence[str]) -> Iterator[results.Result]:
    """Measure some of ``PARTS``."""
    with (
        metastores(setting.directory, "reading") as (metastore,),
        spark_session() as (spark, _),
        MetastoreClient(MetastoreSettings(uris=(metastore.uri,))) as client,
    ):
        client.create_database(types.Database(name=compaction.DATABASE, ownerName="root"))
        for part in parts:
            deleted = part == "acid-read-deletes"
            name = compaction.make_table(
                client,
                metastore.warehouse,
                part.replace("-", "_"),
                compaction.DELTAS,
                ROWS[setting.scale],
                deleted=deleted,
            )
            plain = setting.directory / f"{part}-plain"
            _write_plain(plain, ROWS[setting.scale], deleted=deleted)
            yield _compare(setting, spark, client, part, name, plain)


def _compare(
    setting: Setting, spark: SparkSession, client: MetastoreClient, part: str, name: str, plain: Path
) -> results.Result:
    from airflow_hive_federation.tables.read.reader import read_table

    def ours() -> DataFrame:
        return read_table(spark, client, name, columns=["id", "name"])

    def peer() -> DataFrame:
        return spark.read.schema("id int, name string").orc(str(plain))

    if ours().exceptAll(peer()).count() or ours().count() != peer().count():
        raise SystemExit(f"{part}: both do not read the same rows")
    times: dict[str, list[float]] = {"ours": [], "peer": []}
    for number in range(setting.runs + _WARM_UPS):
        for who, read in (("ours", ours), ("peer", peer)):
            began = time.perf_counter()
            read().write.format("noop").mode("overwrite").save()
            took = time.perf_counter() - began
            if number >= _WARM_UPS:
                times[who].append(took)
        setting.say(f"{part}: ours {_last(times, 'ours')}, plain ORC {_last(times, 'peer')}")
    rows = f"{compaction.DELTAS * ROWS[setting.scale]:,} rows in {compaction.DELTAS} deltas"
    return results.faster(
        part,
        f"read of {rows}{', 10 % deleted' if part.endswith('deletes') else ''}",
        ours_s=median(times["ours"]),
        peer="the same rows as plain ORC",
        peer_s=median(times["peer"]),
        at_least=_AIMS[part],
    )


def _last(times: dict[str, list[float]], who: str) -> str:
    """The last time of one, or that it is warming up."""
    return f"{times[who][-1]:.2f} s" if times[who] else "warming up"


def _write_plain(directory: Path, rows: int, *, deleted: bool) -> None:
    directory.mkdir(parents=True)
    left = pa.array(np.arange(rows) % 10 != 0)
    for number, (name, events) in enumerate(compaction.events(compaction.DELTAS, rows)):
        if name.startswith("delta_"):
            table = pa.Table.from_struct_array(events["row"])
            orc.write_table(
                table.filter(left) if deleted else table,
                directory / f"part-{number:05d}.orc",
                compression="zlib",
                row_index_stride=10_000,
            )


def main() -> int:
    """Run alone; 1 if an aim is missed."""
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as directory:
        setting = Setting(
            scale="full", runs=5, directory=Path(directory), say=lambda text: print(text, flush=True)
        )
        measured = list(run(setting, PARTS))
    print(results.table(measured))
    return int(any(not result.reached for result in measured))


if __name__ == "__main__":
    sys.exit(main())
