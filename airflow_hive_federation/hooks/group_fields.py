"""Checks the fields of a consistency group in an operator, and reads them back from rendered templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.hooks.policy_fields import policy_fields, rendered_policy
from airflow_hive_federation.replication.group_policy import ReplicationGroup, members_of
from airflow_hive_federation.runtime.arguments import mapping

if TYPE_CHECKING:
    from airflow_hive_federation.storage.options import StorageOptions


def group_fields(group: ReplicationGroup | Mapping[str, object]) -> dict[str, object]:
    """Return the name of a group and the fields of its policies, after a check of their names.

    :param group: a group; or a mapping with ``name`` and ``policies``, whose other fields are for all
        policies. Values may be templates.
    :raises ConfigurationError: a field is unknown, is missing, or may not stand in a DAG.
    """
    if isinstance(group, ReplicationGroup):
        fields = [policy_fields(policy) for policy in group.policies]
        for policy in fields:
            del policy["group"]
        return {"name": group.name, "policies": fields}
    defaults = mapping("group", group)
    name, given = defaults.pop("name", None), defaults.pop("policies", None)
    if not name or not given:
        raise ConfigurationError(
            f"A consistency group needs a name and policies, and has {name!r} and {given!r}.",
            remedy='Give {"name": …, "policies": […]}.',
        )
    members = members_of(str(name), given, defaults)
    return {"name": name, "policies": [policy_fields(member) for member in members]}


def rendered_group(fields: Mapping[str, Any], storage_options: StorageOptions) -> ReplicationGroup:
    """Return the group that rendered fields describe.

    :raises ConfigurationError: a value is impossible.
    """
    policies = [rendered_policy(member, storage_options) for member in fields["policies"]]
    return ReplicationGroup(name=str(fields["name"]), policies=policies)
