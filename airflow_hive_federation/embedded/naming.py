"""Finds a running embedded metastore by its name, which belongs to its directory and user."""

from __future__ import annotations

from pathlib import Path

from airflow_hive_federation.embedded.metastore import RunningMetastore, running_metastores
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.runtime.cache import data_directory


def default_directory(name: str) -> Path:
    """Return the directory of the metastores that the command line starts by this name alone."""
    return data_directory() / "metastores" / name


def named_metastore(name: str, directory: Path | None = None) -> RunningMetastore:
    """Return the running metastore of a name.

    Several directories may each have a metastore of that name, those of tests for instance. Without a
    directory, the name means the metastore in its default directory, or else the only one.

    :raises ConfigurationError: none runs by that name and in that directory, or several do.
    """
    running = running_metastores()
    named = [metastore for metastore in running if metastore.name == name]
    if directory is not None:
        named = [metastore for metastore in named if metastore.directory == directory.absolute()]
    elif own := [metastore for metastore in named if metastore.directory == default_directory(name)]:
        named = own
    if not named:
        place = f" in {directory.absolute()}" if directory is not None else ""
        names = ", ".join(sorted({metastore.name for metastore in running}))
        raise ConfigurationError(
            f"no metastore named {name!r} is running{place}.",
            remedy=f"Name one that runs: {names}." if names else f"hive-federation metastore start {name}",
        )
    if len(named) > 1:
        places = ", ".join(str(metastore.directory) for metastore in named)
        raise ConfigurationError(
            f"{len(named)} metastores named {name!r} are running: in {places}.",
            remedy="Add --directory with one of them.",
        )
    return named[0]
