"""Opens a local port that leads through a tunnel, for programs without support for tunnels.

Every user of this machine may connect to the port: our own clients use a channel of the tunnel instead, and
open no port.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.runtime.forwarding import forwarding
from airflow_hive_federation.tunnel.tunnel import Tunnel

LOOPBACK = "127.0.0.1"
_DIAL_TIMEOUT_S = 20.0


@contextmanager
def listening(tunnel: Tunnel, host: str, port: int, *, address: str = LOOPBACK) -> Iterator[int]:
    """Listen on this machine while the block runs, and forward each connection through a tunnel.

    :param tunnel: tunnel, which the function connects before the block begins.
    :param host: host to connect to from the tunnel's last hop.
    :param address: loopback address to listen on.
    :return: the port to connect to.
    :raises ConfigurationError: if the address is no loopback address.
    :raises TunnelError: (a subclass) if a hop fails.
    """
    _check(address)
    tunnel.connect()
    with (
        socket.create_server((address, 0)) as listener,
        forwarding(listener, lambda: tunnel.dial(host, port, _DIAL_TIMEOUT_S)),
    ):
        yield int(listener.getsockname()[1])


def _check(address: str) -> None:
    try:
        inside = ipaddress.ip_address(address).is_loopback
    except ValueError:
        inside = False
    if not inside:
        raise ConfigurationError(
            f"{address} is not a loopback address: the tunnel would be open to others.",
            remedy=f"Take {LOOPBACK}.",
        )
