"""Replication of several Hive databases in one DAG: a mapped task group, one instance a policy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator, task_group

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.hooks.failing import as_airflow_error
from airflow_hive_federation.hooks.policy_fields import NAMES, policy_fields, rendered_policy
from airflow_hive_federation.operators.replication import cycle_tasks

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.definitions._internal.node import DAGNode

#: What an instance of a mapped task group is called in the UI: after its policy.
_CALLED = "{{ task.policy['name'] if task.policy is defined else task.database }}"


class ReplicationPoliciesOperator(BaseOperator):
    """Reads policies and returns the fields of each, all of them: what :func:`replicate_databases` maps.

    :param policies: a list of policies, each by its fields or, where ``defaults`` say the rest, by the name
        of the database; or the same as JSON, as a Variable has it; or the path of a ``.toml`` file with
        ``[[policies]]``, or of a ``.json`` file. (templated)
    :param defaults: fields of all policies that do not have them. A policy without a ``name`` is called after
        its target database, or its source database. (templated)
    :raises ConfigurationError: the policies cannot be read, a field is not known or missing, or two policies
        have one name or one target database.
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
            found = [complete_policy(one, self.defaults) for one in read_policies(self.policies)]
            refuse_collisions(found)
        self.log.info("%d policies: %s", len(found), ", ".join(one["name"] for one in found))
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

    Each instance is what :func:`~.replication.replicate_database` builds; one that fails holds up no other.

    :param policies: output of a :class:`ReplicationPoliciesOperator`.

    The other parameters are those of :func:`~.replication.replicate_database`.
    """

    def replicate(**fields: Any) -> None:
        cycle_tasks(
            fields,
            source_conn_id=source_conn_id,
            target_conn_id=target_conn_id,
            spark={"spark_conn_id": spark_conn_id, "spark_conf": spark_conf},
            deferrable=deferrable,
            verify_whole=verify_whole,
            called=_CALLED,
        )

    # Airflow makes the arguments of a mapped group from the function's signature: the fields of a policy.
    arguments = [Parameter(name, Parameter.KEYWORD_ONLY) for name in sorted(NAMES)]
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


def complete_policy(given: Any, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """All fields of a policy; ``None`` where a field's default applies.

    :raises ConfigurationError: a field is not known or missing, or a value cannot be.
    """
    fields = {"source_database": given} if isinstance(given, str) else dict(given)
    fields = {**defaults, **fields}
    fields.setdefault("name", fields.get("target_database") or fields.get("source_database"))
    rendered_policy(policy_fields(fields), {})
    return {name: fields.get(name) for name in sorted(NAMES)}


def refuse_collisions(policies: Sequence[Mapping[str, Any]]) -> None:
    """Refuse policies that would get in each other's way.

    :raises ConfigurationError: two have one name, or one target database.
    """
    for field in ("name", "target_database"):
        found = [str(one[field] or one["source_database"]).lower() for one in policies]
        twice = sorted({one for one in found if found.count(one) > 1})
        if twice:
            raise ConfigurationError(
                f"Several replication policies have the {field} {', '.join(twice)}.",
                remedy="Give each its own.",
            )


def _loaded(text: str) -> Any:
    import tomllib
    from pathlib import Path

    if text.endswith(".toml"):
        return tomllib.loads(Path(text).read_text(encoding="utf-8"))
    return json.loads(Path(text).read_text(encoding="utf-8") if text.endswith(".json") else text)
