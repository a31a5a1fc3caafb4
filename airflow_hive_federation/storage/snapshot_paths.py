"""Translates URIs between a directory on HDFS and its snapshots. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_hive_federation.storage.filesystem import parse_location

#: The name below which HDFS shows the snapshots of a directory.
FOLDER = ".snapshot"


@dataclass(frozen=True, kw_only=True)
class SnapshotPath:
    """A file or directory inside of a snapshot.

    :param root: URI of the directory whose snapshot it is.
    :param name: name of the snapshot.
    :param path: path inside the directory; empty for the directory itself.
    """

    root: str
    name: str
    path: str = ""

    @classmethod
    def of(cls, uri: str, root: str, name: str) -> SnapshotPath:
        """Return the place in a snapshot of a file or directory in ``root``."""
        top = parse_location(root).path.rstrip("/")
        return cls(root=root, name=name, path=parse_location(uri).path[len(top) :].strip("/"))

    @classmethod
    def parse(cls, uri: str) -> SnapshotPath | None:
        """Read a URI; ``None`` for one that is not inside of a snapshot."""
        location = parse_location(uri)
        if location.scheme != "hdfs":
            return None
        top, found, rest = location.path.partition(f"/{FOLDER}/")
        if not found:
            return None
        name, _, path = rest.partition("/")
        return cls(root=f"hdfs://{location.authority}{top or '/'}", name=name, path=path)

    @property
    def uri(self) -> str:
        """Return the URI inside of the snapshot."""
        return "/".join(filter(None, (self.root.rstrip("/"), FOLDER, self.name, self.path)))

    @property
    def live_uri(self) -> str:
        """Return the URI outside of the snapshot."""
        return f"{self.root.rstrip('/')}/{self.path}" if self.path else self.root


def live_uri(uri: str) -> str:
    """Return the URI outside of snapshots of a file or directory; any other URI stays."""
    inside = SnapshotPath.parse(uri)
    return inside.live_uri if inside else uri
