"""Loads the shipped descriptor sets of Protocol Buffers on first use.

The package imports no module that protoc has generated: a module of a current protoc requires a current
protobuf, and Airflow 3.1 and 3.2 install an older one. A serialized descriptor set works with each version.
"""

from __future__ import annotations

import zlib
from functools import cache
from importlib.resources import files
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool

OURS, HIVES = "hive_federation.fds.z", "hive.fds.z"
_FOLDER = "descriptors"


class Messages:
    """The message classes of one descriptor set.

    The classes treat maps as lists of entries, which have the same form on the wire and keep their order.
    """

    def __init__(self, name: str) -> None:
        file = _file(name)
        self.package = file.package
        for message in file.message_type:
            _maps_as_lists(message)
        self._pool = DescriptorPool()
        self._pool.AddSerializedFile(file.SerializeToString())

    def kind(self, name: str) -> Any:
        """Return the class of a message by its name within the package."""
        descriptor = self._pool.FindMessageTypeByName(f"{self.package}.{name}")
        return message_factory.GetMessageClass(descriptor)

    def service(self, name: str) -> Any:
        """Return the descriptor of a service by its name within the package."""
        return self._pool.FindServiceByName(f"{self.package}.{name}")


@cache
def ours() -> Messages:
    """Return the messages of the service that is generated from the interface definition."""
    return Messages(OURS)


@cache
def hives() -> Messages:
    """Return the messages of Hive's own service."""
    return Messages(HIVES)


def add_to(pool: DescriptorPool, name: str) -> None:
    """Add a descriptor set to the pool of the reflection service.

    :param pool: pool of the reflection service.
    :param name: :data:`OURS` or :data:`HIVES`.
    """
    pool.AddSerializedFile(_file(name).SerializeToString())


def _file(name: str) -> FileDescriptorProto:
    data = zlib.decompress((files(__package__) / _FOLDER / name).read_bytes())
    return FileDescriptorSet.FromString(data).file[0]


def _maps_as_lists(message: DescriptorProto) -> None:
    message.options.ClearField("map_entry")
    for nested in message.nested_type:
        _maps_as_lists(nested)
