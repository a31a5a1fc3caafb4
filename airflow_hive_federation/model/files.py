"""Files as listings, plans and manifests speak of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEntry:
    """A file of a listing.

    :param path: path relative to the directory that was listed, with ``/`` between its parts.
    :param size_bytes: length in bytes.
    :param modified_ns: modification time in nanoseconds since 1970 (UTC), 0 where the store keeps none.
    """

    path: str
    size_bytes: int
    modified_ns: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyItem:
    """One file to copy.

    :param source: URI of the file to read.
    :param target: URI of the file to make.
    :param size_bytes: the source's length when it was listed.
    :param visible_write_ids: for an ACID file that mixes committed rows with rows of aborted write ids, the
        table's valid write-id list in Hive's text form: rows outside it are left out of the copy. ``None``
        copies the bytes as they are.
    :param source_levels: how many directories above the source, the innermost first, are copied with it: up
        to its table's or partition's own.
    :param target_levels: how many above the target correspond to them.
    :param kept: URI to read instead if the source is gone, or another: where Hive's change manager keeps
        files that are removed.
    """

    source: str
    target: str
    size_bytes: int
    visible_write_ids: str | None = None
    kept: str | None = None
    source_levels: int = 0
    target_levels: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyOutcome:
    """What became of a :class:`CopyItem`.

    :param target: URI of the file made.
    :param size_bytes: its length.
    :param digest: lower-case hexadecimal SHA-256 of its bytes.
    :param copied: ``False`` if an identical file was there already.
    :param preserved: ``False`` if the file lacks some of what should have been kept of its source's owner,
        group and mode.
    """

    target: str
    size_bytes: int
    digest: str
    copied: bool
    preserved: bool = True


def hidden_name(path: str) -> str | None:
    """The first name in a path or URI that makes Hive hide files below it; ``None`` if there is none.

    For ACID tables Hive tests the whole path from the root on, not only the part below the table, and reads
    them as empty (``HIDDEN_FILES_FULL_PATH_FILTER`` in ``FileUtils.RemoteIteratorWithFilter``). For other
    tables it tests names from the table's own directory on: Tez finds no such directory and fails.
    """
    names = (name for name in path.split("/") if name not in {".", ".."})
    return next((name for name in names if name.startswith((".", "_"))), None)
