"""Measures replication on HDFS with metastores on PostgreSQL beside Hive's own, which copies by distcp.

Hive writes the source: a database of ACID tables, and a database with an external table. In each round, both
contenders make a replica of it by a bootstrap, Hive changes the source, and both load an increment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Protocol, Self

from airflow_hive_federation.embedded.configuration import settings_on_hdfs
from airflow_hive_federation.embedded.hdfs import EmbeddedHdfs
from airflow_hive_federation.embedded.jars import fetch
from airflow_hive_federation.embedded.lock import Artifact
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.postgresql import EmbeddedPostgresql
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastorePool
from airflow_hive_federation.replication.cycle import dump_next_increment, load_dump
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain, drain
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.runtime.java import find_java
from airflow_hive_federation.spark.job import run_job
from benchmarks.bootstrap import Setting
from benchmarks.contenders import Clock, Timing, client_settings, drop_target, spark_session
from benchmarks.results import Result, faster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DISTCP = Artifact(
    jar_set="peer",
    group="org.apache.hadoop",
    name="hadoop-distcp",
    version="3.4.1",
    sha256="30c563d44f188ee710a071a1043092756d8d461f83cefb8bf24f37a896d62a2a",
    size_bytes=163_067,
)
_TIMEOUT_S = 1800.0
#: The table whose rows are counted, by database.
_FIRST_TABLES = {"acid": "t0", "lake": "files"}
_PEER = "hive-repl with distcp"


@dataclass(frozen=True, kw_only=True)
class _Scale:
    """The size of the source.

    :param rows: number of rows per ACID table, over all its partitions.
    :param files: number of files of the external table.
    :param commits: number of INSERTs, each into one partition of one table, between bootstrap and increment.
    """

    tables: int
    partitions: int
    rows: int
    files: int
    commits: int

    def acid(self) -> str:
        return f"{self.tables} ACID tables x {self.partitions} partitions"


_SCALES = {
    "full": _Scale(tables=10, partitions=20, rows=20_000, files=200, commits=20),
    "small": _Scale(tables=2, partitions=3, rows=600, files=4, commits=2),
}


@dataclass(frozen=True, kw_only=True)
class _Site:
    """An HDFS, and two metastores on it with Hive's SQL; one PostgreSQL server holds their data."""

    hdfs: EmbeddedHdfs
    source: EmbeddedMetastore
    target: EmbeddedMetastore
    source_sql: HiveSql
    target_sql: HiveSql

    @classmethod
    def start(cls, stack: ExitStack, directory: Path) -> Self:
        server = EmbeddedPostgresql.start(directory=directory / "postgresql")
        stack.callback(server.remove)
        hdfs = stack.enter_context(EmbeddedHdfs.start(directory=directory / "hdfs"))
        distcp = fetch(find_java(), [_DISTCP])

        def start(name: str) -> tuple[EmbeddedMetastore, HiveSql]:
            settings = {**settings_on_hdfs(f"{hdfs.uri}/{name}"), "hive.distcp.privileged.doAs": getuser()}
            metastore = stack.enter_context(
                EmbeddedMetastore.start(
                    name, directory=directory / name, settings=settings, database=server, jars=distcp
                )
            )
            return metastore, stack.enter_context(HiveSql(metastore, settings=settings, jars=distcp))

        (source, source_sql), (target, target_sql) = start("source"), start("target")
        return cls(hdfs=hdfs, source=source, target=target, source_sql=source_sql, target_sql=target_sql)

    def check(self, database: str, targets: Sequence[str]) -> None:
        """Check that all replicas have the source's rows in the first table."""
        table = _FIRST_TABLES[database]
        rows = _count(self.source_sql, f"{database}.{table}")
        for target in targets:
            if (found := _count(self.target_sql, f"{target}.{table}")) != rows:
                raise AssertionError(
                    f"{target}.{table} has {found} rows; {database}.{table} of the source has {rows}"
                )


def _count(sql: HiveSql, table: str) -> int:
    sql.set("hive.compute.query.using.stats", "false")
    ((rows,),) = sql.execute(f"SELECT count(*) FROM {table}", timeout_s=_TIMEOUT_S)
    return int(rows or 0)


