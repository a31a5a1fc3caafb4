"""Replicates several Hive databases in one DAG: a mapped task group has one instance per policy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, task_group

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.hooks.error_translation import as_airflow_error, error_text
from airflow_hive_federation.hooks.policy_fields import NAMES, policy_fields, rendered_fields, rendered_policy
from airflow_hive_federation.operators.replication import cycle_tasks
from airflow_hive_federation.runtime.arguments import mapping

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.definitions._internal.node import DAGNode

#: The name of an instance of the mapped task group in the UI: that of its policy.
_CALLED = "{{ task.policy['name'] if task.policy is defined else task.database }}"
#: Key, beside the fields of a policy, of the error with which its tasks are to fail, or ``None``.
_PROBLEM = "problem"


class ReplicationPoliciesOperator(BaseOperator):
    """Reads policies and returns all fields of each, over which :func:`replicate_databases` maps.

    An invalid policy does not fail this task, which the other policies need: the policy's own first task
    fails, with the error. A policy is invalid if it has an unknown field, a missing field or an impossible
    value, or if it shares its name or its target database with another policy, which fails too.

    :param policies: a list of policies, each a mapping of its fields or, if ``defaults`` hold the other
        fields, the name of the database; or the same as JSON, for instance from an Airflow Variable; or the
        path of a ``.toml`` file with ``[[policies]]``, or of a ``.json`` file. (templated)
    :param defaults: fields for all policies that lack them. A policy without a ``name`` takes the name of its
        target database, or of its source database. (values templated)
    :raises ConfigurationError: the list of policies cannot be read.
    """

    template_fields: Sequence[str] = ("policies", "defaults")
    template_fields_renderers = {"policies": "json", "defaults": "json"}
    ui_color = "#e8e8e8"

    def __init__(
        self, *, policies: object, defaults: Mapping[str, object] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.policies = policies
        self.defaults = {} if defaults is None else mapping("defaults", defaults)

    def execute(self, context: Context) -> list[dict[str, Any]]:
        with as_airflow_error():
            policies = mapped_policies(read_policies(self.policies), self.defaults)
        self.log.info("%d policies: %s", len(policies), ", ".join(policy["name"] for policy in policies))
        for policy in policies:
            if policy[_PROBLEM]:
                self.log.error("Policy %s is not carried out. %s", policy["name"], policy[_PROBLEM])
        return policies


def replicate_databases(
    policies: Any,
    *,
    source_conn_id: str,
    target_conn_id: str,
    spark_conn_id: str = "spark_default",
    spark_conf: Mapping[str, str] | None = None,
    deferrable: bool = True,
    verify_whole: bool = False,
    verify_every: int = 1,
    group_id: str = "replicate",
) -> DAGNode:
    """Build the mapped task group that keeps several databases in step, with one instance per policy.

    Each instance has the tasks of :func:`~.replication.replicate_database`. A failed instance does not hold
    up the others: a task waits for tasks of its own instance only.

    :param policies: the output of a :class:`ReplicationPoliciesOperator`.

    The other parameters are those of :func:`~.replication.replicate_database`.
    """

    def replicate(*, problem: object, **fields: object) -> None:
        cycle_tasks(
            fields,
            problem=problem,
            source_conn_id=source_conn_id,
            target_conn_id=target_conn_id,
            spark={"spark_conn_id": spark_conn_id, "spark_conf": spark_conf},
            deferrable=deferrable,
            verify_whole=verify_whole,
            verify_every=verify_every,
            called=_CALLED,
        )

    # Airflow derives the arguments of a mapped group from the function's signature: the fields of a policy.
    arguments = [Parameter(name, Parameter.KEYWORD_ONLY) for name in sorted({*NAMES, _PROBLEM})]
    replicate.__signature__ = Signature(arguments)  # type: ignore[attr-defined]
    group = task_group(group_id=group_id, tooltip="Replicates Hive databases")(replicate)
    made: DAGNode = group.expand_kwargs(policies)
    return made


def read_policies(given: object) -> list[Any]:
    """Return the policies in an operator's argument; see :class:`ReplicationPoliciesOperator`.

    :raises ConfigurationError: the argument holds no list of policies.
    """
    try:
        policies = _loaded(given.strip()) if isinstance(given, str) else given
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"The replication policies cannot be read: {error}.",
            remedy="Give a JSON list, or the path of a .toml or .json file.",
        ) from error
    if isinstance(policies, Mapping):
        policies = policies.get("policies")
    if not isinstance(policies, Sequence) or isinstance(policies, str):
        raise ConfigurationError(
            f"{given!r} is no list of replication policies.",
            remedy="Give a list of policies, or of names of databases.",
        )
    return list(policies)


def mapped_policies(given: Sequence[object], defaults: Mapping[str, object]) -> list[dict[str, Any]]:
    """Return all fields of each policy, and the ``problem`` of each invalid policy."""
    policies = [_judged_policy(policy, defaults) for policy in given]
    valid = [policy for policy in policies if not policy[_PROBLEM]]
    for field in ("name", "target_database"):
        values = [str(policy[field] or policy["source_database"]).lower() for policy in valid]
        for policy, value in zip(valid, values, strict=True):
            if values.count(value) > 1:
                error = ConfigurationError(
                    f"Several replication policies have the {field} {value}.", remedy="Give each its own."
                )
                policy[_PROBLEM] = error_text(error)
    return policies


def _judged_policy(given: object, defaults: Mapping[str, object]) -> dict[str, object]:
    try:
        return {**complete_policy(given, defaults), _PROBLEM: None}
    except ConfigurationError as error:
        fields = given if isinstance(given, Mapping) else {"source_database": str(given)}
        names = {name: _text(fields.get(name)) for name in ("name", "target_database", "source_database")}
        # Airflow's UI shows this name for the instance.
        names["name"] = next((value for value in names.values() if value), "(without a name)")
        return {**dict.fromkeys(sorted(NAMES)), **names, _PROBLEM: error_text(error)}


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def complete_policy(given: object, defaults: Mapping[str, object]) -> dict[str, object]:
    """Return all fields of a policy; ``None`` means that a field's default applies.

    :raises ConfigurationError: a field is unknown or missing, or a value is impossible.
    """
    if not isinstance(given, str | Mapping):
        raise ConfigurationError(
            f"{given!r} is no replication policy.", remedy="Give its fields, or the name of a database."
        )
    fields = {"source_database": given} if isinstance(given, str) else dict(given)
    fields = {**defaults, **fields}
    fields.setdefault("name", fields.get("target_database") or fields.get("source_database"))
    rendered = rendered_fields(policy_fields(fields))
    rendered_policy(rendered, {})
    return {name: rendered.get(name) for name in sorted(NAMES)}


def _loaded(text: str) -> object:
    import tomllib
    from pathlib import Path

    if text.endswith(".toml"):
        return tomllib.loads(Path(text).read_text(encoding="utf-8"))
    return json.loads(Path(text).read_text(encoding="utf-8") if text.endswith(".json") else text)
