"""A replication policy as the fields of an operator: templates in, rendered text out.

Jinja renders everything to text, so that ``False`` arrives as ``"False"`` and a missing value as ``"None"``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.replication.policy import BOUNDS, COUNTS, FLAGS, ReplicationPolicy

#: Fields of a policy that an operator takes. Storage options are the connections' business: what an operator
#: is given is shown in Airflow's UI.
NAMES = frozenset(field.name for field in fields(ReplicationPolicy)) - {"storage_options"}
_REQUIRED = frozenset(
    field.name
    for field in fields(ReplicationPolicy)
    if field.default is MISSING and field.default_factory is MISSING
)
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def policy_fields(policy: ReplicationPolicy | Mapping[str, Any]) -> dict[str, Any]:
    """The fields, checked for their names; values may be templates.

    :raises ConfigurationError: a field is not known, is missing, or may not stand in a DAG.
    """
    if isinstance(policy, ReplicationPolicy):
        if policy.storage_options:
            _refuse_storage_options()
        return policy.to_json()
    given = dict(policy)
    if "storage_options" in given:
        _refuse_storage_options()
    unknown, missing = sorted(set(given) - NAMES), sorted(_REQUIRED - set(given))
    if unknown or missing:
        raise ConfigurationError(
            f"A replication policy has no fields named {unknown}."
            if unknown
            else f"A replication policy needs the fields {missing}.",
            remedy=f"Known fields are {', '.join(sorted(NAMES))}.",
        )
    return given


def rendered_policy(values: Mapping[str, Any], storage_options: Mapping[str, Any]) -> ReplicationPolicy:
    """The policy that rendered fields describe.

    :raises ConfigurationError: a value that cannot be.
    """
    made = {name: _rendered(name, value) for name, value in values.items()}
    # The policy itself says what is wrong with an empty name.
    required = {name: made.get(name) or "" for name in _REQUIRED}
    optional = {name: value for name, value in made.items() if value is not None}
    return ReplicationPolicy(**{**optional, **required}, storage_options=storage_options)


def _rendered(name: str, value: Any) -> Any:
    """A value of the field's own type; ``None`` where the field's default applies."""
    text = "" if value is None else str(value).strip()
    if text in {"", "None"}:
        return None
    if name in FLAGS:
        if text.lower() not in _TRUTH:
            raise ConfigurationError(
                f"{name} of the replication policy is {text!r}.", remedy="Give true or false."
            )
        return _TRUTH[text.lower()]
    if name in _PARSED:
        return _PARSED[name](name, value)
    if name in COUNTS:
        if not text.isdecimal() or not int(text):
            raise ConfigurationError(
                f"{name} of the replication policy is {text!r}.",
                remedy="Give a whole number, one at least.",
            )
        return int(text)
    if name in BOUNDS:
        # The policy itself says what is wrong with another text.
        return int(text) if text.isdecimal() else text
    return text


def _listed(name: str, value: Any) -> list[str]:
    """A list, a list that was rendered to text, or a text with commas."""
    if not isinstance(value, str):
        return list(value)
    text = value.strip()
    if not text.startswith(("[", "(")):
        return text.split(",")
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        found = None
    if not isinstance(found, (list, tuple)):
        raise ConfigurationError(
            f"{name} of the replication policy is {text!r}.", remedy='Give a list: ["file:/data"].'
        )
    return list(found)


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    text = str(value).strip()
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        found = None
    if not isinstance(found, dict):
        raise ConfigurationError(
            f"{name} of the replication policy is {text!r}.", remedy='Give a mapping: {"a": "b"}.'
        )
    return found


_PARSED: Mapping[str, Callable[[str, Any], Any]] = {
    "table_names": _mapping,
    "allowed_source_roots": _listed,
}


def _refuse_storage_options() -> None:
    raise ConfigurationError(
        "Storage options in a DAG would be shown in Airflow's UI.",
        remedy="Put them into the connection of the source: extras storage_options and "
        "secret_storage_options.",
    )
