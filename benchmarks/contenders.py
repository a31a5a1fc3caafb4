"""Times a bootstrap of one database by this package, by Hive's own replication, and by the limit.

All work on the same source database, into a new target database each, on the same disk.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from airflow_hive_federation.embedded.database import DERBY, SERVERS
from airflow_hive_federation.embedded.database_server import DatabaseServer
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastoreClient, MetastorePool, MetastoreSettings
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain, drain
from airflow_hive_federation.replication.load.load import load_into_target
from airflow_hive_federation.replication.metadata.definitions import target_partition, target_table
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.spark.job import run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HIVE_TIMEOUT_S = 1800.0
#: The last one is the database of the metastores that start next.
_DATABASE = [DERBY]
_KEEP_STATISTICS = {"DO_NOT_UPDATE_STATS": "true"}

#: Hadoop's own local file system, which forks `chmod` for every file and directory it makes. (The embedded
#: metastore and its SQL engine otherwise use one that does not.)
STOCK_FILES = {"fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem"}


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Seconds of one bootstrap, and of its phases by name."""

    phases: Mapping[str, float] = field(default_factory=dict)

    @property
    def total_s(self) -> float:
        return sum(self.phases.values())

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {value:.2f}" for name, value in self.phases.items())
        return f"{self.total_s:.2f} s ({parts})"


class Contender(Protocol):
    """Something that can bootstrap a database."""

    name: str

    def bootstrap(self, database: str, target: str, directory: Path) -> Timing:
        """Replicate a database of the source to a new one of the target.

        :param directory: an empty directory for dumps.
        """
        ...


class Ours:
    """Drain, dump and load, with the copy job in a Spark session that runs already."""

    name = "ours"

    def __init__(self, source: EmbeddedMetastore, target: EmbeddedMetastore, spark: SparkSession) -> None:
        self._source = MetastorePool(client_settings(source), 4)
        self._target = MetastorePool(client_settings(target), 4)
        self._spark = spark

    def bootstrap(self, database: str, target: str, directory: Path) -> Timing:
        policy = ReplicationPolicy(
            name=target,
            source_database=database,
            target_database=target,
            dump_root=f"file:{directory}",
            allowed_source_roots=["file:/"],
        )
        clock = Clock()
        with self._source.client() as client:
            start = begin_drain(client, database)
            drain(client, start, timeout_s=60.0)
        clock.lap("drain")
        dump = dump_bootstrap(self._source, policy, start)
        clock.lap("dump")

        def copy(plan: str, outcomes: str) -> None:
            clock.lap("load")
            places = ["--plan", plan, "--outcomes", outcomes, "--source-root", "file:/"]
            run_job(self._spark, "copy-files", places)
            clock.lap("copy")

        load_into_target(self._source, self._target, policy, dump.dump, run_copy=copy)
        clock.lap("load")
        return clock.timing()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._source.close()
        self._target.close()


class HiveRepl:
    """Hive's ``REPL DUMP`` and ``REPL LOAD``, each in a SQL engine that runs already.

    :param stock: use Hadoop's own local file system, as an installation without the native library does.
    """

    def __init__(self, source: EmbeddedMetastore, target: EmbeddedMetastore, *, stock: bool) -> None:
        self.name = "hive-repl" if stock else "hive-repl, fast form"
        settings = STOCK_FILES if stock else {}
        self._source, self._target = (HiveSql(metastore, settings=settings) for metastore in (source, target))

    def bootstrap(self, database: str, target: str, directory: Path) -> Timing:
        options = f"WITH ('hive.repl.rootdir'='file:{directory}')"
        clock = Clock()
        self._source.execute(f"REPL DUMP {database} {options}", timeout_s=_HIVE_TIMEOUT_S)
        clock.lap("dump")
        self._target.execute(f"REPL LOAD {database} INTO {target} {options}", timeout_s=_HIVE_TIMEOUT_S)
        clock.lap("load")
        return clock.timing()

    def count(self, target: str) -> int:
        """Rows of a target database's first table, as Hive reads them from the files."""
        self._target.set("hive.compute.query.using.stats", "false")
        ((rows,),) = self._target.execute(f"SELECT count(*) FROM {target}.t000", timeout_s=_HIVE_TIMEOUT_S)
        return int(rows or 0)

    def __enter__(self) -> Self:
        for session in (self._source, self._target):
            session.execute("SHOW DATABASES")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._source.close()
        self._target.close()


class Limit:
    """``cp -r``, a digest of every file, and the bare metastore calls: nothing is dumped, checked or resumed.

    The definitions that it writes are made before the clock starts.
    """

    name = "cp -r + sha256 + metastore calls"

    def __init__(self, source: EmbeddedMetastore, target: EmbeddedMetastore) -> None:
        self._source, self._target = source, target

    def bootstrap(self, database: str, target: str, directory: Path) -> Timing:
        source_files = self._source.warehouse / f"{database}.db"
        target_files = self._target.warehouse / f"{target}.db"
        with MetastoreClient(client_settings(self._source)) as client:
            made, write_ids = _definitions(client, database, target, target_files)
        with MetastoreClient(client_settings(self._target)) as client:
            client.connect()
            clock = Clock()
            subprocess.run(["cp", "-r", str(source_files), str(target_files)], check=True)
            clock.lap("cp")
            with (directory / "digests").open("wb") as digests:
                listing = subprocess.Popen(
                    ["find", str(target_files), "-type", "f", "-print0"], stdout=subprocess.PIPE
                )
                subprocess.run(["xargs", "-0", "sha256sum"], stdin=listing.stdout, stdout=digests, check=True)
                listing.wait()
            clock.lap("sha256")
            _write_definitions(client, target, made, write_ids)
            clock.lap("calls")
        return clock.timing()


