"""Constraints of a replica's tables: what they say on the target, and bringing them to that.

A constraint is one by its name and all it says: dropped and added again under its name with other columns, or
relied upon where it was not, it is another one. Foreign keys come last, when every table is there that they
refer to.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import from_json, to_json
from airflow_hive_federation.replication.policy import ReplicationPolicy

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient

#: Kind of a constraint → the field of its name, and the call and the request's field that add it.
_KINDS: Mapping[str, tuple[str, str, Any, str]] = {
    "primaryKeys": ("pk_name", "add_primary_key", types.AddPrimaryKeyRequest, "primaryKeyCols"),
    "uniqueConstraints": (
        "uk_name",
        "add_unique_constraint",
        types.AddUniqueConstraintRequest,
        "uniqueConstraintCols",
    ),
    "notNullConstraints": (
        "nn_name",
        "add_not_null_constraint",
        types.AddNotNullConstraintRequest,
        "notNullConstraintCols",
    ),
    "defaultConstraints": (
        "dc_name",
        "add_default_constraint",
        types.AddDefaultConstraintRequest,
        "defaultConstraintCols",
    ),
    "checkConstraints": (
        "dc_name",
        "add_check_constraint",
        types.AddCheckConstraintRequest,
        "checkConstraintCols",
    ),
    "foreignKeys": ("fk_name", "add_foreign_key", types.AddForeignKeyRequest, "foreignKeyCols"),
}
_FOREIGN = "foreignKeys"
#: Each metastore's own.
_PLACES = frozenset({"catName", "table_db", "pktable_db", "fktable_db"})

#: Kind and name → what the constraint says.
Claims = Mapping[tuple[str, str], str]


def target_constraints(values: Mapping[str, Any], policy: ReplicationPolicy) -> Any:
    """The wire ``SQLAllTableConstraints`` that the target's table gets.

    Foreign keys that refer to tables outside the policy are left out: the target need not have those.

    :param values: constraints of the source's table, as a dump has them.
    """
    made = from_json(types.SQLAllTableConstraints, dict(values))
    for kind in _KINDS:
        for one in getattr(made, kind) or ():
            if kind != _FOREIGN:
                one.table_db = policy.target_database
    kept = [key for key in made.foreignKeys or () if _inside(key, policy, policy.source_database)]
    for key in kept:
        key.pktable_db = key.fktable_db = policy.target_database
    made.foreignKeys = kept or None
    return made


def found_constraints(client: MetastoreClient, policy: ReplicationPolicy, table: str) -> Any:
    """The constraints that a table of the target has, as far as a policy concerns them."""
    found: Any = client.get_table_constraints(policy.target_database, table)
    keys = found.foreignKeys or ()
    found.foreignKeys = [key for key in keys if _inside(key, policy, policy.target_database)] or None
    return found


def without_foreign_keys(constraints: Any) -> Any:
    """Take the foreign keys off wire ``SQLAllTableConstraints``."""
    constraints.foreignKeys = None
    return constraints


def claims(constraints: Any) -> Claims:
    """What constraints say, by kind and name; two that say the same are equal."""
    found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for kind, (name, *_) in _KINDS.items():
        for one in getattr(constraints, kind) or ():
            said = {field: value for field, value in to_json(one).items() if field not in _PLACES and value}
            found[kind, str(getattr(one, name))].append(json.dumps(said, sort_keys=True))
    return {key: "; ".join(sorted(columns)) for key, columns in found.items()}


def converge_constraints(client: MetastoreClient, policy: ReplicationPolicy, table: str, wanted: Any) -> None:
    """Drop what a table of the target has and should not, and add what it has not, foreign keys excepted."""
    database = policy.target_database
    asked, found = claims(wanted), claims(found_constraints(client, policy, table))
    for _, name in sorted(key for key in found if found[key] != asked.get(key)):
        request = types.DropConstraintRequest(dbname=database, tablename=table, constraintname=name)
        client.call("drop_constraint", request)
    _add(client, wanted, {key for key in asked if key[0] != _FOREIGN and asked[key] != found.get(key)})


def is_constrained(client: MetastoreClient, policy: ReplicationPolicy, table: str, wanted: Any) -> bool:
    """Whether a table of the target has the constraints it should have, and no others."""
    return claims(wanted) == claims(found_constraints(client, policy, table))


def add_foreign_keys(client: MetastoreClient, policy: ReplicationPolicy, table: str, wanted: Any) -> None:
    """Add the foreign keys that a table of the target has not."""
    found = claims(found_constraints(client, policy, table))
    _add(client, wanted, {key for key in claims(wanted) if key[0] == _FOREIGN and key not in found})


def _add(client: MetastoreClient, wanted: Any, missing: set[tuple[str, str]]) -> None:
    for kind, (field, method, request, argument) in _KINDS.items():
        added = [one for one in getattr(wanted, kind) or () if (kind, str(getattr(one, field))) in missing]
        if added:
            client.call(method, request(**{argument: added}))


def _inside(key: Any, policy: ReplicationPolicy, database: str) -> bool:
    return bool(key.pktable_db.lower() == database and policy.replicates(key.pktable_name))
