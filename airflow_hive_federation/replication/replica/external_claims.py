"""Claims directories of external tables across metastores: each belongs to one target database.

Databases of one metastore compare the directories recorded in their parameters (:mod:`.external_roots`). A
target in another metastore sees none of these records, and with the same ``external_base`` it would remove
the files that its own source does not have. So each target database also writes its directories below
``external_base``. Targets of other metastores look for such claims there, in the directories above, and in
the directories between ``external_base`` and each table.

A load adds its directories to the claim before it writes, and an increment gives up those that it has emptied
only at its end. So a load that was killed and runs again still owns the directories that it has yet to empty.

Nothing is written to the root of a store. So the way back of a failover claims nothing, if its
``external_base`` is such a root.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from airflow_hive_federation.errors import FileVanishedError, LocationConflictError, StoragePermissionError
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.json_values import Fields, list_of, text
from airflow_hive_federation.replication.metadata.directories import Claim, nested
from airflow_hive_federation.replication.policy import ReplicationPolicy, is_store_root
from airflow_hive_federation.replication.replica.external_roots import outermost
from airflow_hive_federation.storage.filesystem import canonical, is_below, join, reading
from airflow_hive_federation.storage.listing import list_directory
from airflow_hive_federation.storage.publishing import remove_file, temporary_run, write_atomically

#: Directory of the claims in an ``external_base``: one file per target database. Its name is no other
#: program's, because a table may lie in ``external_base`` itself, and its copies leave the claims out.
EXTERNAL_CLAIMS = "_hive_federation_targets"


@dataclass(frozen=True, kw_only=True)
class _Written:
    """The directories that a target database of a metastore has claimed.

    :param roots: canonical URIs, none inside another; ``None`` if the claim cannot be read.
    :param checked: no target of another metastore had a directory that collides.
    """

    metastore: str = ""
    database: str = ""
    roots: tuple[str, ...] | None = None
    checked: bool = False


def claim_external(metastore: str, policy: ReplicationPolicy, claims: Sequence[Claim]) -> None:
    """Claim the directories of a policy's external tables, if no target of another metastore has them.

    Directories that the database has claimed before stay claimed until :func:`release_external`.

    :param metastore: the target's :func:`~.dumps_owner.metastore_id`.
    :param claims: the directories.
    :raises LocationConflictError: a target of another metastore has directories that collide; nothing is
        claimed.
    :raises StorageError: ``external_base`` cannot be read or written.
    """
    if not claims or _base(policy) is None:
        return
    own = _own_claim(metastore, policy)
    before = _read(own, policy)
    roots = outermost([*(before.roots or ()), *(claim.target for claim in claims)])
    if before.checked and before.roots == roots:
        return
    claim = _Written(metastore=metastore, database=policy.target_database, roots=roots)
    _write(own, claim, policy)
    try:
        check_external_claims(metastore, policy, claims)
    except LocationConflictError:
        if before.roots is None:
            remove_file(own, policy.storage_options)
        else:
            _write(own, before, policy)
        raise
    _write(own, claim, policy, checked=True)


def release_external(metastore: str, policy: ReplicationPolicy, claims: Sequence[Claim]) -> None:
    """Give up the claimed directories that a load has emptied; its own directories stay claimed.

    :param metastore: the target's :func:`~.dumps_owner.metastore_id`.
    :param claims: the directories of the load, which :func:`claim_external` has claimed.
    :raises StorageError: ``external_base`` cannot be read or written.
    """
    if _base(policy) is None:
        return
    own = _own_claim(metastore, policy)
    before = _read(own, policy)
    kept = outermost(claim.target for claim in claims)
    if before.roots is None or before.roots == kept:
        return
    if not kept:
        remove_file(own, policy.storage_options)
    elif outermost([*before.roots, *kept]) == before.roots:
        # Otherwise another load has written the claim, and directories in it were not compared.
        _write(own, replace(before, roots=kept), policy)


def check_external_claims(metastore: str, policy: ReplicationPolicy, claims: Sequence[Claim]) -> None:
    """Compare the directories of external tables with those that targets of other metastores have claimed.

    :param metastore: the target's :func:`~.dumps_owner.metastore_id`.
    :param claims: the directories.
    :raises LocationConflictError: two collide, or a claim of another metastore cannot be read.
    """
    base = _base(policy)
    if not claims or base is None:
        return
    ours = {Claim(owner=claim.owner, table=claim.table, target=canonical(claim.target)) for claim in claims}
    for uri, other in _others(metastore, policy, _places(base, [own.target for own in ours])):
        if other.roots is None:
            raise _conflict(
                policy, [uri], f"{uri} cannot be read, so that nothing is known of its target", uri
            )
        theirs = {Claim(owner=uri, table="", target=root) for root in other.roots}
        for outer, inner in nested([*ours, *theirs]):
            if (outer in theirs) is not (inner in theirs):
                mine, other_claim = (inner, outer) if outer in theirs else (outer, inner)
                whose = f"database {other.database} of another metastore (id {other.metastore})"
                what = f"{mine.owner} and {whose} would share or nest {mine.target} and {other_claim.target}"
                raise _conflict(policy, [mine.target, other_claim.target], what, uri, mine.table)


def is_external_claim(path: str) -> bool:
    """Return whether a file is a claim, and no table's.

    :param path: path or URI.
    """
    return EXTERNAL_CLAIMS in path.split("/")


def _others(
    metastore: str, policy: ReplicationPolicy, places: Iterable[str]
) -> Iterator[tuple[str, _Written]]:
    ours = f"{quote(metastore, safe='')}@"
    base = _base(policy) or ""
    for place in places:
        claims = join(place, EXTERNAL_CLAIMS)
        try:
            names = sorted(list_directory(claims, options=policy.storage_options))
        except StoragePermissionError:
            if is_below(place, base):
                raise
            continue  # A process without rights above the base writes no claims there either.
        for name in names:
            if temporary_run(name) is None and not name.startswith(ours):
                yield join(claims, name), _read(join(claims, name), policy)


def _places(base: str, roots: Iterable[str]) -> list[str]:
    """Return the directories whose claims may concern the given roots: above the base, and below it."""
    places = {base}
    above = base
    while not is_store_root(above := above.rpartition("/")[0]) and "/" in above:
        places.add(above)
    for root in roots:
        between = root.rpartition("/")[0]
        while between not in places and is_below(between, base):
            places.add(between)
            between = between.rpartition("/")[0]
    return sorted(places)


def _base(policy: ReplicationPolicy) -> str | None:
    base = policy.external_base
    return None if not base or is_store_root(base) else canonical(base)


def _own_claim(metastore: str, policy: ReplicationPolicy) -> str:
    name = f"{quote(metastore, safe='')}@{quote(policy.target_database, safe='')}.json"
    return join(_base(policy) or "", f"{EXTERNAL_CLAIMS}/{name}")


def _read(uri: str, policy: ReplicationPolicy) -> _Written:
    try:
        with reading(uri, policy.storage_options) as file:
            fields = Fields(bounded_json.loads(file.read()))
        return _Written(
            metastore=fields.needed("metastore", str),
            database=fields.needed("database", str),
            roots=outermost(fields.needed("roots", list_of(text))),
            checked=fields.needed("checked", lambda value: value is True),
        )
    except (FileVanishedError, ValueError):
        return _Written()


def _write(uri: str, claim: _Written, policy: ReplicationPolicy, *, checked: bool | None = None) -> None:
    values: Mapping[str, object] = {
        "metastore": claim.metastore,
        "database": claim.database,
        "roots": claim.roots,
        "checked": claim.checked if checked is None else checked,
    }
    write_atomically(uri, [(json.dumps(values, sort_keys=True) + "\n").encode()], policy.storage_options)


def _conflict(
    policy: ReplicationPolicy, paths: list[str], what: str, claim: str, table: str = ""
) -> LocationConflictError:
    return LocationConflictError(
        f"Policy {policy.name!r}, external_base {policy.external_base}: {what}, by the claim {claim}. Each "
        "target removes files of its directories that its source does not have.",
        remedy="Give one of the two policies an external_base of its own. If the other target is gone for "
        "good, or its metastore was made anew, remove that file.",
        policy=policy.name,
        other="",
        database=policy.target_database,
        tables=[table] if table else [],
        paths=paths,
    )
