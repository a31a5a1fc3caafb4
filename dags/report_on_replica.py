"""
## Report on a table of a replica

Starts when a cycle has changed the table: each replicated table updates its asset,
`hive://host:port/database/table` with the target's host and port. The task `describe` returns the table's
present number of rows and files, as the target's metastore knows them, and the source's events of the cycles.

Write the address of the target's metastore and the table into the first lines of this file: they are the name
of the asset.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Asset, Param, task

DATABASE, TABLE = "flights", "departures"
TARGET = "hive_target"
ADDRESS = "target.example.com:9083"


@task
def describe(params: dict[str, Any], triggering_asset_events: Any = None) -> dict[str, Any]:
    """Return the statistics of the table, and the events of the cycles that started the run."""
    from airflow_hive_federation.hooks.metastore import HiveMetastoreHook

    with HiveMetastoreHook(params["target_conn_id"]).client() as client:
        statistics = client.get_table(params["database"], params["table"]).parameters or {}
    cycles = [event for events in (triggering_asset_events or {}).values() for event in events]
    return {
        "table": f"{params['database']}.{params['table']}",
        "rows": statistics.get("numRows"),
        "files": statistics.get("numFiles"),
        "event_ids": [event.extra.get("event_id") for event in cycles],
    }


with DAG(
    dag_id="report_on_replica",
    dag_display_name="Report on a table of a replica",
    description="Reads a table's statistics whenever a replication has changed the table",
    schedule=[Asset(f"hive://{ADDRESS}/{DATABASE}/{TABLE}")],
    catchup=False,
    tags=["hive", "replication"],
    doc_md=__doc__,
    params={
        "database": Param(DATABASE, type="string", title="Database", description="On the target"),
        "table": Param(TABLE, type="string", title="Table", description="A table of the database"),
        "target_conn_id": Param(
            TARGET,
            type="string",
            title="Connection of the target",
            description="Type Hive metastore (federation)",
        ),
    },
) as dag:
    describe()
