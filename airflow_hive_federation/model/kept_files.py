"""Reads from events where the source's change manager keeps files that are removed."""

from __future__ import annotations

from collections.abc import Iterable

#: Longest name of a kept file (``dfs.namenode.fs-limits.max-component-length``), and the length to which
#: longer names are cut.
_LONGEST_NAME, _CUT = 255, 254


def kept_files(encoded: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return pairs of an event's file and its path in the change manager's root, if that is enabled.

    An event names a file as ``uri#checksum#cmroot#subdirectory`` (``ReplChangeManager.encodeFileUri``), and
    separates several files of a transaction by ``]``. The name of the kept file is the file's name and its
    checksum (``ReplChangeManager.getCMPath``).
    """
    kept = []
    for text in encoded:
        for file_uri in text.split("]"):
            uri, checksum, root, *_ = (*file_uri.strip().split("#"), "", "", "")
            if checksum and root:
                name = f"{uri.rpartition('/')[2]}_{checksum}"
                kept.append(
                    (uri, f"{root.rstrip('/')}/{name if len(name) <= _LONGEST_NAME else name[:_CUT]}")
                )
    return tuple(kept)
