"""Compares a policy with the policy by which the target was last loaded. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.replication.format.dumped_policy import DumpedPolicy
from airflow_hive_federation.replication.format.manifest import Manifest
from airflow_hive_federation.replication.policy import ReplicationPolicy


@dataclass(frozen=True, kw_only=True)
class PolicyChanges:
    """The changes of a policy between two cycles.

    No field lists tables that joined or left the policy: the next increment finds the tables that the target
    lacks, and those that the policy no longer has.

    :param external_base: the policy places external tables elsewhere now; the next increment moves each of
        them.
    :param functions_root: the policy places the jars of functions elsewhere now.
    :param renamed: names on the target that now stand for other tables of the source.
    """

    external_base: bool = False
    functions_root: bool = False
    renamed: frozenset[str] = frozenset()


def policy_changes(before: DumpedPolicy, policy: ReplicationPolicy) -> PolicyChanges:
    """Compare a policy with the one in the manifest of the target's dump.

    :param before: the policy in the manifest of the target's dump.
    :raises ConfigurationError: the policy names another source database than the one the target was made
        from.
    """
    if before.source_database != policy.source_database:
        raise ConfigurationError(
            f"Policy {policy.name!r} replicates database {policy.source_database} now; target database "
            f"{policy.target_database} was made of {before.source_database}.",
            remedy="Give the other database a policy of its own name and target; or drop the target "
            "database, and it is made anew.",
            policy=policy.name,
        )
    return PolicyChanges(
        external_base=_place(before.external_base) != _place(policy.external_base)
        or _place(before.external_prefix) != _place(policy.external_prefix)
        or before.external_authority != policy.external_authority,
        functions_root=_place(before.functions_directory) != policy.functions_directory,
        renamed=_renamed(before.table_names, policy.table_names),
    )


def refuse_changed(dump: str, manifest: Manifest, policy: ReplicationPolicy) -> None:
    """Refuse to load a dump if the policy has since changed the places of tables or functions.

    The dump of an increment lists the tables that move because of such a change. A bootstrap that was killed
    has left tables and files at the policy's former places.

    :param dump: URI of the dump.
    :param manifest: the manifest of the dump.
    :raises ConfigurationError: the policy has changed in that way, or names another source database.
    """
    changes = policy_changes(manifest.policy, policy)
    changed = [
        name
        for name, is_changed in (
            ("external_base, external_prefix or external_authority", changes.external_base),
            ("functions_root", changes.functions_root),
            (f"table_names (of {', '.join(sorted(changes.renamed))})", changes.renamed),
        )
        if is_changed
    ]
    if changed:
        raise ConfigurationError(
            f"Policy {policy.name!r} has changed since dump {dump} was written: {'; '.join(changed)}.",
            remedy="Begin a new cycle, which dumps anew (in Airflow: run the DAG, or clear its first task). "
            "Or give the policy its former values, and load the dump again.",
            policy=policy.name,
            dump=dump,
        )


def _renamed(before: Mapping[str, str], now: Mapping[str, str]) -> frozenset[str]:
    """Return the names on the target that now stand for another table, or for none.

    A table that has another name on the target leaves its own name unused there.
    """
    was, becomes = (
        {**dict.fromkeys(names), **{target: source for source, target in names.items()}}
        for names in (before, now)
    )
    names = {*was, *becomes}
    return frozenset(name for name in names if was.get(name, name) != becomes.get(name, name))


def _place(uri: str | None) -> str:
    return (uri or "").rstrip("/")
