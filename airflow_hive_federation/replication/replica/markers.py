"""The parameters by which a target says what it is, and what they decide. Pure.

Hive's own names wherever Hive has one, so that its ``REPL STATUS`` and its tools understand our targets
(``org.apache.hadoop.hive.ql.exec.repl.util.ReplUtils``, ``ReplConst``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from airflow_hive_federation.errors import TargetNotOursError
from airflow_hive_federation.model.remote_links import remote_of

#: Last event the object contains.
LAST_ID = "repl.last.id"
#: Dump being loaded, or loaded last.
CHECKPOINT = "hive.repl.ckpt.key"
#: Says to Hive that the database is a replica.
TARGET_FOR = "repl.target.for"
#: Says to Hive that the database is replicated: its change manager keeps what its readers may still need.
SOURCE_OF = "repl.source.for"
#: Which end of a failover under way a database is (``SOURCE``, ``TARGET``).
FAILOVER = "repl.failover.endpoint"
#: Makes Hive refuse statements that write, where its ``EnforceReadOnlyDatabaseHook`` is configured.
READ_ONLY = "readonly"
#: Name of the policy that owns the object.
POLICY = "hive.federation.policy"
#: Digest of a table's definition as it was loaded: tells a change made by somebody else.
DEFINITION = "hive.federation.definition"
#: What the last cycles did, see :mod:`.cycle_history`.
CYCLES = "hive.federation.cycles"
#: Number of the cycle that holds the target's lock, or held it last: it only grows.
EPOCH = "hive.federation.epoch"
#: Beginning of the parameters that record the directories of external tables, see :mod:`.external_roots`.
EXTERNAL_ROOTS = "hive.federation.external.roots."


class TargetState(Enum):
    """What a target database is to a policy and one of its dumps."""

    ABSENT = "absent"
    LOADING = "loading"  # ours: this dump, not published yet
    LOADED = "loaded"  # ours and published, at `last_id`
    ADOPTABLE = "adoptable"  # not ours; the policy asks to adopt it


@dataclass(frozen=True, kw_only=True)
class Target:
    """State of a target database, and the event it stands at if it is published."""

    state: TargetState
    last_id: int | None = None


def judge_target(
    database: str,
    parameters: Mapping[str, str] | None,
    *,
    policy: str,
    adopt: bool,
    empty: bool,
) -> Target:
    """Say whether a policy may load into a database.

    :param parameters: the database's parameters, ``None`` if there is no such database.
    :param policy: the policy's name.
    :param adopt: the policy's ``into_existing``.
    :param empty: the database holds no table and no function.
    :raises TargetNotOursError: it belongs to another policy, to nobody, or stands for a remote one.
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
    what = "is empty" if empty else "holds tables or functions"
    raise TargetNotOursError(
        f"Target database {database} exists, {what}, and carries no marker of policy {policy!r} "
        f"(parameter {POLICY}).",
        remedy="Choose another target database, drop this one, or set into_existing to adopt it.",
        database=database,
        owner=None,
    )


def database_markers(policy: str, checkpoint: str) -> dict[str, str]:
    """Parameters of a target database whose load has begun."""
    return {POLICY: policy, TARGET_FOR: "true", READ_ONLY: "true", CHECKPOINT: checkpoint}


def object_markers(policy: str, checkpoint: str, event_id: int, definition: str = "") -> dict[str, str]:
    """Parameters of a table or partition of a replica."""
    markers = {POLICY: policy, CHECKPOINT: checkpoint, LAST_ID: str(event_id)}
    return {**markers, DEFINITION: definition} if definition else markers
