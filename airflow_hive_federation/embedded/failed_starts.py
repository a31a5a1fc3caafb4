"""Removes from the disk what a failed start of a metastore has created, and keeps its log in the cache."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from airflow_hive_federation.errors import MetastoreStartError
from airflow_hive_federation.runtime.cache import cache_directory, exclusively, short_digest


@contextmanager
def leaving_nothing(directory: Path, name: str, *, log_name: str, remove: bool) -> Iterator[None]:
    """Empty a directory again if the block fails, unless it had files before.

    Starts in one directory wait for each other. The log goes to ``failed-starts`` in the cache; one more
    failed start in the directory replaces it.

    :param name: the metastore's name.
    :param log_name: name of the log in the directory.
    :param remove: the directory is a temporary one: remove it even if it existed before.
    :raises MetastoreStartError: that of the block, with the new place of the log.
    """
    with ExitStack() as stack:
        if not remove:
            # Another start in the directory would be emptied away.
            digest = short_digest(str(directory).encode())
            stack.enter_context(exclusively(cache_directory() / "starting" / f"{digest}.lock"))
        with _emptying(directory, name, log_name=log_name, remove=remove):
            yield


@contextmanager
def _emptying(directory: Path, name: str, *, log_name: str, remove: bool) -> Iterator[None]:
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    had_files = not missing and any(directory.iterdir())
    try:
        yield
    except MetastoreStartError as error:
        if had_files:
            raise
        kept = cache_directory() / "failed-starts" / f"{name}-{short_digest(str(directory).encode())}.log"
        kept.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            shutil.copyfile(directory / log_name, kept)
        _empty(directory, missing, remove=remove)
        raise MetastoreStartError(error.message, remedy=f"see {kept}.", log_path=str(kept)) from error
    except BaseException:
        # An interrupt, too, must leave nothing behind.
        if not had_files:
            _empty(directory, missing, remove=remove)
        raise


def _empty(directory: Path, missing: list[Path], *, remove: bool) -> None:
    """Remove the content of a directory, and the directories that the start created.

    :param missing: the directories that did not exist before, the deepest one first.
    """
    if directory.is_dir():
        for path in directory.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    for created in [directory] * (remove and not missing) + missing:
        # Another start may have created a directory beside this one.
        with suppress(OSError):
            created.rmdir()
