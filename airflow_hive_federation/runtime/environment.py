"""Removes secrets from the environments of child processes."""

from __future__ import annotations

import os
from collections.abc import Mapping

#: Beginnings of the names of Airflow's connections, variables and settings, which include passwords and keys,
#: and of pyiceberg's catalogs with their credentials. ``AIRFLOW_HOME``, ``AIRFLOW_CTX_…`` and the package's
#: own ``AIRFLOW_HIVE_FEDERATION_…`` hold no secrets.
_SECRET = ("AIRFLOW_CONN_", "AIRFLOW_VAR_", "AIRFLOW__", "_AIRFLOW__", "PYICEBERG_CATALOG__")


def without_secrets(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment without the secrets of Airflow and pyiceberg.

    Other processes of the same user can read the environment of a process in ``/proc``, and a Java virtual
    machine writes its environment into the log of a crash.

    :param environ: the original environment; by default that of this process.
    """
    given = os.environ if environ is None else environ
    return {name: value for name, value in given.items() if not name.startswith(_SECRET)}
