"""Imports classes that settings name by a dotted path."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from airflow_hive_federation.errors import ConfigurationError


def load_class(path: str, base: type | None, setting: str) -> Any:
    """Import a class by its dotted path.

    :param path: ``package.module.Class``.
    :param base: class that it has to be, or to inherit from; ``None`` accepts any class.
    :param setting: the setting that holds the path, for the error.
    :raises ConfigurationError: if the path names no class, or a class that does not inherit from ``base``.
    """
    module, _, name = path.rpartition(".")
    try:
        loaded = getattr(import_module(module), name) if module else None
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"{setting} names {path!r}, which cannot be imported: {error}",
            remedy="Write the dotted path of a Python class: package.module.Class.",
        ) from error
    if not isinstance(loaded, type) or (base is not None and not issubclass(loaded, base)):
        wanted = "class" if base is None else f"subclass of {base.__module__}.{base.__qualname__}"
        raise ConfigurationError(
            f"{setting} names {path!r}, which is no {wanted}.",
            remedy="Write the dotted path of a Python class: package.module.Class.",
        )
    return loaded
