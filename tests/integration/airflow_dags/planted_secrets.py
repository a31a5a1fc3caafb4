"""A DAG whose connections are full of planted secrets; run as a program, it is run once.

Airflow hides secrets in logs by their texts. Here it does not: what the package itself writes is to be seen.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from airflow.sdk import DAG, BaseHook, Param, task
from airflow.sdk._shared.secrets_masker import SecretsMasker

from airflow_hive_federation.catalog.open import Catalogs
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.hooks.remotes import AirflowConnections, remotes_of
from airflow_hive_federation.hooks.spark import SparkPipelineHook
from airflow_hive_federation.hooks.tunnel import SSHTunnelHook
from airflow_hive_federation.operators.ingest import StreamingIngestOperator
from airflow_hive_federation.operators.remote import (
    CreateRemoteDatabaseOperator,
    CreateRemoteTableOperator,
    DescribeRemoteOperator,
    RefreshRemoteOperator,
    RemoteSqlOperator,
)
from airflow_hive_federation.operators.replication import replicate_database
from airflow_hive_federation.sensors.transactions import OpenTransactionsDrainSensor
from tests.support.spawned import note_spawned

RUN = Path(os.environ["PLANTED_RUN"])
GLUE = {"aws.region": "eu-central-1"}
#: Connections of the type ``hive_federation`` that no task gets through.
WRONG = (
    "wrong_password",
    "wrong_token",
    "wrong_key_password",
    "wrong_passphrase",
    "nobody_http",
    "nobody_tls",
)


def note_error(context: Any) -> None:
    """Keep an error with all that it was raised from, and the objects it knows."""
    error = context["exception"]
    with (RUN / "errors.txt").open("a", encoding="utf-8") as file:
        file.write(f"{context['ti'].task_id}: {error!r}\n{error}\n")
        file.writelines(traceback.format_exception(error))
        for cause in causes(error):
            file.write(f"{cause!r} {getattr(cause, '__dict__', {})!r}\n")


def causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        context = None if error.__suppress_context__ else error.__context__
        error = error.__cause__ or context


with DAG(
    "planted_secrets",
    schedule=None,
    params={"database": Param("", type="string"), "glue": Param("", type="string")},
    default_args={"retries": 0, "on_failure_callback": note_error},
) as dag:
    policy = {
        "name": "planted",
        "source_database": "{{ params.database }}",
        "dump_root": f"file:{RUN}/dumps",
        "external_base": f"file:{RUN}/external_tables",
        "allowed_source_roots": os.environ.get("PLANTED_SOURCE", ""),
    }
    replicate_database(policy, source_conn_id="source", target_conn_id="target", group_id="replicate")

    near: dict[str, Any] = {"metastore_conn_id": "near", "database": "planted_near"}
    far = {"hive.federation.connection": "source"}
    prepared = RemoteSqlOperator(task_id="none_yet", sql="SHOW REMOTES IN planted_near", **near)
    made = CreateRemoteDatabaseOperator(
        task_id="mirror",
        remote="planted_mirror",
        connected_to="{{ params.database }}",
        properties=far,
        **near,
    )
    refreshed = RefreshRemoteOperator(task_id="refresh", remote="planted_mirror", whole=True, **near)
    described = DescribeRemoteOperator(task_id="describe", remote="planted_mirror", kind="database", **near)
    prepared >> made >> refreshed >> described
    for catalog, connection, more in (
        ("glue", "cloud", GLUE),
        ("iceberg", "lake", {"iceberg.catalog.warehouse": "w"}),
    ):
        CreateRemoteDatabaseOperator(
            task_id=catalog,
            remote=f"planted_{catalog}",
            connected_to="shelf",
            via=catalog,
            properties={"hive.federation.connection": connection, **more},
            **near,
        )
    StreamingIngestOperator(
        task_id="ingest",
        table="planted_near.landed",
        inputs=["s3://planted/rows"],
        dead_letters="s3://planted/letters.jsonl",
        metastore_conn_id="near",
    )

    for connection in WRONG:
        OpenTransactionsDrainSensor(
            task_id=connection,
            source_conn_id=connection,
            database="default",
        )
        CreateRemoteTableOperator(
            task_id=f"remote_{connection}",
            remote="t",
            connected_to="default.t",
            properties={"hive.federation.connection": connection},
            **near,
        )
    for catalog, connection, more in (("glue", "wrong_cloud", GLUE), ("iceberg", "wrong_lake", {})):
        CreateRemoteDatabaseOperator(
            task_id=connection,
            remote=f"{connection}_database",
            connected_to="shelf",
            via=catalog,
            properties={"hive.federation.connection": connection, **more},
            **near,
        )
    StreamingIngestOperator(
        task_id="wrong_store",
        table="planted_near.landed",
        inputs=["s3://planted/rows"],
        metastore_conn_id="nostore",
    )

    @task
    def spark_fails() -> None:
        options = HiveMetastoreHook("source").storage_options
        SparkPipelineHook(storage_options=options).submit("copy-files", ["--plan", "file:/no/such/plan"])

    @task
    def secret_in_a_statement() -> None:
        with remotes_of("near") as remotes:
            secret = os.environ["AIRFLOW_VAR_PROPERTY"]
            remotes.run(f"CREATE REMOTE TABLE planted_near.p VIA 'thrift' 'my.password' = '{secret}'")

    spark_fails()
    secret_in_a_statement()


def reprs() -> Iterator[tuple[str, Any]]:
    """Make the package's objects of each connection, and open them where that is possible."""
    connections = AirflowConnections()
    for name in sorted(os.environ):
        if not name.startswith("AIRFLOW_CONN_"):
            continue
        conn_id = name.removeprefix("AIRFLOW_CONN_").lower()
        if BaseHook.get_connection(conn_id).conn_type != "hive_federation":
            properties = {"hive.federation.connection": conn_id}
            catalogs = Catalogs(connections)
            via, more = ("glue", GLUE) if "cloud" in conn_id else ("iceberg", {})
            yield conn_id, (catalogs, catalogs.open(via, {**properties, **more}, remote="r"))
            continue
        hook = HiveMetastoreHook(conn_id)
        yield conn_id, (hook, hook.settings, hook.client(), hook.pool(), hook.test_connection())
        yield conn_id, (remotes_of(conn_id), SparkPipelineHook(storage_options=hook.storage_options))
        if hook.settings.dialer is not None:
            yield conn_id, (SSHTunnelHook(conn_id), SSHTunnelHook(conn_id).settings)
    yield "tasks", [vars(task) for task in dag.tasks]


