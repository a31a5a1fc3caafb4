"""Reads events of progress from the JSON of another process."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import get_args, get_origin, get_type_hints

from airflow_hive_federation.progress import cycle_events, events, job_events
from airflow_hive_federation.progress.events import KIND, Event

_MODULES = (events, cycle_events, job_events)


def event_classes() -> Mapping[str, type[Event]]:
    """Return the classes of events by their names."""
    names = {name: kind for module in _MODULES for name, kind in vars(module).items()}
    return {
        name: kind
        for name, kind in names.items()
        if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
    }


def event_of(values: object) -> Event:
    """Return the event that :meth:`.Event.to_json` wrote.

    :raises ValueError: the values are those of no event.
    """
    given = dict(values) if isinstance(values, Mapping) else {}
    kind = event_classes().get(str(given.pop(KIND, "")))
    if kind is None:
        raise ValueError(f"{values!r} is no event of progress.")
    hints = get_type_hints(kind)
    try:
        return kind(**{name: _value(hints[name], value) for name, value in given.items()})
    except (KeyError, TypeError) as error:
        raise ValueError(f"{values!r} lacks a field of {kind.__name__}, or has a wrong one.") from error


def _value(hint: object, value: object) -> object:
    if get_origin(hint) is tuple and isinstance(value, list):
        return tuple(_value(get_args(hint)[0], item) for item in value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    # JSON has one type of numbers.
    if isinstance(hint, type) and isinstance(value, (float, int) if hint is float else hint):
        return value
    raise TypeError(f"{value!r} is no {hint}")
