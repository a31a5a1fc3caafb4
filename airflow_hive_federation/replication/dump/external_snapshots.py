"""Dumps external tables on HDFS from snapshots of their directories, which a policy makes and removes.

A dump makes one snapshot per directory whose snapshots HDFS allows, and lists the table's files in it. They
are copied from there, so that all of them are of one moment. The files are those of the table's last dump,
brought forward by the difference of the two snapshots; without such a dump, the snapshot is listed whole.
All else stays: the load compares the target with the dump's files. So a target that somebody has changed is
as right afterwards as it is without snapshots.

Hive has the same option (``SnapshotUtils``), and two snapshots per directory. Here, a snapshot's name has the
policy and the lease of the dump. Between cycles, a directory has the snapshot of the table's last dump, and
the one before it until the next cycle begins.
"""

from __future__ import annotations

import hashlib
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby

from airflow_hive_federation.errors import FileVanishedError, StorageError, StoragePermissionError
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.progress.cycle_events import SnapshotNotUsed, SnapshotRemoved
from airflow_hive_federation.progress.observers import Observer
from airflow_hive_federation.replication.dump.contents import Lister, listed
from airflow_hive_federation.replication.dump.snapshot_changes import (
    brought_forward,
    changed_paths,
    renamed_files,
)
from airflow_hive_federation.replication.format import values
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import DataLocation, VisibleFile
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.table_index import TableIndex
from airflow_hive_federation.storage.filesystem import canonical, is_below, join, parse_location
from airflow_hive_federation.storage.listing import is_there, list_children, list_files, list_many
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.snapshot_paths import SnapshotPath
from airflow_hive_federation.storage.snapshots import (
    CAPTURE,
    REFUSED,
    DiffEntry,
    create_snapshot,
    delete_snapshot,
    freezes_open_files,
    list_snapshots,
    snapshot_diff,
    snapshot_root,
)

#: The file of a dump with the URIs of the directories that have snapshots of its policy, one per line.
ROOTS = "snapshot_roots.jsonl"


class ExternalSnapshots:
    """The snapshots of one dump.

    :param lease: the dump's lease, which names its snapshots.
    :param observer: receives the reasons for which directories are listed without snapshots.
    :param first: the dump is a bootstrap's, so that no earlier snapshot of the policy is of use.
    :param roots: URIs of directories that have earlier snapshots of the policy.
    """

    def __init__(
        self,
        policy: ReplicationPolicy,
        *,
        lease: int,
        observer: Observer,
        first: bool = False,
        roots: Iterable[str] = (),
    ) -> None:
        self._policy = policy
        self._options = policy.storage_options
        self._lease = lease
        self._name = f"{snapshot_prefix(policy)}{lease}"
        self._observer = observer
        self._first = first
        self._roots = set(roots)
        self._lock = threading.Lock()
        self._refusals: dict[str, str] = {}
        self._diffs: dict[tuple[str, str], list[DiffEntry] | None] = {}
        self._taken: defaultdict[str, dict[str, SnapshotPath]] = defaultdict(dict)
        self._renamed: defaultdict[str, dict[str, Mapping[str, str]]] = defaultdict(dict)

    @classmethod
    def after(
        cls, policy: ReplicationPolicy, loaded: str, *, lease: int, observer: Observer
    ) -> ExternalSnapshots:
        """Begin the snapshots of an increment: remove those that the target's position does not need.

        :param loaded: URI of the dump from which the target was last loaded.
        """
        last = DumpDirectory(loaded, policy.storage_options)
        known = ROOTS in last.manifest().files
        roots = list(last.read_lines(ROOTS, values.location)) if known else []
        needed = _needed(last) if roots and policy.external_snapshots else {}
        staying = [
            root for root in roots if _forget(policy, root, needed.get(root, frozenset()), lease, observer)
        ]
        return cls(policy, lease=lease, observer=observer, roots=staying)

    def write_roots(self, directory: DumpDirectory) -> None:
        """Write the directories that have snapshots of the policy into the dump, for the next one."""
        if self._roots:
            directory.write_lines(ROOTS, sorted(self._roots))

    def of(self, table: str) -> Mapping[str, SnapshotPath]:
        """Return the snapshots from which a table is copied, by the URI of its directory."""
        return self._taken[table]

    def with_former_names(self, table: str, files: Iterable[VisibleFile]) -> Iterator[VisibleFile]:
        """Yield the files of a table that were listed, with the former paths of renamed ones."""
        renamed = self._renamed[table]
        for file in files:
            former = renamed.get(file.directory, {}).get(file.path, "")
            yield replace(file, renamed_from=former) if former else file

    def lister(self, label: str, table: str, home: DumpDirectory | None) -> Lister | None:
        """Return a function that lists directories of an external table; ``None`` without snapshots.

        :param label: the table's name in messages.
        :param home: the dump that describes the target's replica of the table.
        """
        if not self._policy.external_snapshots:
            return None
        earlier = home.table(table).snapshots if home else {}
        files = _files_by_directory(home, table) if home and earlier else {}

        def by_snapshot(places: Iterable[DataLocation]) -> Iterator[tuple[DataLocation, list[FileEntry]]]:
            for place in places:
                taken, refusal = self._take(place.location)
                if taken is None:
                    if refusal:
                        self._observer(SnapshotNotUsed(table=label, directory=place.location, reason=refusal))
                    yield from listed([place], self._options)
                    continue
                self._taken[table][place.location] = taken
                before = earlier.get(place.location)
                diff = self._diff(before, taken) if before else None
                if before and diff is None:
                    reason = f"the snapshot {before.name} of its last copy is gone"
                    self._observer(SnapshotNotUsed(table=label, directory=place.location, reason=reason))
                known = files.get(place.location, {})
                changed = {""} if diff is None else changed_paths(diff, taken.path, known)
                now = brought_forward(known, changed, _listed_in(taken.uri, changed, self._options))
                self._check_there(taken)
                self._renamed[table][place.location] = renamed_files(diff or (), taken.path, known, now)
                yield place, now

        return by_snapshot

    def _take(self, location: str) -> tuple[SnapshotPath | None, str]:
        """Return the place of a directory in a new snapshot, or the reason for which there is none.

        :return: without a reason for a directory of another store.
        """
        if parse_location(location).scheme != "hdfs":
            return None, ""
        # No directory with snapshots lies in another one.
        known = next((root for root in self._refusals.copy() if is_below(location, root)), None)
        root = known or snapshot_root(location, self._options)
        if root is None:
            return None, "HDFS allows no snapshots of it (hdfs dfsadmin -allowSnapshot)"
        with self._lock:
            if root not in self._refusals:
                self._refusals[root] = self._make(root)
            refusal = self._refusals[root]
        return (None, refusal) if refusal else (SnapshotPath.of(location, root, self._name), "")

    def _make(self, root: str) -> str:
        """Make the dump's snapshot of a directory; return the reason if HDFS refuses it."""
        if not freezes_open_files(root, self._options):
            return f"its snapshots would not hold open files as they are (set {CAPTURE} on the NameNode)"
        try:
            create_snapshot(root, self._name, self._options)
        except StoragePermissionError as error:
            return f"only its owner may make snapshots: {error.message}"
        except StorageError as error:
            if error.facts.get("java") != REFUSED:
                raise
            return error.message
        self._roots.add(root)
        if self._first:
            _forget(self._policy, root, (), self._lease, self._observer)
        return ""

    def _check_there(self, taken: SnapshotPath) -> None:
        """Refuse a listing in a snapshot that was removed meanwhile: what it lacks may be there.

        No other snapshot ever gets the name, so that one that is there has been there all the time.
        """
        uri = replace(taken, path="").uri
        if not is_there(uri, options=self._options):
            raise FileVanishedError(
                f"The snapshot {uri} was removed while it was listed.",
                remedy="Leave the policy's snapshots in place, and run again.",
                path=uri,
            )

    def _diff(self, before: SnapshotPath, now: SnapshotPath) -> list[DiffEntry] | None:
        if canonical(before.root) != canonical(now.root):
            return None
        key = (now.root, before.name)
        with self._lock:
            if key not in self._diffs:
                self._diffs[key] = snapshot_diff(now.root, before.name, now.name, self._options)
            return self._diffs[key]


