"""Replicates the databases of a consistency group in Airflow tasks, as of one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import TaskGroup

from airflow_hive_federation.hooks.error_translation import as_airflow_error
from airflow_hive_federation.hooks.group_fields import group_fields, rendered_group
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook, common_storage_options
from airflow_hive_federation.hooks.page_links import SparkLink
from airflow_hive_federation.hooks.policy_fields import group_id_of
from airflow_hive_federation.hooks.spark import SparkPipelineHook
from airflow_hive_federation.operators.lineage import (
    REPLICATED,
    CopiedSizes,
    Lineage,
    LineageOperator,
    note_load,
    run_key,
)
from airflow_hive_federation.operators.policy_state import GroupStateOperator
from airflow_hive_federation.operators.spark_tasks import SparkOperator, run_name
from airflow_hive_federation.replication.group_policy import ReplicationGroup
from airflow_hive_federation.runtime.arguments import flag, mapping

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_hive_federation.metastore import MetastoreSettings
    from airflow_hive_federation.replication.groups.dump import GroupDump
    from airflow_hive_federation.replication.groups.load import GroupLoadSummary
    from airflow_hive_federation.replication.groups.status import GroupVerification
    from airflow_hive_federation.replication.load.summary import LoadSummary

#: The number of tables dumped side by side, over a connection each.
_DUMP_CONNECTIONS = 8


class _GroupOperator(SparkOperator, GroupStateOperator):
    """Base of the operators of a group.

    :param group: a :class:`ReplicationGroup`; or a mapping with ``name`` and ``policies``, whose other fields
        are for all policies. (values templated)
    :param source_conn_id: the connection of the source's metastore. (templated)
    :param target_conn_id: the connection of the target's metastore. (templated)
    :param spark_conn_id: the connection of the apache-spark provider. (templated)
    :param spark_conf: Spark properties of the jobs. (values templated)
    :raises ConfigurationError: the group or a policy has an unknown field, or lacks a required field.
    """

    template_fields: Sequence[str] = (
        "group",
        "source_conn_id",
        "target_conn_id",
        "spark_conn_id",
        "spark_conf",
    )
    template_fields_renderers = {"group": "json", "spark_conf": "json"}
    operator_extra_links = (*GroupStateOperator.operator_extra_links, SparkLink())

    def __init__(
        self,
        *,
        group: ReplicationGroup | Mapping[str, object],
        source_conn_id: str,
        target_conn_id: str,
        spark_conn_id: str = "spark_default",
        spark_conf: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.group = group_fields(group)
        self.source_conn_id = source_conn_id
        self.target_conn_id = target_conn_id
        self.spark_conn_id = spark_conn_id
        self.spark_conf = {} if spark_conf is None else mapping("spark_conf", spark_conf)

    def ends(self) -> tuple[HiveMetastoreHook, HiveMetastoreHook, ReplicationGroup]:
        """Return the hooks of source and target, and the group with the storage options of both."""
        source, target = HiveMetastoreHook(self.source_conn_id), HiveMetastoreHook(self.target_conn_id)
        return source, target, rendered_group(self.group, common_storage_options(source, target))

    def spark(self, group: ReplicationGroup) -> SparkPipelineHook:
        """Return the Spark hook, whose job :meth:`on_kill` stops."""
        return self.spark_hook(group.policies[0].storage_options, self.spark_conf)


class _GroupLoadingOperator(LineageOperator, _GroupOperator):
    """Base of the operators that load: they update the assets of the tables that they have changed."""

    def __init__(self, *, outlets: Sequence[object] | None = None, **kwargs: Any) -> None:
        super().__init__(outlets=[*(outlets or ()), REPLICATED], **kwargs)

    def note(
        self,
        context: Context,
        source: MetastoreSettings,
        target: MetastoreSettings,
        group: ReplicationGroup,
        loads: Sequence[LoadSummary],
        *,
        copied: CopiedSizes | None = None,
    ) -> None:
        """Update the assets of the tables that the members' loads have changed, and keep their lineage."""
        self.lineage = Lineage()
        policies = {policy.target_database: policy for policy in group.policies}
        for load in loads:
            if not load.idle:
                policy = policies[load.database]
                lineage = note_load(context, source, target, policy, load, copied=copied)
                skipped = {f"{policy.source_database}.{name}": why for name, why in lineage.skipped.items()}
                self.lineage = Lineage(
                    inputs=[*self.lineage.inputs, *lineage.inputs],
                    outputs=[*self.lineage.outputs, *lineage.outputs],
                    skipped={**self.lineage.skipped, **skipped},
                )


