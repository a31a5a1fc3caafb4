"""Real sockets that answer as a metastore does, or as something else."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from thriftpy2.protocol.cybin.cybin import TCyBinaryProtocol
from thriftpy2.thrift import TMessageType
from thriftpy2.transport.buffered.cybuffered import TCyBufferedTransport

from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl.service import METHODS
from airflow_hive_federation.metastore.protocol import ApplicationFault
from airflow_hive_federation.metastore.struct import Fault

Handler = Callable[[str, Any], Any]
#: Nothing listens there. (A port that was free a moment ago may be that of the next peer.)
DEAD_URI = "thrift://127.0.0.1:1"


class HangUp(Exception):  # noqa: N818 - no error: an order
    """Raised by a handler: close the connection instead of answering."""


@dataclass
class Peer:
    """A listening socket whose connections ``behave`` serves, a thread each."""

    behave: Callable[[socket.socket], None]
    scheme: str = "thrift"
    tls: ssl.SSLContext | None = None
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    connections: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def uri(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.listener.getsockname()[1]}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self.connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError, HangUp):
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
            self.behave(connection)
        with contextlib.suppress(OSError):
            connection.close()

    def hang_up(self) -> None:
        """Close all connections; new ones are accepted."""
        while self.connections:
            connection = self.connections.pop()
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.hang_up()


class Thrift:
    """Serves calls as a metastore's Thrift layer does; ``handler`` gives results or raises.

    ``calls`` has the names of the methods called, ``set_ugi`` apart.
    """

    def __init__(self, handler: Handler, lacking: set[str] | None = None) -> None:
        self.handler = handler
        self.lacking = lacking or set()
        self.calls: list[str] = []
        self.users: list[str] = []

    def __call__(self, connection: socket.socket) -> None:
        transport = TCyBufferedTransport(Stream(connection))
        while True:
            self.answer(TCyBinaryProtocol(transport))

    def answer(self, protocol: Any) -> None:
        method, _, sequence = protocol.read_message_begin()
        arguments, result_type, _ = message_types(method)
        args = arguments()
        protocol.read_struct(args)
        if method in self.lacking or method not in METHODS:
            fault = ApplicationFault(message=f"Invalid method name: '{method}'", type=1)
            self._reply(protocol, method, TMessageType.EXCEPTION, sequence, fault)
            return
        result = result_type()
        try:
            if (success := self._result(method, args)) is not None:
                result.success = success
        except ApplicationFault as fault:
            self._reply(protocol, method, TMessageType.EXCEPTION, sequence, fault)
            return
        except Fault as fault:
            name = next(f[1] for f in result_type.thrift_spec.values() if f[0] == 12 and f[2] is type(fault))
            setattr(result, name, fault)
        self._reply(protocol, method, TMessageType.REPLY, sequence, result)

    def _result(self, method: str, args: Any) -> Any:
        if method == "set_ugi":
            self.users.append(args.user_name)
            return [args.user_name]
        self.calls.append(method)
        return self.handler(method, args)

    @staticmethod
    def _reply(protocol: Any, method: str, kind: int, sequence: int, body: Any) -> None:
        protocol.write_message_begin(method, kind, sequence)
        protocol.write_struct(body)
        protocol.trans.flush()


class Stream:
    """A socket as thriftpy2 reads and writes one."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def read(self, size: int) -> bytes:
        if not (data := self.connection.recv(size)):
            raise EOFError
        return data

    def write(self, data: bytes) -> None:
        self.connection.sendall(data)

    def flush(self) -> None:
        pass
