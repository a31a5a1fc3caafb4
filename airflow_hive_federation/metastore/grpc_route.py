"""Leads grpcio's connections through a dialer, an SSH route for instance.

grpcio opens its connections itself, and accepts nothing but addresses. So the module gives it a Unix socket
in a private directory, to which only this user can connect, and two threads forward each connection.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow_hive_federation.metastore.settings import Dialer, Wire
from airflow_hive_federation.runtime.forwarding import forwarding

_DIAL_TIMEOUT_S = 20.0


@contextmanager
def local_way(dialer: Dialer, host: str, port: int) -> Iterator[str]:
    """Listen on this machine while the block runs, and forward each connection through a dialer.

    :param host: host to which the dialer connects.
    :return: the address for grpcio.
    :raises HiveFederationError: if the dialer cannot connect.
    """
    # The first connection is opened here, so that its error is raised: grpcio would only see a closed socket.
    first = dialer.dial(host, port, _DIAL_TIMEOUT_S)
    unused = [first]

    def dial() -> Wire:
        try:
            return unused.pop()
        except IndexError:
            return dialer.dial(host, port, _DIAL_TIMEOUT_S)

    try:
        with (
            tempfile.TemporaryDirectory(prefix="grpc-way-") as directory,
            socket.socket(socket.AF_UNIX) as listener,
        ):
            path = str(Path(directory) / "s")
            listener.bind(path)
            listener.listen(4)
            with forwarding(listener, dial):
                yield f"unix:{path}"
    finally:
        first.close()
