"""Checks the hosts that see a worker's credentials and the files that a worker reads for a remote.

Any user who may alter a table's parameters can write a remote's properties. The properties may name only
hosts and files that an administrator of the workers has allowed by environment variables of the workers.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from airflow_hive_federation.errors import ConfigurationError

#: Holds the comma-separated URLs of endpoints that properties may name, ``https://glue.example.com``.
ENDPOINTS_VARIABLE = "HIVE_FEDERATION_REMOTE_ENDPOINTS"
#: Holds the directories of the SSH files that properties may name, separated as in ``PATH``.
SSH_FILES_VARIABLE = "HIVE_FEDERATION_REMOTE_SSH_FILES"
_SSH_FILES = "~/.ssh"


def check_endpoint(name: str, url: str) -> None:
    """Refuse an endpoint that is not allowed to receive requests signed with the worker's credentials.

    :param name: name of the property that has the endpoint.
    :raises ConfigurationError: if no administrator has allowed the endpoint.
    """
    allowed = {
        _origin(address) for address in os.environ.get(ENDPOINTS_VARIABLE, "").split(",") if address.strip()
    }
    if _origin(url) not in allowed:
        raise ConfigurationError(
            f"The property {name!r} names the endpoint {url!r}, which remotes may not name.",
            remedy="Name an Airflow connection that has the endpoint, or let an administrator of the workers "
            f"add it to the environment variable {ENDPOINTS_VARIABLE}.",
        )


def check_ssh_file(name: str, path: str) -> None:
    """Refuse a file of keys, known hosts or configuration that lies outside the allowed directories.

    :param name: name of the property that has the file.
    :raises ConfigurationError: if the file lies outside them.
    """
    listed = os.environ.get(SSH_FILES_VARIABLE, _SSH_FILES).split(os.pathsep)
    directories = [Path(folder).expanduser().resolve() for folder in listed if folder]
    file = Path(path).expanduser().resolve()
    if not any(file.is_relative_to(directory) for directory in directories):
        raise ConfigurationError(
            f"The property {name!r} names the file {path!r}, which lies outside the directories that remotes "
            "may name files in.",
            remedy=f"Move it below {' or '.join(map(str, directories))}, or let an administrator of the "
            f"workers set the environment variable {SSH_FILES_VARIABLE}.",
        )


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url.strip())
    try:
        port = parts.port
    except ValueError:
        port = -1
    return parts.scheme, parts.hostname or "", port or {"http": 80, "https": 443}.get(parts.scheme)
