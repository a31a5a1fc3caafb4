"""Tasks report rows, bytes and columns of the tables that they have read and written to OpenLineage."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from openlineage.client.serde import Serde

from airflow_hive_federation.catalog.factories import CONNECTION
from airflow_hive_federation.catalog.thrift import URIS
from airflow_hive_federation.clusters.routing.decision import Decision, InputUse, OutputUse, Rule
from airflow_hive_federation.clusters.statements.statement import TableName
from airflow_hive_federation.errors import RemoteUnavailableError
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.operators import remote
from airflow_hive_federation.operators.lineage import (
    REFRESHED,
    Lineage,
    TableDataset,
    behind,
    routed,
    verified,
)
from airflow_hive_federation.operators.remote import RefreshRemoteOperator
from airflow_hive_federation.operators.replication import ReplicationLoadOperator
from airflow_hive_federation.remotes.links import Link
from airflow_hive_federation.remotes.reports import RefreshReport
from airflow_hive_federation.remotes.statement import Kind, Name
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.described_tables import DescribedTable
from airflow_hive_federation.replication.verify.report import TableReport, VerificationReport

POLICY = {"name": "shop", "source_database": "shop", "dump_root": "/dumps"}


def test_a_copy_reports_what_it_has_copied() -> None:
    """Each column comes from that of its name."""
    read = TableDataset(namespace="hive://one:9083", database="shop", table="orders")
    copy = TableDataset(
        namespace="hive://two:9083",
        database="copy",
        table="t",
        size_bytes=5,
        files=2,
        copy_of=read,
        describe=lambda: DescribedTable(columns=("id",), rows=7),
    )
    (written,) = facets_of(Lineage(outputs=[copy])).outputs
    statistics = written.outputFacets["outputStatistics"]
    assert (statistics.rowCount, statistics.size, statistics.fileCount) == (7, 5, 2)
    fields = written.facets["columnLineage"].fields
    (source,) = fields["id"].inputFields
    assert (source.namespace, source.name, source.field) == ("hive://one:9083", "shop.orders", "id")
    assert json.loads(Serde.to_json(written.facets["columnLineage"]))["fields"]["id"]["inputFields"]
    (without,) = facets_of(Lineage(outputs=[replace(copy, describe=lambda: None)])).outputs
    assert (without.facets, without.outputFacets["outputStatistics"].rowCount) == ({}, None)


def test_a_verification_has_read_both_sides() -> None:
    ends = [MetastoreSettings(uris=(uri,)) for uri in ("thrift://one:9083", "thrift://two:9083")]
    policy = ReplicationPolicy(
        name="p",
        source_database="shop",
        target_database="copy",
        dump_root="/d",
        table_names={"orders": "orders_of_one"},
    )
    table = TableReport(
        name="orders_of_one",
        kind="acid",
        source_rows=3,
        target_rows=2,
        files=1,
        size_bytes=9,
        digest_equal=False,
    )
    report = VerificationReport(database="copy", event_id=1, tables=[table])
    read, copy = facets_of(verified(*ends, policy, report)).inputs
    assert (read.namespace, read.name, copy.name) == ("hive://one:9083", "shop.orders", "copy.orders_of_one")
    assert [side.inputFacets["dataQualityMetrics"].rowCount for side in (read, copy)] == [3, 2]
    (unread,) = facets_of(Lineage(inputs=[TableDataset(namespace="n", database="d", table="v")])).inputs
    assert unread.inputFacets == {}


def test_routed_statements_report_each_table_once() -> None:
    def decision(reads: Sequence[str], writes: Sequence[str]) -> Decision:
        return Decision(
            rule=Rule.INPUT,
            reason="",
            inputs=tuple(InputUse(table=TableName("shop", name)) for name in reads),
            outputs=tuple(OutputUse(table=TableName("shop", name)) for name in writes),
        )

    settings = MetastoreSettings(uris=("thrift://one:9083", "thrift://two:9083"))
    lineage = routed(settings, [decision(["a", "b"], ["c"]), decision(["c", "a"], ["d"])])
    facets = facets_of(lineage)
    assert [dataset.name for dataset in facets.inputs] == ["shop.a", "shop.b", "shop.c"]
    assert [(dataset.namespace, dataset.name) for dataset in facets.outputs] == [
        ("hive://one:9083", "shop.c"),
        ("hive://one:9083", "shop.d"),
    ]


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({URIS: "thrift://far:9, thrift://other:9"}, "hive://far:9"),
        ({CONNECTION: "far_hive"}, "hive://connected:9083"),
        ({CONNECTION: "far_aws"}, None),
        ({}, None),
    ],
)
def test_a_remote_reads_the_tables_of_another_hive_metastore(
    properties: dict[str, str], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_FAR_HIVE", json.dumps({"conn_type": "hive_federation", "host": "connected"})
    )
    monkeypatch.setenv("AIRFLOW_CONN_FAR_AWS", json.dumps({"conn_type": "aws"}))
    link = Link(
        kind=Kind.DATABASE,
        local=Name(database="mirror"),
        remote=Name(database="sales"),
        properties=properties,
    )
    found = behind(SimpleNamespace(link=link, owner=link), ["a", "b"])  # type: ignore[arg-type]
    assert [(read.namespace, read.name) for read in found] == (
        [(expected, "sales.a"), (expected, "sales.b")] if expected else []
    )
    table = replace(link, kind=Kind.TABLE, remote=Name(database="sales", table="orders"))
    found = behind(SimpleNamespace(link=table, owner=link), ["local"])  # type: ignore[arg-type]
    assert [read.name for read in found] == (["sales.orders"] if expected else [])


def test_a_refresh_updates_the_assets_of_the_tables_that_events_name(
    connection: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do even if the task's lineage cannot be found out."""
    report = RefreshReport(remote="mirror", event_id=7, created=["c"], altered=["b"], named=["a", "b"])
    opened = SimpleNamespace(refresh=lambda *_, **__: report, open=lambda *_: None)
    monkeypatch.setattr(remote, "remotes_of", lambda *_, **__: nullcontext(opened))

    def fails(*_: object) -> list[TableDataset]:
        raise RemoteUnavailableError("Gone.", remote="mirror")

    monkeypatch.setattr(remote, "behind", fails)
    task = RefreshRemoteOperator(
        task_id="refresh", remote="mirror", metastore_conn_id=connection(host="near")
    )
    # Publications have tests of their own.
    state: Any = nullcontext(SimpleNamespace(refreshed=lambda *_: None))
    monkeypatch.setattr(task, "_state", lambda *_: state)
    updated: list[tuple[str, object]] = []

    class Events:
        def __getitem__(self, alias: object) -> Any:
            assert alias == REFRESHED
            return SimpleNamespace(add=lambda asset, extra: updated.append((asset.uri, extra)))

    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="refresh", map_index=-1, try_number=2)
    context: Any = {"outlet_events": Events(), "ti": ti}
    assert task.execute(context)["named"] == ["a", "b"]
    assert opened.tried.number == ti.try_number
    extra = {"event_id": 7, "remote": "mirror"}
    assert updated == [(f"hive://near:9083/mirror/{name}", extra) for name in "abc"]


def facets_of(lineage: Lineage) -> Any:
    task = ReplicationLoadOperator(
        task_id="load", policy=POLICY, source_conn_id="a", target_conn_id="b", dump="x"
    )
    task.lineage = lineage
    return task.get_openlineage_facets_on_complete(None)
