"""Sends one call at a time to one metastore server, and reads its answer."""

from __future__ import annotations

from functools import cache
from typing import Any

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore.channel import BOUND, Channel, Deadline, ForeignProtocol
from airflow_hive_federation.metastore.idl.service import METHODS
from airflow_hive_federation.metastore.message_bounds import MalformedMessage, MessageTooLong
from airflow_hive_federation.metastore.protocol import decode_reply, encode_call
from airflow_hive_federation.metastore.sasl import SaslChannel
from airflow_hive_federation.metastore.settings import Endpoint, MetastoreSettings
from airflow_hive_federation.metastore.struct import Fault, Struct
from airflow_hive_federation.metastore.transport import open_channel

#: Field id of the result in the answer to a method.
_RESULT = 0
#: The value of an unset setting is null, which Thrift sends as an empty answer.
MAY_BE_NULL = frozenset({"get_config_value", "getMetaConf"})


class Connection:
    """A connection to one server, on which ``set_ugi`` was called where the transport needs it.

    :raises OSError: if no server answers within the deadline.
    :raises ForeignProtocol: if the server is no metastore.
    :raises MetastoreAuthenticationError: if the server rejects our credentials.
    """

    def __init__(self, endpoint: Endpoint, settings: MetastoreSettings, deadline: Deadline) -> None:
        self.endpoint = endpoint
        self.channel: Channel = _open(endpoint, settings, deadline)
        self._max_answer_bytes = settings.max_answer_bytes
        self._sequence_id = 0
        try:
            if self.channel.needs_greeting:
                self.exchange("set_ugi", (settings.effective_user(), list(settings.groups)), deadline)
        except BaseException:
            self.close()
            raise

    def exchange(self, method: str, args: tuple[object, ...], deadline: Deadline) -> Any:
        """Call a method and return its answer.

        :raises Fault: if the server raised an exception; the connection remains usable.
        :raises ForeignProtocol: if the bytes are no answer to the call; close the connection.
        :raises OSError: if the connection broke or the time is over; close the connection.
        """
        arguments, result, oneway = message_types(method)
        self._sequence_id = (self._sequence_id + 1) & 0x7FFFFFFF
        request = encode_call(method, _arguments(arguments, method, args), self._sequence_id, oneway=oneway)
        self.channel.send(request, deadline)
        if oneway:
            return None
        answer = result()
        try:
            decode_reply(
                _Answer(self.channel, deadline),
                method,
                self._sequence_id,
                answer,
                max_bytes=self._max_answer_bytes,
            )
            return _outcome(method, answer, self.channel)
        except MessageTooLong as error:
            raise ForeignProtocol(f"{error} ({BOUND})") from error
        except MalformedMessage as error:
            raise ForeignProtocol(str(error)) from error

    def is_stale(self) -> bool:
        """Return whether the server has closed the connection since the last call."""
        return self.channel.is_stale()

    def close(self) -> None:
        """Close the connection; never fails."""
        self.channel.close()


def _open(endpoint: Endpoint, settings: MetastoreSettings, deadline: Deadline) -> Channel:
    channel = open_channel(endpoint, settings, deadline)
    if settings.authentication is None:
        return channel
    try:
        return SaslChannel(channel, endpoint, settings, deadline)
    except BaseException:
        channel.close()
        raise


@cache
def message_types(method: str) -> tuple[type[Struct], type[Struct], bool]:
    """Return the structs of a method's arguments and result, and whether it is one-way.

    :raises ConfigurationError: if the interface definition has no such method.
    """
    if method not in METHODS:
        raise ConfigurationError(f"The Hive metastore's interface has no method {method!r}.")
    args, result, oneway = METHODS[method]
    return _message(f"{method}_args", args), _message(f"{method}_result", result), oneway


def _message(name: str, spec: dict[int, tuple[Any, ...]]) -> type[Struct]:
    return type(
        name,
        (Struct,),
        {
            "thrift_spec": spec,
            "__annotations__": {field[1]: "object" for field in spec.values()},
            **{field[1]: None for field in spec.values()},
        },
    )


def _arguments(kind: type[Struct], method: str, args: tuple[object, ...]) -> Struct:
    names = [field[1] for field in kind.thrift_spec.values()]
    if len(args) > len(names):
        raise TypeError(f"{method} takes {len(names)} arguments ({', '.join(names)}), not {len(args)}")
    return kind(**dict(zip(names, args, strict=False)))


def _outcome(method: str, answer: Struct, channel: Channel) -> Any:
    if channel.has_more():
        raise MalformedMessage("something follows the answer")
    values = answer.set_fields()
    for value in values.values():
        if isinstance(value, Fault):
            raise value
    if "success" not in values and _RESULT in answer.thrift_spec and method not in MAY_BE_NULL:
        # The Java client does the same (``TApplicationException.MISSING_RESULT``).
        raise MalformedMessage("it holds neither a result nor an error")
    success = values.get("success")
    if isinstance(success, Struct) and (missing := success.missing_fields()):
        raise MalformedMessage(f"{type(success).__name__} lacks {', '.join(missing)}")
    return success


class _Answer:
    def __init__(self, channel: Channel, deadline: Deadline) -> None:
        self._channel = channel
        self._deadline = deadline

    def read(self, size: int) -> bytes:
        return self._channel.receive(size, self._deadline)
