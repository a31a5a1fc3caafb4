"""Claims a policy's directories of dumps and functions for the targets of one metastore.

Two targets of different metastores do not know each other. With one policy name and one ``dump_root`` they
would take each other's dumps for their own. A load reads the dumps beside its own to find files that earlier
loads of the policy have placed, sweeps the remains of those loads, and removes dumps that are no longer
needed. So the directory carries the identity of the metastore whose targets use it, and cycles of another
metastore are refused. The same holds for the jars of functions if they have a root of their own: another
target would overwrite them.

A cycle writes its claim before it looks for others, and removes the claim if it is refused. Of two cycles
that begin at one moment, at least one sees the other. A claim that was compared stays, and is not compared
again, because every later cycle of another metastore finds it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow_hive_federation.errors import (
    FileVanishedError,
    LocationConflictError,
    UnsupportedMethodError,
)
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.json_values import reader_of
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.storage.filesystem import join, reading
from airflow_hive_federation.storage.listing import list_directory
from airflow_hive_federation.storage.publishing import (
    make_private,
    remove_file,
    temporary_run,
    write_atomically,
)

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient

#: Directory of the claims in a policy's directory of dumps: one file per metastore.
CLAIMS = "_targets"


@dataclass(frozen=True, kw_only=True)
class _Written:
    """A claim: the metastore and the database of a target, and whether it was compared with others."""

    metastore: str = "unknown"
    database: str = "(unknown)"
    checked: bool = False


_CLAIM = reader_of(_Written)


def claim_dumps(metastore: str, policy: ReplicationPolicy) -> None:
    """Claim a policy's directories of dumps and functions for the targets of one metastore.

    :param metastore: the target's :func:`metastore_id`.
    :raises LocationConflictError: targets of another metastore use a directory; it is not claimed.
    :raises StorageError: a directory cannot be read or written.
    """
    claims = join(policy.directory, CLAIMS)
    # Only the owner of dumps may read them, and what lies beside them.
    make_private(claims, policy.storage_options)
    _claim(metastore, policy, claims, private=True)
    # Without a root of their own, functions lie below the dump root, under the policy's name: the claim of
    # the dumps covers them.
    if policy.functions_root:
        _claim(metastore, policy, join(policy.root_of_functions, f"{CLAIMS}/{policy.name}"), private=False)


def _claim(metastore: str, policy: ReplicationPolicy, claims: str, *, private: bool) -> None:
    options = policy.storage_options
    name = f"{quote(metastore, safe='')}.json"
    own = join(claims, name)
    if _read(own, policy).checked:
        return
    claim = _Written(metastore=metastore, database=policy.target_database)
    _write(own, claim, policy, private=private)
    others = [
        entry
        for entry in list_directory(claims, options=options)
        if entry != name and temporary_run(entry) is None
    ]
    if others:
        remove_file(own, options)
        raise _conflict(policy, join(claims, min(others)))
    _write(own, replace(claim, checked=True), policy, private=private)


def metastore_id(client: MetastoreClient) -> str:
    """Return the identity of a metastore: its database's own id, or its addresses if it has none."""
    try:
        return str(client.call("get_metastore_db_uuid"))
    except UnsupportedMethodError:  # Metastores before Hive 3 have no such id.
        return ",".join(sorted(client.settings.uris))


def _conflict(policy: ReplicationPolicy, claim: str) -> LocationConflictError:
    other = _read(claim, policy)
    of_dumps = claim.startswith(f"{policy.directory}/")
    held, root = ("dumps", "dump_root") if of_dumps else ("functions", "functions_root")
    directory = policy.directory if of_dumps else policy.functions_directory
    return LocationConflictError(
        f"Directory {directory} holds the {held} of policy {policy.name!r} for database "
        f"{other.database} of another metastore (id {other.metastore}), according to {claim}. Two targets "
        f"would treat each other's {held} as their own.",
        remedy=f"Give one of the two policies another name or {root}. If the other metastore is gone for "
        "good, or was made anew, remove that file.",
        policy=policy.name,
        other=policy.name,
        database=policy.target_database,
        tables=[],
        paths=[directory],
    )


def _read(uri: str, policy: ReplicationPolicy) -> _Written:
    """Return a claim; an absent or unreadable one counts as unchecked, so that its owner writes it anew."""
    try:
        with reading(uri, policy.storage_options) as file:
            return _CLAIM(bounded_json.loads(file.read()))
    except (FileVanishedError, ValueError):
        return _Written()


def _write(uri: str, claim: _Written, policy: ReplicationPolicy, *, private: bool) -> None:
    line = json.dumps(asdict(claim), sort_keys=True) + "\n"
    write_atomically(uri, [line.encode()], policy.storage_options, private=private)
