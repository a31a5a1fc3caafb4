"""The archive of classes that the tests' drivers share: it is there when it is whole and usable."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import spark_classes


class Java:
    """Takes the place of Spark's JVM, which writes the archive and then reads it.

    :param usable: the JVM starts with the archive.
    """

    def __init__(self, path: Path, *, usable: bool = True) -> None:
        self._path, self._usable = path, usable
        self.seen: list[str] = []

    def submit(self, *arguments: str, options: str) -> None:
        self.seen.append("read" if "--version" in arguments else "write")
        partial = Path(options.partition("=")[2].partition(" ")[0])
        # Drivers that start meanwhile find no part of the archive.
        assert partial != self._path
        assert not self._path.exists()
        if self.seen[-1] == "write":
            partial.write_bytes(b"classes")
        elif not self._usable:
            raise subprocess.CalledProcessError(1, "java")


def test_an_archive_appears_once_it_has_been_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsa"
    java = Java(path)
    monkeypatch.setattr(spark_classes, "_submit", java.submit)
    for _ in range(2):
        spark_classes.make(path)
        assert path.read_bytes() == b"classes"
        # The second run finds it.
        assert java.seen == ["write", "read"]
    assert {item.name for item in tmp_path.iterdir()} == {"a.jsa", "a.lock"}


def test_an_archive_that_java_refuses_does_not_appear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each driver that used it would end."""
    path = tmp_path / "a.jsa"
    monkeypatch.setattr(spark_classes, "_submit", Java(path, usable=False).submit)
    with pytest.raises(subprocess.CalledProcessError):
        spark_classes.make(path)
    assert {item.name for item in tmp_path.iterdir()} == {"a.lock"}


def test_drivers_have_the_archive_and_print_nothing_about_it() -> None:
    options = spark_classes.driver_options().split()
    assert f"-XX:SharedArchiveFile={spark_classes.archive()}" in options
    assert "-Xlog:cds*=off" in options
    assert "-Xshare:on" not in options
