"""A gateway in this process, before real metastores, and engines that believe it to be one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import NoSuchObjectError
from airflow_hive_federation.gateway.config import config_of
from airflow_hive_federation.gateway.serving import Serving, start
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types


def _nobody(connection: str) -> MetastoreSettings:
    raise AssertionError(connection)


@contextmanager
def gateway(config: Mapping[str, Any]) -> Iterator[Serving]:
    """Serve a configuration, at a free port."""
    serving = start(config_of({"thrift": {"port": 0}, **config}), _nobody)
    try:
        yield serving
    finally:
        serving.stop()


def work_through(upstream: Mapping[str, Any], database: str) -> None:
    """Write and read at a metastore through a gateway whose configuration describes it."""
    with (
        gateway({"upstream": upstream}) as serving,
        MetastoreClient(MetastoreSettings(uris=(serving.fronts[0].uri,), user="tester")) as client,
    ):
        # More than a piece of an answer.
        texts = {str(number): "ü" * 3_000 for number in range(50)}
        client.create_database(types.Database(name=database, parameters=texts))
        try:
            assert client.get_database(database).parameters == texts
            assert database in client.list_databases()
            with pytest.raises(NoSuchObjectError):
                client.get_table(database, "nothing")
        finally:
            client.drop_database(database, delete_data=True)


@dataclass(frozen=True)
class Behind:
    """An embedded metastore as Hive's SQL engine is to see it: through a gateway."""

    metastore: EmbeddedMetastore
    uri: str
    directory: Path

    @property
    def jdbc_url(self) -> str:
        return self.metastore.jdbc_url

    @property
    def jdbc_password(self) -> str:
        return self.metastore.jdbc_password