class GroupBootstrapOperator(_GroupLoadingOperator):
    """Bootstraps the members of a group that are not published yet, at one cut; otherwise does nothing.

    The task waits for open transactions itself. Tables that it has loaded update their assets, as those of a
    :class:`~.replication.ReplicationLoadOperator` do. So do the tables of members that an earlier try, or a
    run that was killed, has published, unless an increment has been loaded since. Returns ``{"group",
    "event_id", "members", "idle"}``; each of ``members`` is the result of such an operator.

    :param group: a :class:`ReplicationGroup`; or a mapping with ``name`` and ``policies``, whose other fields
        are for all policies. (values templated)
    :param source_conn_id: the connection of the source's metastore. (templated)
    :param target_conn_id: the connection of the target's metastore. (templated)
    :param spark_conn_id: the connection of the apache-spark provider. (templated)
    :param spark_conf: Spark properties of the copy jobs. (values templated)
    :raises ConfigurationError: the group or a policy has an unknown field, or lacks a required field.
    """

    ui_color = "#d8e8f0"

    def __init__(self, **kwargs: Any) -> None:
        # A bootstrap that is executed anew begins with another cut.
        super().__init__(deferrable=False, **kwargs)

    def perform(self, context: Context) -> GroupLoadSummary:
        from airflow_hive_federation.replication.groups.announcing import (
            bootstraps_to_announce,
            note_announced,
        )
        from airflow_hive_federation.replication.groups.bootstrap import bootstrap_group

        run = run_key(context)
        with as_airflow_error():
            source, target, group = self.ends()
            spark = self.spark(group)
            with source.pool(_DUMP_CONNECTIONS) as source_pool, target.pool() as target_pool:
                summary = bootstrap_group(
                    source_pool,
                    target_pool,
                    group,
                    run_copy=spark.copy_runner,
                    threads=_DUMP_CONNECTIONS,
                    observer=self.wait_observer(context),
                )
                self.publish_cycles(context, source_pool, target_pool, group, summary.members)
                loads = bootstraps_to_announce(target_pool, group, summary.members, run)
            if summary.members:
                self.note_dump(summary.members[0].dump, group.policies[0])
            self.note(context, source.settings, target.settings, group, loads)
            note_announced(group, loads, run)
            return summary


class GroupDumpOperator(_GroupOperator):
    """Dumps the increments of all members of a group at one cut.

    Returns ``{"group", "dump", "event_id", "members", "transactions", "idle"}``, which
    :class:`GroupLoadOperator` takes.

    :param group: a :class:`ReplicationGroup`; or a mapping with ``name`` and ``policies``, whose other fields
        are for all policies. (values templated)
    :param source_conn_id: the connection of the source's metastore. (templated)
    :param target_conn_id: the connection of the target's metastore. (templated)
    :raises ConfigurationError: the group or a policy has an unknown field, or lacks a required field.
    """

    ui_color = "#d8e8f0"

    def perform(self, context: Context) -> GroupDump:
        from airflow_hive_federation.replication.groups.dump import dump_group

        with as_airflow_error():
            source, target, group = self.ends()
            with source.pool(_DUMP_CONNECTIONS) as source_pool, target.pool() as target_pool:
                dumped = dump_group(
                    source_pool, target_pool, group, threads=_DUMP_CONNECTIONS, observer=self.observer
                )
            if dumped.dump:
                self.note_dump(dumped.dump, group.policies[0])
            return dumped


