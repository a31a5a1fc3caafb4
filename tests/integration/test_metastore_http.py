"""A real Hive metastore that speaks Thrift over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_hive_federation.embedded.configuration import metastore_settings
from airflow_hive_federation.embedded.jars import metastore_jars
from airflow_hive_federation.embedded.java import find_java
from airflow_hive_federation.embedded.jvm import launcher_classes
from airflow_hive_federation.embedded.schema import put_database
from airflow_hive_federation.errors import (
    MetastoreError,
    MetastoreProtocolError,
    MetastoreUnreachableError,
    NoSuchObjectError,
)
from airflow_hive_federation.metastore import MetastoreClient, MetastorePool, MetastoreSettings, examine
from airflow_hive_federation.metastore.idl import types
from tests.integration.plain_metastore import fetched, plain_metastore
from tests.integration.test_metastore_client import partition, table

#: Hive's servlet wants it, and hive-exec does not bring it.
PAC4J = """
test org.pac4j:pac4j-core:4.5.5@jar \
e04747a3e5b3ae5a6758a1182626749c55ef26e5c2e82ec766d9a8be42295b6d 230245
"""


@pytest.fixture(scope="module")
def over_http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a Hive 4.2 metastore in HTTP mode."""
    with metastore_over_http(tmp_path_factory.mktemp("over-http")) as uri:
        yield uri


@contextmanager
def metastore_over_http(home: Path) -> Iterator[str]:
    java = find_java()
    put_database(java, home / "metastore_db")
    jars = metastore_jars(java)
    settings = metastore_settings(home, {"metastore.server.thrift.transport.mode": "http"})
    class_path = [launcher_classes(java, jars), *jars, *fetched(PAC4J)]
    with plain_metastore(home, class_path, settings, uri="http://127.0.0.1:{}/metastore") as uri:
        yield uri


def test_calls_large_answers_and_errors(over_http: str) -> None:
    with MetastoreClient(MetastoreSettings(uris=(over_http,), user="ada")) as client:
        client.create_database(types.Database(name="metastore_client", parameters={}))
        keys = [types.FieldSchema(name="d", type="string")]
        client.create_table(table("wide", external=True, keys=keys))
        made = client.get_table("metastore_client", "wide")
        values = [f"{number:04}" for number in range(1_000)]
        client.add_partitions([partition(made, value) for value in values])
        found = list(client.iter_partitions("metastore_client", "wide"))
        assert sorted((one.values or [""])[0] for one in found) == values
        with pytest.raises(NoSuchObjectError, match="nothing") as caught:
            client.get_table("metastore_client", "nothing")
        assert caught.value.uri == over_http
        findings = {finding.name: finding.state for finding in examine(client)}
        assert findings["capabilities"] == "ok"


def test_a_pool(over_http: str) -> None:
    with MetastorePool(MetastoreSettings(uris=(over_http,)), 2) as pool:
        with pool.client() as one, pool.client() as other:
            assert one.list_databases() == other.list_databases()
        with pool.client() as again:
            assert "default" in again.list_databases()


def test_another_path_is_no_metastore(over_http: str) -> None:
    settings = MetastoreSettings(uris=(over_http.replace("/metastore", "/elsewhere"),), call_timeout_s=10)
    with MetastoreClient(settings) as client, pytest.raises(MetastoreProtocolError, match=r"HTTP 40\d"):
        client.list_databases()


def test_plain_thrift_to_a_server_of_http(over_http: str) -> None:
    uri = over_http.replace("http://", "thrift://").removesuffix("/metastore")
    settings = MetastoreSettings(uris=(uri,), connect_timeout_s=5, call_timeout_s=5)
    with MetastoreClient(settings) as client, pytest.raises(MetastoreError) as caught:
        client.list_databases()
    assert isinstance(caught.value, MetastoreProtocolError | MetastoreUnreachableError)
    assert uri in str(caught.value)
