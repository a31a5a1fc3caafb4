"""Makes, lists, removes and compares snapshots of directories on HDFS.

The content of a snapshot is below ``<directory>/.snapshot/<name>`` and never changes. An administrator allows
snapshots of a directory (``hdfs dfsadmin -allowSnapshot``); its owner then makes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from airflow_hive_federation.errors import FileVanishedError, StorageError
from airflow_hive_federation.model import json_values
from airflow_hive_federation.model.json_values import Fields
from airflow_hive_federation.storage.filesystem import open_filesystem, parse_location, storage_errors
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.snapshot_paths import FOLDER
from airflow_hive_federation.storage.webhdfs import NameNodeWeb

#: The NameNode's setting that has snapshots hold open files as they are.
CAPTURE = "dfs.namenode.snapshot.capture.openfiles"
#: The class of the NameNode's error for a directory that may have no snapshot, or no more of them.
REFUSED = "SnapshotException"


class Difference(StrEnum):
    """A kind of difference between two snapshots (``SnapshotDiffReport.DiffType``)."""

    CREATE = "CREATE"
    MODIFY = "MODIFY"
    DELETE = "DELETE"
    RENAME = "RENAME"


_KIND = json_values.one_of(Difference)


@dataclass(frozen=True, kw_only=True)
class DiffEntry:
    """A difference between two snapshots of a directory.

    :param path: path inside the directory; empty for the directory itself. That of a renamed entry is the
        former one.
    :param target: new path of a renamed entry.
    """

    kind: Difference
    path: str
    target: str = ""

    @classmethod
    def from_json(cls, value: object) -> DiffEntry:
        """Read an entry of a NameNode's report.

        :raises ValueError: it is no such entry.
        """
        fields = Fields(value)
        return cls(
            kind=fields.needed("type", _KIND),
            path=fields.needed("sourcePath", json_values.text),
            target=fields.optional("targetPath", json_values.or_none(json_values.text), default=None) or "",
        )


_ENTRIES = json_values.list_of(DiffEntry.from_json)


def snapshot_root(uri: str, options: StorageOptions | None = None) -> str | None:
    """Return the URI of the directory whose snapshots contain a directory; ``None`` if no one has any.

    Snapshots of the root of HDFS do not count: it always looks as if it may have some.

    :param uri: URI of the directory; the result is this directory or one above it.
    """
    location = parse_location(uri)
    if location.scheme != "hdfs":
        return None
    filesystem, path = open_filesystem(uri, options)
    path = path.rstrip("/")
    with storage_errors(uri):
        while path:
            # The NameNode knows this name only in a directory that may have snapshots.
            if filesystem.exists(f"{path}/{FOLDER}"):
                return f"hdfs://{location.authority}{path}"
            path = path.rpartition("/")[0]
    return None


def freezes_open_files(uri: str, options: StorageOptions | None = None) -> bool:
    """Return whether snapshots of an HDFS hold files that are open at their length of that moment.

    Otherwise such a file grows in the snapshot, and no later difference names it, not even when it is closed.
    """
    return (NameNodeWeb(uri, options).setting(CAPTURE) or "").strip().lower() == "true"


def create_snapshot(root: str, name: str, options: StorageOptions | None = None) -> None:
    """Make a snapshot; an existing one of the name stays.

    :param root: URI of the directory.
    :raises StorageError: if the NameNode refuses it; ``java`` is ``SnapshotException`` if the directory may
        have no snapshot, or has too many.
    """
    try:
        NameNodeWeb(root, options).call("PUT", "CREATESNAPSHOT", _path(root), snapshotname=name)
    except StorageError:
        if name not in list_snapshots(root, options):
            raise


def delete_snapshot(root: str, name: str, options: StorageOptions | None = None) -> None:
    """Remove a snapshot; a missing one is no error.

    :param root: URI of the directory.
    """
    try:
        NameNodeWeb(root, options).call("DELETE", "DELETESNAPSHOT", _path(root), snapshotname=name)
    except StorageError:
        if name in list_snapshots(root, options):
            raise


def list_snapshots(root: str, options: StorageOptions | None = None) -> list[str]:
    """Return the names of the snapshots of a directory; none of one that may have none.

    :param root: URI of the directory.
    """
    filesystem, path = open_filesystem(root, options)
    try:
        with storage_errors(root):
            names = filesystem.ls(f"{path.rstrip('/')}/{FOLDER}", detail=False)
    except FileVanishedError:
        return []
    except StorageError as error:
        if error.facts.get("java") != REFUSED:
            raise
        return []
    return sorted(str(name).rpartition("/")[2] for name in names)


def snapshot_diff(
    root: str, before: str, after: str, options: StorageOptions | None = None
) -> list[DiffEntry] | None:
    """Return the differences between two snapshots of a directory.

    :param root: URI of the directory.
    :param before: name of the earlier snapshot.
    :param after: name of the later one; empty for the present state.
    :return: ``None`` if the directory has no such snapshots.
    :raises StorageError: if the NameNode does not compare them.
    """
    names = {before, after or before}
    if not names <= {*list_snapshots(root, options)}:
        return None
    try:
        answer = NameNodeWeb(root, options).call(
            "GET", "GETSNAPSHOTDIFF", _path(root), oldsnapshotname=before, snapshotname=after
        )
    except StorageError:
        if names <= {*list_snapshots(root, options)}:
            raise
        return None
    try:
        report = Fields(answer).needed("SnapshotDiffReport", json_values.json_object)
        return list(Fields(report).needed("diffList", _ENTRIES))
    except ValueError as error:
        raise StorageError(
            f"The NameNode's comparison of snapshots of {root} cannot be read: {error}.",
            remedy="Switch off external_snapshots of the policy.",
            path=root,
        ) from error


def _path(uri: str) -> str:
    return parse_location(uri).path
