"""The password of an embedded metastore's database.

Derby's network server, by which Hive's SQL engine enqueues compactions, listens on loopback, where every user
of the machine reaches it: without a password, anybody could change the metastore past Hive, or make a
database of their own whose procedures run in our process. Derby itself reads users and passwords from
``derby.properties`` in the directory that it was started in, so that none is on a command line.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.runtime.cache import write_atomically

#: Owner of the metastore's tables, as Derby names users that are not named.
USER = "APP"

_FILE = "derby.properties"
_PASSWORD = f"derby.user.{USER}="
_PASSWORD_BYTES = 24


def put_password(directory: Path) -> str:
    """Return the password of the database in a directory; generate one where there is none.

    Derby asks whoever opens a database, also one that was made without a password.

    :param directory: the metastore's; Derby has to be started in it.
    :raises ConfigurationError: the file names no password, or cannot be read.
    """
    path = directory / _FILE
    if not path.exists():
        password = secrets.token_hex(_PASSWORD_BYTES)
        lines = (
            "derby.connection.requireAuthentication=true",
            "derby.authentication.provider=BUILTIN",
            f"{_PASSWORD}{password}",
        )
        write_atomically(path, "".join(f"{line}\n" for line in lines).encode(), private=True)
    return read_password(directory)


def read_password(directory: Path) -> str:
    """Return the password of the database in a directory.

    :param directory: the metastore's.
    :raises ConfigurationError: the file names no password, or cannot be read.
    """
    path = directory / _FILE
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"The password of the embedded metastore's database cannot be read from {path}: {error}.",
            remedy="Start the metastore, which makes a missing file, as the owner of the directory.",
        ) from error
    found = [line.removeprefix(_PASSWORD).strip() for line in lines if line.startswith(_PASSWORD)]
    if not found or not found[-1]:
        raise ConfigurationError(
            f"{path} names no password of the user {USER}.",
            remedy="Stop the metastore, remove the file and start it again: it makes another password, and "
            "keeps the database.",
        )
    return found[-1]