def snapshot_prefix(policy: ReplicationPolicy) -> str:
    """Return the beginning of the names of a policy's snapshots; the rest is the lease of their dump.

    No other policy has the same directory of dumps, whatever its name.
    """
    digest = hashlib.sha256(canonical(policy.directory).encode()).hexdigest()[:12]
    return f"hive-federation-{policy.name[:80]}-{digest}-"


def _needed(last: DumpDirectory) -> Mapping[str, set[str]]:
    """Return the snapshots from which the external tables of a dump were copied, by directory."""
    needed: defaultdict[str, set[str]] = defaultdict(set)
    index = TableIndex(last)
    for name, entry in index.entries.items():
        if entry.kind is TableKind.EXTERNAL:
            for inside in index.of(name).table(name).snapshots.values():
                needed[inside.root].add(inside.name)
    return needed


def _forget(
    policy: ReplicationPolicy, root: str, kept: Collection[str], lease: int, observer: Observer
) -> bool:
    """Remove snapshots of earlier dumps of the policy, and return whether any of the policy stays.

    A snapshot of a dump with a later lease stays: another cycle has begun since.
    """
    prefix, stays = snapshot_prefix(policy), False
    for name in list_snapshots(root, policy.storage_options):
        number = name.removeprefix(prefix)
        if not name.startswith(prefix) or not number.isdecimal():
            continue
        if int(number) >= lease or name in kept:
            stays = True
            continue
        delete_snapshot(root, name, policy.storage_options)
        observer(SnapshotRemoved(directory=root, snapshot=name))
    return stays


def _files_by_directory(home: DumpDirectory, table: str) -> Mapping[str, Mapping[str, FileEntry]]:
    files: defaultdict[str, dict[str, FileEntry]] = defaultdict(dict)
    for file in home.files(table):
        files[file.directory][file.path] = FileEntry(
            path=file.path, size_bytes=file.size_bytes, modified_ns=file.modified_ns
        )
    return files


def _listed_in(uri: str, paths: Iterable[str], options: StorageOptions | None) -> Iterator[FileEntry]:
    """List the files at and below paths of a directory, which never changes; a missing path has none."""

    def parent(path: str) -> str:
        return path.rpartition("/")[0]

    below: list[str] = []
    for folder, inside in groupby(sorted(paths, key=lambda path: (parent(path), path)), key=parent):
        names = {path.rpartition("/")[2]: path for path in inside}
        if "" in names:
            yield from list_files(uri, options=options, missing_ok=True)
            return
        files, folders = list_children(join(uri, folder) if folder else uri, options=options)
        yield from (replace(entry, path=names[entry.path]) for entry in files if entry.path in names)
        below += [names[name] for name in folders if name in names]
    listings = list_many([join(uri, path) for path in below], options=options, missing_ok=True)
    for path in below:
        yield from (replace(entry, path=f"{path}/{entry.path}") for entry in listings[join(uri, path)])
