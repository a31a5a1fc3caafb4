"""Defines the base class of all structs in Hive's interface definition.

A struct holds exactly the fields that its creator set or the server sent. Unset fields stay unset and are not
sent, so that reading a struct and writing it back changes nothing. An unset field reads as ``None``. The
client leaves the defaults of the interface definition to the server, which applies the same ones.

The classes carry ``thrift_spec``, the table by which thriftpy2's compiled protocol reads and writes, but need
no thriftpy2 themselves.
"""

from __future__ import annotations

from typing import Any, ClassVar, dataclass_transform

Spec = dict[int, tuple[Any, ...]]


@dataclass_transform(eq_default=False, kw_only_default=True)
class Struct:
    """A Thrift struct or union, with its fields as keyword arguments; a script generates the subclasses."""

    thrift_spec: ClassVar[Spec] = {}
    #: True if a value holds one of the fields.
    is_union: ClassVar[bool] = False

    def __init__(self, **fields: object) -> None:
        known = type(self).__annotations__
        for name, value in fields.items():
            if name not in known:
                raise TypeError(f"{type(self).__name__} has no field {name!r}")
            if value is not None:
                self.__dict__[name] = value

    def set_fields(self) -> dict[str, Any]:
        """Return the fields that are set, by name, in the order of their ids."""
        return {
            name: value
            for _, (_, name, *_) in sorted(self.thrift_spec.items())
            if (value := getattr(self, name, None)) is not None
        }

    def missing_fields(self) -> list[str]:
        """Return the names of unset fields that the interface definition requires."""
        return [
            name
            for _, name, *_, required in self.thrift_spec.values()
            if required and name not in self.__dict__
        ]

    def read(self, iprot: Any) -> None:
        """Fill the fields from a thriftpy2 protocol."""
        iprot.read_struct(self)

    def write(self, oprot: Any) -> None:
        """Write the set fields to a thriftpy2 protocol."""
        oprot.write_struct(self)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.set_fields() == other.set_fields()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.set_fields().items())
        return f"{type(self).__name__}({fields})"


class Fault(Struct, Exception):  # noqa: N818 - internal; errors.py has the errors that callers see
    """A Thrift exception of the server, which the client translates to an error of this package."""

    message: str | None = None

    # An exception has to be hashable: traceback and logging keep sets of exceptions.
    __hash__ = Exception.__hash__  # type: ignore[assignment]

    def __str__(self) -> str:
        return self.text() or type(self).__name__

    def text(self) -> str:
        """Return the message; a server may send one that is not UTF-8, which is read as bytes."""
        message: object = self.message
        return message.decode(errors="replace") if isinstance(message, bytes) else str(message or "")
