"""Fixtures of the tests between servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_hive_federation.embedded import jars
from airflow_hive_federation.embedded.configuration import minimum_history
from airflow_hive_federation.embedded.lock import METASTORE, locked
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.runtime.java import find_java
from tests.support.plain_metastore import fetched, older_settings, plain_metastore, sparks_jars
from tests.support.small_source import DATABASE, make_small_source

HIVE_3 = """
test org.apache.hive:hive-standalone-metastore:3.1.3@jar \
779d11d856d9f41b5f78658fdf7ddf1626f03c7ae5d808582484c3744597a1f3 11096515
test org.apache.thrift:libthrift:0.9.3@jar \
bca5e8cdee1e0fbf563de7d41c452385e7bed69723fa28225a9ce718a8ee3419 234201
test org.apache.hive:hive-storage-api:2.7.0@jar \
b764dfada0b3320b4899d854e5ba4c82a9dc96bbc73bcb79e7734a25275d27bd 231901
"""
#: Of the embedded metastore's own jars.
HIVE_3_SHARES = frozenset({"commons-collections", "jackson-core-asl", "jackson-mapper-asl"})


#: Databases of the shared servers that outlive a file of tests.
KEPT = frozenset({"default", DATABASE})


@pytest.fixture(scope="module", autouse=True)
def no_databases_left(shared_metastores: list[EmbeddedMetastore]) -> Iterator[None]:
    """Drop the databases that the tests of a file leave on the shared servers.

    The order and the distribution of the files are anything: none may find the databases of another one.
    """
    ended = _restarted(shared_metastores)
    yield
    ended += _restarted(shared_metastores)
    for metastore in shared_metastores:
        with MetastoreClient(MetastoreSettings(uris=(metastore.uri,))) as client:
            left = sorted(set(client.list_databases()) - KEPT)
            # First what keeps tables from being dropped, perhaps those of other databases.
            for name in left:
                for table in client.get_tables(name, client.list_tables(name)):
                    if table.tableType == "MATERIALIZED_VIEW":
                        client.drop_table(name, str(table.tableName), delete_data=True)
            for name in left:
                client.drop_database(name, delete_data=True, cascade=True)
    assert not ended, "\n".join(ended)


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
def hive_2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a Hive 2.3 metastore, from the jars that pyspark carries."""
    home = tmp_path_factory.mktemp("hive-2")
    with plain_metastore(home, [sparks_jars()], older_settings(home)) as uri:
        yield uri


@pytest.fixture(scope="session")
def hive_3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a Hive 3.1 metastore; what it needs besides its own classes is among pyspark's jars."""
    home = tmp_path_factory.mktemp("hive-3")
    shared = jars.fetch(find_java(), [jar for jar in locked(METASTORE) if jar.name in HIVE_3_SHARES])
    settings = {
        **older_settings(home),
        # It then makes the tables of its transactions itself (TxnHandler.checkQFileTestHack).
        "hive.in.test": "true",
        # The default has a task of hive-exec's.
        "metastore.task.threads.always": "org.apache.hadoop.hive.metastore.events.EventCleanerTask",
        # In a test it would ask for a test client.
        "metastore.client.capability.check": "false",
        "metastore.expression.proxy": "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
    }
    with plain_metastore(home, [*fetched(HIVE_3), *shared, sparks_jars()], settings) as uri:
        yield uri
