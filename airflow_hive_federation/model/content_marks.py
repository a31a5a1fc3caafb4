"""Digests of listings, by which a copy of a cluster shows that it has the files it was made with.

Spark's jobs compare them, too: this module lies in the archive that they get.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from airflow_hive_federation.model.files import FileEntry, hidden_name

#: Marker files of ACID directories, which readers use although such names are otherwise hidden.
_MARKERS = frozenset({"_orc_acid_version", "_metadata_acid"})


def listing_mark(files: Iterable[FileEntry]) -> str:
    """Return a digest of the paths, sizes and modification times of files in any order."""
    listed = sorted(visible_files(files), key=lambda file: file.path)
    return digest_of(f"{file.path}\0{file.size_bytes}\0{file.modified_ns}" for file in listed)


def content_mark(files: Iterable[FileEntry]) -> str:
    """Return a digest of the paths and sizes of files in any order, which is equal for primary and copy."""
    return digest_of(sorted(f"{file.path}\0{file.size_bytes}" for file in visible_files(files)))


def visible_files(files: Iterable[FileEntry]) -> list[FileEntry]:
    """Return the files that readers of a table see; files still being written begin with ``.`` or ``_``."""
    return [file for file in files if hidden_name(file.path) is None or _is_marker(file.path)]


def _is_marker(path: str) -> bool:
    directory, _, name = path.rpartition("/")
    return name in _MARKERS and bool(directory) and hidden_name(directory) is None


def digest_of(parts: Iterable[str]) -> str:
    """Return 32 hex digits of the SHA-256 of texts in their order."""
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogateescape")
        sha.update(len(data).to_bytes(8, "big") + data)
    return sha.hexdigest()[:32]
