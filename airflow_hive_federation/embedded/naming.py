"""Finds a running embedded metastore by its name, which belongs to its directory and user."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

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
        named = [metastore for metastore in named if metastore.is_in(directory)]
    elif own := [metastore for metastore in named if metastore.is_in(default_directory(name))]:
        named = own
    if not named:
        names = ", ".join(sorted({metastore.name for metastore in running}))
        start = f"hive-federation metastore start {name}"
        if directory is not None:
            raise ConfigurationError(
                f"no metastore named {name!r} is running in {directory.absolute()}.",
                remedy=f"Name one of hive-federation metastore list, or: {start} --directory {directory}",
            )
        raise ConfigurationError(
            f"no metastore named {name!r} is running.",
            remedy=f"Name one that runs: {names}." if names else start,
        )
    if len(named) > 1:
        places = ", ".join(str(metastore.directory) for metastore in named)
        raise ConfigurationError(
            f"{len(named)} metastores named {name!r} are running: in {places}.",
            remedy="Add --directory with one of them.",
        )
    return named[0]


def metastore_to_stop(name: str, directory: Path | None = None) -> RunningMetastore:
    """Return the running metastore that a command to stop this name may end.

    A metastore outside of the name's default directory may serve another project or test of the same user, so
    the name alone does not choose it.

    :raises ConfigurationError: none runs by that name and in that directory, or the name alone finds only
        metastores of other directories.
    """
    metastore = named_metastore(name, directory)
    if directory is None and not metastore.is_in(default_directory(name)):
        raise ConfigurationError(
            f"no metastore named {name!r} is running in {default_directory(name)}. "
            f"The one in {metastore.directory} has its name, and perhaps another purpose.",
            remedy=f"To stop that one: hive-federation metastore stop {name} --directory "
            f"{quote(str(metastore.directory))}",
        )
    return metastore