def drop_target(metastore: EmbeddedMetastore, database: str) -> None:
    """Drop a target database with its files; nobody measures it."""
    with MetastoreClient(client_settings(metastore)) as client:
        client.drop_database(database, delete_data=True, cascade=True)


@contextmanager
def spark_session() -> Iterator[tuple[SparkSession, float]]:
    """A local Spark with two threads; yields it and the seconds its start took."""
    import os
    import sys

    from airflow_hive_federation.runtime.java import spark_java_home

    os.environ["JAVA_HOME"] = str(spark_java_home())
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # The tasks need the packages of this interpreter.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    clock = Clock()
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    session.sparkContext.parallelize([0], 1).count()
    clock.lap("start")
    try:
        yield session, clock.timing().total_s
    finally:
        session.stop()


def keep_metastores_in(kind: str) -> None:
    """Let :func:`metastores` start metastores on another kind of database than ``derby``."""
    _DATABASE.append(kind)


def database_kind() -> str:
    """Return where the next metastores keep their data."""
    return _DATABASE[-1]


@contextmanager
def metastores(
    directory: Path, *names: str, settings: Mapping[str, str] | None = None
) -> Iterator[list[EmbeddedMetastore]]:
    """Real metastores, each in a directory of its own; those on a database server share one that syncs.

    :param settings: Hive settings that replace those of the embedded metastores.
    """
    with ExitStack() as stack:
        kind = _DATABASE[-1]
        database: str | DatabaseServer = kind
        if kind in SERVERS:
            database = SERVERS[kind].start(directory=directory / f"{kind}-{names[0]}")
            stack.callback(database.remove)
        yield [
            stack.enter_context(
                EmbeddedMetastore.start(
                    name, directory=directory / name, settings=settings, database=database
                )
            )
            for name in names
        ]


class Clock:
    """Counts the seconds of phases."""

    def __init__(self) -> None:
        self._phases: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Count the time since the last lap, or the start, to a phase."""
        now = time.perf_counter()
        self._phases[name] = self._phases.get(name, 0.0) + now - self._last
        self._last = now

    def timing_of(self, name: str) -> Timing:
        """All of it as one phase."""
        self.lap(name)
        return self.timing()

    def timing(self) -> Timing:
        """The phases so far."""
        return Timing(phases=dict(self._phases))


def client_settings(metastore: EmbeddedMetastore) -> MetastoreSettings:
    """Return the settings by which contenders call a metastore: with a long deadline."""
    return MetastoreSettings(uris=(metastore.uri,), call_timeout_s=_HIVE_TIMEOUT_S)


def _definitions(
    client: MetastoreClient, database: str, target: str, directory: Path
) -> tuple[list[tuple[Any, list[Any]]], dict[str, int]]:
    """Each table with its partitions as the target gets them; and each table's highest write id."""
    made = []
    names = sorted(client.list_tables(database))
    for name in names:
        text = _write_id_list(client, database, name)
        table: Any = client.get_table(database, name, with_column_stats=True, valid_write_ids=text)
        root = table.sd.location
        partitions: list[Any] = list(
            client.iter_partitions(database, name, with_column_stats=True, valid_write_ids=text)
        )
        target_partitions = [
            target_partition(
                partition,
                database=target,
                location=f"file:{directory}/{name}{partition.sd.location[len(root) :]}",
                parameters={},
            )
            for partition in partitions
        ]
        location = f"file:{directory}/{name}"
        made.append(
            (target_table(table, database=target, location=location, parameters={}), target_partitions)
        )
    answer = client.get_valid_write_ids([f"{database}.{name}" for name in names])
    return made, {full.partition(".")[2]: ids.writeIdHighWaterMark or 0 for full, ids in answer.items()}


def _write_id_list(client: MetastoreClient, database: str, name: str) -> str:
    high = client.get_valid_write_ids([f"{database}.{name}"])[f"{database}.{name}"].writeIdHighWaterMark
    return f"{database}.{name}:{high}:9223372036854775807::"


def _write_definitions(
    client: MetastoreClient,
    target: str,
    made: list[tuple[Any, list[Any]]],
    write_ids: Mapping[str, int],
) -> None:
    from airflow_hive_federation.metastore.idl import types

    client.create_database(types.Database(name=target))
    for table, partitions in made:
        name = table.tableName
        text = f"{target}.{name}:{write_ids[name]}:9223372036854775807::"
        client.repl_tbl_writeid_state(target, name, text)
        client.create_table(table, environment=_KEEP_STATISTICS)
        # Statistics in a call of their own: riding on the partitions they take longer.
        statistics = [partition.colStats for partition in partitions]
        for partition in partitions:
            partition.colStats = None
        client.add_partitions(partitions, environment=_KEEP_STATISTICS)
        client.set_column_statistics(statistics, write_id=write_ids[name], valid_write_ids=text)
    database = client.get_database(target)
    database.parameters = {**(database.parameters or {}), "repl.last.id": "1"}
    client.alter_database(target, database)