class _Writer:
    """Hive, which makes the source's databases and changes them."""

    def __init__(self, sql: HiveSql, scale: _Scale) -> None:
        self._sql, self._scale, self._changes = sql, scale, 0

    def make_acid(self) -> None:
        """Make ACID tables, filled by one INSERT each."""
        self._sql.execute("CREATE DATABASE acid WITH DBPROPERTIES ('repl.source.for'='benchmark')")
        rows = f"SELECT posexplode(split(space({self._scale.rows - 1}), ' ')) AS (id, nothing)"
        for table in range(self._scale.tables):
            self._sql.execute(
                f"CREATE TABLE acid.t{table} (id INT, note STRING) PARTITIONED BY (day INT) STORED AS ORC "
                "TBLPROPERTIES ('transactional'='true')"
            )
            self._sql.execute(
                f"INSERT INTO acid.t{table} PARTITION (day) SELECT id, sha2(cast(id AS STRING), 256), "
                f"id % {self._scale.partitions} FROM ({rows}) numbered"
            )

    def commit(self) -> None:
        """Insert rows, each by a statement of its own, into the tables in turn."""
        for _ in range(self._scale.commits):
            self._changes += 1
            table, day = (self._changes % count for count in (self._scale.tables, self._scale.partitions))
            self._sql.execute(
                f"INSERT INTO acid.t{table} PARTITION (day={day}) VALUES ({self._changes}, 'x')"
            )

    def make_external(self) -> None:
        """Make an external table of several files."""
        self._sql.execute("CREATE DATABASE lake WITH DBPROPERTIES ('repl.source.for'='benchmark')")
        self._sql.execute("CREATE EXTERNAL TABLE lake.files (id INT, note STRING) STORED AS ORC")
        for _ in range(self._scale.files):
            self.add_file()

    def add_file(self) -> None:
        """Insert a row, which is a file, into the external table."""
        self._changes += 1
        self._sql.execute(f"INSERT INTO lake.files VALUES ({self._changes}, 'x')")


class _Contender(Protocol):
    name: str

    def bootstrap(self, database: str, target: str) -> Timing:
        """Make a replica of a database."""
        ...

    def increment(self, database: str, target: str) -> Timing:
        """Bring a replica up to date."""
        ...


def run(setting: Setting, parts: Sequence[str]) -> Iterator[Result]:
    """Measure the chosen parts: ``hadoop-bootstrap``, ``hadoop-increment``, ``hadoop-external``."""
    scale = _SCALES[setting.scale]
    with ExitStack() as stack:
        site = _Site.start(stack, setting.directory)
        spark, started_s = stack.enter_context(spark_session())
        setting.say(f"Spark's start, not counted below: {started_s:.1f} s")
        contenders: list[_Contender] = [stack.enter_context(_Ours(site, spark)), _HiveRepl(site)]
        writer = _Writer(site.source_sql, scale)
        if {"hadoop-bootstrap", "hadoop-increment"} & {*parts}:
            setting.say(f"Hive writes {scale.acid()} of {scale.rows:,} rows per table")
            writer.make_acid()
            timings = _rounds(setting, site, contenders, "acid", writer.commit)
            for step in ("bootstrap", "increment"):
                if f"hadoop-{step}" in parts:
                    cycle = "bootstrap" if step == "bootstrap" else f"increment of {scale.commits} commits"
                    work = f"{cycle} on HDFS, {scale.acid()}"
                    yield _beside(f"hadoop-{step}", work, timings, step)
        if "hadoop-external" in parts:
            setting.say(f"Hive writes an external table of {scale.files} files")
            writer.make_external()
            timings = _rounds(setting, site, contenders, "lake", writer.add_file)
            for step, work in (
                ("bootstrap", f"bootstrap of {scale.files} files"),
                ("increment", "increment of one new file"),
            ):
                yield _beside("hadoop-external", f"{work} of an external table on HDFS", timings, step)


def _beside(part: str, work: str, timings: Mapping[tuple[str, str], Sequence[Timing]], step: str) -> Result:
    ours_s, peer_s = (
        median(timing.total_s for timing in timings[name, step]) for name in (_Ours.name, _HiveRepl.name)
    )
    return faster(part, work, ours_s=ours_s, peer=_PEER, peer_s=peer_s, at_least=None)


