"""The shipped descriptor sets, loaded when they are first needed.

No module that protoc generated is imported: one of today's protoc demands today's protobuf, and Airflow 3.1
and 3.2 come with an older one. A serialized descriptor set works with each.
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

    Its maps are read as lists of entries, which is the same on the wire and keeps their order.
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
        found = self._pool.FindMessageTypeByName(f"{self.package}.{name}")
        return message_factory.GetMessageClass(found)

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
    """Add a set to a pool, as reflection shows it.

    :param pool: of the reflection service.
    :param name: :data:`OURS` or :data:`HIVES`.
    """
    pool.AddSerializedFile(_file(name).SerializeToString())


def proto_text() -> str:
    """Return the .proto file of our service, for clients in other languages."""
    return (files(__package__) / _FOLDER / "hive_federation.proto").read_text(encoding="utf-8")


def _file(name: str) -> FileDescriptorProto:
    data = zlib.decompress((files(__package__) / _FOLDER / name).read_bytes())
    return FileDescriptorSet.FromString(data).file[0]


def _maps_as_lists(message: DescriptorProto) -> None:
    message.options.ClearField("map_entry")
    for nested in message.nested_type:
        _maps_as_lists(nested)
