"""Compares and copies the properties of a replica's database that both sides share. Pure.

These are the comment, the owner, and the parameters that belong to neither side alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.side_parameters import is_side_parameter, without_side_parameters

#: The fields of a database's owner.
OWNER_FIELDS = frozenset({"ownerName", "ownerType"})
_FIELDS = ("description", "ownerName", "ownerType")


def database_claims(database: types.Database) -> dict[str, str]:
    """Return the shared properties of a wire ``Database``."""
    names = [name for name in _FIELDS if database.ownerName or name not in OWNER_FIELDS]
    values = {name: getattr(database, name) for name in names}
    return {
        **{name: str(value) for name, value in values.items() if value not in {None, ""}},
        **{f"parameters.{name}": value for name, value in _lasting(database).items()},
    }


def take_properties(database: types.Database, source: types.Database, *, adopted: bool) -> None:
    """Copy the source's properties to a wire ``Database`` of the target.

    Hive 3.1 gives a database that a client creates without an owner none, and Hive 4 cannot alter a database
    without an owner (``AlterDatabaseEvent.shouldSkipCapturing``). So the target keeps its own owner then.

    :param adopted: the database existed before and keeps its own comment, owner and parameters.
    """
    kept = {
        key: value for key, value in (database.parameters or {}).items() if adopted or is_side_parameter(key)
    }
    database.parameters = {**kept, **_lasting(source)}
    if not adopted:
        for name in _FIELDS:
            if source.ownerName or name not in OWNER_FIELDS:
                setattr(database, name, getattr(source, name))


def _lasting(database: types.Database) -> Mapping[str, str]:
    return without_side_parameters(database.parameters)
