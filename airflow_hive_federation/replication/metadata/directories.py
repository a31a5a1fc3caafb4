"""Assigns directories of the target to owners, and refuses owners that share or nest directories. Pure.

A cycle removes files of a table's directory that the source does not have. So two tables of the target may
share a directory, or lie one inside the other, only if their directories on the source do so in the same way:
then both copy the same files to the same places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from airflow_hive_federation.errors import LocationConflictError
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.replication.metadata.external_tables import ExternalEntry
from airflow_hive_federation.replication.metadata.locations import (
    external_location,
    managed_table_location,
    partition_location,
    relative_to,
    store_directory,
)
from airflow_hive_federation.replication.metadata.table_locations import TableLocations
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.storage.filesystem import (
    canonical,
    is_below,
    join,
    parse_location,
    refuse_hidden,
)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A directory of the target, and its owner.

    :param owner: the owner in a sentence: ``table a``, ``partition p=1 of table a``.
    :param table: name of the table; empty for the policy's own directories.
    :param target: URI of the directory.
    :param source: URI of the directory on the source whose files the owner keeps in the same arrangement;
        empty if the arrangement differs, so that no other owner may share the directory.
    """

    owner: str
    table: str
    target: str
    source: str = ""


def external_claims(policy: ReplicationPolicy, entries: Iterable[ExternalEntry]) -> list[Claim]:
    """Return the claims of external tables.

    :param entries: every directory of every external table of the source, partitions outside included.
    :raises ConfigurationError: the policy has no ``external_base``.
    """
    return [
        Claim(
            owner=_owner(entry.table, entry.partition),
            table=entry.table,
            target=external_location(
                entry.location,
                policy.external_base,
                table=entry.table,
                prefix=policy.external_prefix,
                authority=policy.external_authority,
            ),
            source=canonical(entry.location),
        )
        for entry in entries
    ]


def policy_claims(policy: ReplicationPolicy) -> list[Claim]:
    """Return the claims on the directories to which a policy itself writes."""
    functions = join(policy.functions_directory, policy.target_database)
    return [
        Claim(owner=f"the dumps of policy {policy.name!r}", table="", target=policy.directory),
        Claim(owner=f"the functions of database {policy.target_database}", table="", target=functions),
    ]


def managed_claims(managed: str, tables: Iterable[str]) -> list[Claim]:
    """Return the claims of tables in their default directories below the target database.

    :param managed: URI of the directory of the target database's managed tables.
    """
    return [
        Claim(owner=_owner(name), table=name, target=managed_table_location(managed, name)) for name in tables
    ]


def check_external(policy: ReplicationPolicy, entries: Sequence[ExternalEntry]) -> None:
    """Refuse external tables that would overwrite each other; this check makes no call to the target.

    :raises ConfigurationError: the policy has no ``external_base``.
    :raises HiddenLocationError: Hive would hide all that lies below ``external_base``.
    :raises LocationConflictError: the tables lie in several stores, or directories of the target collide.
    """
    if not entries:
        return
    claims = external_claims(policy, entries)
    _refuse_hidden_base(policy)
    _refuse_several_stores(policy, claims)
    _refuse_around_prefix(policy, claims)
    check_claims([*claims, *policy_claims(policy)])


def check_target(
    policy: ReplicationPolicy, managed: str, entries: Sequence[ExternalEntry], tables: Iterable[str]
) -> list[Claim]:
    """Refuse a target on which two tables, or a table and a directory of the policy, would collide.

    :param managed: URI of the directory of the target database's managed tables.
    :param entries: every directory of every external table.
    :param tables: names of all tables that are not external, those to be dropped included.
    :return: the claims on all directories.
    :raises HiddenLocationError: Hive would hide the tables, because of the place of the target database.
    :raises LocationConflictError: two directories collide, or ``external_base`` lies in ``managed``.
    """
    refuse_hidden(
        managed,
        f"the directory of target database {policy.target_database}",
        remedy="Give the target's warehouse, or the database's MANAGEDLOCATION, another place.",
    )
    check_external(policy, entries)
    claims = external_claims(policy, entries)
    if claims and policy.external_base and is_below(policy.external_base, managed):
        raise LocationConflictError(
            f"external_base of policy {policy.name!r}, {policy.external_base}, lies in {managed}, the "
            f"directory of target database {policy.target_database}: an external table could be written over "
            "a managed one.",
            remedy="Set external_base to a directory outside of the target's warehouse.",
            policy=policy.name,
            paths=[policy.external_base, managed],
        )
    for claim in claims:
        if is_below(managed, claim.target):
            raise _conflict(
                claim, Claim(owner=f"target database {policy.target_database}", table="", target=managed)
            )
    all_claims = [*claims, *managed_claims(managed, tables), *policy_claims(policy)]
    check_claims(all_claims)
    return all_claims


def check_claims(claims: Iterable[Claim]) -> None:
    """Refuse claims whose directories are equal or nested, unless those of the source nest alike.

    :raises LocationConflictError: names both owners, their directories on the source and on the target.
    """
    for outer, inner in nested(claims):
        if not _nest_alike(outer, inner):
            raise _conflict(inner, outer)


