"""Replication of several Hive databases in one DAG: a mapped task group, one instance a policy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, task_group

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.hooks.failing import as_airflow_error, error_text
from airflow_hive_federation.hooks.policy_fields import NAMES, policy_fields, rendered_policy
from airflow_hive_federation.operators.replication import cycle_tasks

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.definitions._internal.node import DAGNode

#: What an instance of a mapped task group is called in the UI: after its policy.
_CALLED = "{{ task.policy['name'] if task.policy is defined else task.database }}"
#: Beside the fields of a policy: why its tasks are to fail, or ``None``.
_PROBLEM = "problem"


class ReplicationPoliciesOperator(BaseOperator):
    """Reads policies and returns the fields of each, all of them: what :func:`replicate_databases` maps.

    A policy that cannot be carried out does not fail this task, which the other policies need: its own first
    task fails, with the error. Such a policy has a field that is not known or missing, or a value that cannot
    be, or shares its name or its target database with another one, which fails too.

    :param policies: a list of policies, each by its fields or, where ``defaults`` say the rest, by the name
        of the database; or the same as JSON, as a Variable has it; or the path of a ``.toml`` file with
        ``[[policies]]``, or of a ``.json`` file. (templated)
    :param defaults: fields of all policies that do not have them. A policy without a ``name`` is called after
        its target database, or its source database. (templated)
    :raises ConfigurationError: the list of policies cannot be read.
    """

    template_fields: Sequence[str] = ("policies", "defaults")
    template_fields_renderers = {"policies": "json", "defaults": "json"}
    ui_color = "#e8e8e8"

    def __init__(self, *, policies: Any, defaults: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.policies = policies
        self.defaults = dict(defaults or {})

    def execute(self, context: Context) -> list[dict[str, Any]]:
        with as_airflow_error():
            found = mapped_policies(read_policies(self.policies), self.defaults)
        self.log.info("%d policies: %s", len(found), ", ".join(one["name"] for one in found))
        for one in found:
            if one[_PROBLEM]:
                self.log.error("Policy %s is not carried out. %s", one["name"], one[_PROBLEM])
        return found


def replicate_databases(
    policies: Any,
    *,
    source_conn_id: str,
    target_conn_id: str,
    spark_conn_id: str = "spark_default",
    spark_conf: Mapping[str, str] | None = None,
    deferrable: bool = True,
    verify_whole: bool = False,
    group_id: str = "replicate",
) -> DAGNode:
    """Build the mapped task group that keeps several databases in step: one instance a policy.

    Each instance is what :func:`~.replication.replicate_database` builds. One that fails holds up no other:
    a task of an instance waits for tasks of the same instance only.

    :param policies: output of a :class:`ReplicationPoliciesOperator`.

    The other parameters are those of :func:`~.replication.replicate_database`.
    """

    def replicate(*, problem: Any, **fields: Any) -> None:
        cycle_tasks(
            fields,
            problem=problem,
            source_conn_id=source_conn_id,
            target_conn_id=target_conn_id,
            spark={"spark_conn_id": spark_conn_id, "spark_conf": spark_conf},
            deferrable=deferrable,
            verify_whole=verify_whole,
            called=_CALLED,
        )

    # Airflow makes the arguments of a mapped group from the function's signature: the fields of a policy.
    arguments = [Parameter(name, Parameter.KEYWORD_ONLY) for name in sorted({*NAMES, _PROBLEM})]
    replicate.__signature__ = Signature(arguments)  # type: ignore[attr-defined]
    group = task_group(group_id=group_id, tooltip="Replicates Hive databases")(replicate)
    made: DAGNode = group.expand_kwargs(policies)
    return made


def read_policies(given: Any) -> list[Any]:
    """The policies in what an operator was given; see :class:`ReplicationPoliciesOperator`.

    :raises ConfigurationError: it cannot be read as such.
    """
    try:
        found = _loaded(given.strip()) if isinstance(given, str) else given
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"The replication policies cannot be read: {error}.",
            remedy="Give a JSON list, or the path of a .toml or .json file.",
        ) from error
    if isinstance(found, Mapping):
        found = found.get("policies")
    if not isinstance(found, Sequence) or isinstance(found, str):
        raise ConfigurationError(
            f"{given!r} is no list of replication policies.",
            remedy="Give a list of policies, or of names of databases.",
        )
    return list(found)


def mapped_policies(given: Sequence[Any], defaults: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All fields of each policy, and the ``problem`` of one that cannot be carried out."""
    found = [_judged_policy(one, defaults) for one in given]
    carried_out = [one for one in found if not one[_PROBLEM]]
    for field in ("name", "target_database"):
        values = [str(one[field] or one["source_database"]).lower() for one in carried_out]
        for one, value in zip(carried_out, values, strict=True):
            if values.count(value) > 1:
                error = ConfigurationError(
                    f"Several replication policies have the {field} {value}.", remedy="Give each its own."
                )
                one[_PROBLEM] = error_text(error)
    return found


def _judged_policy(given: Any, defaults: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {**complete_policy(given, defaults), _PROBLEM: None}
    except ConfigurationError as error:
        fields = given if isinstance(given, Mapping) else {"source_database": str(given)}
        known = {name: fields.get(name) for name in ("name", "target_database", "source_database")}
        # Airflow's UI calls the instance by it.
        known["name"] = next((str(value) for value in known.values() if value), "(without a name)")
        return {**dict.fromkeys(sorted(NAMES)), **known, _PROBLEM: error_text(error)}


def complete_policy(given: Any, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """All fields of a policy; ``None`` where a field's default applies.

    :raises ConfigurationError: a field is not known or missing, or a value cannot be.
    """
    if not isinstance(given, str | Mapping):
        raise ConfigurationError(
            f"{given!r} is no replication policy.", remedy="Give its fields, or the name of a database."
        )
    fields = {"source_database": given} if isinstance(given, str) else dict(given)
    fields = {**defaults, **fields}
    fields.setdefault("name", fields.get("target_database") or fields.get("source_database"))
    rendered_policy(policy_fields(fields), {})
    return {name: fields.get(name) for name in sorted(NAMES)}


def _loaded(text: str) -> Any:
    import tomllib
    from pathlib import Path

    if text.endswith(".toml"):
        return tomllib.loads(Path(text).read_text(encoding="utf-8"))
    return json.loads(Path(text).read_text(encoding="utf-8") if text.endswith(".json") else text)
