"""Who may read a copy: never more than may read its source, unless somebody asks for it.

The machine's own file systems (network mounts included) and HDFS have owners and modes, and HDFS has access
lists besides. Object stores have none. Users of a machine have numbers and those of HDFS have names, so that
owners are not kept between the two.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
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

if TYPE_CHECKING:
    from airflow_hive_federation.storage.hdfs import HdfsAccess

#: What a copy may keep of its source, as ``distcp -p``: owner, group, permissions, access list.
PRESERVABLE = "ugpa"

#: A directory that we write to stays ours to write to.
_OURS = 0o700


@dataclass(frozen=True, kw_only=True)
class Preserve:
    """What a copy keeps of its source's permissions.

    Without any of it, a copy belongs to whoever makes it, and its mode is the source's less the umask.

    :param letters: of :data:`PRESERVABLE`: ``u`` the owner, ``g`` the group, ``p`` the whole mode,
        ``a`` the access list of HDFS, with the mode.
    :param strictly: what cannot be kept is an error; else the copy is made, and counted.
    """

    letters: str = ""
    strictly: bool = True

    def __bool__(self) -> bool:
        return bool(self.letters)


def check_preserved(preserve: Preserve, items: Iterable[CopyItem]) -> None:
    """Refuse what cannot be kept between two stores.

    :raises ConfigurationError: a letter is unknown; a store has permissions that its driver cannot read; or
        the source's owners or access lists are none of the target's store.
    """
    unknown = sorted(set(preserve.letters) - set(PRESERVABLE))
    if unknown:
        raise ConfigurationError(
            f"{''.join(unknown)!r} cannot be preserved of a file.",
            remedy=f"Choose of {PRESERVABLE}: owner (u), group (g), permissions (p), access list (a).",
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


def creation_mode(sources: Iterable[str], options: Mapping[str, Any] | None = None) -> int:
    """The mode to create a file with that is made of others: what all of them allow, before the umask."""
    mode = 0o666
    for uri in sources:
        access = _access(uri, options)
        mode &= access.mode if access else 0o666
    return mode


def settle(
    at: str, uri: str, source: str, preserve: Preserve, options: Mapping[str, Any] | None = None
) -> bool:
    """Bring a file that is there to what its source allows; return whether all of it could be kept.

    :param at: the file's URI now, before it has its name or after that; in a store without modes, nothing is
        done.
    :param uri: the file's URI, for the error.
    :param source: URI of the source.
    :param options: storage options.
    :raises StoragePermissionError: we may not, and ``preserve`` is strict.
    """
    place = _place(at, options)
    access = _access(source, options) if place is not None else None
    return place is None or access is None or _settled(place, uri, access, preserve, keep=0)


def make_directories(item: CopyItem, preserve: Preserve, options: Mapping[str, Any] | None = None) -> bool:
    """Make the directories of a target that correspond to the source's, with their modes.

    :return: whether all of what ``preserve`` asks for could be kept.
    :raises StoragePermissionError: they cannot be made, or not be given what ``preserve`` asks for.
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
            # A source's directory that is gone meanwhile allowed nobody knows what.
            place.make_directory(((access.mode if access else 0) | _OURS) & 0o777)
        if preserve and access:
            kept = _settled(place, uri, access, preserve, keep=_OURS) and kept
    return kept


def directory_pairs(item: CopyItem) -> Iterator[tuple[str, str]]:
    """URIs of directories of an item's target, outermost first, each with the one of the source like it.

    There are none where one of the stores has no modes. A hidden directory of the target that the source has
    not takes after the next one.
    """
    target, source = parse_location(item.target), parse_location(item.source)
    if not {target.scheme, source.scheme} <= WITH_MODES or not item.source_levels:
        return
    made, like = _above(target, item.target_levels), _above(source, item.source_levels)
    yield from ((uri, like[min(number, len(like) - 1)]) for number, uri in enumerate(made))


def _above(place: Location, levels: int) -> list[str]:
    parents = list(Path(place.path).parents)[:levels][::-1]
    return [
        str(Location(scheme=place.scheme, authority=place.authority, path=str(parent))) for parent in parents
    ]