def _rounds(
    setting: Setting, site: _Site, contenders: Sequence[_Contender], database: str, change: Callable[[], None]
) -> dict[tuple[str, str], list[Timing]]:
    """Let each contender bootstrap and increment in turn; the first round, a warm-up, is not counted."""
    timings: defaultdict[tuple[str, str], list[Timing]] = defaultdict(list)
    for number in range(setting.runs + 1):
        replicas = [
            (contender, f"{database}_{position}_{number}") for position, contender in enumerate(contenders)
        ]
        for step in ("bootstrap", "increment"):
            # The contender that begins has the colder caches.
            for contender, target in replicas if number % 2 else reversed(replicas):
                timing = getattr(contender, step)(database, target)
                run = f"run {number}" if number else "warm-up"
                setting.say(f"{step} of {database}, {run}, {contender.name}: {timing}")
                if number:
                    timings[contender.name, step].append(timing)
            if step == "bootstrap":
                change()
        site.check(database, [target for _, target in replicas])
        for _, target in replicas:
            drop_target(site.target, target)
    return dict(timings)


class _Ours:
    """This package's drain, dump and load; the copy job runs in a Spark session that runs already."""

    name = "ours"

    def __init__(self, site: _Site, spark: SparkSession) -> None:
        self._site, self._spark = site, spark
        self._source = MetastorePool(client_settings(site.source), 4)
        self._target = MetastorePool(client_settings(site.target), 4)

    def bootstrap(self, database: str, target: str) -> Timing:
        policy, clock = self._policy(database, target), Clock()
        with self._source.client() as client:
            start = begin_drain(client, database)
            drain(client, start, timeout_s=60.0)
        dump = dump_bootstrap(self._source, policy, start).dump
        clock.lap("dump")
        return self._load(policy, dump, clock)

    def increment(self, database: str, target: str) -> Timing:
        policy, clock = self._policy(database, target), Clock()
        dump = dump_next_increment(self._source, self._target, policy).dump
        clock.lap("dump")
        return self._load(policy, dump, clock)

    def _policy(self, database: str, target: str) -> ReplicationPolicy:
        base = f"{self._site.hdfs.uri}/ours/{target}"
        return ReplicationPolicy(
            name=target,
            source_database=database,
            target_database=target,
            dump_root=f"{base}/dumps",
            external_base=f"{base}/external",
        )

    def _load(self, policy: ReplicationPolicy, dump: str, clock: Clock) -> Timing:
        def copy(plan: str, outcomes: str) -> None:
            clock.lap("load")
            run_job(self._spark, "copy-files", ["--plan", plan, "--outcomes", outcomes])
            clock.lap("copy")

        load_dump(self._source, self._target, policy, dump, run_copy=copy)
        clock.lap("load")
        return clock.timing()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()
        self._target.close()


class _HiveRepl:
    """Hive's ``REPL DUMP`` and ``REPL LOAD``, which copy external tables and large files by distcp."""

    name = _PEER

    def __init__(self, site: _Site) -> None:
        self._site = site

    def bootstrap(self, database: str, target: str) -> Timing:
        base = f"{self._site.hdfs.uri}/hive/{target}"
        settings = {
            "hive.repl.rootdir": f"{base}/dumps",
            "hive.repl.include.external.tables": "true",
            # Hive's default copies definitions only.
            "hive.repl.dump.metadata.only.for.external.table": "false",
            "hive.repl.replica.external.table.base.dir": f"{base}/external",
        }
        listed = ", ".join(f"'{name}'='{value}'" for name, value in settings.items())
        options = f"WITH ({listed})"
        clock = Clock()
        self._site.source_sql.execute(f"REPL DUMP {database} {options}", timeout_s=_TIMEOUT_S)
        clock.lap("dump")
        self._site.target_sql.execute(f"REPL LOAD {database} INTO {target} {options}", timeout_s=_TIMEOUT_S)
        clock.lap("load")
        return clock.timing()

    #: The statements are the same: Hive decides between bootstrap and increment.
    increment = bootstrap
