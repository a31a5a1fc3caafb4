"""Accesses local and mounted file systems."""

from __future__ import annotations

from fsspec.implementations.local import LocalFileSystem


class LocalFiles(LocalFileSystem):  # type: ignore[misc]
    """fsspec's local file system, for which a file does not exist only if the system answers so.

    fsspec takes each error for a missing file (``AbstractFileSystem.exists``), so also that of a mount which
    does not answer.
    """

    def exists(self, path: str, **_: object) -> bool:
        """Return whether a file or directory exists.

        :raises OSError: if the system answers with another error.
        """
        try:
            self.info(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True
