"""Properties of a replica's database: comment, owner, and the parameters that belong to no side. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_hive_federation.model.side_parameters import is_side_parameter, without_side_parameters

_FIELDS = ("description", "ownerName", "ownerType")


def database_claims(database: Any) -> dict[str, str]:
    """What a wire ``Database`` says that both sides have."""
    said = {name: getattr(database, name) for name in _FIELDS}
    return {
        **{name: str(value) for name, value in said.items() if value not in {None, ""}},
        **{f"parameters.{name}": value for name, value in _lasting(database).items()},
    }


def take_properties(database: Any, source: Any, *, adopted: bool) -> None:
    """Give a wire ``Database`` of the target what the source's says.

    :param adopted: the database was there before and keeps what is its own, its parameters among it.
    """
    ours = {k: v for k, v in (database.parameters or {}).items() if adopted or is_side_parameter(k)}
    database.parameters = {**ours, **_lasting(source)}
    if not adopted:
        for name in _FIELDS:
            setattr(database, name, getattr(source, name))


def _lasting(database: Any) -> Mapping[str, str]:
    return without_side_parameters(database.parameters)
