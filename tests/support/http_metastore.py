"""A real Hive metastore in HTTP mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow_hive_federation.embedded.configuration import metastore_settings
from airflow_hive_federation.embedded.jars import metastore_jars
from airflow_hive_federation.embedded.jvm import launcher_classes
from airflow_hive_federation.embedded.schema import put_database
from airflow_hive_federation.runtime.java import find_java
from tests.support.plain_metastore import fetched, plain_metastore

#: Hive's servlet wants it, and hive-exec does not bring it.
PAC4J = """
test org.pac4j:pac4j-core:4.5.5@jar \
e04747a3e5b3ae5a6758a1182626749c55ef26e5c2e82ec766d9a8be42295b6d 230245
"""


@contextmanager
def metastore_over_http(home: Path) -> Iterator[str]:
    """Start a Hive 4.2 metastore; yield its URI."""
    java = find_java()
    put_database(java, home / "metastore_db")
    jars = metastore_jars(java)
    settings = metastore_settings(home, {"metastore.server.thrift.transport.mode": "http"})
    class_path = [launcher_classes(java, jars), *jars, *fetched(PAC4J)]
    with plain_metastore(home, class_path, settings, uri="http://127.0.0.1:{}/metastore") as uri:
        yield uri
