"""Reads arguments of operators, whose type a template or the author of a DAG may have missed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TypeVar

from airflow_hive_federation.errors import ConfigurationError

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


def listed(name: str, values: Iterable[T]) -> list[T]:
    """Return the values of a list; a text in its place would be a list of its characters.

    :param name: the name of the argument.
    :raises ConfigurationError: the argument is no list.
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise refusal(
            name,
            values,
            f'Give a list, {name}=["..."]. If a template returns the list, its DAG needs '
            "render_template_as_native_obj=True.",
        )
    return list(values)


def texts(name: str, values: Iterable[str]) -> list[str]:
    """Return the texts of a list.

    :param name: the name of the argument.
    :raises ConfigurationError: the argument is no list of texts.
    """
    found = listed(name, values)
    for value in found:
        if not isinstance(value, str):
            raise refusal(f"{name}, in its list,", value, f'Give texts: {name}=["..."].')
    return found


def flag(name: str, value: object) -> bool:
    """Return a Boolean; any text would be true, the text ``False`` too.

    :param name: the name of the argument, which is no template.
    :raises ConfigurationError: the argument is neither true nor false.
    """
    if not isinstance(value, bool):
        raise refusal(name, value, f"Give {name}=True or {name}=False, and no template.")
    return value


def whole(name: str, value: object) -> int:
    """Return a whole number.

    :param name: the name of the argument, which is no template.
    :raises ConfigurationError: the argument is no whole number.
    """
    # ``bool`` is a subclass of ``int``.
    if not isinstance(value, int) or isinstance(value, bool):
        raise refusal(name, value, f"Give a whole number, {name}=3, and no template.")
    return value


def mapping(name: str, value: Mapping[str, T]) -> dict[str, T]:
    """Return a mapping as a dictionary.

    :param name: the name of the argument.
    :raises ConfigurationError: the argument is no mapping.
    """
    if not isinstance(value, Mapping):
        raise refusal(name, value, 'Give a mapping, {"name": "value"}, whose values may be templates.')
    return dict(value)


def choice(name: str, value: object, kind: type[E]) -> E:
    """Return the member of an enumeration that has a value.

    :param name: the name of the argument.
    :raises ConfigurationError: no member has the value.
    """
    for member in kind:
        if value == member.value:
            return member
    known = " or ".join(repr(str(member.value)) for member in kind)
    if not isinstance(value, str):
        raise refusal(name, value, f"Give {known}.")
    raise ConfigurationError(f"The argument {name} is {value!r}.", remedy=f"Give {known}.", argument=name)


def refusal(name: str, value: object, remedy: str) -> ConfigurationError:
    """Return the error of an argument of the wrong type; it does not repeat the value, perhaps a secret.

    :param name: the name of the argument.
    """
    return ConfigurationError(
        f"The argument {name} is of type {type(value).__name__}.", remedy=remedy, argument=name
    )
