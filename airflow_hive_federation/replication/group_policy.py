"""Defines a consistency group: policies whose databases are replicated as of one moment. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.errors import ConfigurationError, GroupMembershipError
from airflow_hive_federation.replication.policy import ReplicationPolicy

if TYPE_CHECKING:
    from airflow_hive_federation.storage.options import StorageOptions


#: A policy of a group may have these fields in its own entry only.
_OWN = frozenset({"name", "source_database", "target_database", "group"})
_FIELDS = frozenset(field.name for field in fields(ReplicationPolicy)) - {"storage_options", "group"}


@dataclass(frozen=True, kw_only=True)
class ReplicationGroup:
    """Policies that share each cut of the source, and are published together.

    All policies replicate from one metastore to one other metastore.

    :param name: names the group in the target's parameters and in Airflow's task group.
    :param policies: the members, in the order in which their databases are published.
    :raises ConfigurationError: the group has no member, or members share a name or a database.
    """

    name: str
    policies: Sequence[ReplicationPolicy]

    def __post_init__(self) -> None:
        if not self.policies:
            raise ConfigurationError(f"Group {self.name!r} has no policies.", remedy="Set policies.")
        others = [policy for policy in self.policies if policy.group not in {"", self.name}]
        if others:
            raise ConfigurationError(
                f"Policy {others[0].name!r} of group {self.name!r} names another group, {others[0].group!r}.",
                remedy="Leave out the field group of the policy.",
            )
        for field in ("name", "source_database", "target_database"):
            counts = Counter(str(getattr(policy, field)) for policy in self.policies)
            for value, count in counts.items():
                if count > 1:
                    raise ConfigurationError(
                        f"Several policies of group {self.name!r} have the {field} {value}.",
                        remedy="Give each its own.",
                    )
        members = tuple(replace(policy, group=self.name) for policy in self.policies)
        object.__setattr__(self, "policies", members)

    @property
    def source_databases(self) -> list[str]:
        """Return the databases of the source, in the order of the policies."""
        return [policy.source_database for policy in self.policies]

    def with_storage_options(self, options: StorageOptions) -> ReplicationGroup:
        """Return the group with other storage options."""
        policies = [replace(policy, storage_options=options) for policy in self.policies]
        return replace(self, policies=policies)

    def named(self, names: Sequence[str]) -> list[ReplicationPolicy]:
        """Return policies by name; all of them without names.

        :raises ConfigurationError: the group has no such policy.
        """
        by_name = {policy.name: policy for policy in self.policies}
        if unknown := [name for name in names if name not in by_name]:
            raise ConfigurationError(
                f"Group {self.name!r} has no policy {unknown[0]!r}.",
                remedy=f"Its policies are {', '.join(by_name)}.",
            )
        return [by_name[name] for name in names] if names else list(self.policies)


def members_of(group: str, given: object, defaults: Mapping[str, object]) -> list[dict[str, Any]]:
    """Return the fields of a group's policies, completed by the group's own fields.

    :param group: name of the group.
    :param given: a list of mappings; a policy without ``name`` takes the name of its source database.
    :param defaults: fields for all policies that lack them.
    :raises ConfigurationError: ``given`` is no such list, or a field is unknown.
    """
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigurationError(
            f"Group {group!r}: policies is {given!r}.", remedy="Give a list of policies."
        )
    _refuse_unknown(f"Group {group!r}", sorted(set(defaults) - (_FIELDS - _OWN)), _FIELDS - _OWN)
    members = []
    for member in given:
        if not isinstance(member, Mapping):
            raise ConfigurationError(
                f"Group {group!r}: {member!r} is no policy.", remedy="Give the fields of a policy."
            )
        _refuse_unknown(f"A policy of group {group!r}", sorted(set(member) - _FIELDS), _FIELDS)
        merged = {**defaults, **member}
        merged.setdefault("name", merged.get("source_database"))
        members.append(merged)
    return members


def refuse_alone(policy: ReplicationPolicy, act: str) -> None:
    """Refuse an action of one policy that would separate it from its group.

    :param act: the action, as a verb.
    :raises GroupMembershipError: the policy belongs to a group.
    """
    if policy.group:
        raise GroupMembershipError(
            f"Policy {policy.name!r} belongs to consistency group {policy.group!r}, and cannot {act} alone.",
            remedy="Run the cycle of the group. Or take the policy out of it (hive-federation replicate "
            f"leave GROUP_FILE {policy.name}), and use a policy without group.",
            group=policy.group,
            policies=[policy.name],
        )


def _refuse_unknown(owner: str, unknown: Sequence[str], known: frozenset[str]) -> None:
    if unknown:
        raise ConfigurationError(
            f"{owner} has the field {unknown[0]!r}, which is not known here.",
            remedy=f"Known fields are {', '.join(sorted(known))}.",
        )
