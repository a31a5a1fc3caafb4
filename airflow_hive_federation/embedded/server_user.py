"""Finds the user that a database server runs as, and a directory that this user can reach.

PostgreSQL and MariaDB refuse to run as root: if root starts them, they run as the user ``nobody``.
"""

from __future__ import annotations

import os
import pwd
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from airflow_hive_federation.errors import ConfigurationError

#: The user of servers that root starts.
_USER = "nobody"
_ROOTS_SERVERS = Path("/var/lib/airflow-hive-federation")


@dataclass(frozen=True, kw_only=True)
class ServerUser:
    """The user and group that a server runs as; ``None`` for those of this process."""

    user: int | None = None
    group: int | None = None

    def own(self, path: Path) -> None:
        """Give a file or a directory to the user, unless it is that of this process."""
        if self.user is not None and self.group is not None:
            os.chown(path, self.user, self.group)


def server_user(title: str) -> ServerUser:
    """Return the user that a server has to run as: that of this process, except for root.

    :param title: the server's name for the error.
    :raises ConfigurationError: if this process is root's, and the machine has no user ``nobody``.
    """
    if os.geteuid() != 0:
        return ServerUser()
    try:
        entry = pwd.getpwnam(_USER)
    except KeyError as error:
        raise ConfigurationError(
            f"{title} does not run as root, and this machine has no user {_USER!r}.",
            remedy="Start the metastore as another user, or on Derby.",
        ) from error
    return ServerUser(user=entry.pw_uid, group=entry.pw_gid)


def reachable_home(wanted: Path, user: ServerUser, kind: str) -> Path:
    """Return ``wanted``, or, if the server's user cannot reach it, a new directory elsewhere.

    A server of a temporary directory gets another temporary one.

    :param kind: ``postgresql`` or ``mariadb``, for the new directory's name.
    """
    if user.user is None or is_reachable(wanted):
        return wanted
    temporary = Path(tempfile.gettempdir()).resolve()
    base = temporary if wanted.resolve().is_relative_to(temporary) and is_reachable(temporary / "x") else None
    if base is None:
        base = _ROOTS_SERVERS
        base.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"hive-{kind}-", dir=base))


def is_reachable(path: Path) -> bool:
    """Return whether all users may pass the parents of ``path``."""
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.absolute().parents if parent.is_dir())
