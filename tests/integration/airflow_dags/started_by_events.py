"""A DAG that an event of a source starts; its task does nothing."""

from __future__ import annotations

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, AssetWatcher

from airflow_hive_federation.triggers.replication import SourceEventTrigger

trigger = SourceEventTrigger(
    policy={
        "name": "hive_target.hangar_copy",
        "source_database": "hangar",
        "target_database": "hangar_copy",
        "dump_root": "/var/lib/hive-federation",
    },
    source_conn_id="hive_source",
    target_conn_id="hive_target",
    poll_s=1,
)
hangar = Asset("hangar", watchers=[AssetWatcher(name="events_of_hangar", trigger=trigger)])

with DAG(dag_id="started_by_events", schedule=[hangar], catchup=False, max_active_runs=1):
    EmptyOperator(task_id="nothing")
