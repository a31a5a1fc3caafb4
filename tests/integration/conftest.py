"""Fixtures of the tests between servers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.demo.local_airflow import DemoAirflow
from airflow_hive_federation.embedded.configuration import minimum_history
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.dump.drain import open_transactions
from airflow_hive_federation.runtime.cache import exclusively
from tests.support.gateway_spark import GatewaySpark, gateway_spark
from tests.support.hive_3_metastore import hive_3_metastore
from tests.support.plain_metastore import older_settings, plain_metastore, sparks_jars
from tests.support.small_source import DATABASE, make_small_source
from tests.support.spark_classes import archive, make_meanwhile

#: Databases of the shared servers that outlive a file of tests.
KEPT = frozenset({"default", DATABASE})
#: Hosts of a replica's transactions begin with this; the database follows.
REPLICATION = "hive-federation replication "


@pytest.fixture(scope="session", autouse=True)
def shared_spark_classes(pytestconfig: pytest.Config) -> None:
    """Have the missing archives of classes made beside the first tests; JVMs use them from then on."""
    if os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0":
        # At the end of the run, where no test's timeout counts.
        pytestconfig.add_cleanup(make_meanwhile(archive()))


@pytest.fixture(scope="module", autouse=True)
def nothing_left(shared_metastores: list[EmbeddedMetastore], shared_engines: list[HiveSql]) -> Iterator[None]:
    """Abort the transactions and drop the databases that the tests of a file leave on the shared servers.

    The order and the distribution of the files are anything: none may find the databases or the settings of
    another one. A transaction that stays open holds back the cleaner, and ends five minutes later with an
    event.
    """
    ended = _restarted(shared_metastores)
    yield
    for engine in shared_engines:
        if engine.pid is not None:
            engine.execute("reset")
    ended += _restarted(shared_metastores)
    for metastore in shared_metastores:
        with MetastoreClient(MetastoreSettings(uris=(metastore.uri,))) as client:
            _abort_all(client)
            left = sorted(set(client.list_databases()) - KEPT)
            # First what keeps tables from being dropped, perhaps those of other databases.
            for name in left:
                for table in client.get_tables(name, client.list_tables(name)):
                    if table.tableType == "MATERIALIZED_VIEW":
                        client.drop_table(name, str(table.tableName), delete_data=True)
            for name in left:
                client.drop_database(name, delete_data=True, cascade=True)
    assert not ended, "\n".join(ended)


@pytest.fixture(scope="module")
def own_metastores() -> Iterator[Callable[..., EmbeddedMetastore]]:
    """Return a function like ``EmbeddedMetastore.start``, whose metastores stop with the file of tests.

    An idle metastore takes some 5 % of a processor from the tests that follow.
    """
    with ExitStack() as started:

        def start(name: str, **options: Any) -> EmbeddedMetastore:
            return started.enter_context(EmbeddedMetastore.start(name, **options))

        yield start


def _abort_all(client: MetastoreClient) -> None:
    """Abort all open transactions.

    A failed test may have dropped the database of a replica with open transactions. Hive marks the database
    as it aborts them, and refuses to abort them without one (``AbortTxnsFunction``).
    """
    still_open = open_transactions(client.get_open_txns())
    if not still_open:
        return
    begun = client.call("get_open_txns_info").open_txns or ()
    owners = {txn.hostname.removeprefix(REPLICATION) for txn in begun if txn.hostname.startswith(REPLICATION)}
    for name in sorted(owners - set(client.list_databases())):
        client.create_database(types.Database(name=name))
    client.abort_txns(still_open)


def _restarted(metastores: list[EmbeddedMetastore]) -> list[str]:
    """Restart the shared metastores that have ended by themselves; return why they ended."""
    ended = []
    for metastore in metastores:
        if metastore.exit_code is not None:
            crashes = "".join(path.read_text()[:3000] for path in metastore.directory.glob("hs_err*"))
            log = metastore.log_path.read_text(errors="replace")[-6000:]
            ended.append(f"{metastore.name} ended with exit code {metastore.exit_code}: {log}{crashes}")
            metastore.restart()
    return ended


@pytest.fixture(scope="module")
def client(source: EmbeddedMetastore) -> Iterator[MetastoreClient]:
    """A client of the source metastore."""
    with MetastoreClient(MetastoreSettings(uris=(source.uri,))) as client:
        yield client


@pytest.fixture(scope="module")
def quick_hive(hive_sql_source: HiveSql) -> HiveSql:
    """Hive's SQL engine on the source, without statistics of columns, which take half of an INSERT's time."""
    hive_sql_source.set("hive.stats.column.autogather", "false")
    return hive_sql_source


@pytest.fixture(scope="session")
def airflow_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a new database of Airflow's, which takes Airflow seconds to make; a home gets a copy."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        # The directory of the run is above those of its workers.
        shared = shared.parent
    home, made = shared / "airflow-database", shared / "airflow-database.made"
    with exclusively(shared / "airflow-database.lock"):
        if not made.exists():
            home.mkdir(exist_ok=True)
            DemoAirflow(home).migrate()
            made.touch()
    return home / "airflow" / "airflow.db"


@pytest.fixture(scope="session")
def hives_default_cleaner() -> Iterator[EmbeddedMetastore]:
    """A metastore whose cleaner goes by the minimum history of write ids, as Hive's does by default."""
    with EmbeddedMetastore.start("history", settings=minimum_history(True)) as metastore:
        yield metastore


@pytest.fixture(scope="session")
def small_source(source: EmbeddedMetastore) -> EmbeddedMetastore:
    """The source metastore with the database of :mod:`tests.support.small_source` in it."""
    make_small_source(source, DATABASE)
    return source


@pytest.fixture(scope="session")
def spark_of_gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewaySpark]:
    """A Spark in a process of its own, which reaches metastores by its built-in client of Hive 2.3."""
    with gateway_spark(tmp_path_factory.mktemp("spark-of-gateways")) as spark:
        yield spark


@pytest.fixture(scope="session")
def hive_2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a Hive 2.3 metastore, from the jars that pyspark carries."""
    home = tmp_path_factory.mktemp("hive-2")
    with plain_metastore(home, [sparks_jars()], older_settings(home)) as uri:
        yield uri


@pytest.fixture(scope="session")
def hive_3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a Hive 3.1 metastore with its listener, its compactor and its cleaner."""
    with hive_3_metastore(tmp_path_factory.mktemp("hive-3")) as uri:
        yield uri
