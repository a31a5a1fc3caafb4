"""Changes documents of a finished dump as a writer of its directory could: the digests are right."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: A line or document is replaced by the text that this makes of its value.
Edit = Callable[[Any], Any]


def tamper(dump: Path, name: str, edit: Edit) -> None:
    """Edit a document, or the first line of one, and seal the dump anew.

    :param dump: the dump's directory.
    :param name: path of the document inside it.
    :param edit: makes the new value; text and bytes are written as they are.
    """
    path = dump / name
    if name == "_manifest.json":
        seal(dump, encoded(edit(json.loads(path.read_bytes()))))
        return
    data = path.read_bytes()
    first, rest = (data.split(b"\n", 1)) if name.endswith(".jsonl") else (data, b"")
    path.write_bytes(encoded(edit(json.loads(first))) + b"\n" + rest)
    manifest = json.loads((dump / "_manifest.json").read_bytes())
    if name in manifest["files"]:
        manifest["files"][name] = hashlib.sha256(path.read_bytes()).hexdigest()
    seal(dump, encoded(manifest))


def seal(dump: Path, manifest: bytes) -> None:
    (dump / "_manifest.json").write_bytes(manifest)
    (dump / "_finished_dump").write_text(hashlib.sha256(manifest).hexdigest() + "\n", encoding="utf-8")


def encoded(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def at(*path: str | int, value: Any) -> Edit:
    """An edit that puts a value at a place inside a document."""

    def edit(document: Any) -> Any:
        inside = document
        for key in path[:-1]:
            inside = inside[key]
        inside[path[-1]] = value
        return document

    return edit


#: JSON that Python's parser would end with a ``RecursionError``.
DEEP = b"[" * 100_000 + b"]" * 100_000
