"""Checks the fields of a replication policy in an operator, and reads them back from rendered templates.

Jinja renders everything to text, so that ``False`` arrives as ``"False"`` and a missing value as ``"None"``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.replication.policy import BOUNDS, COUNTS, FLAGS, ReplicationPolicy
from airflow_hive_federation.runtime.arguments import mapping, refusal, texts

if TYPE_CHECKING:
    from airflow_hive_federation.storage.options import StorageOptions


#: Fields of a policy that an operator accepts. The connections hold the storage options, because Airflow's UI
#: shows all arguments of an operator.
NAMES = frozenset(field.name for field in fields(ReplicationPolicy)) - {"storage_options"}
_REQUIRED = frozenset(
    field.name
    for field in fields(ReplicationPolicy)
    if field.default is MISSING and field.default_factory is MISSING
)
#: Airflow takes these characters in the id of a task group, and here a dot becomes one of them.
_ID = re.compile(r"[\w.-]+")
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def policy_fields(policy: ReplicationPolicy | Mapping[str, object]) -> dict[str, Any]:
    """Return the fields after a check of their names; the values may be templates.

    :raises ConfigurationError: a field is unknown, is missing, or may not stand in a DAG.
    """
    if isinstance(policy, ReplicationPolicy):
        if policy.storage_options:
            _refuse_storage_options()
        return policy.to_json()
    given = mapping("policy", policy)
    if "storage_options" in given:
        _refuse_storage_options()
    unknown, missing = sorted(map(str, given.keys() - NAMES)), sorted(_REQUIRED - given.keys())
    if unknown or missing:
        raise ConfigurationError(
            f"A replication policy has no fields named {unknown}."
            if unknown
            else f"A replication policy needs the fields {missing}.",
            remedy=f"Known fields are {', '.join(sorted(NAMES))}.",
        )
    return given


def rendered_policy(values: Mapping[str, object], storage_options: StorageOptions) -> ReplicationPolicy:
    """Return the policy that the rendered fields describe.

    :raises ConfigurationError: a value is impossible.
    """
    made = rendered_fields(values)
    # The policy itself reports an empty name.
    required = {name: made.get(name) or "" for name in _REQUIRED}
    optional = {name: value for name, value in made.items() if value is not None}
    return ReplicationPolicy(**{**optional, **required}, storage_options=storage_options)


def rendered_fields(values: Mapping[str, object]) -> dict[str, Any]:
    """Return the values of rendered fields in the types of the fields; ``None`` is a field's default.

    :raises ConfigurationError: a value is of a type that its field cannot have.
    """
    return {name: _rendered(name, value) for name, value in values.items()}


def group_id_of(name: object, group_id: str | None) -> str:
    """Return the id of the task group that replicates a policy, or the policies of a consistency group.

    :param name: the name of the policy or group, perhaps a template.
    :param group_id: the id that the author of the DAG gives.
    :raises ConfigurationError: no id is given, and the name cannot be part of one.
    """
    if group_id is not None:
        return group_id
    if not isinstance(name, str) or not _ID.fullmatch(name):
        shown = repr(name) if isinstance(name, str) else f"of type {type(name).__name__}"
        raise ConfigurationError(
            f"The name of the replication is {shown}, which cannot name a task group.",
            remedy="Give group_id; or a text of letters, digits, '_', '-' and '.' as the name.",
        )
    return f"replicate_{name.replace('.', '_')}"


def _rendered(name: str, value: object) -> Any:
    """Return a value in the type of its field; ``None`` means that the field's default applies."""
    text = "" if value is None else str(value).strip()
    if text in {"", "None"}:
        return None
    if name in _PARSED:
        return _PARSED[name](name, value)
    if not isinstance(value, str | int | float) or (isinstance(value, bool) and name not in FLAGS):
        raise refusal(f"{name} of the replication policy", value, "Give a text.")
    if name in FLAGS:
        if text.lower() not in _TRUTH:
            raise ConfigurationError(
                f"{name} of the replication policy is {text!r}.", remedy="Give true or false."
            )
        return _TRUTH[text.lower()]
    if name in COUNTS:
        if not text.isdecimal() or not int(text):
            raise ConfigurationError(
                f"{name} of the replication policy is {text!r}.",
                remedy="Give a whole number, one at least.",
            )
        return int(text)
    if name in BOUNDS:
        # The policy itself reports any other text.
        return int(text) if text.isdecimal() else text
    return text


def _listed(name: str, value: Iterable[str]) -> list[str]:
    """Return a list from a list, a list that was rendered to text, or a text with commas."""
    if not isinstance(value, str):
        return texts(f"{name} of the replication policy", value)
    text = value.strip()
    if not text.startswith(("[", "(")):
        return text.split(",")
    try:
        items = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        items = None
    if not isinstance(items, (list, tuple)):
        raise ConfigurationError(
            f"{name} of the replication policy is {text!r}.", remedy='Give a list: ["file:/data"].'
        )
    return texts(f"{name} of the replication policy", items)


def _mapping(name: str, value: object) -> Mapping[str, object]:
    if isinstance(value, Mapping):
        return value
    text = str(value).strip()
    try:
        mapping = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        mapping = None
    if not isinstance(mapping, dict):
        raise ConfigurationError(
            f"{name} of the replication policy is {text!r}.", remedy='Give a mapping: {"a": "b"}.'
        )
    return mapping


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
