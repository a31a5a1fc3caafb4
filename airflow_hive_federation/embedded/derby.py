"""Generates and reads the password of an embedded metastore's database.

Derby's network server, through which Hive's SQL engine enqueues compactions, listens on loopback, where every
user of the machine can connect: without a password, any user could change the metastore's data behind Hive's
back, or create a database whose procedures run in our process. Derby reads users and passwords from
``derby.properties`` in its working directory, so that no command line has them.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.runtime.cache import write_atomically

#: Owner of the metastore's tables: Derby's default user.
USER = "APP"

_FILE = "derby.properties"
_PASSWORD = f"derby.user.{USER}="
_PASSWORD_BYTES = 24


def put_password(directory: Path) -> str:
    """Return the password of the database in a directory; generate one if it has none.

    Derby requires the password of every connection, even if the database was created without one.

    :param directory: the metastore's directory, in which Derby has to be started.
    :raises ConfigurationError: if the file has no password, or cannot be read.
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

    :param directory: the metastore's directory.
    :raises ConfigurationError: if the file has no password, or cannot be read.
    """
    path = directory / _FILE
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"The password of the embedded metastore's database cannot be read from {path}: {error}.",
            remedy="Start the metastore, which makes a missing file, as the owner of the directory.",
        ) from error
    passwords = [line.removeprefix(_PASSWORD).strip() for line in lines if line.startswith(_PASSWORD)]
    if not passwords or not passwords[-1]:
        raise ConfigurationError(
            f"{path} names no password of the user {USER}.",
            remedy="Stop the metastore, remove the file and start it again: it makes another password, and "
            "keeps the database.",
        )
    return passwords[-1]
