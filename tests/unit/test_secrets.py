"""No value with a secret in it is shown by its ``repr``."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator

import airflow_hive_federation

#: Fields that hold secrets, or mappings that may: options of stores, headers, environments.
SECRET = re.compile(
    r"(.*_)?(password|passphrase|secret|token|credentials?|storage_options|http_headers|headers|environment)"
)
#: A pyiceberg class is the base of what it holds.
OPTIONAL = {"airflow_hive_federation.catalog.iceberg_rest"}


def dataclasses_of_the_package() -> Iterator[type]:
    prefix = f"{airflow_hive_federation.__name__}."
    for module in pkgutil.walk_packages(airflow_hive_federation.__path__, prefix):
        if ".idl" in module.name or module.name in OPTIONAL or "example_dags" in module.name:
            continue
        loaded = importlib.import_module(module.name)
        for _, member in inspect.getmembers(loaded, inspect.isclass):
            if member.__module__ == module.name and dataclasses.is_dataclass(member):
                yield member


def is_mapping_of_options(field: dataclasses.Field[object]) -> bool:
    return field.name == "options" and "Any" in str(field.type)


def test_no_secret_is_shown() -> None:
    classes = [*dataclasses_of_the_package()]
    assert len(classes) > 100
    shown = [
        f"{member.__module__}.{member.__qualname__}.{field.name}"
        for member in classes
        for field in dataclasses.fields(member)
        if field.repr and (SECRET.fullmatch(field.name) or is_mapping_of_options(field))
    ]
    assert shown == []