@dataclass(frozen=True, kw_only=True)
class _Access:
    """Owner, group and mode of a source; ``mode`` allows nobody more than the access list does."""

    owner: int | str
    group: int | str
    mode: int
    listed: HdfsAccess | None = None


@dataclass(frozen=True)
class _LocalPlace:
    """A file or directory of this machine."""

    path: Path

    def exists(self) -> bool:
        return self.path.exists()

    def make_directory(self, mode: int) -> None:
        with storage_errors(str(self.path)):
            durable.make_directories(self.path.parent)
            durable.make_directory(self.path, mode)

    def access(self) -> _Access:
        found = self.path.stat()
        return _Access(owner=found.st_uid, group=found.st_gid, mode=stat.S_IMODE(found.st_mode))

    def set_mode(self, mode: int) -> None:
        self.path.chmod(mode)

    def set_group(self, group: Any) -> None:
        os.chown(self.path, -1, group)

    def set_owner(self, owner: Any) -> None:
        os.chown(self.path, owner, -1)

    def set_listed(self, listed: HdfsAccess) -> None:
        """Do nothing: :func:`check_preserved` lets no access list come here."""


@dataclass(frozen=True)
class _HdfsPlace:
    """A file or directory of HDFS."""

    filesystem: Any = field(repr=False)
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

    def set_group(self, group: Any) -> None:
        self.filesystem.set_owner(self.path, group=group)

    def set_owner(self, owner: Any) -> None:
        self.filesystem.set_owner(self.path, owner=owner)

    def set_listed(self, listed: HdfsAccess) -> None:
        self.filesystem.set_acl(self.path, listed)


_Place = _LocalPlace | _HdfsPlace


def _place(uri: str, options: Mapping[str, Any] | None) -> _Place | None:
    """A file or directory whose store has modes; ``None`` for others."""
    location = parse_location(uri)
    if location.is_local:
        return _LocalPlace(Path(location.path))
    return _HdfsPlace(*open_filesystem(uri, options)) if location.scheme in WITH_MODES else None


def _access(uri: str, options: Mapping[str, Any] | None) -> _Access | None:
    """What a source allows; ``None`` where its store has no modes, or it is not there."""
    place = _place(uri, options)
    try:
        with storage_errors(uri):
            return place.access() if place is not None else None
    except FileVanishedError:
        return None


def _without_list(access: HdfsAccess) -> int:
    """The mode that allows nobody more than mode and access list do together.

    With a list, the mode shows the list's mask in the place of the group's rights. A copy without the list
    would grant the mask to the group.
    """
    group = next((line for line in access.acl if (line.type, line.scope, line.name) == _OWNERS_GROUP), None)
    if group is None:
        return access.mode
    bits = sum(bit for letter, bit in (("r", 4), ("w", 2), ("x", 1)) if letter in group.permissions)
    return access.mode & (~0o070 | bits << 3)


_OWNERS_GROUP = ("group", "access", "")


def _settled(place: _Place, uri: str, source: _Access, preserve: Preserve, *, keep: int) -> bool:
    """Take one step after the other; where one fails and may, the next ones are taken all the same."""
    kept = True
    for step in _steps(place, uri, source, preserve.letters, keep):
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


def _steps(place: _Place, uri: str, source: _Access, letters: str, keep: int) -> Iterator[Callable[[], None]]:
    with storage_errors(uri):
        there = place.access()
    if "a" in letters and source.listed is not None:
        if there.listed is None or (there.listed.acl, there.listed.mode) != (
            source.listed.acl,
            source.listed.mode,
        ):
            yield partial(place.set_listed, source.listed)
    else:
        allowed = source.mode & 0o777 | keep
        mode = there.listed.mode if there.listed is not None else there.mode
        wanted = allowed if "p" in letters else mode & allowed
        if wanted != mode:
            yield partial(place.set_mode, wanted)
    # The owner last: what was given away is not ours to change.
    if "g" in letters and source.group != there.group:
        yield partial(place.set_group, source.group)
    if "u" in letters and source.owner != there.owner:
        yield partial(place.set_owner, source.owner)
