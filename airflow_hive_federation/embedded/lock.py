"""Reads and writes the lock of jars: the coordinates, digests and sizes of all files to fetch.

The lock has one line per artifact: set, coordinates (``group:artifact:version[:classifier]@extension``),
SHA-256, size in bytes. ``scripts/lock_jars.py`` writes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

METASTORE = "metastore"
SQL = "sql"
SCHEMA = "schema"
HDFS = "hdfs"
POSTGRESQL = "postgresql"
MARIADB = "mariadb"
LOCK_NAME = "jars.lock"
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """One file of a Maven repository.

    :param jar_set: its purpose: ``metastore``, ``sql`` (in addition to metastore), ``schema``, ``hdfs``,
        ``postgresql`` or ``mariadb``.
    :param sha256: hex digest that its bytes must have; empty while the lock is being created.
    """

    jar_set: str
    group: str
    name: str
    version: str
    classifier: str = ""
    extension: str = "jar"
    sha256: str = ""
    size_bytes: int = 0

    @property
    def file_name(self) -> str:
        """Return its name in the cache, which Ivy's pattern builds from the coordinates."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{classifier}.{self.extension}"

    @property
    def coordinates(self) -> str:
        """Return ``group:artifact:version[:classifier]@extension``."""
        classifier = f":{self.classifier}" if self.classifier else ""
        return f"{self.group}:{self.name}:{self.version}{classifier}@{self.extension}"

    def matches(self, path: Path) -> bool:
        """Return whether the file exists and has the size and digest of the lock."""
        if not path.is_file() or path.stat().st_size != self.size_bytes:
            return False
        return file_sha256(path) == self.sha256


def parse_coordinates(jar_set: str, text: str) -> Artifact:
    """Parse ``group:artifact:version[:classifier]@extension``.

    :raises ValueError: if the text does not have that form.
    """
    coordinates, _, extension = text.partition("@")
    parts = coordinates.split(":")
    if len(parts) not in {3, 4} or not all(parts):
        raise ValueError(f"not group:artifact:version[:classifier]@extension: {text!r}")
    return Artifact(
        jar_set=jar_set,
        group=parts[0],
        name=parts[1],
        version=parts[2],
        classifier=parts[3] if len(parts) == 4 else "",
        extension=extension or "jar",
    )


def parse_lock(text: str) -> list[Artifact]:
    """Parse a lock's text.

    :raises ValueError: if a line does not have the lock's form; the error has its number.
    """
    artifacts = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        try:
            jar_set, coordinates, sha256, size = line.split()
            unsized = parse_coordinates(jar_set, coordinates)
            artifacts.append(Artifact(**{**vars(unsized), "sha256": sha256, "size_bytes": int(size)}))
        except ValueError as error:
            raise ValueError(f"line {number} of the lock: {error}") from error
    return artifacts


def format_lock(artifacts: Iterable[Artifact]) -> str:
    """Return a lock's text; the same artifacts always give the same text."""
    lines = ["# set  group:artifact:version[:classifier]@extension  sha256  size in bytes"]
    for artifact in sorted(artifacts, key=lambda a: (a.jar_set, a.coordinates)):
        lines.append(f"{artifact.jar_set} {artifact.coordinates} {artifact.sha256} {artifact.size_bytes}")
    return "\n".join(lines) + "\n"


def lock_text() -> str:
    """Return the text of the package's own lock."""
    return (resources.files(__package__) / LOCK_NAME).read_text("utf-8")


def locked(*jar_sets: str) -> list[Artifact]:
    """Return the artifacts of the package's own lock in the given sets."""
    return [artifact for artifact in parse_lock(lock_text()) if artifact.jar_set in jar_sets]


def file_sha256(path: Path) -> str:
    """Return the hex SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while chunk := handle.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