def check_partitions(table: str, places: TableLocations) -> None:
    """Refuse partitions of one managed table that would share a directory on the target.

    A partition from outside its table's directory moves to its default place inside, which another partition
    may hold.

    :raises LocationConflictError: as :func:`check_claims`.
    """
    # Only the name of a directory on the target matters here; its root is not known yet.
    root = f"file:/{table}"
    check_claims(
        Claim(
            owner=_owner(table, place.partition),
            table=table,
            target=partition_location(place.location, places.root, root, place.partition),
            source=canonical(place.location),
        )
        for place in places.elsewhere()
    )


def nested(claims: Iterable[Claim]) -> Iterator[tuple[Claim, Claim]]:
    """Yield each claim with the closest other one whose directory is the same or contains it.

    If all of those pairs nest alike, then so do all others: the relation is transitive.
    """
    around: list[tuple[tuple[str, ...], Claim]] = []
    by_place = sorted(
        ((_key(candidate.target), candidate) for candidate in claims),
        key=lambda pair: (pair[0], pair[1].owner),
    )
    for key, claim in by_place:
        while around and key[: len(around[-1][0])] != around[-1][0]:
            around.pop()
        if around:
            yield around[-1][1], claim
        around.append((key, claim))


def sharing(claims: Iterable[Claim]) -> dict[str, frozenset[str]]:
    """Return the tables that share or nest directories, each with all tables of its group and itself."""
    groups: dict[str, set[str]] = {}
    for outer, inner in nested(claims):
        if outer.table and inner.table and outer.table != inner.table:
            joined = groups.get(outer.table, {outer.table}) | groups.get(inner.table, {inner.table})
            groups.update(dict.fromkeys(joined, joined))
    return {name: frozenset(group) for name, group in groups.items()}


def is_claimed(claims: Iterable[Claim], location: str) -> bool:
    """Return whether a directory of the target equals, contains or lies in a directory with an owner."""
    return any(is_below(claim.target, location) or is_below(location, claim.target) for claim in claims)


def tables_with_files(entries: Iterable[TableEntry], *, external: bool) -> list[str]:
    """Return the names of a manifest's external tables, or of its other tables that have files."""
    return [
        entry.name
        for entry in entries
        if entry.kind.has_files and (entry.kind is TableKind.EXTERNAL) is external
    ]


def _refuse_hidden_base(policy: ReplicationPolicy) -> None:
    if policy.external_base:
        refuse_hidden(
            policy.external_base,
            f"external_base of policy {policy.name!r}",
            remedy="Set external_base to another directory.",
        )


def _refuse_several_stores(policy: ReplicationPolicy, claims: Sequence[Claim]) -> None:
    if policy.external_authority:
        return
    first: dict[tuple[str, str], Claim] = {}
    for claim in claims:
        place = parse_location(claim.source)
        first.setdefault((place.scheme, place.authority.lower()), claim)
    if len(first) > 1:
        left, right = list(first.values())[:2]
        raise LocationConflictError(
            f"External tables of {policy.source_database} lie in several stores: {left.owner} at "
            f"{left.source}, {right.owner} at {right.source}. Below external_base, one path of two "
            "stores is one directory.",
            remedy="Set the policy's external_authority: it puts the name of the store into the path "
            f"({store_directory(left.source)}, {store_directory(right.source)}).",
            policy=policy.name,
            tables=[left.table, right.table],
            paths=[left.target, right.target],
        )


def _refuse_around_prefix(policy: ReplicationPolicy, claims: Iterable[Claim]) -> None:
    """Refuse a directory that contains the prefix, because its partitions below the prefix land elsewhere."""
    prefix = policy.external_prefix
    for claim in claims if prefix else ():
        if relative_to(str(prefix), claim.source):
            raise LocationConflictError(
                f"{claim.owner} lies in {claim.source}, which contains external_prefix of policy "
                f"{policy.name!r}, {prefix}: what lies below the prefix would land outside of the table.",
                remedy="Set external_prefix to a directory that contains the table or lies beside it, or "
                "leave the table out (exclude_tables).",
                policy=policy.name,
                tables=[claim.table],
                paths=[claim.target],
            )


def _nest_alike(outer: Claim, inner: Claim) -> bool:
    if not (outer.source and inner.source):
        # A policy's own directories may lie in each other.
        return not (outer.table or inner.table)
    below = relative_to(inner.source, outer.source)
    return below is not None and below == relative_to(inner.target, outer.target)


def _conflict(inner: Claim, outer: Claim) -> LocationConflictError:
    same = canonical(inner.target) == canonical(outer.target)
    relation = "would be one directory" if same else "would lie one inside the other"
    return LocationConflictError(
        f"On the target, {_described(outer)} and {_described(inner)} {relation}: {outer.target}"
        + ("." if same else f" and {inner.target}.")
        + " Each cycle would remove files of one as surplus files of the other.",
        remedy="Replicate one of them by a policy of its own (include_tables) with another external_base, or "
        "leave it out (exclude_tables).",
        tables=sorted({claim.table for claim in (outer, inner) if claim.table}),
        paths=[outer.target, inner.target],
    )


def _described(claim: Claim) -> str:
    return f"{claim.owner} (source: {claim.source})" if claim.source else claim.owner


def _owner(table: str, partition: str = "") -> str:
    return f"partition {partition} of table {table}" if partition else f"table {table}"


def _key(uri: str) -> tuple[str, ...]:
    place = parse_location(uri)
    # Host names ignore case, and names of buckets are in lower case.
    return place.scheme, place.authority.lower(), *filter(None, place.path.split("/"))
