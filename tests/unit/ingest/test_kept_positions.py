"""A metastore of Hive 3.1, which ignores the positions of commits, gets no records with a position."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway.dispatch import Gateway, Metastore
from airflow_hive_federation.gateway.thrift_front import ThriftFront
from airflow_hive_federation.gateway.thrift_settings import ThriftSettings
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.ingest.files import IngestRequest, ingest_files
from airflow_hive_federation.ingest.queries import QueryRequest, ingest_query
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.protocol import ApplicationFault
from airflow_hive_federation.spark.streaming_sink import write_frame
from tests.support.memory_metastore import MemoryMetastore
from tests.support.streaming import Builders, rows

KEY = "_meta.here"

#: Ingests a record into ``d.plain`` with a position.
Ingest = Callable[[MetastoreSettings, Path], object]


@pytest.fixture
def metastore(metastore: MemoryMetastore) -> MemoryMetastore:
    """The metastore answers as Hive 3.1 does."""

    def lacks(_args: Any) -> None:
        raise ApplicationFault(message="no such method", type=ApplicationFault.UNKNOWN_METHOD)

    def unread(args: Any) -> None:
        args.rqst.keyValue = None

    for method in ("get_max_allocated_table_write_id", "add_write_notification_log_in_batch"):
        metastore.before[method] = lacks
    metastore.before["commit_txn"] = unread
    return metastore


@pytest.fixture(params=["direct", "gateway"])
def settings(request: pytest.FixtureRequest, metastore: MemoryMetastore) -> Iterator[MetastoreSettings]:
    with metastore.served(user="ada", connect_timeout_s=5.0) as direct, ExitStack() as stack:
        if request.param == "direct":
            yield direct
            return
        target = Metastore(Upstream("main", direct))
        stack.callback(target.close)
        front = ThriftFront(Gateway(target), ThriftSettings(port=0)).start()
        stack.callback(front.stop, 0)
        yield MetastoreSettings(uris=(front.uri,), user="ada", connect_timeout_s=5.0)


def of_files(settings: MetastoreSettings, tmp_path: Path) -> object:
    (tmp_path / "in.csv").write_text("1,a\n")
    return ingest_files(settings, IngestRequest(table="d.plain", inputs=[f"{tmp_path}/in.csv"]))


def of_a_query(settings: MetastoreSettings, _tmp_path: Path) -> object:
    request = QueryRequest(table="d.plain", name="q", sql="SELECT 1 AS a, 'x' AS b", order_by=["a"])
    return ingest_query(settings, request, lambda: sqlite3.connect(":memory:"))


def of_spark(settings: MetastoreSettings, _tmp_path: Path) -> object:
    unused: Any = None
    return write_frame(unused, settings, "d.plain", key=KEY, advance=lambda _: "1")


@pytest.mark.parametrize("ingest", [of_files, of_a_query, of_spark])
@pytest.mark.parametrize("exists", [False, True], ids=["new", "exists"])
def test_a_run_is_refused_before_its_first_transaction(
    settings: MetastoreSettings, metastore: MemoryMetastore, tmp_path: Path, ingest: Ingest, exists: bool
) -> None:
    if exists:
        metastore.tables["d", "plain"].parameters |= dict.fromkeys(
            (KEY, "_meta.ingest.files", "_meta.ingest.q"), ""
        )
    before = dict(metastore.tables["d", "plain"].parameters)
    with pytest.raises(ConfigurationError, match=r"d\.plain keeps no position with a commit") as caught:
        ingest(settings, tmp_path)
    assert "Hive 4" in caught.value.remedy
    assert not caught.value.retryable
    assert not metastore.txns
    assert metastore.tables["d", "plain"].parameters == before


def test_a_commit_that_would_set_no_parameter_is_refused(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path
) -> None:
    with builder().connect() as connection:
        connection.begin_transaction()
        connection.write(b"1,a")
        with pytest.raises(ConfigurationError, match="keeps no position"):
            connection.commit_transaction(key=KEY, value="1")
        assert "commit_txn" not in metastore.calls
        connection.commit_transaction()
    assert rows(tmp_path / "plain") == [(1, "a")]
