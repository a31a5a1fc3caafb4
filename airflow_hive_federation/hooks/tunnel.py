"""Connects through the SSH routes of Airflow connections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_hive_federation.errors import ConfigurationError, HiveFederationError
from airflow_hive_federation.hooks.compat import mask_secret
from airflow_hive_federation.hooks.connection_errors import naming
from airflow_hive_federation.hooks.connection_extras import own_extras

if TYPE_CHECKING:
    from airflow_hive_federation.tunnel.route import TunnelSettings
    from airflow_hive_federation.tunnel.tunnel import Tunnel


class SSHTunnelHook(BaseHook):
    """Opens the SSH route of a connection of type ``hive_federation``, which its extras ``ssh_…`` define.

    :param metastore_conn_id: the id of the connection.
    """

    conn_name_attr = "metastore_conn_id"
    default_conn_name = "hive_federation_default"

    def __init__(self, metastore_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.metastore_conn_id = metastore_conn_id

    @cached_property
    def settings(self) -> TunnelSettings:
        """The settings of the route.

        :raises ConfigurationError: the connection has no route, or an impossible one.
        """
        connection = self.get_connection(self.metastore_conn_id)
        route = tunnel_settings(connection.conn_id, own_extras(connection))
        if route is None:
            raise ConfigurationError(
                f"Connection {self.metastore_conn_id!r} has no SSH route.",
                remedy="Set its extra 'ssh_route': user@host -> user@host.",
            )
        return route

    def get_conn(self) -> Tunnel:
        """Return a tunnel over the route, which connects at its first use. The caller closes it."""
        from airflow_hive_federation.tunnel.tunnel import Tunnel

        return Tunnel(self.settings)

    @contextmanager
    def listening(self, host: str, port: int, *, address: str = "127.0.0.1") -> Iterator[int]:
        """Listen on a local port that leads through the route, for programs without support for tunnels.

        The parameters, the result and the errors are those of
        :func:`airflow_hive_federation.tunnel.listener.listening`.
        """
        from airflow_hive_federation.tunnel.listener import listening

        with self.get_conn() as tunnel, listening(tunnel, host, port, address=address) as local_port:
            yield local_port

    def test_connection(self) -> tuple[bool, str]:
        """Return whether all hops accept the login."""
        try:
            with self.get_conn() as tunnel:
                tunnel.connect()
        except HiveFederationError as error:
            return False, str(error)
        return True, f"All {len(self.settings.hops)} hop(s) of {self.settings} answer."


def tunnel_settings(conn_id: str, extras: Mapping[str, Any]) -> TunnelSettings | None:
    """Return the SSH route in a connection's extras; ``None`` if they contain none.

    :raises ConfigurationError: the route is impossible, or the extras have settings of a route but no route.
    """
    from airflow_hive_federation.tunnel.route import (
        DEFAULT_TIMEOUT_S,
        KNOWN_HOSTS,
        TunnelSettings,
        parse_route,
    )

    ssh_extras = {name: value for name, value in extras.items() if name.startswith("ssh_") and value}
    if not ssh_extras:
        return None
    if "ssh_route" not in ssh_extras:
        raise ConfigurationError(
            f"Connection {conn_id!r} has {', '.join(sorted(ssh_extras))} and no 'ssh_route'.",
            remedy="Set it: user@host -> user@host.",
            conn_id=conn_id,
            field="ssh_route",
        )
    if "ssh_passphrase" in ssh_extras:
        mask_secret(str(ssh_extras["ssh_passphrase"]))
    try:
        timeout_s = float(ssh_extras.get("ssh_timeout_s", DEFAULT_TIMEOUT_S))
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"Connection {conn_id!r}: the extra 'ssh_timeout_s' is no number.",
            remedy="Give seconds.",
            conn_id=conn_id,
            field="ssh_timeout_s",
        ) from None
    with naming(conn_id, "ssh_route"):
        hops = parse_route(str(ssh_extras["ssh_route"]), _listed(ssh_extras.get("ssh_key_files")))
    with naming(conn_id, "ssh_timeout_s"):
        return TunnelSettings(
            hops=hops,
            known_hosts=_listed(ssh_extras.get("ssh_known_hosts")) or (KNOWN_HOSTS,),
            timeout_s=timeout_s,
            passphrase=ssh_extras.get("ssh_passphrase"),
        )


def _listed(value: object) -> tuple[str, ...]:
    return tuple(part.strip() for part in str(value or "").split(",") if part.strip())
