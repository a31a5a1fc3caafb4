"""A recorder of what a crash of the machine would take back: names and bytes that nobody has waited for.

It watches ``fsync``, ``rename`` and ``mkdir`` of this process. A file that is renamed must have been waited
for at its present length, and each directory that got a name must be waited for after that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


class Recorder:
    """Follows the calls of this process below a directory.

    :param root: the directory; calls on others are not recorded.
    """

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        #: Directories, with the names that may be lost.
        self.unkept: dict[str, set[str]] = {}
        #: Files that were renamed before they were on the disk.
        self.early: list[str] = []
        #: Calls in their order: ``fsync``, ``rename``, ``mkdir``, ``unlink``, with the path concerned.
        self.calls: list[tuple[str, str]] = []
        self._lengths: dict[str, int] = {}

    def assert_durable(self) -> None:
        """Fail if a crash now would lose something that was published."""
        assert any(call == "rename" for call, _ in self.calls), "nothing was published"
        assert not self.early, f"renamed before they were on the disk: {self.early}"
        assert not self.lost, f"names that a crash would take back: {self.lost}"

    @property
    def lost(self) -> list[str]:
        """Names that a crash would take back, of what is there."""
        return sorted(
            f"{place}/{name}"
            for place, names in self.unkept.items()
            for name in names
            if Path(place, name).exists()
        )

    def at(self, call: str, name: str) -> int:
        """The place in the order of the last such call on a path of that name."""
        return max(
            number
            for number, (method, path) in enumerate(self.calls)
            if method == call and Path(path).name == name
        )

    def synced(self, descriptor: int) -> None:
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if self._concerns(path):
            self.calls.append(("fsync", path))
            self.unkept.pop(path, None)
            self._lengths[path] = os.fstat(descriptor).st_size

    def renaming(self, source: Any, target: Any) -> None:
        source, target = os.fspath(source), os.fspath(target)
        if not self._concerns(target):
            return
        self.calls.append(("rename", target))
        files = [source]
        if Path(source).is_dir():
            files = [str(path) for path in Path(source).rglob("*") if path.is_file()]
        self.early += [file for file in files if self._lengths.get(file) != Path(file).stat().st_size]
        for file in files:
            self._lengths[target + file.removeprefix(source)] = Path(file).stat().st_size
        self._named(target)

    def making(self, path: Any) -> None:
        if self._concerns(os.fspath(path)):
            self.calls.append(("mkdir", os.fspath(path)))
            self._named(os.fspath(path))

    def removing(self, path: Any) -> None:
        if self._concerns(os.fspath(path)):
            self.calls.append(("unlink", os.fspath(path)))

    def _named(self, path: str) -> None:
        self.unkept.setdefault(str(Path(path).parent), set()).add(Path(path).name)

    def _concerns(self, path: str) -> bool:
        return path == self.root or path.startswith(f"{self.root}/")


@contextmanager
def recorded(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """Yield a recorder of what this process does below a directory in the block."""
    recorder = Recorder(root)
    fsync, replace, rename, mkdir = os.fsync, os.replace, os.rename, os.mkdir
    unlink, remove = os.unlink, os.remove

    def watched_fsync(descriptor: int) -> None:
        fsync(descriptor)
        recorder.synced(descriptor)

    def watched_replace(source: Any, target: Any, **how: Any) -> None:
        recorder.renaming(source, target)
        replace(source, target, **how)

    def watched_rename(source: Any, target: Any, **how: Any) -> None:
        recorder.renaming(source, target)
        rename(source, target, **how)

    def watched_mkdir(path: Any, *how: Any, **more: Any) -> None:
        mkdir(path, *how, **more)
        recorder.making(path)

    def watched_unlink(path: Any, **how: Any) -> None:
        unlink(path, **how)
        recorder.removing(path)

    def watched_remove(path: Any, **how: Any) -> None:
        remove(path, **how)
        recorder.removing(path)

    with monkeypatch.context() as patching:
        patching.setattr(os, "fsync", watched_fsync)
        patching.setattr(os, "replace", watched_replace)
        patching.setattr(os, "rename", watched_rename)
        patching.setattr(os, "mkdir", watched_mkdir)
        patching.setattr(os, "unlink", watched_unlink)
        patching.setattr(os, "remove", watched_remove)
        yield recorder
