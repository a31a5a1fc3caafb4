"""Parts of the gateway's tests: a running gateway, and raw Thrift messages."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow_hive_federation.gateway.dispatch import Gateway
from airflow_hive_federation.gateway.messages import Head, MessageReader
from airflow_hive_federation.gateway.thrift_front import ThriftFront
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.protocol import ApplicationFault, encode_call
from airflow_hive_federation.metastore.wire import from_bytes
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support.metastore_peers import Peer

Peers = Callable[..., Peer]
Gateways = Callable[..., "Running"]
Raws = Callable[["Running"], "RawClient"]
Clients = Callable[..., MetastoreClient]

_SOON = PollPolicy(first_s=0.01, factor=1.2, longest_s=0.1, timeout_s=60)


@dataclass
class Running:
    """A gateway that runs."""

    handler: Gateway
    upstream: Upstream
    front: ThriftFront


def call_bytes(method: str, sequence_id: int = 1, **arguments: Any) -> bytes:
    """Return a call."""
    return encode_call(method, message_types(method)[0](**arguments), sequence_id, oneway=False)


class RawClient:
    """A socket that speaks Thrift's bytes."""

    def __init__(self, address: tuple[str, int], sock: socket.socket | None = None) -> None:
        self.sock = sock or socket.create_connection(address, timeout=20)
        self.reader = MessageReader(self._receive)

    def _receive(self, size: int) -> bytes:
        if not (data := self.sock.recv(size)):
            raise EOFError("closed")
        return data

    def message(self) -> tuple[Head, bytes]:
        return self.reader.message()

    def ask(self, method: str, sequence_id: int = 1, **arguments: Any) -> dict[str, Any]:
        """Call a method, and return the fields that its answer sets."""
        self.sock.sendall(call_bytes(method, sequence_id, **arguments))
        return outcome(*self.message())

    def close(self) -> None:
        self.sock.close()


def outcome(head: Head, data: bytes) -> dict[str, Any]:
    """Return the fields that an answer sets; those of a fault of Thrift's if it is one."""
    kind = ApplicationFault if head.kind == 3 else message_types(head.method)[1]
    return from_bytes(kind, data[head.body :]).set_fields()


def until(holds: Callable[[], object]) -> None:
    """Wait for a state that other threads bring about, and fail where it never comes."""
    assert wait_until(lambda: bool(holds()), _SOON)


def rested(run: Running) -> None:
    """Wait until a gateway has taken back its connections, of which another client's call may need one.

    A client may have its answer before that.
    """
    until(lambda: len(run.upstream._idle) == run.upstream.open_connections)
