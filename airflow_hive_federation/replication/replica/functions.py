"""Converges the permanent functions of a replica: their definitions, jars and files."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import AlreadyExistsError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.replication.replica.layout import TargetLayout
from airflow_hive_federation.storage.listing import file_size

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient

#: These fields define a function.
_FIELDS = ("className", "functionType", "ownerName", "ownerType", "resourceUris")


def target_function(source: types.Function, layout: TargetLayout) -> types.Function:
    """Return the wire ``Function`` that the target gets."""
    function = copy.deepcopy(source)
    function.dbName = layout.policy.target_database
    for resource, place in zip(function.resourceUris or (), _places(source, layout), strict=True):
        resource.uri = place
    return function


def function_items(source: types.Function, layout: TargetLayout) -> Iterator[CopyItem]:
    """Yield the jars and files of a function of the source that are to be copied."""
    # A resource may be named twice.
    places = dict(zip(_resources(source), _places(source, layout), strict=True))
    for uri, place in places.items():
        size_bytes = file_size(uri, options=layout.policy.storage_options)
        yield CopyItem(source=uri, target=place, size_bytes=size_bytes)


def function_claim(function: types.Function, *, resources: bool = True) -> str:
    """Return the content of a wire ``Function`` as text; functions with equal content have equal texts.

    :param resources: include the places of its jars and files.
    """
    values = to_json(function)
    return json.dumps(
        {name: values.get(name) for name in _FIELDS if resources or name != "resourceUris"}, sort_keys=True
    )


def put_function(client: MetastoreClient, function: types.Function) -> None:
    """Create a function, or alter the function of that name to match it."""
    try:
        client.create_function(function)
    except AlreadyExistsError:
        client.call("alter_function", function.dbName, function.functionName, function)


def converge_functions(
    client: MetastoreClient, database: str, wanted: Iterable[types.Function], *, kept: Iterable[str] = ()
) -> None:
    """Create, alter and drop a target's functions until they match the wanted ones.

    :param kept: names of functions that stay although they are not wanted.
    """
    existing = {str(entry.functionName): entry for entry in client.get_functions(database)}
    names = set(kept)
    for function in wanted:
        names.add(function.functionName)
        current = existing.get(function.functionName)
        if current is None or function_claim(current) != function_claim(function):
            put_function(client, function)
    for name in sorted(existing.keys() - names):
        client.drop_function(database, name, if_exists=True)


def _resources(function: types.Function) -> list[str]:
    return [resource.uri or "" for resource in function.resourceUris or ()]


def _places(source: types.Function, layout: TargetLayout) -> list[str]:
    return layout.resources(source.functionName or "", _resources(source))
