"""Translates the constraints of a replica's tables, compares them, and converges the target's to them.

Two constraints are equal if their names and all their fields are. A constraint that was dropped and added
again under its name with other columns, or that is newly relied upon, is another one. Foreign keys come last,
after all tables to which they refer exist.
"""

from __future__ import annotations

import copy
import json
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.replication.policy import ReplicationPolicy

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient

logger = logging.getLogger(__name__)

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
    source: types.SQLAllTableConstraints, policy: ReplicationPolicy, tables: Collection[str]
) -> types.SQLAllTableConstraints:
    """Return the wire ``SQLAllTableConstraints`` that the target's table gets.

    Foreign keys that refer to tables which the dump does not have are left out: the target need not have
    those tables either.

    :param source: wire ``SQLAllTableConstraints`` of the source's table.
    :param tables: names of the dump's tables.
    """
    target = copy.deepcopy(source)
    for kind in _KINDS:
        for constraint in getattr(target, kind) or ():
            if kind != _FOREIGN:
                constraint.table_db = policy.target_database
    kept = [key for key in target.foreignKeys or () if _inside(key, policy.source_database, tables)]
    for key in kept:
        key.pktable_db = key.fktable_db = policy.target_database
    target.foreignKeys = kept or None
    return target


def found_constraints(
    client: MetastoreClient, policy: ReplicationPolicy, table: str, tables: Collection[str]
) -> types.SQLAllTableConstraints:
    """Return the constraints of a table of the target, except foreign keys to tables that no dump has.

    :param tables: names of the dump's tables.
    """
    constraints = client.get_table_constraints(policy.target_database, table)
    keys = constraints.foreignKeys or ()
    constraints.foreignKeys = [key for key in keys if _inside(key, policy.target_database, tables)] or None
    return constraints


def report_left_out(
    table: str, source: types.SQLAllTableConstraints, policy: ReplicationPolicy, tables: Collection[str]
) -> None:
    """Log the foreign keys of a table that the target does not get.

    :param source: wire ``SQLAllTableConstraints`` of the source's table.
    :param tables: names of the dump's tables.
    """
    left_out = {
        f"{key.fk_name} (to {key.pktable_db}.{key.pktable_name})"
        for key in source.foreignKeys or ()
        if not _inside(key, policy.source_database, tables)
    }
    if left_out:
        logger.info(
            "Table %s.%s does not get these foreign keys, because the tables to which they refer are not "
            "replicated: %s",
            policy.target_database,
            table,
            ", ".join(sorted(left_out)),
        )


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
    client: MetastoreClient,
    policy: ReplicationPolicy,
    table: str,
    wanted: types.SQLAllTableConstraints,
    tables: Collection[str],
) -> None:
    """Drop surplus constraints of a table of the target and add missing ones, except foreign keys.

    :param tables: names of the dump's tables.
    """
    database = policy.target_database
    wanted_claims, present = claims(wanted), claims(found_constraints(client, policy, table, tables))
    for _, name in sorted(key for key in present if present[key] != wanted_claims.get(key)):
        request = types.DropConstraintRequest(dbname=database, tablename=table, constraintname=name)
        client.call("drop_constraint", request)
    _add(
        client,
        wanted,
        {key for key in wanted_claims if key[0] != _FOREIGN and wanted_claims[key] != present.get(key)},
    )


def is_constrained(
    client: MetastoreClient,
    policy: ReplicationPolicy,
    table: str,
    wanted: types.SQLAllTableConstraints,
    tables: Collection[str],
) -> bool:
    """Return whether a table of the target has the wanted constraints and no others.

    :param tables: names of the dump's tables.
    """
    return claims(wanted) == claims(found_constraints(client, policy, table, tables))


def add_foreign_keys(
    client: MetastoreClient,
    policy: ReplicationPolicy,
    table: str,
    wanted: types.SQLAllTableConstraints,
    tables: Collection[str],
) -> None:
    """Add the foreign keys that a table of the target lacks.

    :param tables: names of the dump's tables.
    """
    present = claims(found_constraints(client, policy, table, tables))
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


def _inside(key: types.SQLForeignKey, database: str, tables: Collection[str]) -> bool:
    return bool(key.pktable_db.lower() == database and key.pktable_name.lower() in tables)
