"""Defines the entries of file listings, copy plans and manifests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEntry:
    """A file of a listing.

    :param path: path relative to the directory that was listed, with ``/`` between its parts.
    :param size_bytes: length in bytes.
    :param modified_ns: modification time in nanoseconds since 1970 (UTC), 0 if the store keeps none.
    """

    path: str
    size_bytes: int
    modified_ns: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyItem:
    """One file to copy.

    :param source: URI of the file to read.
    :param target: URI of the file to create.
    :param size_bytes: the source's length when it was listed.
    :param visible_write_ids: for an ACID file that mixes committed rows with rows of aborted write ids, the
        table's valid write-id list in Hive's text form: the copy leaves out all rows outside the list.
        ``None`` copies the bytes unchanged.
    :param source_levels: number of directories above the source, the innermost first, that are copied with
        it: up to the directory of its table or partition.
    :param target_levels: number of directories above the target that correspond to them.
    :param kept: URI of the file's copy in Hive's change manager, which is read if the source was removed or
        replaced.
    :param prefix: copy the first ``size_bytes`` bytes of a source to which a writer may still append.
    :param moved_from: URI of a file of the target that has the same bytes, and is not wanted there any more.
        It is renamed, if it still has them.
    :param digest: lower-case hexadecimal SHA-256 of these bytes.
    :param modified_ns: the source's modification time when it was listed, in nanoseconds since 1970, for a
        file that never changes once it is there; 0 if it may change, or the store keeps no times.
    :param content: text to write, because the source is a directory without files, of which an object store
        keeps nothing else.
    """

    source: str
    target: str
    size_bytes: int
    visible_write_ids: str | None = None
    kept: str | None = None
    source_levels: int = 0
    target_levels: int = 0
    prefix: bool = False
    content: str | None = None
    moved_from: str | None = None
    digest: str | None = None
    modified_ns: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyOutcome:
    """The result of copying a :class:`CopyItem`.

    :param target: URI of the created file.
    :param size_bytes: its length.
    :param digest: lower-case hexadecimal SHA-256 of its bytes.
    :param copied: ``False`` if an identical file existed already.
    :param preserved: ``False`` if the copy should have kept owner, group or mode of its source, and did not.
    """

    target: str
    size_bytes: int
    digest: str
    copied: bool
    preserved: bool = True


def hidden_name(path: str) -> str | None:
    """Return the first name in a path or URI that makes Hive hide all files below it; ``None`` without one.

    For ACID tables Hive checks the whole path from the root on, not only the part below the table, and reads
    such tables as empty (``HIDDEN_FILES_FULL_PATH_FILTER`` in ``FileUtils.RemoteIteratorWithFilter``). For
    other tables it checks the names from the table's own directory on: Tez finds no such directory and fails.
    """
    names = (name for name in path.split("/") if name not in {".", ".."})
    return next((name for name in names if name.startswith((".", "_"))), None)
