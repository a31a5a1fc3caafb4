"""Removes from the disk what a failed start of a server has created, and keeps its log in the cache."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path

from airflow_hive_federation.errors import MetastoreStartError
from airflow_hive_federation.runtime.cache import cache_directory, exclusively, short_digest

#: Directories that each start creates.
FOLDERS = ("conf", "warehouse", "external", "repl", "cmroot", "scratch")

#: Patterns of all names that a start creates in a metastore's directory.
_CREATED = (
    *FOLDERS,
    "metastore.lock",
    "metastore.log",
    "metastore_db",
    "metastore_db.partial",
    "derby.log",
    "derby.properties",
    "postgresql",
    "postgresql.json",
    "mariadb",
    "mariadb.json",
    ".derby.properties.*.partial",
    ".postgresql.json.*.partial",
    ".mariadb.json.*.partial",
    "hs_err_pid*.log",
)


@contextmanager
def leaving_nothing(directory: Path, name: str, *, remove: bool) -> Iterator[None]:
    """Remove from a directory what a failed start has created there, unless it had files before.

    Starts in one directory wait for each other. The log goes to ``failed-starts`` in the cache; one more
    failed start in the directory replaces it.

    :param name: the metastore's name; the log's name in the cache begins with it.
    :param remove: the directory is a temporary one: remove it with all its content.
    :raises MetastoreStartError: that of the block, with the new place of its log.
    """
    with ExitStack() as stack:
        if not remove:
            # Another start in the directory would lose its files.
            lock = f"{short_digest(str(directory.resolve()).encode())}.lock"
            stack.enter_context(exclusively(cache_directory() / "starting" / lock))
        with _emptying(directory, name, remove=remove):
            yield


@contextmanager
def _emptying(directory: Path, name: str, *, remove: bool) -> Iterator[None]:
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    had_files = directory.is_dir() and any(directory.iterdir())
    try:
        yield
    except MetastoreStartError as error:
        if had_files:
            raise
        log = Path(str(error.log_path))
        if not (log.is_relative_to(directory) and log.is_file()):
            # The error has another remedy, or its log stays elsewhere.
            _empty(directory, missing, remove=remove)
            raise
        kept = _copied(log, name)
        if kept is None:
            # Nobody has the log but this directory.
            raise
        _empty(directory, missing, remove=remove)
        raise MetastoreStartError(error.message, remedy=f"See {kept}.", log_path=str(kept)) from error
    except BaseException:
        # An interrupt, too, must leave nothing behind.
        if not had_files:
            _empty(directory, missing, remove=remove)
        raise


def _copied(log: Path, name: str) -> Path | None:
    """Copy a log into the cache; return its path there, or ``None`` if it cannot be copied."""
    kept = cache_directory() / "failed-starts" / f"{name}-{short_digest(str(log).encode())}.log"
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(log, kept)
    except OSError:
        return None
    return kept


def _empty(directory: Path, missing: list[Path], *, remove: bool) -> None:
    """Remove what the start created in a directory, and the directories above that it created.

    :param missing: the directories that did not exist before, the deepest one first.
    """
    for path in directory.iterdir() if directory.is_dir() else ():
        # A file of somebody else may have come meanwhile.
        if not remove and not any(fnmatch(path.name, pattern) for pattern in _CREATED):
            continue
        if path.is_dir() and not path.is_symlink():
            # After a kill, half of a database under its own name would hinder the next start.
            shutil.rmtree(path.rename(directory / f".{path.name}.removed"), ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    for created in [directory] * (remove and not missing) + missing:
        # Another start may have created a directory beside this one.
        with suppress(OSError):
            created.rmdir()
