"""Reads sections of the gateway's file into dataclasses: each key is a field, of the field's type."""

from __future__ import annotations

import difflib
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway.certificates import ServerTls

T = TypeVar("T")
#: Keys of a front's section that are fields of its certificates.
TLS_KEYS = ("cert_file", "key_file", "client_ca_file")
#: Fields that no file sets by their own names.
_NOT_IN_FILES = frozenset({"tls"})
#: Keys that may be 0: nothing is probed, waited for or kept.
_ZERO_OR_MORE = frozenset({"interval_s", "drain_timeout_s", "idle_s"})
LAST_PORT = 65535
_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def read_section(kind: type[T], name: str, values: object, **given: object) -> T:
    """Make a dataclass from a section.

    If the dataclass has a field ``tls``, the section itself has the keys of the certificate files.

    :param name: name of the section, for errors.
    :param values: the section's values, as TOML has them.
    :param given: fields that do not come from the file.
    :raises ConfigurationError: a key is unknown or missing, or a value is of the wrong type.
    """
    if not isinstance(values, Mapping):
        raise ConfigurationError(f"[{name}] is no section.", remedy=f"Write [{name}] on a line of its own.")
    hints = get_type_hints(kind)
    fields_by_name = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    section = dict(values)
    if "tls" in fields_by_name and any(key in section for key in TLS_KEYS):
        files = {key: section.pop(key) for key in TLS_KEYS if key in section}
        given = {**given, "tls": read_section(ServerTls, name, files)}
    arguments = dict(given)
    for key, value in section.items():
        if key not in fields_by_name or key in _NOT_IN_FILES:
            _refuse_key(name, key, [*fields_by_name, *(TLS_KEYS if "tls" in fields_by_name else ())])
        arguments[key] = _value(f"[{name}] {key}", hints[key], value)
        _refuse_number(f"[{name}] {key}", key, arguments[key])
    missing = [
        key
        for key, field in fields_by_name.items()
        if key not in arguments and field.default is MISSING and field.default_factory is MISSING
    ]
    if missing:
        raise ConfigurationError(f"[{name}] lacks {', '.join(missing)}.", remedy="Add it.")
    return kind(**arguments)


def _refuse_key(name: str, key: str, known: list[str]) -> None:
    known = [name_of_key for name_of_key in known if name_of_key not in _NOT_IN_FILES]
    near = difflib.get_close_matches(key, known, n=1)
    raise ConfigurationError(
        f"[{name}] has the key {key!r}, which is not known.",
        remedy=f"Did you mean {near[0]}?" if near else f"Keys are {', '.join(sorted(known))}.",
    )


def _value(where: str, hint: object, value: object) -> object:
    if isinstance(hint, types.UnionType):
        (hint,) = (member for member in get_args(hint) if member is not type(None))
    if get_origin(hint) is tuple:
        part = get_args(hint)[0]
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list):
            raise _wrong(where, value, "a list")
        return tuple(_value(where, part, item) for item in items)
    if get_origin(hint) is Mapping:
        if not isinstance(value, Mapping) or not all(isinstance(text, str) for text in value.values()):
            raise _wrong(where, value, "a table of texts")
        return dict(value)
    return _scalar(where, hint, value)


def _scalar(where: str, hint: Any, value: Any) -> object:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if issubclass(hint, StrEnum):
        try:
            return hint(value)
        except ValueError:
            raise _wrong(where, value, f"one of {', '.join(hint)}") from None
    # Python counts a bool as an int; a setting does not.
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise _wrong(where, value, _NAMES[hint])
    return value


def _refuse_number(where: str, key: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    if key == "port" and not 0 <= value <= LAST_PORT:
        raise _wrong(where, value, f"a port from 0 to {LAST_PORT}")
    if key in _ZERO_OR_MORE and value < 0:
        raise _wrong(where, value, "a number of 0 or more")
    if key.endswith("_s") and key not in _ZERO_OR_MORE and value <= 0:
        raise _wrong(where, value, "a number of seconds above 0")
    if key.startswith("max_") and value < 1:
        raise _wrong(where, value, "a number above 0")


def _wrong(where: str, value: object, wanted: str) -> ConfigurationError:
    return ConfigurationError(f"{where} is {value!r}.", remedy=f"Give {wanted}.")
