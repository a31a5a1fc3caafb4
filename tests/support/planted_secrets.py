"""Secrets with texts of their own, and the search for them in all that a run has left."""

from __future__ import annotations

import base64
import contextlib
import functools
import gzip
import hashlib
import re
import sqlite3
import string
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from tests.support.moving_files import content_of, paths_below

#: Between two looks at the processes, in seconds.
_LOOK_S = 0.05
#: The characters of secrets in every form: those of Base64, in both alphabets.
_OURS = string.ascii_letters.encode() + string.digits.encode() + b"+/-_="
#: Makes all other characters blanks.
_OTHERS_TO_BLANKS = bytes(byte if byte in _OURS else 0x20 for byte in range(256))
#: The fewest characters of a secret, and so of each of its forms.
_SHORTEST = 16
_NOBODY = "no such program"


class Planted:
    """Secrets by name. No two share a text, so that a find names the secret that leaked."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def plant(self, name: str) -> str:
        """Make a secret, which survives quoting in URLs, JSON and shells as it is."""
        self.values[name] = f"pLtd{hashlib.sha256(name.encode()).hexdigest()[:24]}"
        return self.values[name]

    def adopt(self, name: str, text: str) -> None:
        """Take a secret that was made elsewhere: a line of a key, for instance."""
        assert len(text) >= _SHORTEST, name
        assert not set(text.encode()) - set(_OURS), name
        self.values[name] = text

    def adopt_key(self, name: str, path: Path) -> None:
        """Take the lines of a private key."""
        for number, line in enumerate(path.read_text(encoding="ascii").splitlines()):
            # The first lines of OpenSSH's keys name the format, and are those of every key.
            if len(line) > 40 and number > 1:
                self.adopt(f"{name}, line {number}", line)

    def names_in(self, content: bytes | str) -> set[str]:
        """The secrets that are in a text, as they are or as UTF-16 or Base64."""
        searched = content.encode(errors="surrogateescape") if isinstance(content, str) else content
        if searched.startswith(b"\x1f\x8b"):
            with contextlib.suppress(OSError, EOFError):
                searched = gzip.decompress(searched)
        # A few long words are searched hundreds of times, and not the whole content. Without its zero bytes,
        # UTF-16 is as plain.
        words = searched.replace(b"\0", b"").translate(_OTHERS_TO_BLANKS).split()
        if not (long := b" ".join(word for word in words if len(word) >= _SHORTEST)):
            return set()
        return {
            name
            for name, value in self.values.items()
            if any(form in long for form in _forms_of(value.encode()))
        }


@functools.cache
def _forms_of(secret: bytes) -> frozenset[bytes]:
    return frozenset({secret, *base64_forms(secret)})


def base64_forms(content: bytes) -> set[bytes]:
    """The characters that stand for a text in Base64, whatever is before and after it."""
    forms = set()
    for offset in range(3):
        text = base64.b64encode(bytes(offset) + content)
        left, over = (0, 2, 3)[offset], (offset + len(content)) % 3
        forms.add(text[left : len(text) - (0, 3, 2)[over]])
    return forms | {form.replace(b"+", b"-").replace(b"/", b"_") for form in forms}


def in_files(planted: Planted, roots: Iterable[Path], *, but: Collection[Path] = ()) -> list[str]:
    """Find secrets in names and contents of the files below directories.

    :param but: files that are there to hold secrets.
    """
    leaks = []
    for root in roots:
        # Servers that still run remove files and directories meanwhile.
        for path in sorted(paths_below(root)):
            if path in but:
                continue
            leaks += [f"{name} is in the name of {path}" for name in planted.names_in(path.name)]
            if (content := content_of(path)) is not None:
                leaks += [f"{name} is in {path}" for name in planted.names_in(content)]
    return leaks


def in_database(planted: Planted, path: Path) -> tuple[list[str], dict[str, int]]:
    """Find secrets in the rows of an SQLite database, and count the rows of each table."""
    leaks, counts = [], {}
    with contextlib.closing(sqlite3.connect(path)) as database:
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            rows = database.execute(f'SELECT * FROM "{table}"').fetchall()
            counts[table] = len(rows)
            leaks += [
                f"{name} is in a row of {table}"
                for row in rows
                for value in row
                if isinstance(value, str | bytes)
                for name in planted.names_in(value)
            ]
    return leaks, counts


def in_json(planted: Planted, where: str, value: Any) -> list[str]:
    """Find secrets in keys and values of something nested."""
    if isinstance(value, Mapping):
        return [
            leak
            for key, part in value.items()
            for leak in (*in_json(planted, where, key), *in_json(planted, f"{where}.{key}", part))
        ]
    if isinstance(value, list | tuple | set | frozenset):
        return [leak for part in value for leak in in_json(planted, where, part)]
    return [f"{name} is in {where}" for name in sorted(planted.names_in(str(value)))]


class WatchedProcesses:
    """Looks at command lines and environments of this process's descendants, again and again.

    What lives for less than a look may escape; :mod:`tests.support.spawned` misses none that Python starts.

    :param may: names of environment variables that a program may have secrets in, by a part of its command
        line.
    :param heirs_of: part of the command line of programs whose own children inherit what they may have.
    """

    def __init__(self, planted: Planted, may: Mapping[str, re.Pattern[str]], heirs_of: str = _NOBODY) -> None:
        self._planted, self._may, self._heirs_of = planted, may, heirs_of
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._seen: set[tuple[int, float, str]] = set()
        self.leaks: set[str] = set()
        #: Command lines that were seen.
        self.commands: set[str] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self.look()

    def look(self) -> None:
        """Look once at those that were not looked at before."""
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error, ProcessLookupError, FileNotFoundError):
                command = "\0".join(process.cmdline())
                key = (process.pid, process.create_time(), command)
                # While a program is being started, its command line can be read before its environment.
                if command and key not in self._seen and (environment := process.environ()):
                    self._take(command, environment, _parents(process))
                    self._seen.add(key)

    def _take(self, command: str, environment: Mapping[str, str], parents: Sequence[str]) -> None:
        self.commands.add(command)
        shown = command.replace("\0", " ")[:200]
        self.leaks |= {f"{name} is in the command line {shown}" for name in self._planted.names_in(command)}
        heir = next((parent for parent in parents if self._heirs_of in parent), command)
        leaks = in_environment(self._planted, heir, environment, self._may)
        self.leaks |= {leak.replace(repr(heir)[:200], repr(command)[:200]) for leak in leaks}

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self.look()


def _parents(process: psutil.Process) -> list[str]:
    return ["\0".join(process_parent.cmdline()) for process_parent in process.parents()]


def in_environment(
    planted: Planted, command: str, environment: Mapping[str, str], may: Mapping[str, re.Pattern[str]]
) -> list[str]:
    """Find secrets in the environment of a program that does not need them."""
    allowed = [pattern for part, pattern in may.items() if part in command]
    return [
        f"{name} is in the variable {variable} of {command!r:.200}"
        for variable, value in environment.items()
        if not any(pattern.fullmatch(variable) for pattern in allowed)
        for name in planted.names_in(value)
    ]
