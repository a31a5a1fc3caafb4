"""Opens one SSH connection through all hops of a route, and a channel for each connection to a metastore.

The tunnel opens no local port: the channel is the transport. If a hop is killed, the channels break at once.
If a hop freezes, a call exceeds its deadline, or a new channel cannot be opened: then the tunnel is connected
anew.
"""

from __future__ import annotations

import logging
import socket
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import paramiko

from airflow_hive_federation.errors import (
    ConfigurationError,
    HostKeyError,
    TunnelAuthenticationError,
    TunnelUnreachableError,
)
from airflow_hive_federation.tunnel.route import DEFAULT_PORT, Hop, TunnelSettings

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


log = logging.getLogger(__name__)

#: With paramiko's window of 2 MB, a long answer waits for new window space again and again.
_WINDOW_BYTES = 16 << 20
_PACKET_BYTES = 1 << 15
#: Seconds between keepalives, which keep routers from dropping an idle connection, but detect no frozen peer.
_KEEPALIVE_S = 30
#: Seconds after which a connected tunnel is considered frozen: it normally opens a channel in milliseconds.
_PROBE_S = 10.0
#: Seconds before an acknowledgement is forced: longer than a hop takes, shorter than a delayed one (40 ms).
_HURRY_S = 0.003
_GROUP_AND_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Tunnel:
    """An SSH route that connects at its first use, and serves many connections and threads.

    :param settings: settings of the route.
    """

    def __init__(self, settings: TunnelSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._clients: list[paramiko.SSHClient] = []

    def dial(self, host: str, port: int, timeout_s: float) -> TunnelSocket:
        """Connect to a host from the last hop.

        :param timeout_s: seconds to open the channel; connecting the hops has the route's own timeout.
        :raises TunnelError: (a subclass) if a hop fails; ``hop`` is its name.
        """
        transport = self._standing()
        if transport is not None:
            try:
                return self._channel(transport, host, port, min(timeout_s, _PROBE_S))
            except _Frozen:
                log.warning("The SSH route %s does not answer: it is built anew.", self.settings)
                self._drop(transport)
        transport = self._connected()
        try:
            return self._channel(transport, host, port, min(timeout_s, self.settings.timeout_s))
        except _Frozen as error:
            self._drop(transport)
            raise _unreachable(self.settings.hops[-1], f"it opens no channel to {host}:{port}") from error

    def connect(self) -> None:
        """Connect all hops now instead of at the first use.

        :raises TunnelError: (a subclass) if a hop fails; ``hop`` is its name.
        """
        self._connected()

    def close(self) -> None:
        """Close the connections of all hops; never fails. The next :meth:`dial` connects anew."""
        with self._lock:
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process opens its own connections.
        return Tunnel, (self.settings,)

    # -- the connection ------------------------------------------------------------------------------------

    def _standing(self) -> paramiko.Transport | None:
        with self._lock:
            return self._last_transport()

    def _connected(self) -> paramiko.Transport:
        with self._lock:
            if (transport := self._last_transport()) is not None:
                return transport
            self._close()
            for number, hop in enumerate(self.settings.hops):
                try:
                    self._clients.append(self._connect(hop, self._way_to(hop)))
                except BaseException:
                    self._close()
                    raise
                log.debug("Hop %d of %s is connected.", number + 1, self.settings)
            return self._transport(self._clients[-1])

    def _last_transport(self) -> paramiko.Transport | None:
        if not self._clients:
            return None
        transports = [client.get_transport() for client in self._clients]
        if not all(transport is not None and transport.is_active() for transport in transports):
            return None
        return transports[-1]

    def _transport(self, client: paramiko.SSHClient) -> paramiko.Transport:
        transport = client.get_transport()
        if transport is None:
            raise _unreachable(self.settings.hops[-1], "its connection was closed at once")
        return transport

    def _way_to(self, hop: Hop) -> Any:
        port = hop.port or DEFAULT_PORT
        if self._clients:
            before = self.settings.hops[len(self._clients) - 1]
            with _translated(before):
                return self._transport(self._clients[-1]).open_channel(
                    "direct-tcpip", (hop.host, port), ("127.0.0.1", 0), timeout=self.settings.timeout_s
                )
        try:
            plain = socket.create_connection((hop.host, port), timeout=self.settings.timeout_s)
        except OSError as error:
            raise _unreachable(hop, str(error)) from error
        return _PromptSocket.of(plain)

    def _connect(self, hop: Hop, way: Any) -> paramiko.SSHClient:
        client = paramiko.SSHClient()
        try:
            self._trust(client)
            for key in hop.keys:
                _check_key(hop, key, self.settings.passphrase)
            with _translated(hop):
                client.connect(
                    hop.host,
                    port=hop.port or DEFAULT_PORT,
                    username=hop.effective_user,
                    key_filename=[str(Path(key).expanduser()) for key in hop.keys],
                    passphrase=self.settings.passphrase,
                    sock=way,
                    allow_agent=self.settings.agent,
                    look_for_keys=False,
                    timeout=self.settings.timeout_s,
                    banner_timeout=self.settings.timeout_s,
                    auth_timeout=self.settings.timeout_s,
                    channel_timeout=self.settings.timeout_s,
                    transport_factory=partial(
                        _Transport,
                        default_window_size=_WINDOW_BYTES,
                        default_max_packet_size=_PACKET_BYTES,
                    ),
                )
        except BaseException:
            client.close()
            way.close()
            raise
        self._transport(client).set_keepalive(_KEEPALIVE_S)
        return client

    def _trust(self, client: paramiko.SSHClient) -> None:
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        for path in self.settings.known_hosts:
            try:
                client.load_system_host_keys(str(Path(path).expanduser()))
            except (OSError, UnicodeDecodeError, paramiko.SSHException) as error:
                raise ConfigurationError(
                    f"The file of known hosts {path} cannot be read: {error}.",
                    remedy="Make it with ssh-keyscan, and verify the keys out of band.",
                ) from error

    def _channel(self, transport: paramiko.Transport, host: str, port: int, timeout_s: float) -> TunnelSocket:
        last = self.settings.hops[-1]
        try:
            channel = transport.open_channel(
                "direct-tcpip", (host, port), ("127.0.0.1", 0), timeout=timeout_s
            )
        except paramiko.ChannelException as error:
            raise _unreachable(last, f"{host}:{port} cannot be reached from there: {error.text}") from error
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise _Frozen(str(error)) from error
        return TunnelSocket(channel, transport if len(self.settings.hops) > 1 else None)

    def _drop(self, transport: paramiko.Transport) -> None:
        with self._lock:
            # Another thread may have connected the tunnel anew.
            if self._clients and self._clients[-1].get_transport() is transport:
                self._close()

    def _close(self) -> None:
        while self._clients:
            self._clients.pop().close()


class _Transport(paramiko.Transport):  # type: ignore[misc] # it is not annotated
    def run(self) -> None:
        """Run paramiko's thread; suppress the traceback if the peer disconnects during an answer."""
        try:
            super().run()
        except EOFError as error:
            log.debug("The SSH connection ended: %r", error)


class _Frozen(Exception):  # noqa: N818 - internal signal
    pass


class TunnelSocket:
    """A channel with the methods of a socket that a metastore client needs.

    :param hurried: the transport, if the route has several hops. An SSH server delays a small write until
        the previous one is acknowledged, and the hop before it delays the acknowledgement by 40 ms, unless
        it has bytes to send. So a waiting reader sends SSH messages that the server ignores.
    """

    def __init__(self, channel: paramiko.Channel, hurried: paramiko.Transport | None = None) -> None:
        self._channel = channel
        self._hurried = hurried
        self._timeout_s: float | None = None

    def settimeout(self, seconds: float | None) -> None:
        """Limit each :meth:`send` and :meth:`recv` to ``seconds``."""
        self._timeout_s = seconds
        self._channel.settimeout(seconds)

    def send(self, data: bytes | memoryview) -> int:
        """Send some of the bytes; return their number.

        :raises ConnectionError: if the channel is closed.
        """
        try:
            return int(self._channel.send(bytes(data[:_WINDOW_BYTES])))
        except TimeoutError:
            raise
        except OSError as error:
            raise ConnectionResetError("the SSH channel is closed") from error

    def recv(self, size: int) -> bytes:
        """Return between 1 and ``size`` bytes, none at the end."""
        if self._hurried is None:
            return bytes(self._channel.recv(size))
        deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        pause_s = _HURRY_S
        try:
            while True:
                left_s = pause_s if deadline is None else deadline - time.monotonic()
                self._channel.settimeout(max(0.0, min(pause_s, left_s)))
                try:
                    return bytes(self._channel.recv(size))
                except TimeoutError:
                    if left_s <= pause_s and deadline is not None:
                        raise
                self._hurry()
                pause_s *= 2
        finally:
            self._channel.settimeout(self._timeout_s)

    def _hurry(self) -> None:
        # If the connection is lost, the next wait raises the error.
        with suppress(paramiko.SSHException, OSError, EOFError):
            if self._hurried is not None:
                self._hurried.send_ignore(1)

    def recv_into(self, buffer: WriteableBuffer) -> int:
        """Read into a buffer; return the number of bytes."""
        data = self.recv(memoryview(buffer).nbytes)
        memoryview(buffer)[: len(data)] = data
        return len(data)

    def has_input(self) -> bool:
        """Return whether the peer has sent bytes, or closed the channel."""
        return bool(self._channel.recv_ready() or self._channel.eof_received or self._channel.closed)

    def close(self) -> None:
        """Close the channel, but not the tunnel."""
        self._channel.close()


class _PromptSocket(socket.socket):
    """A socket that neither collects small writes nor delays acknowledgements, which together take 40 ms."""

    @classmethod
    def of(cls, plain: socket.socket) -> _PromptSocket:
        """Create one from a connected socket, whose descriptor it takes over."""
        timeout = plain.gettimeout()
        prompt = cls(plain.family, plain.type, plain.proto, fileno=plain.detach())
        prompt.settimeout(timeout)
        prompt.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return prompt

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """Receive bytes, and request quick acknowledgements again, because the kernel resets the option."""
        data = super().recv(size, flags)
        if hasattr(socket, "TCP_QUICKACK"):
            self.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return data


def _check_key(hop: Hop, path: str, passphrase: str | None) -> None:
    """Refuse a private key that others can read, as ``ssh`` does, or that cannot be read or parsed."""
    file = Path(path).expanduser()
    try:
        mode = file.stat().st_mode
    except OSError as error:
        raise TunnelAuthenticationError(
            f"{hop}: the private key {path} cannot be read: {error.strerror}.",
            remedy="Give one that is there on every worker.",
            hop=str(hop),
        ) from error
    if mode & _GROUP_AND_OTHERS:
        raise TunnelAuthenticationError(
            f"{hop}: the private key {path} can be read by others (mode {stat.S_IMODE(mode):o}).",
            remedy="Run chmod 600 on it, and replace the key if others may have read it.",
            hop=str(hop),
        )
    try:
        paramiko.PKey.from_path(file, passphrase.encode() if passphrase else None)
    except (paramiko.SSHException, paramiko.pkey.UnknownKeyType, ValueError, TypeError) as error:
        raise TunnelAuthenticationError(
            f"{hop}: the private key {path} cannot be used: {error}.",
            remedy="Give a private key; the passphrase of one that has it comes by a connection.",
            hop=str(hop),
        ) from error


@contextmanager
def _translated(hop: Hop) -> Iterator[None]:
    facts = {"hop": str(hop)}
    try:
        yield
    except paramiko.BadHostKeyException as error:
        raise HostKeyError(
            f"The host key of {hop} ({error.key.fingerprint}) differs from the known host key.",
            remedy="Find out why before you trust it: another machine may intercept the connection.",
            **facts,
        ) from error
    except paramiko.AuthenticationException as error:
        raise TunnelAuthenticationError(
            f"{hop} refuses user and key: {error}", remedy="Correct user, key or passphrase.", **facts
        ) from error
    except paramiko.SSHException as error:
        if "known_hosts" in str(error):
            raise HostKeyError(
                f"The host key of {hop} is not known.",
                remedy="Verify it out of band, and add it to the file of known hosts.",
                **facts,
            ) from error
        if "authentication" in str(error).lower():
            raise TunnelAuthenticationError(
                f"{hop}: {error}", remedy="Give a private key for this hop, or an agent.", **facts
            ) from error
        if isinstance(error, paramiko.ChannelException):
            raise _unreachable(hop, f"it does not reach the next hop: {error.text}") from error
        raise _unreachable(hop, str(error)) from error
    except (OSError, EOFError, ValueError) as error:
        raise _unreachable(hop, str(error) or type(error).__name__) from error


def _unreachable(hop: Hop, why: str) -> TunnelUnreachableError:
    return TunnelUnreachableError(
        f"{hop} of the SSH route: {why}.", remedy="Look at that machine and its SSH server.", hop=str(hop)
    )
