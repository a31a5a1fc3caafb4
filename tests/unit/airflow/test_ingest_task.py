"""The operator of streaming ingest, without a metastore; test_ingest_airflow.py runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import pytest
from airflow.providers.openlineage import sqlparser
from airflow.providers.openlineage.extractors import OperatorLineage
from airflow.providers.openlineage.sqlparser import DatabaseInfo
from airflow.sdk import BaseHook

from airflow_hive_federation.errors import (
    HiveFederationError,
    StreamingCommitUnknownError,
    StreamingTableError,
)
from airflow_hive_federation.hooks.compat import AirflowException, AirflowFailException
from airflow_hive_federation.ingest import files, queries
from airflow_hive_federation.ingest.runs import IngestReport
from airflow_hive_federation.operators.ingest import StreamingIngestOperator


@pytest.mark.parametrize(
    ("error", "is_retried"),
    [(StreamingCommitUnknownError("The metastore is gone."), True), (StreamingTableError("A view."), False)],
)
def test_a_commit_of_unknown_outcome_is_retried_from_the_position(
    error: HiveFederationError,
    is_retried: bool,
    connection: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any, **__: Any) -> NoReturn:
        raise error

    monkeypatch.setattr(files, "ingest_files", fail)
    conn_id = connection(host="127.0.0.1", port=1)
    task = StreamingIngestOperator(task_id="t", table="d.t", inputs=["file:/a"], metastore_conn_id=conn_id)
    with pytest.raises(AirflowException, match=f"{type(error).__name__}: {error}") as caught:
        task.execute({})  # type: ignore[arg-type]
    assert isinstance(caught.value, AirflowFailException) is not is_retried


@pytest.mark.parametrize("source", ["files", "query"])
def test_a_kill_reaches_the_run(
    source: str, connection: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    conn_id = connection(host="127.0.0.1", port=1)
    inputs: dict[str, Any] = {"inputs": ["file:/a"]}
    if source == "query":
        monkeypatch.setenv("AIRFLOW_CONN_SHOP", "sqlite:///:memory:")
        inputs = {"sql_conn_id": "shop", "sql": "t", "order_by": ["id"]}
    task = StreamingIngestOperator(task_id="t", table="d.t", metastore_conn_id=conn_id, **inputs)

    def ingest(*_: Any, stopped: Callable[[], bool], **__: Any) -> NoReturn:
        assert not stopped()
        task.on_kill()
        assert stopped()
        raise StreamingTableError("A view.")

    monkeypatch.setattr(files, "ingest_files", ingest)
    monkeypatch.setattr(queries, "ingest_query", ingest)
    with pytest.raises(AirflowFailException, match="A view"):
        task.execute({})  # type: ignore[arg-type]


def test_the_lineage_of_a_query_names_its_tables_and_columns(
    connection: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the hook of the database names it; without its help, only the written table is known."""
    conn_id = connection(host="127.0.0.1", port=1)
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", "sqlite:///:memory:")
    report = IngestReport(table="d.t", records=3, seconds=1.0)

    def ingest(*_: Any, on_columns: Callable[[Mapping[str, str]], None], **__: Any) -> IngestReport:
        on_columns({"id": "Id", "item": "item"})
        return report

    monkeypatch.setattr(queries, "ingest_query", ingest)

    def names(sql: str) -> tuple[list[str], dict[str, list[str]]]:
        task = StreamingIngestOperator(
            task_id="t", table="d.t", metastore_conn_id=conn_id, sql_conn_id="shop", sql=sql, order_by=["id"]
        )
        task.execute({})  # type: ignore[arg-type]
        facets = task.get_openlineage_facets_on_complete(None)
        (written,) = facets.outputs
        assert (written.name, written.outputFacets["outputStatistics"].rowCount) == ("d.t", 3)
        assert {read.namespace for read in facets.inputs} <= {"sqlite://shop:1"}
        columns = written.facets["columnLineage"].fields if written.facets else {}
        return [read.name for read in facets.inputs], {
            column: [f"{read.namespace}/{read.name}.{read.field}" for read in fields.inputFields]
            for column, fields in columns.items()
        }

    assert names("SELECT id FROM main.orders") == ([], {})
    hook = type(BaseHook.get_hook("shop"))
    info = DatabaseInfo(scheme="sqlite", authority="shop:1")
    monkeypatch.setattr(hook, "get_openlineage_database_info", lambda *_: info)
    monkeypatch.setattr(hook, "get_openlineage_default_schema", lambda _: "main")
    orders = "sqlite://shop:1/main.orders"
    assert names("SELECT o.id, count(*) AS item FROM orders o JOIN main.lines USING (id) GROUP BY o.id") == (
        ["main.orders", "main.lines"],
        {"id": [f"{orders}.id"]},
    )
    assert names("WITH q AS (SELECT nr AS id, item FROM orders) SELECT * FROM q") == (
        ["main.orders"],
        {"id": [f"{orders}.nr"], "item": [f"{orders}.item"]},
    )
    assert names("main.orders") == (["main.orders"], {"id": [f"{orders}.Id"], "item": [f"{orders}.item"]})
    # A provider that does not read the name of a table leaves the lineage without sources.
    monkeypatch.setattr(sqlparser, "get_openlineage_facets_with_sql", lambda *_, **__: OperatorLineage())
    assert names("main.orders") == ([], {})
    assert names("SELECT FROM WHERE") == ([], {})
