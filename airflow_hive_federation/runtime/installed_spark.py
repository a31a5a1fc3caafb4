"""Finds the pyspark that is installed beside this package, without importing it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from airflow_hive_federation.errors import SparkEnvironmentError


@dataclass(frozen=True, kw_only=True)
class InstalledSpark:
    """The distributions that install into the folder ``pyspark``; ``None`` for those that are not installed.

    :param pyspark: version of ``pyspark``.
    :param client: version of ``pyspark-client``, which the apache-spark provider requires from version 6 on.
    :param provider: version of the apache-spark provider.
    """

    pyspark: str | None
    client: str | None
    provider: str | None


def installed_spark() -> InstalledSpark:
    """Return the versions that are installed in this Python."""
    return InstalledSpark(
        pyspark=_version("pyspark"),
        client=_version("pyspark-client"),
        provider=_version("apache-airflow-providers-apache-spark"),
    )


def pyspark_home() -> str | None:
    """Return the folder of the installed pyspark that has ``bin/spark-submit``; ``None`` if none has it."""
    # find_spec does not import pyspark; spark-submit would start a Python process for the same purpose.
    spec = importlib.util.find_spec("pyspark")
    homes = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    return next((str(home) for home in homes if (home / "bin" / "spark-submit").is_file()), None)


def refuse_mixed_pyspark(installed: InstalledSpark) -> None:
    """Refuse a pyspark whose files pyspark-client may have overwritten with those of another version.

    Both install into one folder, and no installer reports the conflict.

    :raises SparkEnvironmentError: the versions differ; ``pyspark`` and ``client`` name them.
    """
    pyspark, client = installed.pyspark, installed.client
    if not (pyspark and client and pyspark != client):
        return
    if pyspark.startswith("3."):
        # There is no pyspark-client for Spark 3.
        remedy = (
            "Uninstall both, then install, with --force-reinstall, a provider that needs no pyspark-client: "
            f"'pyspark=={pyspark}' 'apache-airflow-providers-apache-spark<6'."
        )
    else:
        remedy = (
            "Install both in one version, with --force-reinstall: "
            f"'pyspark=={client}' 'pyspark-client=={client}', or both {pyspark}."
        )
    raise SparkEnvironmentError(
        f"pyspark {pyspark} and pyspark-client {client} are installed into one folder, where each has "
        "overwritten files of the other.",
        remedy=remedy,
        pyspark=pyspark,
        client=client,
    )


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
