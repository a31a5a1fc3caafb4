"""Replicates a Hive database in Airflow tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import TaskGroup, TriggerRule

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.hooks.compat import AirflowSkipException
from airflow_hive_federation.hooks.error_translation import as_airflow_error
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.hooks.policy_fields import group_id_of, policy_fields, rendered_policy
from airflow_hive_federation.operators.lineage import (
    REPLICATED,
    CopiedSizes,
    LineageOperator,
    note_load,
    note_repair,
    verified,
)
from airflow_hive_federation.operators.policy_state import PolicyOperator
from airflow_hive_federation.operators.replication_base import ReplicationOperator, SparkReplicationOperator
from airflow_hive_federation.operators.replication_branch import ReplicationBranchOperator
from airflow_hive_federation.operators.replication_dumps import (
    dump_uri,
    idle_event,
    is_idle,
    latest_dump,
    tables_of,
)
from airflow_hive_federation.operators.spark_tasks import run_name
from airflow_hive_federation.replication.policy import KEPT_DUMPS, ReplicationPolicy
from airflow_hive_federation.runtime.arguments import flag
from airflow_hive_federation.runtime.arguments import whole as whole_number
from airflow_hive_federation.sensors.transactions import OpenTransactionsDrainSensor

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_hive_federation.replication.dump.bootstrap import DumpSummary
    from airflow_hive_federation.replication.dump.increment_summary import IncrementSummary
    from airflow_hive_federation.replication.load.summary import LoadSummary
    from airflow_hive_federation.replication.repair import RepairProgress, RepairResult
    from airflow_hive_federation.replication.verify.report import VerificationResult

#: The number of tables dumped side by side, over a connection each.
_DUMP_CONNECTIONS = 8
_DECIDE = "decide"


class BootstrapDumpOperator(PolicyOperator):
    """Writes the bootstrap dump of a database: metadata, snapshot and file lists, but no data.

    Returns ``{"dump", "event_id", "tables", "partitions", "files", "size_bytes", "lease", "skipped"}``, which
    :class:`ReplicationLoadOperator` takes; ``skipped`` holds the tables that are not replicated, with the
    reasons.

    :param policy: a :class:`ReplicationPolicy`, or a mapping of its fields. (values templated)
    :param source_conn_id: the connection of the source's metastore. (templated)
    :param start: the result of :class:`OpenTransactionsDrainSensor`; without it, this operator waits for open
        transactions itself. (templated)
    :raises ConfigurationError: the policy has an unknown field, or lacks a required field.
    """

    template_fields: Sequence[str] = ("policy", "source_conn_id", "start")
    template_fields_renderers = {"policy": "json", "start": "json"}
    ui_color = "#d8e8f0"

    def __init__(
        self,
        *,
        policy: ReplicationPolicy | Mapping[str, object],
        source_conn_id: str,
        start: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.policy = policy_fields(policy)
        self.source_conn_id = source_conn_id
        self.start = start

    def perform(self, context: Context) -> DumpSummary:
        from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
        from airflow_hive_federation.replication.dump.drain import DrainStart, begin_drain, drain

        hook = HiveMetastoreHook(self.source_conn_id)
        with as_airflow_error(), hook.pool(_DUMP_CONNECTIONS) as pool:
            policy = rendered_policy(self.policy, hook.storage_options)
            if self.start:
                start = DrainStart.from_json(self.start)
            else:
                with pool.client() as client:
                    start = begin_drain(client, policy.source_database)
                    observer = self.wait_observer(context)
                    drain(client, start, timeout_s=policy.open_txn_timeout_s, observer=observer)
            summary = dump_bootstrap(pool, policy, start, threads=_DUMP_CONNECTIONS, observer=self.observer)
            self.note_dump(summary.dump, policy)
            return summary


class IncrementalDumpOperator(ReplicationOperator):
    """Dumps the changes of the source since the last event that the target has applied.

    Returns ``{"dump", "from_id", "event_id", "events", "tables", "files", "size_bytes", "transactions",
    "lease", "lost", "idle", "skipped", "retained", "dropped", "unreadable"}``, which
    :class:`ReplicationLoadOperator` takes. If nothing has changed (``idle``), no dump is written.

    :param policy: a :class:`ReplicationPolicy`, or a mapping of its fields. (values templated)
    :param source_conn_id: the connection of the source's metastore. (templated)
    :param target_conn_id: the connection of the target's metastore, which holds the event at which the
        increment begins. (templated)
    :raises ConfigurationError: the policy has an unknown field, or lacks a required field.
    """

    ui_color = "#d8e8f0"

    def perform(self, context: Context) -> IncrementSummary:
        from airflow_hive_federation.replication.cycle import dump_next_increment

        with as_airflow_error():
            source, target, policy = self.ends()
            with source.pool(_DUMP_CONNECTIONS) as source_pool, target.pool(1) as target_pool:
                summary = dump_next_increment(
                    source_pool, target_pool, policy, threads=_DUMP_CONNECTIONS, observer=self.observer
                )
            if not summary.idle:
                self.note_dump(summary.dump, policy)
            return summary


class _DumpUsingOperator(SparkReplicationOperator):
    """Base of the operators that use a dump.

    :param dump: the result of an operator of this module, the URI of a dump, or a list of these, of which the
        latest is used. (templated)
    """

    template_fields: Sequence[str] = (*SparkReplicationOperator.template_fields, "dump")
    template_fields_renderers = {**SparkReplicationOperator.template_fields_renderers, "dump": "json"}

    def __init__(self, *, dump: object, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dump = dump


class ReplicationLoadOperator(LineageOperator, _DumpUsingOperator):
    """Loads a bootstrap or incremental dump: Spark copies its files, and the target receives the changes.

    If the task is killed at any point, its next run copies only the missing files and ends in the same state.
    If the worker is killed and the copy job works on, the next run waits for it in place of starting another.
    Spark starts only if files are to be copied; on a local master, the task copies small plans itself. Tables
    that the cycle changed update their assets, ``hive://host:port/database/table`` of the target, with
    ``event_id``, ``policy`` and ``source`` in the event's extra. Returns ``{"dump", "database", "event_id",
    "tables", "partitions", "functions", "idle", "skipped"}``; ``skipped`` is also a run facet of OpenLineage.
    The task is skipped if ``dump`` is a list of tasks that were all skipped.

    :param policy: a :class:`ReplicationPolicy`, or a mapping of its fields. (values templated)
    :param source_conn_id: the connection of the source's metastore. (templated)
    :param target_conn_id: the connection of the target's metastore. (templated)
    :param dump: the result of :class:`BootstrapDumpOperator` or :class:`IncrementalDumpOperator`, the URI of
        a dump, or a list of these, of which the latest is used. (templated)
    :param spark_conn_id: the connection of the apache-spark provider. (templated)
    :param spark_conf: Spark properties of the copy job. (values templated)
    :param deferrable: leave the worker slot while a job works on a cluster, which needs deploy mode
        ``cluster``; by default if Airflow's ``[operators] default_deferrable`` is set, and the task can.
    :raises ConfigurationError: the policy has an unknown field, or lacks a required field.
    """

    ui_color = "#d8e8f0"

    def __init__(self, *, outlets: Sequence[object] | None = None, **kwargs: object) -> None:
        super().__init__(outlets=[*(outlets or ()), REPLICATED], **kwargs)

    def perform(self, context: Context) -> LoadSummary:
        from airflow_hive_federation.replication.cycle import load_dump, load_idle

        with self.leaving():
            source, target, policy = self.ends()
            spark = self.spark(policy)
            dump, copied = latest_dump(self.dump), CopiedSizes(self.observer)
            if dump is None and self.dump is not None:
                raise AirflowSkipException("No task before this one has written a dump: nothing is loaded.")
            if not is_idle(dump):
                self.note_dump(dump_uri(dump), policy)
                with source.pool() as source_pool:
                    spark.wait_for_copy(dump_uri(dump), source_pool)
            with source.pool() as source_pool, target.pool() as target_pool:
                if is_idle(dump):
                    event_id = idle_event(dump)
                    summary = load_idle(target_pool, policy, event_id, observer=self.observer)
                    self.publish_cycle(context, source_pool, target_pool, policy, skipped=None)
                    return summary
                summary = load_dump(
                    source_pool,
                    target_pool,
                    policy,
                    dump_uri(dump),
                    run_copy=spark.copy_runner(policy),
                    observer=copied,
                )
                self.publish_cycle(context, source_pool, target_pool, policy, skipped=summary.skipped)
            ends = source.settings, target.settings
            self.lineage = note_load(context, *ends, policy, summary, copied=copied)
            return summary


class VerifyReplicaOperator(LineageOperator, _DumpUsingOperator):
    """Compares a loaded dump with the target: definitions, file digests, write ids and row counts.

    After an increment, it compares the files and rows of the changed tables only; if no table changed, Spark
    does not start. The task fails with an error that names every difference. Returns ``{"database",
    "event_id", "tables", "not_compared", "differences", "failures", "unread", "differing"}``; each of
    ``tables`` is a mapping with ``name``, ``source_rows``, ``target_rows``, ``digest_equal`` and more.

    :param policy: a :class:`ReplicationPolicy`, or a mapping of its fields. (values templated)
    :param source_conn_id: the connection of the source's metastore. (templated)
    :param target_conn_id: the connection of the target's metastore. (templated)
    :param dump: the result of an operator of this module, the URI of a dump, or a list of these, of which the
        latest is used. (templated)
    :param spark_conn_id: the connection of the apache-spark provider. (templated)
    :param spark_conf: Spark properties of the job that reads both sides. (values templated)
    :param whole: compare files and rows of all tables, not only of those that have changed since a
        verification last found them equal.
    :param every: the number of cycles per verification, from 1 to 10. The task is skipped after the others;
        the next one compares the tables that they have changed. It is not skipped after a bootstrap, after a
        cycle that found nothing to do, and while source and target differ.
    :param row_digests: compare digests of all rows, not only their number; this reads all columns.
    :param fail: fail if source and target differ; otherwise return the differences, for
        :class:`RepairReplicaOperator`.
    :param deferrable: leave the worker slot while a job works on a cluster, which needs deploy mode
        ``cluster``; by default if Airflow's ``[operators] default_deferrable`` is set, and the task can.
    :raises ConfigurationError: the policy has an unknown field, or lacks a required field.
    """

    ui_color = "#f0e8d8"

    def __init__(
        self,
        *,
        whole: bool = False,
        every: int = 1,
        row_digests: bool = False,
        fail: bool = True,
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)
        if not 1 <= whole_number("every", every) <= KEPT_DUMPS:
            raise ConfigurationError(
                f"One verification in {every} cycles is impossible, because the dumps of {KEPT_DUMPS} cycles "
                "are kept, which name the changes to compare.",
                remedy=f"Give a number of cycles from 1 to {KEPT_DUMPS}.",
            )
        self.whole = flag("whole", whole)
        self.every = every
        self.row_digests = flag("row_digests", row_digests)
        self.fail = flag("fail", fail)

    def perform(self, context: Context) -> VerificationResult:
        from airflow_hive_federation.replication.verify.unverified import is_due, tables_to_compare
        from airflow_hive_federation.replication.verify.verify import verify_replica

        with self.leaving():
            source, target, policy = self.ends()
            spark = self.spark(policy)
            dump = latest_dump(self.dump)
            uri, tables = dump_uri(dump), None
            self.note_dump(uri, policy)
            skips = self.every > 1 and not is_idle(dump)
            if skips and not is_due(uri, policy.storage_options, every=self.every):
                raise AirflowSkipException(
                    f"One cycle of {self.every} is verified: its verification compares this one, too."
                )
            if not self.whole:
                tables = tables_to_compare(uri, policy.storage_options, idle=is_idle(dump))
            with source.pool() as source_pool, target.pool() as target_pool:
                report = verify_replica(
                    target_pool,
                    policy,
                    uri,
                    run_verify=spark.verify_runner(run_name(context)),
                    source=source_pool,
                    tables=tables,
                    row_digests=self.row_digests,
                    observer=self.observer,
                )
            self.publish_verification(context, policy, report, whole=tables is None)
            self.lineage = verified(source.settings, target.settings, policy, report)
            if self.fail:
                report.raise_if_different()
            for difference in (*report.differences, *report.failures):
                self.log.warning("%s", difference)
            return report.result()


class RepairReplicaOperator(LineageOperator, SparkReplicationOperator):
    """Repairs the differences between a target and its source, verifies again, and fails if any remain.

    A repair is a cycle: it also brings the new changes of the source, and updates the assets of the tables
    that it has changed, as :class:`ReplicationLoadOperator` does. If nothing differs, it does nothing.
    Airflow updates no asset for a task that fails: the next try or run of the repair updates those, unless
    another cycle has loaded changes in between. Returns ``{"database", "event_id", "tables", "not_compared",
    "differences", "failures", "unread", "differing", "repaired", "repaired_tables", "replaced_tables"}``: the
    result of the last verification, and the differences and tables that were repaired.

    :param policy: a :class:`ReplicationPolicy`, or a mapping of its fields. (values templated)
    :param source_conn_id: the connection of the source's metastore. (templated)
    :param target_conn_id: the connection of the target's metastore. (templated)
    :param report: the result of :class:`VerifyReplicaOperator` (with ``fail=False``): only the tables that it
        names are read and repaired. Without a report, all tables are verified. (templated)
    :param spark_conn_id: the connection of the apache-spark provider. (templated)
    :param spark_conf: Spark properties of the jobs. (values templated)
    :param deferrable: leave the worker slot while a job works on a cluster, which needs deploy mode
        ``cluster``; by default if Airflow's ``[operators] default_deferrable`` is set, and the task can.
    :raises ConfigurationError: the policy has an unknown field, or lacks a required field.
    """

    template_fields: Sequence[str] = (*SparkReplicationOperator.template_fields, "report")
    template_fields_renderers = {**SparkReplicationOperator.template_fields_renderers, "report": "json"}
    ui_color = "#f0d8d8"

    def __init__(self, *, report: Any = None, outlets: Sequence[object] | None = None, **kwargs: Any) -> None:
        super().__init__(outlets=[*(outlets or ()), REPLICATED], **kwargs)
        self.report = report

    def perform(self, context: Context) -> RepairResult:
        from airflow_hive_federation.replication.repair import RepairResult, repair_replica

        with self.leaving():
            source, target, policy = self.ends()
            spark, copied = self.spark(policy), CopiedSizes(self.observer)
            tables = tables_of(self.report) if self.report else None
            if tables is not None and not tables:
                self.log.info("The report names no difference: nothing is done.")
                return RepairResult.of_report(self.report)
            with source.pool(_DUMP_CONNECTIONS) as source_pool, target.pool() as target_pool:
                repaired = repair_replica(
                    source_pool,
                    target_pool,
                    policy,
                    run_copy=spark.copy_runner(policy),
                    run_verify=spark.verify_runner(run_name(context)),
                    tables=tables,
                    begun=self._begun(),
                    retried=getattr(context.get("ti"), "try_number", 1) > 1,
                    observer=copied,
                )
                self.publish_cycle(context, source_pool, target_pool, policy, skipped=None)
            self.publish_verification(context, policy, repaired.report, whole=tables is None)
            ends = source.settings, target.settings
            self.lineage = note_repair(context, *ends, policy, repaired, copied=copied)
            repaired.report.raise_if_different()
            return repaired.result()

    def _begun(self) -> RepairProgress | None:
        from airflow_hive_federation.replication.repair import RepairProgress

        try:
            return RepairProgress.from_json(self._progress) if self._progress else None
        except ValueError as error:
            self.log.warning("The repair begins anew, because another version began it: %s", error)
            return None


def replicate_database(
    policy: ReplicationPolicy | Mapping[str, object],
    *,
    source_conn_id: str,
    target_conn_id: str,
    spark_conn_id: str = "spark_default",
    spark_conf: Mapping[str, str] | None = None,
    deferrable: bool = True,
    verify_whole: bool = False,
    verify_every: int = 1,
    group_id: str | None = None,
) -> TaskGroup:
    """Build the task group that keeps one database in step with its source.

    Each run is a cycle. ``decide`` looks at the target: until the target is published, ``drain`` and ``dump``
    begin a bootstrap; afterwards ``increment`` dumps the changes since the last cycle. Then ``load`` and
    ``verify`` run.

    :param policy: a :class:`ReplicationPolicy`, or its fields as a mapping, where templates are allowed.
    :param source_conn_id: the connection of the source's metastore; may be a template.
    :param target_conn_id: the connection of the target's metastore; may be a template.
    :param spark_conn_id: the connection of the apache-spark provider; may be a template.
    :param spark_conf: Spark properties of the jobs.
    :param deferrable: wait for open transactions in the triggerer instead of a worker slot.
    :param verify_whole: compare files and rows of all tables in every run, not only of the changed tables.
    :param verify_every: the number of cycles per verification, from 1 to 10, which compares what all of them
        have changed; a verification takes longer than a small cycle, and holds up the next run.
    :param group_id: the id of the group; ``replicate_<policy name>`` by default.
    :raises ConfigurationError: the policy has an unknown field or lacks a required one, or its name cannot
        name a task group (a template, for instance) and no ``group_id`` is given.
    """
    fields = policy_fields(policy)
    with TaskGroup(
        group_id_of(fields["name"], group_id),
        tooltip=f"Replicates Hive database {fields['source_database']}",
    ) as group:
        cycle_tasks(
            fields,
            source_conn_id=source_conn_id,
            target_conn_id=target_conn_id,
            spark={"spark_conn_id": spark_conn_id, "spark_conf": spark_conf},
            deferrable=deferrable,
            verify_whole=verify_whole,
            verify_every=verify_every,
        )
    return group


def _skip_unless_chosen(context: Context) -> None:
    """Skip the first task of the branch that ``decide`` has not chosen.

    Airflow does not skip it in a mapped task group (https://github.com/apache/airflow/issues/67265).
    """
    ti: Any = context["ti"]
    decide = f"{ti.task_id.rpartition('.')[0]}.{_DECIDE}"
    chosen = ti.xcom_pull(task_ids=decide, map_indexes=ti.map_index)
    if chosen not in {None, ti.task_id}:
        raise AirflowSkipException(f"{decide} has chosen {chosen}.")


def cycle_tasks(
    fields: Mapping[str, Any],
    *,
    source_conn_id: str,
    target_conn_id: str,
    spark: Mapping[str, Any],
    deferrable: bool,
    verify_whole: bool,
    verify_every: int = 1,
    called: str | None = None,
    problem: Any = None,
) -> None:
    """Create the tasks of a cycle in the current task group.

    :param fields: the fields of the policy; values may be templates, or arguments of a mapped task group.
    :param spark: the arguments of the tasks that use Spark.
    :param called: in a mapped task group, the template of an instance's name in the UI.
    :param problem: see :class:`ReplicationBranchOperator`.
    """
    task: dict[str, Any] = {} if called is None else {"map_index_template": called}
    first = task if called is None else {**task, "pre_execute": _skip_unless_chosen}
    ends: dict[str, Any] = {
        "policy": fields,
        "source_conn_id": source_conn_id,
        "target_conn_id": target_conn_id,
        **task,
    }
    drain = OpenTransactionsDrainSensor(
        task_id="drain",
        source_conn_id=source_conn_id,
        database=fields["source_database"],
        policy=fields,
        timeout=fields.get("open_txn_timeout_s", "1h"),
        deferrable=deferrable,
        **first,
    )
    dump = BootstrapDumpOperator(
        task_id="dump", policy=fields, source_conn_id=source_conn_id, start=drain.output, **task
    )
    increment = IncrementalDumpOperator(task_id="increment", **{**ends, **first})
    load = ReplicationLoadOperator(
        task_id="load",
        dump=[dump.output, increment.output],
        # One of the two tasks before this one is skipped. By a trigger rule that asks for one success,
        # Airflow judges a mapped task without instances by all instances before it: one failed instance would
        # stop the loads of the others. (https://github.com/apache/airflow/issues/39801)
        trigger_rule=TriggerRule.NONE_FAILED,
        **ends,
        **spark,
    )
    verify = VerifyReplicaOperator(
        task_id="verify",
        dump=load.output,
        whole=flag("verify_whole", verify_whole),
        every=whole_number("verify_every", verify_every),
        **ends,
        **spark,
    )
    decide = ReplicationBranchOperator(
        task_id=_DECIDE,
        policy=fields,
        target_conn_id=target_conn_id,
        bootstrap_task_id=drain.task_id,
        increment_task_id=increment.task_id,
        problem=problem,
        **task,
    )
    decide >> drain >> dump >> load >> verify
    decide >> increment >> load
