"""A DAG of several databases, of which one has another metastore as its source."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from airflow_hive_federation.operators.replications import ReplicationPoliciesOperator, replicate_databases

#: The policy is rendered before the connection.
SOURCE = "{{ 'hive_dead' if task.policy is defined and 'dead' in task.policy.name else 'hive_source' }}"

with DAG(
    dag_id="one_bad_database",
    schedule=None,
    default_args={"retries": 0},
    params={"policies": Param([], type="array"), "dump_root": Param("", type="string")},
) as dag:
    policies = ReplicationPoliciesOperator(
        task_id="policies",
        policies="{{ params.policies | tojson }}",
        defaults={"dump_root": "{{ params.dump_root }}"},
    )
    replicate_databases(
        policies.output, source_conn_id=SOURCE, target_conn_id="hive_target", verify_whole=True
    )
