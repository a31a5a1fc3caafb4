"""Defines the parameters by which a target identifies itself, and judges a target by them. Pure.

These are Hive's own names wherever Hive has one, so that its ``REPL STATUS`` and its tools understand our
targets (``org.apache.hadoop.hive.ql.exec.repl.util.ReplUtils``, ``ReplConst``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from airflow_hive_federation.errors import GroupMembershipError, TargetNotOursError
from airflow_hive_federation.model.remote_links import remote_of

#: Last event that the object contains.
LAST_ID = "repl.last.id"
#: URI of the dump that is being loaded, or was loaded last.
CHECKPOINT = "hive.repl.ckpt.key"
#: Marks the database as a replica for Hive.
TARGET_FOR = "repl.target.for"
#: Marks the database as a source for Hive, whose change manager then keeps files that readers may still need.
SOURCE_OF = "repl.source.for"
#: The database's end of a failover under way (``SOURCE``, ``TARGET``).
FAILOVER = "repl.failover.endpoint"
#: The metastore sets it to ``true`` when somebody aborts a replayed transaction by its id
#: (``AbortTxnsFunction``). Hive's ``REPL LOAD`` then refuses the database, which must be dropped: its own
#: transactions may not have been ended in the source's order. Nothing else of Hive reads it. Loads of this
#: package abort only transactions that have shown no rows and that no later load needs, and do not read it.
INCOMPATIBLE = "repl.incompatible"
#: Makes Hive refuse statements that write, where its ``EnforceReadOnlyDatabaseHook`` is configured.
READ_ONLY = "readonly"
#: Name of the policy that owns the object.
POLICY = "hive.federation.policy"
#: Digest of a table's definition as it was loaded: reveals a change made by somebody else.
DEFINITION = "hive.federation.definition"
#: Records of the last cycles, see :mod:`.cycle_history`.
CYCLES = "hive.federation.cycles"
#: Number of the cycle that holds the target's lock, or held it last: it only grows.
EPOCH = "hive.federation.epoch"
#: Name of the consistency group to which the target's policy belongs.
GROUP = "hive.federation.group"
#: Prefix of the parameters that record the directories of external tables, see :mod:`.external_roots`.
EXTERNAL_ROOTS = "hive.federation.external.roots."


class TargetState(Enum):
    """The state of a target database for a policy and one of its dumps."""

    ABSENT = "absent"
    LOADING = "loading"  # the policy's own, with this dump not published yet
    LOADED = "loaded"  # the policy's own, published at `last_id`
    ADOPTABLE = "adoptable"  # of no policy; this policy may adopt it


@dataclass(frozen=True, kw_only=True)
class Target:
    """The state of a target database, with the event that it has reached if it is published."""

    state: TargetState
    last_id: int | None = None


def judge_target(
    database: str,
    parameters: Mapping[str, str] | None,
    *,
    policy: str,
    adopt: bool,
    empty: bool,
    group: str = "",
) -> Target:
    """Decide whether a policy may load into a database, and return the database's state for it.

    :param parameters: the database's parameters, ``None`` if the database does not exist.
    :param policy: the policy's name.
    :param adopt: the policy's ``into_existing``.
    :param empty: the database holds no table and no function.
    :param group: the policy's ``group``.
    :raises GroupMembershipError: the database belongs to another group, or to one that the policy does not
        name.
    :raises TargetNotOursError: the database belongs to another policy or to nobody, or stands for a remote
        one.
    """
    if parameters is None:
        return Target(state=TargetState.ABSENT)
    if remote := remote_of(parameters):
        raise TargetNotOursError(
            f"Target database {database} stands for the remote database {remote}.",
            remedy="Choose another target database: what is loaded here would be the remote's.",
            database=database,
            owner=None,
        )
    owner = parameters.get(POLICY)
    if owner == policy:
        _refuse_other_group(database, parameters.get(GROUP, ""), policy=policy, group=group)
        last_id = parameters.get(LAST_ID)
        if last_id:
            return Target(state=TargetState.LOADED, last_id=int(last_id))
        return Target(state=TargetState.LOADING)
    if owner is not None:
        raise TargetNotOursError(
            f"Target database {database} belongs to replication policy {owner!r}, not to {policy!r}.",
            remedy="Give this policy a target database of its own.",
            database=database,
            owner=owner,
        )
    if adopt:
        return Target(state=TargetState.ADOPTABLE)
    content = "is empty" if empty else "holds tables or functions"
    raise TargetNotOursError(
        f"Target database {database} exists, {content}, and carries no marker of policy {policy!r} "
        f"(parameter {POLICY}).",
        remedy="Choose another target database, drop this one, or set into_existing to adopt it.",
        database=database,
        owner=None,
    )


def _refuse_other_group(database: str, marked: str, *, policy: str, group: str) -> None:
    if marked and marked != group:
        raise GroupMembershipError(
            f"Target database {database} belongs to consistency group {marked!r}, and policy {policy!r} "
            + (f"to {group!r}." if group else "runs without it."),
            remedy=f"Run the cycle of group {marked!r}; or take the policy out of it: hive-federation "
            f"replicate leave GROUP_FILE {policy}.",
            group=marked,
            policies=[policy],
        )


def database_markers(policy: str, checkpoint: str) -> dict[str, str]:
    """Return the parameters of a target database whose load has begun."""
    return {POLICY: policy, TARGET_FOR: "true", READ_ONLY: "true", CHECKPOINT: checkpoint}


def object_markers(policy: str, checkpoint: str, event_id: int) -> dict[str, str]:
    """Return the parameters of a table or partition of a replica."""
    return {POLICY: policy, CHECKPOINT: checkpoint, LAST_ID: str(event_id)}