def shown(value: Any, seen: set[int]) -> Iterator[str]:
    """The texts of an object, and of those of the package that it is made of."""
    if id(value) in seen:
        return
    seen.add(id(value))
    yield f"{value!r} {value}"
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    if type(value).__module__.startswith("airflow_hive_federation"):
        parts = getattr(value, "__dict__", {}).values()
    for part in parts:
        # What is secret is the value of a field; it is not shown by what holds it.
        if type(part).__module__.startswith("airflow_hive_federation"):
            yield from shown(part, seen)


def write_reprs() -> None:
    with (RUN / "reprs.txt").open("w", encoding="utf-8") as file:
        for name, parts in reprs():
            for part in parts:
                if type(part).__module__.startswith("airflow_hive_federation"):
                    file.writelines(f"{name}: {text}\n" for text in shown(part, set()))
                else:
                    file.write(f"{name}: {part!r}\n")


def main(conf: dict[str, Any]) -> dict[str, Any]:
    """Run the DAG as Airflow does, triggers inline; return the states of its tasks."""
    note_spawned(RUN / "spawned.jsonl")
    logging.getLogger("airflow_hive_federation").setLevel(logging.DEBUG)
    glue = "airflow_hive_federation.catalog.glue.GlueCatalog"
    with (
        mock.patch.object(SecretsMasker, "add_mask"),
        # moto has no column statistics.
        mock.patch(f"{glue}.table_statistics", return_value=[]),
    ):
        run = dag.test(run_conf=conf)
        write_reprs()
    return {instance.task_id: instance.state for instance in run.get_task_instances()}


if __name__ == "__main__":
    states = main(json.loads(sys.argv[1]))
    (RUN / "states.json").write_text(json.dumps(states), encoding="utf-8")
