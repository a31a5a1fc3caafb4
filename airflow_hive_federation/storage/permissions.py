"""Who may read a copy: never more than may read its source, unless somebody asks for it.

Only the machine's own file systems (network mounts included) have owners and modes here. Object stores have
none. HDFS has them, and ACLs besides, but its driver neither reads nor sets them, so that
:func:`check_preserved` refuses to promise it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from airflow_hive_federation.errors import ConfigurationError, StoragePermissionError
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.storage import durable
from airflow_hive_federation.storage.filesystem import (
    OBJECT_STORES,
    local_path,
    parse_location,
    storage_errors,
)

#: What a copy may keep of its source, in the letters of ``distcp -p``: owner, group, permissions.
PRESERVABLE = "ugp"

#: A directory that we write to stays ours to write to.
_OURS = 0o700


@dataclass(frozen=True, kw_only=True)
class Preserve:
    """What a copy keeps of its source's permissions.

    Without any of it, a copy belongs to whoever makes it, and its mode is the source's less the umask.

    :param letters: of :data:`PRESERVABLE`: ``u`` the owner, ``g`` the group, ``p`` the whole mode.
    :param strictly: what cannot be kept is an error; else the copy is made, and counted.
    """

    letters: str = ""
    strictly: bool = True

    def __bool__(self) -> bool:
        return bool(self.letters)


def check_preserved(preserve: Preserve, items: Iterable[CopyItem]) -> None:
    """Refuse what no driver can keep.

    :raises ConfigurationError: a letter is unknown, or a store has permissions that its driver cannot read.
    """
    unknown = sorted(set(preserve.letters) - set(PRESERVABLE))
    if unknown:
        raise ConfigurationError(
            f"{''.join(unknown)!r} cannot be preserved of a file.",
            remedy=f"Choose of {PRESERVABLE}: owner (u), group (g), permissions (p).",
        )
    if not preserve:
        return
    for item in items:
        for uri in (item.source, item.target):
            place = parse_location(uri)
            if not place.is_local and place.scheme not in OBJECT_STORES:
                raise ConfigurationError(
                    f"Owners and permissions of {place.scheme}:// cannot be preserved, because its driver "
                    "does not read them.",
                    remedy="Leave the policy's preserve empty, and set them on the target's store: in HDFS "
                    "by the superuser's distcp -update -pugp, or by default ACLs of the target's directory.",
                    path=uri,
                )


def creation_mode(sources: Iterable[str]) -> int:
    """The mode to create a file with that is made of others: what all of them allow, before the umask."""
    mode = 0o666
    for uri in sources:
        status = _status(uri)
        mode &= stat.S_IMODE(status.st_mode) if status else 0o666
    return mode


def settle(path: str, uri: str, source: str, preserve: Preserve) -> bool:
    """Bring a local file that is there to what its source allows; return whether all of it could be kept.

    :param path: the file, before it has its name or after that.
    :param uri: the file's URI, for the error.
    :param source: URI of the source.
    :raises StoragePermissionError: we may not, and ``preserve`` is strict.
    """
    status = _status(source)
    return status is None or _settled(path, uri, status, preserve, keep=0)


def make_directories(item: CopyItem, preserve: Preserve) -> bool:
    """Make the directories of a local target that correspond to the source's, with their modes.

    :return: whether all of what ``preserve`` asks for could be kept.
    :raises StoragePermissionError: they cannot be made, or not be given what ``preserve`` asks for.
    """
    kept = True
    pairs = list(directory_pairs(item))
    if pairs and not preserve and Path(pairs[-1][0]).exists():
        return True
    for path, source in pairs:
        status = _status(source)
        directory = Path(path)
        if not directory.exists():
            with storage_errors(path):
                durable.make_directories(directory.parent)
                # A source's directory that is gone meanwhile allowed nobody knows what.
                mode = stat.S_IMODE(status.st_mode) if status else 0
                durable.make_directory(directory, (mode | _OURS) & 0o777)
        if preserve and status:
            kept = _settled(path, path, status, preserve, keep=_OURS) and kept
    return kept


def directory_pairs(item: CopyItem) -> Iterator[tuple[str, str]]:
    """Local directories of an item's target, outermost first, each with the one of the source like it.

    A hidden directory of the target that the source has not takes after the next one.
    """
    target, source = local_path(item.target), local_path(item.source)
    if target is None or source is None or not item.source_levels:
        return
    made = [str(one) for one in list(Path(target).parents)[: item.target_levels]][::-1]
    like = [str(one) for one in list(Path(source).parents)[: item.source_levels]][::-1]
    yield from ((path, like[min(number, len(like) - 1)]) for number, path in enumerate(made))


def _settled(path: str, uri: str, source: os.stat_result, preserve: Preserve, *, keep: int) -> bool:
    """Take one step after the other; where one fails and may, the next ones are taken all the same."""
    kept = True
    for step in _steps(Path(path), source, preserve.letters, keep):
        try:
            with storage_errors(uri):
                step()
        except StoragePermissionError as error:
            if preserve.strictly:
                raise StoragePermissionError(
                    f"{uri} cannot be given what its source has of owner, group and mode: {error.message}",
                    remedy="Run the copy job as the superuser or as the source's owner, choose fewer letters "
                    "in the policy's preserve, or set preserve_strictly to false, which makes it a warning.",
                    **error.facts,
                ) from error
            kept = False
    return kept


def _steps(path: Path, source: os.stat_result, letters: str, keep: int) -> Iterator[Callable[[], None]]:
    found = path.stat()
    there, allowed = stat.S_IMODE(found.st_mode), stat.S_IMODE(source.st_mode) & 0o777 | keep
    wanted = allowed if "p" in letters else there & allowed
    if wanted != there:
        yield partial(path.chmod, wanted)
    # The owner last: what was given away is not ours to change.
    if "g" in letters and source.st_gid != found.st_gid:
        yield partial(os.chown, path, -1, source.st_gid)
    if "u" in letters and source.st_uid != found.st_uid:
        yield partial(os.chown, path, source.st_uid, -1)


def _status(uri: str) -> os.stat_result | None:
    """A local file's or directory's status; ``None`` for what is elsewhere, or not there."""
    path = local_path(uri)
    if path is None:
        return None
    try:
        return Path(path).stat()
    except FileNotFoundError:
        return None
