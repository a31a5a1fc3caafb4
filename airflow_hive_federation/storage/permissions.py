"""Sets the permissions of copies, so that a copy grants nobody more than its source, unless a policy does.

Local file systems (network mounts included) and HDFS have owners and modes, and HDFS also has access lists.
Object stores have neither. Users of a machine have numbers and those of HDFS have names, so that a copy
between the two does not keep owners.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.errors import ConfigurationError, FileVanishedError, StoragePermissionError
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.storage import durable
from airflow_hive_federation.storage.filesystem import (
    OBJECT_STORES,
    WITH_MODES,
    Location,
    open_filesystem,
    parse_location,
    storage_errors,
)
from airflow_hive_federation.storage.options import StorageOptions

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

    from airflow_hive_federation.storage.hdfs import HdfsAccess

#: Letters of the attributes that a copy may keep of its source: owner (u), group (g), permissions (p) and
#: access list (a), the same letters as for ``distcp -p``.
PRESERVABLE = "ugpa"

#: Mode bits that a directory always has, so that its owner can write the copies into it.
_OURS = 0o700


@dataclass(frozen=True, kw_only=True)
class Preserve:
    """The permissions that a copy keeps of its source.

    Without any letter, a copy belongs to the user of the copy job, and its mode is the source's mode without
    the bits of the umask.

    :param letters: letters of :data:`PRESERVABLE`: ``u`` the owner, ``g`` the group, ``p`` the whole mode,
        ``a`` the access list of HDFS, with the mode.
    :param strictly: raise an error if an attribute cannot be kept; otherwise the file is copied and counted.
    """

    letters: str = ""
    strictly: bool = True

    def __bool__(self) -> bool:
        return bool(self.letters)


def check_preserved(preserve: Preserve, items: Iterable[CopyItem]) -> None:
    """Refuse attributes that a copy between two stores cannot keep.

    :raises ConfigurationError: if a letter is unknown, a store has permissions that its driver cannot read,
        or the target's store does not have the source's owners or access lists.
    """
    unknown = sorted(set(preserve.letters) - set(PRESERVABLE))
    if unknown:
        raise ConfigurationError(
            f"{''.join(unknown)!r} cannot be preserved: a file has no such attribute.",
            remedy=f"Choose from {PRESERVABLE}: owner (u), group (g), permissions (p), access list (a).",
        )
    if not preserve:
        return
    for item in items:
        source, target = parse_location(item.source), parse_location(item.target)
        for uri, place in ((item.source, source), (item.target, target)):
            if place.scheme not in WITH_MODES | OBJECT_STORES:
                raise ConfigurationError(
                    f"Owners and permissions of {place.scheme}:// cannot be preserved, because its driver "
                    "does not read them.",
                    remedy="Leave the policy's preserve empty, and set them on the target's store.",
                    path=uri,
                )
        _check_pair(preserve, source, target, item.target)


def _check_pair(preserve: Preserve, source: Location, target: Location, uri: str) -> None:
    if not {source.scheme, target.scheme} <= WITH_MODES:
        return
    lost = set(preserve.letters) & set("uga") if source.scheme != target.scheme else set()
    if source.is_local and target.is_local:
        lost = set(preserve.letters) & {"a"}
    if lost:
        letters = "".join(letter for letter in PRESERVABLE if letter in lost)
        raise ConfigurationError(
            f"{letters!r} cannot be preserved from {source.scheme}: to {target.scheme}:, because users of "
            "HDFS have names, those of a machine numbers, and only HDFS has access lists.",
            remedy=f"Take {letters!r} out of the policy's preserve, and set them on the target's store.",
            path=uri,
        )


def creation_mode(sources: Iterable[str], options: StorageOptions | None = None) -> int:
    """Return the mode, before the umask, of a file made from others: the rights that all of them grant."""
    mode = 0o666
    for uri in sources:
        access = _access(uri, options)
        mode &= access.mode if access else 0o666
    return mode


def settle(at: str, uri: str, source: str, preserve: Preserve, options: StorageOptions | None = None) -> bool:
    """Set the permissions of an existing file according to its source; return whether all could be kept.

    In a store without modes, the function does nothing.

    :param at: the file's present URI, temporary or final.
    :param uri: the file's final URI, for the error.
    :param source: URI of the source.
    :raises StoragePermissionError: if this is not permitted, and ``preserve`` is strict.
    """
    place = _place(at, options)
    access = _access(source, options) if place is not None else None
    return place is None or access is None or _settled(place, uri, access, preserve, keep=0)


def make_directories(item: CopyItem, preserve: Preserve, options: StorageOptions | None = None) -> bool:
    """Create the directories of a target that correspond to the source's, with the modes of the source's.

    :return: whether the directories have all attributes of ``preserve``.
    :raises StoragePermissionError: if they cannot be created, or cannot get the attributes of ``preserve``.
    """
    kept = True
    pairs = [(_place(uri, options), uri, source) for uri, source in directory_pairs(item)]
    innermost = pairs[-1][0] if pairs else None
    if innermost is None or (not preserve and innermost.exists()):
        return True
    for place, uri, source in pairs:
        if place is None:
            continue
        access = _access(source, options)
        if not place.exists():
            # If the source's directory is gone, its mode is unknown, and only the owner may enter the copy.
            place.make_directory(((access.mode if access else 0) | _OURS) & 0o777)
        if preserve and access:
            kept = _settled(place, uri, access, preserve, keep=_OURS) and kept
    return kept


def directory_pairs(item: CopyItem) -> Iterator[tuple[str, str]]:
    """Yield the directories of an item's target, outermost first, each with the source directory like it.

    The function yields none if one of the stores has no modes. A hidden directory that only the target has
    is paired with the innermost directory of the source.
    """
    target, source = parse_location(item.target), parse_location(item.source)
    if not {target.scheme, source.scheme} <= WITH_MODES or not item.source_levels:
        return
    target_directories, source_directories = (
        _above(target, item.target_levels),
        _above(source, item.source_levels),
    )
    yield from (
        (uri, source_directories[min(number, len(source_directories) - 1)])
        for number, uri in enumerate(target_directories)
    )


def _above(place: Location, levels: int) -> list[str]:
    parents = list(Path(place.path).parents)[:levels][::-1]
    return [
        str(Location(scheme=place.scheme, authority=place.authority, path=str(parent))) for parent in parents
    ]


@dataclass(frozen=True, kw_only=True)
class _Access:
    """Owner, group and mode of a source; ``mode`` grants nobody more rights than the access list does."""

    owner: int | str
    group: int | str
    mode: int
    listed: HdfsAccess | None = None


@dataclass(frozen=True)
class _LocalPlace:
    """A file or directory on a local file system."""

    path: Path

    def exists(self) -> bool:
        return self.path.exists()

    def make_directory(self, mode: int) -> None:
        with storage_errors(str(self.path)):
            durable.make_directories(self.path.parent)
            durable.make_directory(self.path, mode)

    def access(self) -> _Access:
        status = self.path.stat()
        return _Access(owner=status.st_uid, group=status.st_gid, mode=stat.S_IMODE(status.st_mode))

    def set_mode(self, mode: int) -> None:
        self.path.chmod(mode)

    def set_group(self, group: Any) -> None:
        os.chown(self.path, -1, group)

    def set_owner(self, owner: Any) -> None:
        os.chown(self.path, owner, -1)

    def set_listed(self, listed: HdfsAccess) -> None:
        """Do nothing, because :func:`check_preserved` refuses access lists for local files."""


@dataclass(frozen=True)
class _HdfsPlace:
    """A file or directory in HDFS."""

    filesystem: AbstractFileSystem = field(repr=False)
    path: str

    def exists(self) -> bool:
        return bool(self.filesystem.exists(self.path))

    def make_directory(self, mode: int) -> None:
        with storage_errors(self.path):
            self.filesystem.makedirs(self.path, exist_ok=True, mode=mode)

    def access(self) -> _Access:
        listed = self.filesystem.access(self.path)
        return _Access(owner=listed.owner, group=listed.group, mode=_without_list(listed), listed=listed)

    def set_mode(self, mode: int) -> None:
        self.filesystem.set_mode(self.path, mode)

    def set_group(self, group: object) -> None:
        self.filesystem.set_owner(self.path, group=group)

    def set_owner(self, owner: object) -> None:
        self.filesystem.set_owner(self.path, owner=owner)

    def set_listed(self, listed: HdfsAccess) -> None:
        self.filesystem.set_acl(self.path, listed)


_Place = _LocalPlace | _HdfsPlace


def _place(uri: str, options: StorageOptions | None) -> _Place | None:
    """Return the file or directory at a URI; ``None`` if its store has no modes."""
    location = parse_location(uri)
    if location.is_local:
        return _LocalPlace(Path(location.path))
    return _HdfsPlace(*open_filesystem(uri, options)) if location.scheme in WITH_MODES else None


def _access(uri: str, options: StorageOptions | None) -> _Access | None:
    """Return the permissions of a source; ``None`` if its store has no modes, or it does not exist."""
    place = _place(uri, options)
    try:
        with storage_errors(uri):
            return place.access() if place is not None else None
    except FileVanishedError:
        return None


def _without_list(access: HdfsAccess) -> int:
    """Return the mode that grants nobody more rights than the mode and the access list do together.

    With a list, the mode has the list's mask in place of the group's rights. A copy without the list would
    grant the mask to the group. A named user or group may have fewer rights than the owner's group or all
    others, and without the list has theirs.
    """
    mask = access.mode >> 3 & 0o7
    mode = access.mode
    for line in access.acl:
        if line.scope == "access":
            rights = mask & _bits(line.permissions)
            mode &= ~0o077 | rights << 3 | (rights if line.name else 0o7)
    return mode


def _bits(permissions: str) -> int:
    return sum(bit for letter, bit in (("r", 4), ("w", 2), ("x", 1)) if letter in permissions)


def _settled(place: _Place, uri: str, source: _Access, preserve: Preserve, *, keep: int) -> bool:
    """Set the permissions in order; after an error, go on unless ``preserve`` is strict.

    :return: whether all steps succeeded.
    """
    kept = True
    for step in _steps(place, uri, source, preserve.letters, keep):
        try:
            with storage_errors(uri):
                step()
        except StoragePermissionError as error:
            if preserve.strictly:
                raise StoragePermissionError(
                    f"{uri} cannot be given what its source has of owner, group and mode: {error.message}",
                    remedy="Run the copy job as the superuser or the source's owner, or choose fewer letters "
                    "in the policy's preserve. preserve_strictly = false makes it a warning.",
                    **error.facts,
                ) from error
            kept = False
    return kept


def _steps(place: _Place, uri: str, source: _Access, letters: str, keep: int) -> Iterator[Callable[[], None]]:
    with storage_errors(uri):
        present = place.access()
    if "a" in letters and source.listed is not None:
        if present.listed is None or (present.listed.acl, present.listed.mode) != (
            source.listed.acl,
            source.listed.mode,
        ):
            yield partial(place.set_listed, source.listed)
    else:
        allowed = source.mode & 0o777 | keep
        mode = present.listed.mode if present.listed is not None else present.mode
        wanted = allowed if "p" in letters else mode & allowed
        if wanted != mode:
            yield partial(place.set_mode, wanted)
    # The owner comes last: afterwards this user may not change the file any more.
    if "g" in letters and source.group != present.group:
        yield partial(place.set_group, source.group)
    if "u" in letters and source.owner != present.owner:
        yield partial(place.set_owner, source.owner)
