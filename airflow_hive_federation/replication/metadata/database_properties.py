"""Compares and copies the properties of a replica's database that both sides share. Pure.

These are the comment, the owner, and the parameters that belong to neither side alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.side_parameters import is_side_parameter, without_side_parameters

_FIELDS = ("description", "ownerName", "ownerType")


def database_claims(database: types.Database) -> dict[str, str]:
    """Return the shared properties of a wire ``Database``."""
    values = {name: getattr(database, name) for name in _FIELDS}
    return {
        **{name: str(value) for name, value in values.items() if value not in {None, ""}},
        **{f"parameters.{name}": value for name, value in _lasting(database).items()},
    }


def take_properties(database: types.Database, source: types.Database, *, adopted: bool) -> None:
    """Copy the source's properties to a wire ``Database`` of the target.

    :param adopted: the database existed before and keeps its own comment, owner and parameters.
    """
    kept = {
        key: value for key, value in (database.parameters or {}).items() if adopted or is_side_parameter(key)
    }
    database.parameters = {**kept, **_lasting(source)}
    if not adopted:
        for name in _FIELDS:
            setattr(database, name, getattr(source, name))


def _lasting(database: types.Database) -> Mapping[str, str]:
    return without_side_parameters(database.parameters)
