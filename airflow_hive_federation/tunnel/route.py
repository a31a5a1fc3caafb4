"""Parses SSH routes and completes them by SSH configuration files."""

from __future__ import annotations

import getpass
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.runtime.durations import LONGEST_TIMEOUT_S

DEFAULT_PORT = 22
KNOWN_HOSTS = "~/.ssh/known_hosts"
#: Default timeout of Waggle Dance in seconds.
DEFAULT_TIMEOUT_S = 60.0

_HOP = re.compile(
    r"(?:(?P<user>[^@\s]+)@)?(?:\[(?P<bracketed>[^\]\s]+)\]|(?P<host>[^:@\s\[\]]+))(?::(?P<port>\d{1,5}))?"
)


@dataclass(frozen=True, kw_only=True)
class Hop:
    """One machine of a route.

    :param user: user to log in as; ``None`` takes the SSH configuration's, else the operating system's user.
    :param host: its name or address.
    :param port: port of its SSH server.
    :param keys: files with private keys to try, in order; without any, only the agent's keys are tried.
    """

    host: str
    user: str | None = None
    port: int | None = None
    keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = f"{self.user}@" if self.user else ""
        port = f":{self.port}" if self.port not in {None, DEFAULT_PORT} else ""
        return f"{user}{host}{port}"

    @property
    def effective_user(self) -> str:
        """Return the user to log in as."""
        return self.user or getpass.getuser()


@dataclass(frozen=True, kw_only=True)
class TunnelSettings:
    """A route, with the known hosts and keys of its hops.

    :param hops: machines in order; the last one connects to the metastore.
    :param known_hosts: files of known host keys; a host without a key in them is refused.
    :param timeout_s: seconds to connect one hop, and to open a channel.
    :param agent: use the keys of an SSH agent as well.
    :param passphrase: passphrase of the encrypted private keys.
    """

    hops: tuple[Hop, ...]
    known_hosts: tuple[str, ...] = (KNOWN_HOSTS,)
    timeout_s: float = DEFAULT_TIMEOUT_S
    agent: bool = False
    passphrase: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.hops:
            raise ConfigurationError(
                "The SSH route has no hop.", remedy="Write user@host -> user@host, at least one."
            )
        if not 0 < self.timeout_s <= LONGEST_TIMEOUT_S:
            raise ConfigurationError(
                f"The timeout of an SSH route is {self.timeout_s} s.",
                remedy=f"Give seconds above 0, and no more than {LONGEST_TIMEOUT_S} (a week).",
            )

    def __str__(self) -> str:
        return " -> ".join(map(str, self.hops))


def parse_route(route: str, keys: Sequence[str] = ()) -> tuple[Hop, ...]:
    """Parse a route of the form ``user@host[:port] -> user@host…``.

    :param keys: files of private keys: one for each hop, or one for all.
    :raises ConfigurationError: if the text is no route, or the number of keys is neither 0, 1 nor that of
        the hops.
    """
    hops = []
    for number, text in enumerate(route.split("->"), 1):
        match = _HOP.fullmatch(text.strip())
        port = int(match["port"]) if match and match["port"] else None
        if match is None or (port is not None and not 0 < port < 65536):
            raise ConfigurationError(
                f"Hop {number} of the SSH route is {text.strip()!r}, which is not user@host[:port].",
                remedy="Write user@host -> user@host:2222.",
            )
        hops.append(Hop(user=match["user"], host=match["bracketed"] or match["host"], port=port))
    if len(keys) not in {0, 1, len(hops)}:
        raise ConfigurationError(
            f"The SSH route has {len(hops)} hops and {len(keys)} private keys.",
            remedy="Give one key for each hop, in order, or one for all.",
        )
    by_hop = keys if len(keys) == len(hops) else list(keys) * len(hops)
    return tuple(replace(hop, keys=(by_hop[at],)) if at < len(by_hop) else hop for at, hop in enumerate(hops))


def by_configuration(hops: Sequence[Hop], path: str) -> tuple[tuple[Hop, ...], tuple[str, ...]]:
    """Complete hops by an OpenSSH configuration file: HostName, User, Port, IdentityFile and ProxyJump.

    Settings of the route itself take precedence.

    :return: the hops, including those of ProxyJump, and the files of UserKnownHostsFile.
    :raises ConfigurationError: if the file cannot be read.
    """
    from paramiko import SSHConfig

    try:
        config = SSHConfig.from_text(Path(path).expanduser().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"The SSH configuration {path} cannot be read: {error}.", remedy="Name a readable file."
        ) from error
    known: list[str] = []
    completed: list[Hop] = []
    for hop in hops:
        for machine in _with_jumps(hop, config.lookup, 0):
            known += config.lookup(machine.host).get("userknownhostsfile", "").split()
            completed.append(_completed(machine, config.lookup(machine.host)))
    return tuple(completed), tuple(dict.fromkeys(known))


_MOST_JUMPS = 16
Lookup = Callable[[str], Mapping[str, Any]]


def _with_jumps(hop: Hop, lookup: Lookup, depth: int) -> list[Hop]:
    jumps = str(lookup(hop.host).get("proxyjump", "none"))
    if jumps.lower() == "none":
        return [hop]
    if depth >= _MOST_JUMPS:
        raise ConfigurationError(
            f"ProxyJump of {hop.host} leads through more than {_MOST_JUMPS} jumps.", remedy="Remove the loop."
        )
    before = [
        machine
        for jump in jumps.split(",")
        for machine in _with_jumps(parse_route(jump)[0], lookup, depth + 1)
    ]
    return [*before, hop]


def _completed(hop: Hop, settings: Mapping[str, Any]) -> Hop:
    return Hop(
        host=str(settings.get("hostname", hop.host)),
        user=hop.user or (str(settings["user"]) if "user" in settings else None),
        port=hop.port or (int(str(settings["port"])) if "port" in settings else None),
        keys=hop.keys or tuple(settings.get("identityfile") or ()),
    )
