"""Translates the constraints of a replica's tables, compares them, and converges the target's to them.

Two constraints are equal if their names and all their fields are. A constraint that was dropped and added
again under its name with other columns, or that is newly relied upon, is another one. Foreign keys come last,
after all tables to which they refer exist.
"""

from __future__ import annotations

import copy
import json
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.replication.policy import ReplicationPolicy

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient

#: The kinds of constraints: for each, the field of its name, the call, the request and its field that add it.
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
#: Each metastore has values of its own for these fields.
_PLACES = frozenset({"catName", "table_db", "pktable_db", "fktable_db"})

#: The content of constraints by kind and name.
Claims = Mapping[tuple[str, str], str]


def target_constraints(
    source: types.SQLAllTableConstraints, policy: ReplicationPolicy
) -> types.SQLAllTableConstraints:
    """Return the wire ``SQLAllTableConstraints`` that the target's table gets.

    Foreign keys that refer to tables outside the policy are left out: the target need not have those tables.

    :param source: wire ``SQLAllTableConstraints`` of the source's table.
    """
    target = copy.deepcopy(source)
    for kind in _KINDS:
        for constraint in getattr(target, kind) or ():
            if kind != _FOREIGN:
                constraint.table_db = policy.target_database
    kept = [key for key in target.foreignKeys or () if _inside(key, policy, policy.source_database)]
    for key in kept:
        key.pktable_db = key.fktable_db = policy.target_database
    target.foreignKeys = kept or None
    return target


def found_constraints(
    client: MetastoreClient, policy: ReplicationPolicy, table: str
) -> types.SQLAllTableConstraints:
    """Return the constraints of a table of the target, except foreign keys to tables outside the policy."""
    constraints = client.get_table_constraints(policy.target_database, table)
    keys = constraints.foreignKeys or ()
    constraints.foreignKeys = [key for key in keys if _inside(key, policy, policy.target_database)] or None
    return constraints


def without_foreign_keys(constraints: types.SQLAllTableConstraints) -> types.SQLAllTableConstraints:
    """Remove the foreign keys from wire ``SQLAllTableConstraints``."""
    constraints.foreignKeys = None
    return constraints


def claims(constraints: types.SQLAllTableConstraints) -> Claims:
    """Return the content of constraints, by kind and name; equal constraints have equal content."""
    contents: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for kind, (name, *_) in _KINDS.items():
        for constraint in getattr(constraints, kind) or ():
            fields = {
                field: value for field, value in to_json(constraint).items() if field not in _PLACES and value
            }
            contents[kind, str(getattr(constraint, name))].append(json.dumps(fields, sort_keys=True))
    return {key: "; ".join(sorted(columns)) for key, columns in contents.items()}


def converge_constraints(
    client: MetastoreClient, policy: ReplicationPolicy, table: str, wanted: types.SQLAllTableConstraints
) -> None:
    """Drop surplus constraints of a table of the target and add missing ones, except foreign keys."""
    database = policy.target_database
    wanted_claims, present = claims(wanted), claims(found_constraints(client, policy, table))
    for _, name in sorted(key for key in present if present[key] != wanted_claims.get(key)):
        request = types.DropConstraintRequest(dbname=database, tablename=table, constraintname=name)
        client.call("drop_constraint", request)
    _add(
        client,
        wanted,
        {key for key in wanted_claims if key[0] != _FOREIGN and wanted_claims[key] != present.get(key)},
    )


def is_constrained(
    client: MetastoreClient, policy: ReplicationPolicy, table: str, wanted: types.SQLAllTableConstraints
) -> bool:
    """Return whether a table of the target has the wanted constraints and no others."""
    return claims(wanted) == claims(found_constraints(client, policy, table))


def add_foreign_keys(
    client: MetastoreClient, policy: ReplicationPolicy, table: str, wanted: types.SQLAllTableConstraints
) -> None:
    """Add the foreign keys that a table of the target lacks."""
    present = claims(found_constraints(client, policy, table))
    _add(client, wanted, {key for key in claims(wanted) if key[0] == _FOREIGN and key not in present})


def _add(
    client: MetastoreClient, wanted: types.SQLAllTableConstraints, missing: set[tuple[str, str]]
) -> None:
    for kind, (field, method, request, argument) in _KINDS.items():
        added = [
            constraint
            for constraint in getattr(wanted, kind) or ()
            if (kind, str(getattr(constraint, field))) in missing
        ]
        if added:
            client.call(method, request(**{argument: added}))


def _inside(key: types.SQLForeignKey, policy: ReplicationPolicy, database: str) -> bool:
    return bool(key.pktable_db.lower() == database and policy.replicates(key.pktable_name))
