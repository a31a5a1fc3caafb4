"""Where a remote may lead a worker: hosts that see its credentials, and files that it reads.

Whoever may alter a table's parameters writes a remote's properties. They choose among places that an
administrator of the workers has allowed, by environment variables of the workers.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from airflow_hive_federation.errors import ConfigurationError

#: Comma-separated URLs of endpoints that properties of remotes may name, ``https://glue.example.com``.
ENDPOINTS_VARIABLE = "HIVE_FEDERATION_REMOTE_ENDPOINTS"
#: Directories of the SSH files that properties of remotes may name, separated as in ``PATH``.
SSH_FILES_VARIABLE = "HIVE_FEDERATION_REMOTE_SSH_FILES"
_SSH_FILES = "~/.ssh"


def check_endpoint(name: str, url: str) -> None:
    """Refuse an endpoint to which requests would be sent that are signed with the worker's credentials.

    :param name: the property that names it.
    :raises ConfigurationError: if it is not one of those that an administrator allows.
    """
    allowed = {_origin(one) for one in os.environ.get(ENDPOINTS_VARIABLE, "").split(",") if one.strip()}
    if _origin(url) not in allowed:
        raise ConfigurationError(
            f"The property {name!r} names the endpoint {url!r}, which remotes may not name.",
            remedy="Name an Airflow connection that has the endpoint, or let an administrator of the workers "
            f"add it to the environment variable {ENDPOINTS_VARIABLE}.",
        )


def check_ssh_file(name: str, path: str) -> None:
    """Refuse a file of keys, known hosts or configuration that lies outside the directories for them.

    :param name: the property that names it.
    :raises ConfigurationError: if it lies elsewhere.
    """
    listed = os.environ.get(SSH_FILES_VARIABLE, _SSH_FILES).split(os.pathsep)
    directories = [Path(one).expanduser().resolve() for one in listed if one]
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
