"""Gives each external directory of a target one owner across the target's policies. Pure.

A policy removes files that it finds in the directories of its external tables and that its source does not
have. Policies of one target do not know each other's tables, and hold locks of their own. So each target
database records the directories of its external tables in its parameters, and a load refuses directories that
lie in, or around, those that another database of the target has recorded. Within one policy, equal nesting on
the source permits nesting on the target. Across policies it does not, because the sources may differ, and two
cycles would meet in one directory.

A load records its directories before it looks at those of others, and removes the record if it is refused. Of
two loads that begin at one moment, at least one sees the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from airflow_hive_federation.errors import LocationConflictError
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.json_values import Fields, flag, list_of, text
from airflow_hive_federation.replication.metadata.directories import Claim, nested
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.storage.filesystem import canonical, is_below

#: A database's parameter holds 4,000 characters (``DATABASE_PARAMS.PARAM_VALUE``).
_PART = 3_900


@dataclass(frozen=True, kw_only=True)
class ExternalRoots:
    """The directories of a target database's external tables.

    :param uris: canonical URIs, none inside another.
    :param checked: no other database of the target had a directory that collides.
    """

    uris: tuple[str, ...] = ()
    checked: bool = False

    def covers(self, uris: Iterable[str]) -> bool:
        """Return whether all directories are recorded already, or lie in recorded ones."""
        return all(any(is_below(uri, root) for root in self.uris) for uri in uris)

    def joined(self, uris: Iterable[str]) -> ExternalRoots:
        """Return these directories and others, not yet compared with those of other databases."""
        return ExternalRoots(uris=outermost([*self.uris, *uris]))


@dataclass(frozen=True, kw_only=True)
class OtherDatabase:
    """Another database of the target, which a policy owns or owned.

    :param owner: name of its policy; empty if a failover has let it go.
    :param roots: directories of its external tables.
    :param managed: URI of the directory of its managed tables; empty if it has no directory of its own.
    :param dumps: URI of the directory of its policy's dumps; empty if that is not known.
    """

    name: str
    owner: str = ""
    roots: tuple[str, ...] = ()
    managed: str = ""
    dumps: str = ""

    @property
    def label(self) -> str:
        """Return the names of the database and its policy for a message."""
        return f"database {self.name}" + (f" of policy {self.owner!r}" if self.owner else "")


def read_roots(database: str, parameters: Mapping[str, str] | None) -> ExternalRoots:
    """Read the directories that a database has recorded.

    :param database: its name, for an error.
    :raises LocationConflictError: the record cannot be read, so that its directories are not known.
    """
    parts = sorted((int(key[len(_PREFIX) :]), value) for key, value in _record(parameters).items())
    if not parts:
        return ExternalRoots()
    try:
        fields = Fields(bounded_json.loads("".join(value for _, value in parts)))
        return ExternalRoots(
            uris=outermost(fields.needed("roots", list_of(text))), checked=fields.needed("checked", flag)
        )
    except ValueError as error:
        raise LocationConflictError(
            f"The directories of the external tables of target database {database} are not known: its "
            f"parameters {_PREFIX}… cannot be read ({error}).",
            remedy="Remove these parameters of the database, and run a cycle of its policy: it "
            "writes them anew.",
            database=database,
        ) from error


def with_roots(parameters: Mapping[str, str] | None, roots: ExternalRoots) -> dict[str, str]:
    """Return the parameters of a database with a new record in place of the old one."""
    record = _record(parameters)
    others = {key: value for key, value in (parameters or {}).items() if key not in record}
    if not roots.uris:
        return others
    record_text = json.dumps({"checked": roots.checked, "roots": roots.uris}, separators=(",", ":"))
    parts = [record_text[first : first + _PART] for first in range(0, len(record_text), _PART)]
    return {**others, **{f"{_PREFIX}{number}": part for number, part in enumerate(parts)}}


def outermost(uris: Iterable[str]) -> tuple[str, ...]:
    """Return the directories that lie in no other of them, in order."""
    claims = {uri: Claim(owner=uri, table="", target=uri) for uri in map(canonical, uris)}
    inner = {claim.target for _, claim in nested(claims.values())}
    return tuple(sorted(claims.keys() - inner))


def check_roots(
    policy: ReplicationPolicy, claims: Iterable[Claim], managed: str, others: Iterable[OtherDatabase]
) -> None:
    """Refuse a target on which a policy and another one would share or nest directories.

    :param claims: directories of the policy's external tables.
    :param managed: URI of the directory of the policy's managed tables; empty if it has none of its own.
    :param others: the other databases of the target.
    :raises LocationConflictError: names both owners and their directories.
    """
    external = list(claims)
    ours = {*external, *_sides(f"database {policy.target_database}", policy.name, managed, policy.directory)}
    theirs: dict[Claim, OtherDatabase] = {}
    roots = {*external}
    for other in others:
        whose = f"the external tables of {other.label}"
        recorded = [Claim(owner=whose, table="", target=uri) for uri in other.roots]
        roots |= {*recorded}
        theirs.update(dict.fromkeys(recorded, other))
        theirs.update(dict.fromkeys(_sides(other.label, other.owner, other.managed, other.dumps), other))
    for outer, inner in nested([*ours, *theirs]):
        # Two directories without external tables cannot collide: no policy removes files there.
        if (outer in theirs) is not (inner in theirs) and roots & {outer, inner}:
            own_claim, other_claim = (inner, outer) if outer in theirs else (outer, inner)
            raise _conflict(policy, own_claim, other_claim, theirs[other_claim])


def _sides(database: str, policy: str, managed: str, dumps: str) -> Iterator[Claim]:
    """Yield the directories of a target that hold no external tables."""
    if managed:
        yield Claim(owner=f"the managed tables of {database}", table="", target=managed)
    if dumps:
        yield Claim(owner=f"the dumps of policy {policy!r}", table="", target=dumps)


def _conflict(
    policy: ReplicationPolicy, ours: Claim, theirs: Claim, database: OtherDatabase
) -> LocationConflictError:
    source = f" (source: {ours.source})" if ours.source else ""
    return LocationConflictError(
        f"On the target, {ours.owner} of policy {policy.name!r}{source} and {theirs.owner} would share or "
        f"nest directories: {ours.target} and {theirs.target}. Each policy removes files of its directories "
        "that its source does not have.",
        remedy="Give one of the two policies an external_base of its own. If the other one's tables are "
        f"gone from there, run a cycle of it, or remove parameters {_PREFIX}… of {database.name}.",
        policy=policy.name,
        other=database.owner,
        database=database.name,
        tables=[ours.table] if ours.table else [],
        paths=[ours.target, theirs.target],
    )


def _record(parameters: Mapping[str, str] | None) -> dict[str, str]:
    return {
        key: value
        for key, value in (parameters or {}).items()
        if key.startswith(_PREFIX) and key[len(_PREFIX) :].isdecimal()
    }


_PREFIX = markers.EXTERNAL_ROOTS
