"""What an SSH route is: pure, but for reading SSH configuration files that it names."""

from __future__ import annotations

import getpass
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflow_hive_federation.errors import ConfigurationError

DEFAULT_PORT = 22
KNOWN_HOSTS = "~/.ssh/known_hosts"
#: Waggle Dance's default.
DEFAULT_TIMEOUT_S = 60.0

_HOP = re.compile(
    r"(?:(?P<user>[^@\s]+)@)?(?:\[(?P<bracketed>[^\]\s]+)\]|(?P<host>[^:@\s\[\]]+))(?::(?P<port>\d{1,5}))?"
)


@dataclass(frozen=True, kw_only=True)
class Hop:
    """One machine of a route.

    :param user: who logs in there; ``None`` is the SSH configuration's, else the operating system's user.
    :param host: its name or address.
    :param port: where its SSH server listens.
    :param keys: files with private keys to try, in order; none leaves it to the agent.
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
        """Who logs in there."""
        return self.user or getpass.getuser()


@dataclass(frozen=True, kw_only=True)
class TunnelSettings:
    """A route and how its hops are trusted.

    :param hops: machines in order; the metastore is reached from the last.
    :param known_hosts: files of known host keys; a host that none of them knows is refused.
    :param timeout_s: seconds to connect one hop, and to open a channel.
    :param agent: ask an SSH agent for keys as well.
    :param passphrase: of the private keys that have one.
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
        if self.timeout_s <= 0:
            raise ConfigurationError(
                f"The timeout of an SSH route is {self.timeout_s} s.", remedy="Give seconds above 0."
            )

    def __str__(self) -> str:
        return " -> ".join(map(str, self.hops))


def parse_route(route: str, keys: Sequence[str] = ()) -> tuple[Hop, ...]:
    """Take ``user@host[:port] -> user@host…`` apart.

    :param keys: files of private keys: one for each hop, or one for all.
    :raises ConfigurationError: if it is none, or the keys are neither none, one nor one a hop.
    """
    hops = []
    for number, text in enumerate(route.split("->"), 1):
        match = _HOP.fullmatch(text.strip())
        port = int(match["port"]) if match and match["port"] else None
        if match is None or (port is not None and not 0 < port < 65536):
            raise ConfigurationError(
                f"Hop {number} of the SSH route is {text.strip()!r}, which is no user@host[:port].",
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

    What the route says itself counts more.

    :return: the hops, those of ProxyJump among them, and the files of UserKnownHostsFile.
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
        for one in _with_jumps(hop, config.lookup, 0):
            known += config.lookup(one.host).get("userknownhostsfile", "").split()
            completed.append(_completed(one, config.lookup(one.host)))
    return tuple(completed), tuple(dict.fromkeys(known))


_MOST_JUMPS = 16
Lookup = Callable[[str], Mapping[str, Any]]


def _with_jumps(hop: Hop, lookup: Lookup, depth: int) -> list[Hop]:
    jumps = str(lookup(hop.host).get("proxyjump", "none"))
    if jumps.lower() == "none":
        return [hop]
    if depth >= _MOST_JUMPS:
        raise ConfigurationError(
            f"ProxyJump of {hop.host} leads on more than {_MOST_JUMPS} times.", remedy="Look for a circle."
        )
    before = [
        one for jump in jumps.split(",") for one in _with_jumps(parse_route(jump)[0], lookup, depth + 1)
    ]
    return [*before, hop]


def _completed(hop: Hop, found: Mapping[str, Any]) -> Hop:
    return Hop(
        host=str(found.get("hostname", hop.host)),
        user=hop.user or (str(found["user"]) if "user" in found else None),
        port=hop.port or (int(str(found["port"])) if "port" in found else None),
        keys=hop.keys or tuple(found.get("identityfile") or ()),
    )