class GroupLoadOperator(_GroupLoadingOperator):
    """Loads the dumps of a group: rows of each transaction appear in all databases at once.

    If the task is killed at any point, its next run ends in the same state. Tables that the cycle changed
    update their assets, as those of a :class:`~.replication.ReplicationLoadOperator` do. Returns ``{"group",
    "event_id", "members", "idle"}``; each of ``members`` is the result of such an operator.

    :param group: a :class:`ReplicationGroup`; or a mapping with ``name`` and ``policies``, whose other fields
        are for all policies. (values templated)
    :param source_conn_id: the connection of the source's metastore. (templated)
    :param target_conn_id: the connection of the target's metastore. (templated)
    :param dump: the result of :class:`GroupDumpOperator`. (templated)
    :param spark_conn_id: the connection of the apache-spark provider. (templated)
    :param spark_conf: Spark properties of the copy jobs. (values templated)
    :param deferrable: leave the worker slot while a job works on a cluster, which needs deploy mode
        ``cluster``; by default if Airflow's ``[operators] default_deferrable`` is set, and the task can.
    :raises ConfigurationError: the group or a policy has an unknown field, or lacks a required field.
    """

    template_fields: Sequence[str] = (*_GroupOperator.template_fields, "dump")
    template_fields_renderers = {**_GroupOperator.template_fields_renderers, "dump": "json"}
    ui_color = "#d8e8f0"

    def __init__(self, *, dump: object, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dump = dump

    def perform(self, context: Context) -> GroupLoadSummary:
        from airflow_hive_federation.replication.groups.dump import GroupDump
        from airflow_hive_federation.replication.groups.load import load_group

        with self.leaving():
            source, target, group = self.ends()
            dumped = GroupDump.from_json(self.dump)
            if dumped.dump:
                self.note_dump(dumped.dump, group.policies[0])
            spark, copied = self.spark(group), CopiedSizes(self.observer)
            with source.pool() as source_pool:
                for member in dumped.members:
                    if not member.idle:
                        spark.wait_for_copy(member.dump, source_pool)
            with source.pool() as source_pool, target.pool() as target_pool:
                summary = load_group(
                    source_pool,
                    target_pool,
                    group,
                    dumped,
                    run_copy=spark.copy_runner,
                    observer=copied,
                )
                self.publish_cycles(context, source_pool, target_pool, group, summary.members)
            self.note(context, source.settings, target.settings, group, summary.members, copied=copied)
            return summary


class GroupVerifyOperator(_GroupOperator):
    """Compares the targets of a group with the dumps from which they were loaded last.

    It compares the files and rows of the tables that the last cycle changed, and those of all tables of a
    database that the cycle bootstrapped. If the cycle changed nothing in a database, it compares the tables
    of the dump that was loaded last until a verification has found them equal; without any such table, Spark
    does not start. The task fails with an error that names every difference of the first database that
    differs. Returns ``{"group", "members"}``; each of ``members`` is the result of a
    :class:`~.replication.VerifyReplicaOperator`.

    :param group: a :class:`ReplicationGroup`; or a mapping with ``name`` and ``policies``, whose other fields
        are for all policies. (values templated)
    :param source_conn_id: the connection of the source's metastore. (templated)
    :param target_conn_id: the connection of the target's metastore. (templated)
    :param spark_conn_id: the connection of the apache-spark provider. (templated)
    :param spark_conf: Spark properties of the job that reads both sides. (values templated)
    :param whole: compare files and rows of all tables, not only of those that the last cycle changed.
    :param deferrable: leave the worker slot while a job works on a cluster, which needs deploy mode
        ``cluster``; by default if Airflow's ``[operators] default_deferrable`` is set, and the task can.
    :raises ConfigurationError: the group or a policy has an unknown field, or lacks a required field.
    """

    ui_color = "#f0e8d8"

    def __init__(self, *, whole: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.whole = flag("whole", whole)

    def perform(self, context: Context) -> GroupVerification:
        from airflow_hive_federation.replication.groups.status import (
            GroupVerification,
            recorded_dump,
            verify_group,
        )

        with self.leaving():
            source, target, group = self.ends()
            spark = self.spark(group)
            with source.pool() as source_pool, target.pool() as target_pool:
                self.note_dump(recorded_dump(target_pool, group), group.policies[0])
                reports = verify_group(
                    source_pool,
                    target_pool,
                    group,
                    run_verify=spark.verify_runner(run_name(context)),
                    whole=self.whole,
                    observer=self.observer,
                )
            self.publish_verifications(context, group, reports, whole=self.whole)
            for report in reports:
                report.raise_if_different()
            return GroupVerification(group=group.name, members=[report.result() for report in reports])


def replicate_group(
    group: ReplicationGroup | Mapping[str, object],
    *,
    source_conn_id: str,
    target_conn_id: str,
    spark_conn_id: str = "spark_default",
    spark_conf: Mapping[str, str] | None = None,
    verify_whole: bool = False,
    group_id: str | None = None,
) -> TaskGroup:
    """Build the task group that keeps the databases of a consistency group in step with their sources.

    Each run is a cycle: ``bootstrap`` copies the databases that are not published yet, ``dump`` writes the
    increments of all at one cut, and ``load`` and ``verify`` follow.

    :param group: a :class:`ReplicationGroup`; or a mapping with ``name`` and ``policies``, whose other fields
        are for all policies. Templates are allowed.
    :param source_conn_id: the connection of the source's metastore; may be a template.
    :param target_conn_id: the connection of the target's metastore; may be a template.
    :param spark_conn_id: the connection of the apache-spark provider; may be a template.
    :param spark_conf: Spark properties of the jobs.
    :param verify_whole: compare files and rows of all tables in each cycle, not only of those that changed.
    :param group_id: the id of the task group; ``replicate_<name of the group>`` by default.
    :raises ConfigurationError: the group or a policy has an unknown field, or lacks a required field.
    """
    fields = group_fields(group)
    arguments: dict[str, Any] = {
        "group": fields,
        "source_conn_id": source_conn_id,
        "target_conn_id": target_conn_id,
        "spark_conn_id": spark_conn_id,
        "spark_conf": spark_conf,
    }
    with TaskGroup(
        group_id_of(fields["name"], group_id),
        tooltip=f"Replicates consistency group {fields['name']}",
    ) as tasks:
        bootstrap = GroupBootstrapOperator(task_id="bootstrap", **arguments)
        dump = GroupDumpOperator(task_id="dump", **arguments)
        load = GroupLoadOperator(task_id="load", dump=dump.output, **arguments)
        verify = GroupVerifyOperator(task_id="verify", whole=flag("verify_whole", verify_whole), **arguments)
        bootstrap >> dump >> load >> verify
    return tasks
